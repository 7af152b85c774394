"""``iotrial doctor``: examine what this machine can measure, and how precisely."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from iotrial.cli.doctor_view import doctor_lines, examined
from iotrial.cli.options import json_option
from iotrial.cli.output import tell
from iotrial.cli.run_request import quantity_of
from iotrial.documents import json_text
from iotrial.errors import IotrialError, RequestError, RestoreError
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.report.notation import counted
from iotrial.runner.doctor import Finding, Grade, examine, noise_findings
from iotrial.runner.doctor.noise import measure_noise
from iotrial.runner.progress import Silent, Snapshot
from iotrial.units import format_duration, parse_duration

if TYPE_CHECKING:
    from iotrial.runner.doctor import Examination

#: enough for the scatter to a third or so; --time gives more
AA_S = 15.0
_EVERY_S = 5.0


@click.command("doctor")
@click.option(
    "--time",
    "time",
    metavar="DURATION",
    help="Duration of the A/A test (default 15 s; 2 min for a better estimate).",
)
@click.option("--quick", is_flag=True, hidden=True, help="The default.")
@click.option("--no-aa", is_flag=True, help="Skip the A/A test: facts only.")
@click.option("--on", metavar="FOLDER", help="Folder on the disk to test.")
@json_option
def command(time: str | None, quick: bool, no_aa: bool, on: str | None, as_json: bool) -> int:
    """Check what this machine can measure, and how precisely. Changes no settings; measures two identical arms (A/A)."""
    seconds = _seconds(time, quick=quick, no_aa=no_aa)
    with Probe(isolate=False) as probe:
        found = examine(Target(probe))
    signal = None
    if seconds is not None and not found.fatal:
        found, signal = _with_noise(found, seconds, on, quiet=as_json)
    if as_json:
        click.echo(json_text(examined(found)))
    else:
        for line in doctor_lines(found):
            tell(line)
    if signal is not None:
        return 128 + signal
    return 1 if found.fatal else 0


def _seconds(time: str | None, *, quick: bool, no_aa: bool) -> float | None:
    """Return the duration of the A/A in seconds; None to skip it. Raises RequestError."""
    if (time is not None) + quick + no_aa > 1:
        raise RequestError("--time, --quick and --no-aa exclude each other")
    if no_aa:
        return None
    if time is None:
        return AA_S
    seconds = quantity_of("--time", time, parse_duration)
    if not seconds:
        raise RequestError("--time must be more than 0 s", hint="--no-aa skips the A/A test")
    return seconds


class _Lines:
    """Prints the progress of the A/A test to standard error every five seconds, also in a pipe."""

    def __init__(self, seconds: float) -> None:
        self._next_s = _EVERY_S
        self.say(f"two identical arms for {format_duration(seconds)}; no setting is changed")

    def update(self, snapshot: Snapshot) -> None:
        if snapshot.elapsed_s >= self._next_s:
            self._next_s = snapshot.elapsed_s + _EVERY_S
            blocks = sum(snapshot.blocks.values())
            self.say(f"{snapshot.elapsed_s:.0f} of {snapshot.budget_s:.0f} s, {counted(blocks, 'block')}")

    def say(self, text: str) -> None:
        tell(text, err=True)


def _with_noise(
    found: Examination, seconds: float, on: str | None, *, quiet: bool
) -> tuple[Examination, int | None]:
    """Add the A/A to the examination; if it fails, add the reason as a finding."""
    watcher = Silent() if quiet else _Lines(seconds)
    try:
        noise = measure_noise(watcher, root=os.geteuid() == 0, time_s=seconds, on=on)
    except RestoreError:
        raise
    except IotrialError as error:
        if isinstance(error, RequestError) and on is not None:
            raise  # about the folder that the user named
        return found.with_noise(
            None, [Finding("blind A/A", Grade.PROBLEM, f"not done: {error.message}", error.hint)]
        ), None
    return found.with_noise(noise, noise_findings(noise)), noise.signal
