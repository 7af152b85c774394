"""Progress of a running trial as a frozen value, passed to the live view between blocks, and as a file.

It contains complete blocks only: an unfinished one would show an arm that has run next to one that has not, which
tempts people to stop.

Narrowing: each effect's interval now, and when it had half as many blocks. The width alone does not show whether a
trial is making progress; together with the earlier width it does. An interval is intersected with the earlier ones, so
it only ever shrinks.

The progress file next to the store lets other processes follow the trial without disturbing it. The conductor's process
writes it between blocks. A reader uses neither the store, which would have to be analysed, nor the conductor, which
must not be woken while a run is timed. The file is a convenience only: writing never fails a trial and never waits for
the disk, and a reader treats a file that is missing, incomplete, of another version or of another kind as absent.
Whether a trial is still running is for the store to decide: a killed process leaves its file behind.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from iotrial.decoding import decode
from iotrial.documents import Count, JsonObject, json_text
from iotrial.durable import NEW_FILE
from iotrial.report.conditions import Conditions
from iotrial.report.notation import bracketed, named_level, quantity
from iotrial.report.phrases import null_value
from iotrial.report.risks import risk_of
from iotrial.report.safety import risks_of
from iotrial.stats.model import Conclusion, Effect, ObservedBlock
from iotrial.study.model import Study
from iotrial.terminal import escape

GOING_ON, NOT_TRIED = "going on", "not tried"


class EffectLine(JsonObject, frozen=True):
    """One effect after its complete blocks so far, on its own scale."""

    condition: str
    factor: str
    level: str
    reference: str
    value: float | None
    low: Annotated[float | None, Meta(description="null: no bound yet")]
    high: float | None
    blocks: Count
    verdict: Annotated[str | None, Meta(description="null while more blocks may change it")] = None
    conclusion: Annotated[
        Conclusion | None,
        Meta(description="as in report.schema.json; null while more blocks may change it"),
    ] = None
    null: Annotated[
        float,
        Meta(
            description="what no effect is: 1 for a ratio, 0 for a difference",
            extra_json_schema={"enum": [0, 1]},
        ),
    ] = 1.0
    unit: str = ""
    crossed: Annotated[bool, Meta(description="an interaction")] = False
    before_low: Annotated[
        float | None,
        Meta(description="the interval at about half as many blocks: how far it has narrowed since"),
    ] = None
    before_high: float | None = None
    before_blocks: Annotated[
        int, Meta(ge=0, description="0: it was not looked at so early, or had no interval")
    ] = 0
    response: Annotated[str, Meta(description="empty where one only is judged")] = ""
    risk: Annotated[
        str, Meta(description="of a decided effect: the level that puts data at risk; else empty")
    ] = ""
    not_tried: Annotated[str, Meta(description="why no run can feel the setting; empty if one can")] = ""

    @property
    def comparison(self) -> str:
        """E.g. "mode 0444 / 0777"; for an interaction "atime × mode"; with the response if a trial judges several."""
        behind = f", {escape(self.response)}" if self.response else ""
        if self.crossed:
            return escape(self.factor.replace(":", " × ")) + behind
        return f"{named_level(escape(self.factor), escape(self.level))} / {escape(self.reference)}{behind}"

    @property
    def word(self) -> str:
        """The conclusion for a table, e.g. "probably slower"."""
        if self.not_tried:
            return NOT_TRIED
        return GOING_ON if self.conclusion is None else self.conclusion.words

    @property
    def numbers(self) -> str:
        """E.g. "0.53 [0.50, 0.56]"."""
        return bracketed(self.value, self.low, self.high, null=self.null, unit=escape(self.unit))


class WindowLine(JsonObject, frozen=True):
    """One window of a live trial, of a complete block."""

    setting: str
    began_s: Annotated[float, Meta(description="seconds since the trial began")]
    value: Annotated[float | None, Meta(description="of the judged metric; null: it has none")]
    unit: str
    void: bool

    @property
    def numbers(self) -> str:
        """E.g. "3.1 ms", or "void"."""
        return "void" if self.void else quantity(self.value, escape(self.unit))


class Progress(JsonObject, frozen=True, tag_field="what", tag="iotrial standing"):
    """progress of a running trial (the file STORE.standing.json)

    The state of a trial between two blocks.
    """

    trial: Annotated[int, Meta(ge=1, description="its number in the store")]
    study: str
    elapsed_s: Annotated[float, Meta(description="seconds of measuring so far")]
    budget_s: float
    blocks: Annotated[Mapping[str, Count], Meta(description="complete blocks by condition, in words")] = (
        field(default_factory=dict)
    )
    void: Annotated[int, Meta(ge=0, description="blocks that were thrown out")] = 0
    failures: Annotated[int, Meta(ge=0, description="blocks that hold a failed run")] = 0
    effects: Annotated[
        tuple[EffectLine, ...],
        Meta(description="the primary effects at the last look, complete blocks only"),
    ] = ()
    activity: Annotated[
        str,
        Meta(
            description="what else is going on, or what a long run does; empty while short runs are measured"
        ),
    ] = ""
    margin: Annotated[float, Meta(description="the smallest relative effect that matters (.03 is 3 %)")] = 0.0
    conditions: Count = 0
    conditions_decided: Annotated[int, Meta(ge=0, description="of them take no more blocks")] = 0
    upcoming: Annotated[str, Meta(description="the block that follows, in words; empty where none does")] = ""
    outlook_s: Annotated[
        float | None,
        Meta(description="seconds until all is decided if nothing makes a difference; null: not known"),
    ] = None
    windows: Annotated[
        tuple[WindowLine, ...],
        Meta(description="of a live trial: the windows of its newest complete blocks, in order of time"),
    ] = ()
    schema: Literal[1] = 1

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return max(0.0, self.budget_s - self.elapsed_s)

    @property
    def decided(self) -> int:
        """The number of effects with a verdict."""
        return sum(line.verdict is not None for line in self.effects)


def effect_lines(effects: Iterable[Effect], study: Study) -> tuple[EffectLine, ...]:
    """Return the primary effects as lines, in the study's order of conditions; only decided ones have a verdict."""
    conditions, risks = Conditions(study), risks_of(study)
    several = len({r.name for r in study.responses if r.primary}) > 1
    ordered = sorted(
        (effect for effect in effects if effect.primary),
        key=lambda effect: conditions.of_effect(effect).order,
    )
    return tuple(
        EffectLine.of(
            effect,
            condition=conditions.of_effect(effect).text,
            verdict=effect.verdict.value if effect.decided else None,
            conclusion=effect.conclusion if effect.decided else None,
            null=null_value(effect),
            before_low=None,
            before_high=None,
            before_blocks=0,
            crossed=effect.kind == "interaction",
            response=effect.response if several else "",
            risk=risk_of(effect, risks) if effect.decided else "",
        )
        for effect in ordered
    )


