"""``iotrial doctor``: examine what this machine can measure, and how precisely."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import click
from msgspec import Meta

from iotrial.cli.options import json_option, refuse_together
from iotrial.cli.output import tell
from iotrial.cli.run_request import quantity_of
from iotrial.documents import JsonDocument, JsonObject, json_text
from iotrial.errors import IotrialError, RequestError, RestoreError
from iotrial.lab.machine.programs import Program
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.report.notation import counted, percent
from iotrial.runner.doctor import Examination, examine, noise_findings
from iotrial.runner.doctor.checks import Finding, Grade
from iotrial.runner.doctor.noise import NoiseFloor, WorkloadNoise, measure_noise
from iotrial.runner.progress import Silent, Snapshot
from iotrial.study.model import LabKind
from iotrial.terminal import escape
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
    refuse_together(time=time is not None, quick=quick, no_aa=no_aa)
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


# Print the result of ``iotrial doctor``: lines for an 80-column terminal, or one JSON document
# (schemas/doctor.schema.json).


_INDENT = 9


class Lab(JsonObject, frozen=True):
    """One kind of lab: what it lacks where it cannot be used."""

    kind: LabKind
    possible: bool
    lacks: tuple[str, ...]


class Examined(JsonDocument, frozen=True):
    """iotrial doctor --json

    What a machine can measure, and how finely. Numbers are unrounded; times in seconds, shares and effects as fractions.
    """

    machine: Mapping[str, Any]
    findings: tuple[Finding, ...]
    labs: list[Lab]
    programs: tuple[Program, ...]
    noise: Annotated[
        NoiseFloor | None,
        Meta(description="The blind A/A; null where it was left out or could not be done."),
    ]


def doctor_lines(found: Examination) -> Iterator[str]:
    """Format the examination as lines of at most 80 columns, fewer on a narrower terminal."""
    machine = found.machine
    words = [str(machine[key]) for key in ("processor", "system") if key in machine]
    yield from _wrapped("", ", ".join(escape(word) for word in words) or "this machine", indent=0)
    yield ""
    for finding in found.findings:
        yield from _finding(finding)
    yield ""
    for lab in found.labs:
        yield from _wrapped(f"{lab.kind:<{_INDENT + 1}} ", f"lab: {escape(lab.serves)}", indent=_INDENT + 2)
        for lack in lab.lacks:
            yield from _wrapped(" " * (_INDENT + 2), f"lacks {escape(lack)}", indent=_INDENT + 4)
    if found.noise is not None:
        yield ""
        yield from _noise(found.noise.floor)


def _finding(finding: Finding) -> Iterator[str]:
    yield from _wrapped(
        f"{finding.grade.value:<{_INDENT}}", f"{finding.area}: {escape(finding.found)}", indent=_INDENT
    )
    if finding.do is not None:
        yield from _wrapped(" " * _INDENT + "-> ", escape(finding.do), indent=_INDENT + 3)


def _wrapped(head: str, text: str, *, indent: int) -> list[str]:
    return textwrap.wrap(
        text, _width(), initial_indent=head, subsequent_indent=" " * indent, break_on_hyphens=False
    ) or [head.rstrip()]


def _width() -> int:
    """Columns of the lines: 80, or what a narrower terminal has."""
    return min(80, shutil.get_terminal_size().columns)


def _noise(noise: NoiseFloor) -> Iterator[str]:
    yield from _wrapped(
        "",
        f"Noise floor: {counted(noise.blocks, 'block')} of two identical arms and their controls in "
        f"{format_duration(noise.seconds)}, no setting changed. Scatter: of one comparison from block to block. "
        "The other columns: the smallest effect that a study of two levels can detect in that time "
        f"(alpha {noise.alpha:g}, power 80 %).",
        indent=0,
    )
    yield ""
    heads = [
        "",
        "blocks",
        "a block",
        "scatter",
        *(_horizon(one.seconds) for one in noise.workloads[0].resolvable),
    ]
    rows = [heads, *map(_workload, noise.workloads)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gap = " " * (3 if sum(widths) + 3 * len(widths) <= _width() else 1)
    for name, *cells in rows:
        yield gap.join([f"{name:<{widths[0]}}", *map(str.rjust, cells, widths[1:])])


def _workload(noise: WorkloadNoise) -> list[str]:
    block = "?" if noise.block_s is None else format_duration(noise.block_s)
    scatter = "?" if noise.scatter is None else percent(noise.scatter.sd)
    cells = [one.margin for one in noise.resolvable]
    texts = ["none" if cell is None else percent(cell) if cell < 10 else "> 1000 %" for cell in cells]
    return [escape(noise.workload), str(noise.blocks), block, scatter, *texts]


def _horizon(seconds: float) -> str:
    return {60.0: "1 min", 300.0: "5 min", 3600.0: "1 hour"}.get(seconds, format_duration(seconds))


def examined(found: Examination) -> Examined:
    """Convert the examination to its JSON document."""
    return Examined.of(
        found,
        labs=[Lab.of(lab, possible=not lab.lacks) for lab in found.labs],
        noise=None if found.noise is None else found.noise.floor,
    )
