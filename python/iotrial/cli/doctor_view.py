"""Print the result of ``iotrial doctor``: lines for an 80-column terminal, or one JSON document
(schemas/doctor.schema.json)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta

from iotrial.documents import JsonDocument, JsonObject
from iotrial.lab.machine.programs import Program
from iotrial.report.notation import counted, percent
from iotrial.runner.doctor import Examination
from iotrial.runner.doctor.finding import Finding
from iotrial.runner.doctor.noise import NoiseFloor, WorkloadNoise
from iotrial.study.model import LabKind
from iotrial.terminal import escape
from iotrial.units import format_duration

WIDTH = 80
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
    """Format the examination as lines of at most 80 columns."""
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
        text, WIDTH, initial_indent=head, subsequent_indent=" " * indent, break_on_hyphens=False
    ) or [head.rstrip()]


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
    heads = [_horizon(one.seconds) for one in noise.workloads[0].resolvable]
    yield f"{'':<18}{'blocks':>7}{'a block':>10}{'scatter':>10}" + "".join(f"{head:>10}" for head in heads)
    for workload in noise.workloads:
        yield _workload(workload)


def _workload(noise: WorkloadNoise) -> str:
    block = "?" if noise.block_s is None else format_duration(noise.block_s)
    scatter = "?" if noise.scatter is None else percent(noise.scatter.sd)
    cells = [one.margin for one in noise.resolvable]
    texts = ["none" if cell is None else percent(cell) if cell < 10 else "> 1000 %" for cell in cells]
    return f"{escape(noise.workload):<18}{noise.blocks:>7}{block:>10}{scatter:>10}" + "".join(
        f"{text:>10}" for text in texts
    )


def _horizon(seconds: float) -> str:
    return {60.0: "1 min", 300.0: "5 min", 3600.0: "1 hour"}.get(seconds, format_duration(seconds))


def examined(found: Examination) -> Examined:
    """Convert the examination to its JSON document."""
    return Examined.of(
        found,
        labs=[Lab.of(lab, possible=not lab.lacks) for lab in found.labs],
        noise=None if found.noise is None else found.noise.floor,
    )