def window_lines(blocks: Iterable[ObservedBlock], study: Study) -> tuple[WindowLine, ...]:
    """Return the windows of these blocks in order of time, with the values of the study's first response."""
    response = study.responses[0]
    return tuple(
        WindowLine(
            ", ".join(f"{factor} {level}" for factor, level in run.treatment.items()),
            run.started_s,
            run.responses.get(response.name),
            response.unit,
            block.void is not None,
        )
        for block in blocks
        for run in sorted(block.observations, key=lambda run: run.started_s)
    )


def blocks_in_words(blocks: Mapping[str, int], study: Study) -> dict[str, int]:
    """Convert counts by condition key to counts by condition text."""
    conditions = Conditions(study)
    return {conditions.of_key(key).text: count for key, count in blocks.items()}


_GROWTH = 1.1  # growth in blocks between remembered intervals: about fifty in a trial of a thousand blocks

_Seen = tuple[int, float | None, float | None]


class Narrowing:
    """Earlier intervals of the effects of one trial, by condition and comparison."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], list[_Seen]] = {}

    def of(self, lines: Iterable[EffectLine]) -> tuple[EffectLine, ...]:
        """Return these effects with their intervals at half as many blocks, as far as those have been recorded."""
        return tuple(self._one(line) for line in lines)

    def _one(self, line: EffectLine) -> EffectLine:
        seen = self._seen.setdefault((line.condition, line.comparison), [])
        bounded = line.low is not None or line.high is not None
        if bounded and (not seen or line.blocks >= seen[-1][0] * _GROWTH):
            seen.append((line.blocks, line.low, line.high))
        place = bisect_right(seen, line.blocks / 2.0, key=lambda one: one[0]) - 1
        if place < 0:
            return line
        blocks, low, high = seen[place]
        return replace(line, before_low=low, before_high=high, before_blocks=blocks)


MOST_BYTES = 16 << 20


def progress_path(store: Path) -> Path:
    """Return the path of the progress file of a store: ``trials.standing.json`` for ``trials.db``."""
    return store.with_suffix(".standing.json")


def write_progress(path: Path, progress: Progress) -> None:
    """Replace the file atomically, readable by its owner only.

    On a full disk, a missing folder or missing permission, nothing is written and nothing raised.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError, ValueError):
        text = json_text(progress, indent=None)
        with suppress(FileNotFoundError):  # left by a process of the same pid that was killed while writing
            draft.unlink()
        try:
            with os.fdopen(os.open(draft, NEW_FILE, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)


def read_progress(path: Path) -> Progress | None:
    """Read the file; None if it is missing, damaged, of another version, or not a progress file."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with suppress(OSError, ValueError, RecursionError):
        number = os.open(path, flags)
        with os.fdopen(number, "rb") as file:
            facts = os.fstat(number)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > MOST_BYTES:
                return None
            return decode(file.read(MOST_BYTES), Progress)
    return None


def remove_progress(path: Path) -> None:
    """Remove the file when the trial is over. Never raises OSError."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
