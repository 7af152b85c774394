"""Builds the study of a live trial from a command line: settings with their levels, metrics, windows and guards.

The result is the text of a study file, so that it can be saved, read and run again like any other study.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from iotrial.errors import RequestError
from iotrial.knobs.declaration import declarations
from iotrial.lab.in_place import MOUNTINFO, holding_of
from iotrial.lab.target import parse_mountinfo
from iotrial.live.sources import reach_s, source_of
from iotrial.runner.quick_study import SETTINGS, bundle_table, setting_of, value_labels
from iotrial.study.model import LIVE
from iotrial.study.places import IN_PLACE
from iotrial.study.scales import Better, Scale
from iotrial.tune.space import Dimension, Space, space_of_settings
from iotrial.units import format_duration, parse_duration

#: option in a trial's header: where its state is served while it runs
PORT = "openmetrics_port"
_MOUNT_OPTION = "mount.option"
_HINT = (
    "live switches settings of the disk, the mount and the machine in use, such as block.read_ahead_kb=128,1024: "
    "`iotrial knobs --in FOLDER` lists them; others can be tried on a copy of the files with `iotrial try --copy-from FOLDER`"
)
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class LiveWish:
    """What the user typed: KNOB=LEVEL,LEVEL, sources of metrics (the first is judged), and options as in a study file."""

    settings: tuple[str, ...]
    metrics: tuple[str, ...]
    window: str
    washout: str
    guards: tuple[str, ...] = ()
    most_share: str | None = None
    quiet_hours: str | None = None
    margin: str = "5 %"
    time: str = "8 h"


def live_space(settings: Sequence[str], folder: str, levels: Sequence[str] = ()) -> Space:
    """Return the settings with their levels, today's first, which is read from the machine.

    Raises RequestError for a setting that cannot be switched here, and UnknownName for one that does not exist.
    """
    if not settings and not levels:
        raise RequestError(
            "no setting given",
            hint="iotrial live block.read_ahead_kb=128,1024 --metric 'command:...'; `iotrial knobs` lists the settings",
        )
    try:
        space = space_of_settings(
            [_with_default(text) for text in settings], (), folder, lab=IN_PLACE, levels=levels
        )
    except RequestError as error:
        # hints of `try` for a command or a copy do not help with a service
        if not any(words in (error.hint or "") for words in ("--copy-from", "comes after --", "--lab")):
            raise
        raise RequestError(error.message, hint=_HINT) from error
    for one in space.dimensions:
        if one.only is not None:
            other = space.dimensions[one.only[0]].name
            raise RequestError(
                f"{one.name} exists only with one level of {other}, so the two cannot be combined freely",
                hint=f"set {other} first, then try {one.name} alone",
            )
    return space


def _with_default(text: str) -> str:
    """Put the default of an option of the file system first: it is today's, whatever that is."""
    varied = setting_of(text if text.partition("=")[2] else f"{text}=")
    if varied.knob != _MOUNT_OPTION or varied.values[0] == _DEFAULT:
        return text
    name = text.partition("=")[0]
    return f"{name}={','.join((_DEFAULT, *(value for value in varied.values if value != _DEFAULT)))}"


def live_study_text(wish: LiveWish, space: Space, folder: str) -> str:
    """Return the study as TOML. ``folder``: of the service. Raises RequestError for a metric that cannot be used."""
    if not wish.metrics:
        raise RequestError(
            "no metric given: a live trial judges settings by a number of the service",
            hint="--metric 'promql:...@http://127.0.0.1:9090', or command:, openmetrics:, log:, device:, psi:",
        )
    windows = math.prod(len(one.levels) for one in space.dimensions)
    block_s = windows * (parse_duration(wish.window) + parse_duration(wish.washout))
    if block_s > parse_duration(wish.time):
        raise RequestError(
            f"a block has {windows} windows and takes {format_duration(block_s)}, more than the trial's {wish.time}",
            hint="give it more time (--time), or use shorter windows (--window, --washout)",
        )
    device = holding_of(folder).whole
    metrics = [_metric(text, device, wish.washout) for text in wish.metrics]
    names = " and ".join(one.name for one in space.dimensions)
    judged = metrics[0]["name"]
    optional = {
        "guard": list(wish.guards) or None,
        "most_share": wish.most_share,
        "quiet_hours": wish.quiet_hours,
    }
    return tomlkit.dumps(
        {
            "study": {
                "name": f"{LIVE}{judged}",
                "title": f"{names}, under the service in use",
                "question": f"Does {names} change {judged} of the service in use?",
                "margin": wish.margin,
                "account": False,
            },
            "lab": {"kind": IN_PLACE},
            "budget": {"time": wish.time, "blocks": 100_000},
            "factor": [_factor(one) for one in space.dimensions],
            "workload": [
                {
                    "name": "service",
                    "kind": "live",
                    "window": wish.window,
                    "washout": wish.washout,
                    **{key: value for key, value in optional.items() if value is not None},
                    "metric": metrics,
                }
            ],
        }
    )


def _metric(text: str, device: str | None, washout: str) -> dict[str, Any]:
    source = source_of(text, device=device)
    if reach_s(source) > parse_duration(washout):
        raise RequestError(
            f"metric {source.name}: its value reaches back {format_duration(reach_s(source))}, into the window before: "
            f"the washout is {washout}",
            hint="use a longer --washout, or $window as the range of the query",
        )
    unit = source.unit or "1"
    return {
        "name": source.name,
        "source": text,
        "unit": unit,
        "better": (Better.LOWER if source.lower_is_better else Better.HIGHER).value,
        # shares of time are 0 on a quiet machine, and have no ratio then
        "scale": (Scale.DIFFERENCE if unit == "%" else Scale.LOG).value,
    }


def _factor(one: Dimension) -> dict[str, Any]:
    if one.name == SETTINGS:
        return bundle_table(one.levels)
    settings = [level.settings[0] for level in one.levels]
    first = settings[0]
    labels = value_labels([setting.value for setting in settings])
    return {
        "name": one.name,
        "knob": first.knob,
        **dict(first.options),
        "levels": [
            {"label": label, "value": setting.value} for label, setting in zip(labels, settings, strict=True)
        ],
        "reference": labels[0],
    }


def folder_on(device: str) -> str:
    """Return where a block device, or a partition of it, is mounted. Raises RequestError if it is not."""
    name = Path(device).name
    numbers = _numbers(name)
    for line in MOUNTINFO.read_text(errors="replace").splitlines():
        words = line.split(" ")
        if len(words) > 4 and words[2] in numbers:
            return parse_mountinfo(line).target
    raise RequestError(
        f"--device {device}: nothing on it is mounted",
        hint="name a folder of the service with --in; its disk is found from there",
    )


def _numbers(name: str) -> Mapping[str, str]:
    """Return MAJOR:MINOR of a disk and its partitions, with their names."""
    folder = Path("/sys/class/block") / name
    if not folder.exists():
        raise RequestError(f"--device {name}: there is no such block device", hint="`lsblk` lists them")
    found = [folder, *(path.parent for path in folder.resolve().glob("*/partition"))]
    return {(path / "dev").read_text().strip(): path.name for path in found}


def today_in_words(space: Space) -> str:
    """Return e.g. "today's settings are the reference: scheduler none, read_ahead_kb 128"."""
    known = declarations()
    words = [
        f"{one.name} {one.levels[0].label}"
        for one in space.dimensions
        if one.levels[0].settings[0].knob in known
    ]
    return f"today's settings are the reference: {', '.join(words)}"
