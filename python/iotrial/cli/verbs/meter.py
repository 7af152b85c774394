"""``iotrial meter``: assign a power meter's readings to the runs of a stored trial, by time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated

import click
import numpy as np
from msgspec import Meta

from iotrial.audits.importers.contract import open_source
from iotrial.audits.importers.meter import read_meter
from iotrial.cli.options import Number, json_option
from iotrial.cli.output import tell
from iotrial.documents import Count, JsonDocument, JsonObject, json_text
from iotrial.errors import RequestError
from iotrial.paths import store_path
from iotrial.stats.scatter import Readings, energies_j
from iotrial.store import Store
from iotrial.store.event_records import ENERGY, energy_texts
from iotrial.store.model import TrialState
from iotrial.terminal import escape
from iotrial.units import format_duration


class Facts(JsonObject, frozen=True):
    """Which runs were given how much."""

    trial: Count
    runs: Count
    with_energy: Annotated[int, Meta(ge=0, description="runs that lie within the readings")]
    reading_period_s: float
    run_length_s: Annotated[float, Meta(description="the median run")]
    joules: float


class Metered(JsonDocument, frozen=True):
    """iotrial meter --json"""

    meter: Facts


@click.command("meter")
@click.argument("trial")
@click.argument("file")
@click.option("--time-column", metavar="NAME", help="Column of times, if its name is not recognised.")
@click.option("--watts-column", metavar="NAME", help="Column of watts.")
@click.option("--utc-offset", metavar="+HH:MM", help="UTC offset of times without one.")
@click.option(
    "--shift",
    metavar="SECONDS",
    type=Number(-86400, 86400),
    default=0.0,
    help="Time added to the meter's times: how far its clock is behind this machine's.",
)
@json_option
def command(
    trial: str,
    file: str,
    time_column: str | None,
    watts_column: str | None,
    utc_offset: str | None,
    shift: float,
    as_json: bool,
) -> None:
    """Add the energy that each run of TRIAL used, from the power readings in FILE (CSV: time, watts), as evidence.

    Times are Unix seconds or ISO 8601, from a clock in step with that of the machine that ran the trial.
    """
    path = Path(file).expanduser()
    zone = None if utc_offset is None else _zone(utc_offset)
    source = open_source(path, name=escape(path), label=None, alone=True)
    found = read_meter(source, time=time_column, watts=watts_column, zone=zone)
    readings = Readings(found.at_s + shift, found.watts)
    with Store.open(store_path()) as store:
        data = store.data(trial)
        stored = data.trial
        if stored.state is TrialState.RUNNING:
            raise RequestError(
                f"trial {stored.number} is running",
            )
        spans = [_span(run.checks.get("clock")) for run in data.runs]
        known = [span for span in spans if span is not None]
        if not known:
            raise RequestError(
                f"trial {stored.number}: its runs have no time of day recorded",
                hint="it was measured by an older iotrial, or has no runs",
            )
        values = iter(energies_j(readings, known))
        joules = [None if span is None else next(values) for span in spans]
        covered = [j for j in joules if j is not None]
        if not covered:
            raise RequestError(
                f"{escape(path)}: no run of trial {stored.number} lies within its readings",
                hint=_where(readings.at_s, known) + "; --shift and --utc-offset shift the meter's times",
            )
        store.note_all(stored.header.id, ENERGY, energy_texts(joules))
    length = float(np.median([end - start for start, end in known]))
    if as_json:
        facts = Facts(stored.number, len(joules), len(covered), readings.period_s, length, sum(covered))
        click.echo(json_text(Metered(facts)))
        return
    tell(
        f"trial {stored.number}: energy of {len(covered)} of {len(joules)} runs, {sum(covered):,.0f} J in all"
    )
    if readings.period_s > length:
        tell(
            f"note: a reading every {format_duration(readings.period_s)}, runs of {format_duration(length)}: "
            f"most of the energy assigned to a run is that of its neighbours; use longer runs or a faster meter"
        )


def _zone(text: str) -> timezone:
    found = re.fullmatch(r"([+-])(\d\d):?(\d\d)", text)
    if found is None or int(found[2]) > 14 or int(found[3]) > 59:
        raise RequestError(
            f"--utc-offset {text[:20]}: expected hours and minutes", hint="such as +01:00 or -05:30"
        )
    distance = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return timezone(distance if found[1] == "+" else -distance)


def _span(clock: object) -> tuple[float, float] | None:
    """Return start and end of a run's timed part in Unix time, from the run's checks; None if they are
    missing."""
    if not isinstance(clock, dict):
        return None
    start, length = clock.get("unix_s"), clock.get("lasted_s")
    if not isinstance(start, int | float) or not isinstance(length, int | float) or not length >= 0:
        return None
    return start, start + length


def _where(at_s: object, spans: list[tuple[float, float]]) -> str:
    def text(moment: float) -> str:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S")

    times = np.asarray(at_s)
    first, last = min(s for s, _ in spans), max(e for _, e in spans)
    return f"readings from {text(float(times[0]))} to {text(float(times[-1]))} UTC, runs from {text(first)} to {text(last)}"
