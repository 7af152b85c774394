"""``iotrial knobs``: what can be turned, and how far on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell
from iotrial.errors import TargetError
from iotrial.knobs.declaration import Stage
from iotrial.lab import registry
from iotrial.lab.image import ImagePlace
from iotrial.lab.journal import Journal
from iotrial.lab.knob import Subject, WorkDraft
from iotrial.lab.target import Target
from iotrial.paths import state_folder
from iotrial.probe.client import Probe
from iotrial.study.model import Setting

if TYPE_CHECKING:
    from iotrial.lab.knob import Knob


@click.command("knobs")
@json_option
def command(as_json: bool) -> None:
    """Knobs that a study can turn."""
    with Probe(isolate=False) as probe:
        subject = _subject(Target(probe))
        rows = [_row(knob, subject) for knob in registry.knobs().values()]
    if as_json:
        click.echo(json.dumps({"schema": 1, "knobs": rows}, indent=1))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        what = ", ".join(row["levels"]) or row["range"] or "nothing on this machine"
        option = f"  ({row['option_needed']} `{row['option']}`)" if row["option"] else ""
        tell(f"{row['name']:<{width}}  {row['title']}{option}\n{'':<{width}}    {what}", fold=width + 4)
        for line in _safety_lines(row):
            tell(f"{'':<{width}}    {line}", fold=width + 6)


def _safety_lines(row: dict[str, Any]) -> list[str]:
    """The class and the sentence of the knob, then the values that put data at risk."""
    risks: dict[str, list[str]] = {}
    for value, one in row["safety_by_value"].items():
        if one["class"] == "data at risk":
            risks.setdefault(one["consequence"], []).append(value)
    lines = [f"{row['safety']}: {row['consequence']}"]
    return lines + [f"data at risk at {', '.join(values)}: {what}" for what, values in risks.items()]


def _row(knob: Knob, subject: Subject) -> dict[str, Any]:
    try:
        levels = knob.levels(subject, Setting(knob.name, ""))
    except TargetError:  # no such device or file on this machine
        levels = ()
    return {
        "name": knob.name,
        "title": knob.title,
        "stage": Stage(knob.stage).name.lower(),
        "option": knob.option,
        "option_needed": "needs" if knob.option_needed else "may have",
        "levels": list(levels),
        "range": knob.open_levels,
        "safety": knob.consequence.safety.value,
        "consequence": knob.consequence.sentence,
        "safety_by_value": {
            value: {"class": one.safety.value, "consequence": one.sentence}
            for value, one in knob.consequences.items()
        },
    }


def _subject(target: Any) -> Subject:
    """An image lab that is not made: enough to ask the kernel what there is."""
    journal = Journal(state_folder() / "journal")
    place = ImagePlace("ext4", target, journal, folder="", mount_point="", filesystem="ext4", size_bytes=0)
    place.device = "loop0"
    return Subject(target=target, place=place, journal=journal, files=None, work=WorkDraft())
