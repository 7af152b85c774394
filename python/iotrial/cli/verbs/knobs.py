"""``iotrial knobs``: list the settings that ``try`` accepts with today's values, and all knobs of a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import click
from msgspec import Meta

from iotrial.cli.options import json_option
from iotrial.cli.output import tell
from iotrial.cli.own_command import IMAGE
from iotrial.documents import JsonDocument, JsonObject, json_text
from iotrial.errors import IotrialError, TargetError, UnsupportedLevel
from iotrial.knobs.block import BlockTunable
from iotrial.knobs.declaration import Consequence, Safety, Stage
from iotrial.knobs.filesystem import MountAtime, MountOption
from iotrial.knobs.kernel_file import KernelFileKnob
from iotrial.knobs.knob import RunContext
from iotrial.knobs.sysctl import Sysctl
from iotrial.lab import registry
from iotrial.lab.image import no_lab
from iotrial.lab.in_place import InPlace
from iotrial.lab.knobs.mount import LIVE, family, option_today
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.runner.quick_study import Varied, known_settings, setting_of
from iotrial.study.model import Setting
from iotrial.study.places import IN_PLACE
from iotrial.terminal import escape

if TYPE_CHECKING:
    from iotrial.knobs.knob import Knob


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


class Accepted(JsonObject, frozen=True):
    """One setting as `try` takes it, here."""

    name: Annotated[str, Meta(description="what stands before the equals sign, or the option of a mount")]
    today: Annotated[str | None, Meta(description="its present value; null if it has none before a run")]
    levels: Annotated[str, Meta(description="its levels, in words")]
    in_place: Annotated[bool, Meta(description="false: only on a copy, with --copy-from")]
    safety: Safety
    consequence: Annotated[str, Meta(description="what it does to the safety of data")]


class Knobs(JsonDocument, frozen=True):
    """iotrial knobs --json"""

    knobs: list[Row]
    settings: Annotated[list[Accepted], Meta(description="what `try` accepts for a folder of this machine")]


@click.command("knobs")
@click.option(
    "--in", "on", metavar="FOLDER", default=".", help="Show today's values of what holds this folder (.)."
)
@click.option("--all", "every", is_flag=True, help="List the knobs of study files instead.")
@json_option
def command(on: str, every: bool, as_json: bool) -> None:
    """List the settings that can be tried, with today's values.

    For each: what `iotrial try` calls it, its present value for what holds the folder, its levels, and what they mean for the
    safety of data. Settings that a file system in use cannot have are tried on a copy: --copy-from FOLDER.
    """
    folder = str(Path(on).resolve())
    with Probe(isolate=False) as probe:
        target = Target(probe)
        context = no_lab(target)
        place = InPlace("", target, context.journal, folder=folder, makes_files=False)
        rows = [_row(knob, context) for knob in registry.knobs().values()]
        settings = sorted(_accepted(replace(context, place=place)), key=lambda one: not one.in_place)
    if as_json:
        click.echo(json_text(Knobs(rows, settings)))
    elif every:
        _list_rows(rows)
    else:
        _list_settings(folder, place, settings)


def _list_settings(folder: str, place: InPlace, settings: list[Accepted]) -> None:
    tell(f"folder {escape(folder)}: {escape(place.holding.described)}\n")
    width = max(len(one.name) for one in settings)
    for one in settings:
        today = "" if one.today is None else f"today {escape(one.today)}; "
        copy = "" if one.in_place else "; only on a copy (--copy-from)"
        tell(f"{one.name:<{width}}  {today}{one.levels}{copy}", fold=width + 2)
        tell(f"{'':<{width}}  {one.safety}: {one.consequence}", fold=width + 2)
    tell(
        f"\n{_ENV:<{width}}  an environment variable of the command: any text\n"
        f"{'-L NAME A,B':<{width}}  a word of the command, written {{NAME}} there: any text",
        fold=width + 2,
    )


#: an environment variable of the command: its name is the user's
_ENV = "env.NAME"


def _accepted(context: RunContext) -> Iterator[Accepted]:
    """Yield every setting that `try` takes, with its value for the place of the context, a folder in use."""
    for name in known_settings():
        if name == MountOption.name:
            yield from _mount_options(context)
            continue
        varied = setting_of(f"{name}=?")
        knob = registry.knob(varied.knob)
        setting = Setting(varied.knob, "", () if varied.option is None else (varied.option,))
        first = Setting(setting.knob, next(iter(_words(knob, context)), ""), setting.options)
        labs = knob.requires(first).labs
        in_place = IN_PLACE in labs
        if not in_place and (IMAGE not in labs or knob.stage is Stage.PLACE):
            continue  # of guests and other studies
        today: str | None = None
        try:
            if in_place and isinstance(knob, KernelFileKnob):
                # a scheduler's own setting has no file while the device has another scheduler
                today = knob.read(context, setting) if knob.paths(context, setting) else None
            elif name == MountAtime.name:
                today = knob.read(context, setting)
            levels = ", ".join(knob.levels(context, setting)) or _range(knob, varied)
        except IotrialError:
            if in_place and isinstance(knob, KernelFileKnob):
                continue  # this device, mount or kernel does not have it
            levels = ", ".join(knob.LEVELS) or knob.open_levels or ""
        meant = knob.consequence_of(setting)
        yield Accepted(name, today, levels, in_place, meant.safety, meant.sentence)


def _words(knob: Knob, context: RunContext) -> tuple[str, ...]:
    """Return a knob's levels, if they are the same on every machine or known before anything is made."""
    try:
        return tuple(knob.LEVELS) or knob.levels(context, Setting(knob.name, ""))
    except IotrialError:
        return ()


def _range(knob: Knob, varied: Varied) -> str:
    key = "" if varied.option is None else varied.option[1]
    if key in Sysctl.ALLOWED:
        return "{} to {}".format(*Sysctl.ALLOWED[key][:2])
    if key in BlockTunable.TUNABLES:
        scheduler, least, most, default = BlockTunable.TUNABLES[key]
        return f"{least} to {most}, default ({default}); with scheduler {scheduler}"
    return knob.open_levels or ""


def _mount_options(context: RunContext) -> Iterator[Accepted]:
    """Yield the mount options of the folder's file system; of another one than ext4, XFS and btrfs there are none."""
    place = context.place
    assert isinstance(place, InPlace)
    knob = registry.knob(MountOption.name)
    for option, kinds in sorted(MountOption.ALLOWED.items()):
        if place.filesystem not in kinds:
            continue
        meant = knob.consequence_of(Setting(MountOption.name, option))
        yield Accepted(
            f"{MountOption.name}=default,{option}",
            option_today(context.target, place, option),
            "or with =VALUE",
            family(option) in LIVE.get(place.filesystem, {}),
            meant.safety,
            meant.sentence,
        )


def _list_rows(rows: list[Row]) -> None:
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


def _row(knob: Knob, context: RunContext) -> Row:
    try:
        levels = knob.levels(context, Setting(knob.name, ""))
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
