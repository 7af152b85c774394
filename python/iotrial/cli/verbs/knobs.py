"""``iotrial knobs``: list the knobs and their levels on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import click
from msgspec import Meta

from iotrial.cli.options import json_option
from iotrial.cli.output import tell
from iotrial.documents import JsonDocument, JsonObject, json_text
from iotrial.errors import TargetError, UnsupportedLevel
from iotrial.knobs.declaration import Consequence, Safety, Stage
from iotrial.lab import registry
from iotrial.lab.image import no_lab
from iotrial.lab.knob import RunContext
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.study.model import Setting

if TYPE_CHECKING:
    from iotrial.lab.knob import Knob


class Row(JsonObject, frozen=True):
    """One knob."""

    name: str
    title: str
    stage: Annotated[str, Meta(description="when it is turned")]
    option: Annotated[str | None, Meta(description="what addresses it")]
    option_needed: Literal["needs", "may have"]
    levels: Annotated[tuple[str, ...], Meta(description="on this machine")]
    range: Annotated[str | None, Meta(description="levels that are not listed, in words")]
    safety: Annotated[
        Safety, Meta(description="what its values do to the safety of data, but for those below")
    ]
    consequence: Annotated[str, Meta(description="the same in one sentence")]
    safety_by_value: Annotated[
        Mapping[str, Consequence], Meta(description="values, options or keys for which it is otherwise")
    ]


class Knobs(JsonDocument, frozen=True):
    """iotrial knobs --json"""

    knobs: list[Row]


@click.command("knobs")
@json_option
def command(as_json: bool) -> None:
    """List the knobs that a study can set."""
    with Probe(isolate=False) as probe:
        subject = no_lab(Target(probe))
        rows = [_row(knob, subject) for knob in registry.knobs().values()]
    if as_json:
        click.echo(json_text(Knobs(rows)))
        return
    width = max(len(row.name) for row in rows)
    for row in rows:
        what = ", ".join(row.levels) or row.range or "nothing on this machine"
        option = f"  ({row.option_needed} `{row.option}`)" if row.option else ""
        tell(f"{row.name:<{width}}  {row.title}{option}\n{'':<{width}}    {what}", fold=width + 4)
        for line in _safety_lines(row):
            tell(f"{'':<{width}}    {line}", fold=width + 6)


def _safety_lines(row: Row) -> list[str]:
    """Return the safety class and consequence of the knob, then the values that put data at risk."""
    risks: dict[str, list[str]] = {}
    for value, one in row.safety_by_value.items():
        if one.safety is Safety.DATA_AT_RISK:
            risks.setdefault(one.sentence, []).append(value)
    lines = [f"{row.safety}: {row.consequence}"]
    return lines + [f"data at risk at {', '.join(values)}: {what}" for what, values in risks.items()]


def _row(knob: Knob, subject: RunContext) -> Row:
    try:
        levels = knob.levels(subject, Setting(knob.name, ""))
    except (TargetError, UnsupportedLevel):  # no such device or file on this machine
        levels = ()
    return Row.of(
        knob,
        stage=Stage(knob.stage).name.lower(),
        option_needed="needs" if knob.option_needed else "may have",
        levels=levels,
        range=knob.open_levels,
        safety=knob.consequence.safety,
        consequence=knob.consequence.sentence,
        safety_by_value=knob.consequences,
    )
