"""``iotrial trials``: list the trials in the store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import click
from msgspec import Meta

from iotrial.cli.kept_settings import machine_here
from iotrial.cli.options import json_option
from iotrial.cli.output import tell, warn
from iotrial.documents import Count, JsonDocument, JsonObject, json_text
from iotrial.errors import StoreError
from iotrial.paths import store_path
from iotrial.report.analysed import Analysed
from iotrial.report.analyses import Analyses
from iotrial.report.notation import day_and_time, elided
from iotrial.store import Store
from iotrial.store.ledger import asked
from iotrial.store.outline import Outline, outlines
from iotrial.store.states import TrialState
from iotrial.study.model import OWN
from iotrial.terminal import escape
from iotrial.tune.account import Account, Standing, in_force
from iotrial.tune.applied import Records
from iotrial.units import format_duration

_LONGEST = 100
#: standings in the account that a line of text names; the others are in the JSON and in `iotrial account`
_SHOWN = (Standing.KEPT, Standing.BEYOND, Standing.ENOUGH)


class Row(JsonObject, frozen=True):
    """One trial that can be read."""

    number: Annotated[int, Meta(ge=0, description="in this store")]
    id: str
    study: str
    state: TrialState
    started: Annotated[str, Meta(description="ISO 8601")]
    duration_s: float
    imported: Annotated[str | None, Meta(description="null: measured here")]
    account: Annotated[
        Standing | None,
        Meta(
            description="the best standing of its questions in the account; null: it has none, or no stored analysis"
        ),
    ] = None


class Damaged(JsonObject, frozen=True):
    """One that cannot be read."""

    number: Count
    problem: str


class Trials(JsonDocument, frozen=True):
    """iotrial trials --json"""

    trials: list[Row]
    damaged: Annotated[list[Damaged], Meta(description="trials that cannot be read")]


def _named(trial: Outline) -> str:
    """Return the settings and the command of a trial of the user's own, else the name of its study."""
    own = trial.study.startswith(OWN) and trial.title
    return escape(elided(trial.title, _LONGEST) if own else trial.study)


def _stored(trials: Sequence[Outline]) -> tuple[dict[int, str], dict[str, Standing | None]]:
    """Return the first sentence of each trial of which an analysis is stored, by number, and its standing, by id.

    No analysis is made here: in the account, a trial without one counts as having no evidence yet.
    """
    found: dict[str, Analysed] = {}
    if not trials:
        return {}, {}
    with Store.open(store_path(), read_only=True) as store, Analyses(store.path) as stored:
        for trial in trials:
            with suppress(StoreError):
                one = stored.newest_summary(trial.id, store.mark(trial.number))
                if one is not None and one.number == trial.number:
                    found[trial.id] = one
        try:
            kept = in_force(Records(machine_here(writing=False)).all())
            account = Account.of(asked(store), found, kept)
        except StoreError as error:
            warn(f"no account of errors: {error}")
            account = Account.of((), {}, ())
    verdicts = {one.number: _shortened(one.headline) for one in found.values()}
    return verdicts, {name: account.standing(name) for name in found}


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


@click.command("trials")
@json_option
def command(as_json: bool) -> None:
    """List stored trials, newest last."""
    trials, warnings = outlines(store_path())
    for warning in warnings:
        warn(warning)
    for lost in trials:
        if lost.problem is not None:
            warn(f"trial {lost.number} cannot be read: {lost.problem}")
    sound = [trial for trial in trials if trial.state is not None]
    if as_json:
        damaged = [Damaged.of(lost) for lost in trials if lost.problem is not None]
        _, standings = _stored(sound)
        rows = [Row.of(trial, account=standings.get(trial.id)) for trial in sound]
        click.echo(json_text(Trials(rows, damaged)))
        return
    if not trials:
        tell("No trials yet. Start with: iotrial run files/permissions")
    verdicts, standings = _stored(sound)
    lasted = [format_duration(trial.duration_s) for trial in sound]
    width = max(map(len, lasted), default=0)
    lines = []
    for trial, took in zip(sound, lasted, strict=True):
        when = day_and_time(trial.started)
        mark = "  (imported)" if trial.imported is not None else ""
        if trial.fleet and trial.member:
            mark += f"  (host {escape(trial.member)})"
        standing = standings.get(trial.id)
        if standing in _SHOWN:
            mark += f"  ({standing})"
        lines.append(
            f"{trial.number:>5}  {when}  {trial.state!s:<11} {took:>{width}}  {_named(trial)}{mark}"
            + (f"\n{'':>7}{escape(verdicts[trial.number])}" if trial.number in verdicts else "")
        )
    if lines:
        tell("\n".join(lines))  # one call: printing line by line costs more than formatting them
