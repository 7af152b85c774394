"""What the power cuts of a service found: as it is stored and printed, and what it says of a setting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import DecodeError, Meta

from iotrial.decoding import decode
from iotrial.documents import Count, JsonDocument, JsonObject, Probability
from iotrial.paths import state_folder
from iotrial.study.model import Setting
from iotrial.terminal import escape

RESULT = "result.json"


def results_folder() -> Path:
    """Return the folder with a numbered folder for each series of power cuts."""
    return state_folder() / "powercuts"


class Example(JsonObject, frozen=True):
    """The least that shows one kind of damage."""

    kind: str
    folder: str
    found: tuple[str, ...]
    writes: Annotated[tuple[str, ...], Meta(description="which writes had reached the disk")]
    mistakes: Annotated[
        tuple[tuple[str, str], ...], Meta(description="what the trace shows not to be synced")
    ]


class CutRun(JsonObject, frozen=True):
    """One run of a setting, and the points of it."""

    points: Count
    distinct: Annotated[int, Meta(ge=0, description="states that differ; equal ones are checked once")]
    acknowledged: Count
    seconds: float
    harmed: Annotated[
        int, Meta(ge=0, description="points with something lost, corrupt, or without a service")
    ]
    lost: Count
    corrupt: Count
    not_started: Count
    needs_fsck: Count


class CutSetting(JsonObject, frozen=True):
    """The power cuts of one setting."""

    setting: str
    levels: Annotated[
        tuple[tuple[str, str, str], ...],
        Meta(description="knob, what addresses it, and level of each setting"),
    ]
    filesystem: str
    mount_options: str
    runs: tuple[CutRun, ...]
    share: Annotated[Probability | None, Meta(description="of points with harm; null without points")]
    low: Probability | None
    high: Probability | None
    worse: Annotated[bool, Meta(description="shown to do more harm than the first setting")]
    problem: str
    examples: tuple[Example, ...]


class Cuts(JsonDocument, frozen=True):
    """iotrial powercut --json"""

    disk: str
    command: str
    settings: tuple[CutSetting, ...]


def address_of(setting: Setting) -> tuple[str, str, str]:
    """Return knob, what addresses it, and level."""
    return setting.knob, " ".join(f"{name}={value}" for name, value in setting.options), setting.value


def losses() -> dict[tuple[str, str, str], str]:
    """Return the settings that power cuts have shown to do more harm, and what the newest of these say of each.

    E.g. "loses what ./server had acknowledged at 12 of 60 cut points (power cuts 3)".
    """
    found: dict[tuple[str, str, str], str] = {}
    for number, cuts in _stored():
        for one in cuts.settings:
            if one.worse:
                points, harmed = (
                    sum(getattr(run, name) for run in one.runs) for name in ("points", "harmed")
                )
                text = (
                    f"loses what {escape(cuts.command)} had acknowledged at {harmed:,} of {points:,} cut points "
                    f"(power cuts {number})"
                )
                for level in one.levels:
                    found.setdefault(level, text)
    return found


def shown_to_lose(setting: Setting) -> str | None:
    """Return what ``losses`` says of a setting; None if it says nothing."""
    return losses().get(address_of(setting))


def _stored() -> Iterator[tuple[int, Cuts]]:
    """Yield the stored results, the newest first; what cannot be read is left out."""
    folder = results_folder()
    names = [one.name for one in folder.iterdir() if one.name.isdecimal()] if folder.is_dir() else []
    for number in sorted(map(int, names), reverse=True):
        try:
            yield number, decode((folder / str(number) / RESULT).read_bytes(), Cuts)
        except (OSError, DecodeError):
            continue
