"""How a running trial stands, as a frozen value: what the live view is given between blocks.

It holds complete blocks only: an unfinished one would show an arm that has run beside one that has not, and who
sees that is tempted to stop.

How the intervals of a running trial narrow: each effect's interval now, and when it had half as many blocks.

Whoever watches a trial wants to know whether it gets anywhere. The width alone does not tell; beside what it was, it
does. An interval takes in what earlier ones took in, so it only ever shrinks.

How a running trial stands, in a small file beside the store, for whoever wants to follow it without disturbing it.

The conductor's process writes it between blocks; a reader asks neither the store, which would have to be analysed, nor
the conductor, which must not be woken while a run is timed. It is a convenience and is treated as one: writing never
fails a trial and never waits for the disk, and a reader takes a file that is missing, half there, of another version or
somebody else's for none. That a trial still runs is for the store to say: a killed process leaves its file behind.
"""

from __future__ import annotations

import json
import math
import os
import stat
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from iotrial.analysis.model import Conclusion, Effect
from iotrial.legible import shown
from iotrial.report.conditions import Conditions
from iotrial.report.notation import bracketed, named_level
from iotrial.report.phrases import null_value
from iotrial.report.safety import risk_of, risks_of
from iotrial.study.model import Study

GOING_ON = "going on"


@dataclass(frozen=True, slots=True)
class EffectLine:
    """One effect after its blocks so far, on its own scale; ``verdict`` and ``conclusion`` are None while more blocks
    may change them.

    ``before_low`` and ``before_high`` are the interval that it had at ``before_blocks``, about half as many blocks (0: it
    has not been looked at so early, or had no interval): how far it has narrowed since. ``response`` is empty where a
    trial judges one only. ``risk``: the level that puts data at risk, in words, of a decided effect (``safety.risk_of``).
    """

    condition: str
    factor: str
    level: str
    reference: str
    value: float | None
    low: float | None
    high: float | None
    blocks: int
    verdict: str | None = None
    conclusion: Conclusion | None = None
    null: float = 1.0
    unit: str = ""
    crossed: bool = False
    before_low: float | None = None
    before_high: float | None = None
    before_blocks: int = 0
    response: str = ""
    risk: str = ""

    @property
    def comparison(self) -> str:
        """E.g. "mode 0444 / 0777"; of an interaction "atime × mode"; with the response where a trial judges several."""
        behind = f", {shown(self.response)}" if self.response else ""
        if self.crossed:
            return shown(self.factor.replace(":", " × ")) + behind
        return f"{named_level(shown(self.factor), shown(self.level))} / {shown(self.reference)}{behind}"

    @property
    def word(self) -> str:
        """What a table says of it, e.g. "probably slower"."""
        return GOING_ON if self.conclusion is None else self.conclusion.words

    @property
    def numbers(self) -> str:
        """E.g. "0.53 [0.50, 0.56]"."""
        return bracketed(self.value, self.low, self.high, null=self.null, unit=self.unit)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a trial stands between two blocks. ``blocks`` counts complete ones by condition, in words.

    ``margin`` is the smallest relative effect that matters (.03 is 3 %). ``conditions_decided`` of ``conditions`` take no
    more blocks. ``upcoming`` says what is measured next, in words; ``outlook_s`` is in how many seconds all is decided if
    nothing makes a difference (None: not known).
    """

    trial: int
    study: str
    elapsed_s: float
    budget_s: float
    blocks: Mapping[str, int] = field(default_factory=dict)
    void: int = 0
    failures: int = 0
    effects: tuple[EffectLine, ...] = ()
    activity: str = ""
    margin: float = 0.0
    conditions: int = 0
    conditions_decided: int = 0
    upcoming: str = ""
    outlook_s: float | None = None

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return max(0.0, self.budget_s - self.elapsed_s)

    @property
    def decided(self) -> int:
        """How many effects have their verdict."""
        return sum(line.verdict is not None for line in self.effects)


def effect_lines(effects: Iterable[Effect], study: Study) -> tuple[EffectLine, ...]:
    """The primary effects as lines, in the study's order of conditions; only decided ones have a verdict."""
    conditions, risks = Conditions(study), risks_of(study)
    several = len({r.name for r in study.responses if r.primary}) > 1
    ordered = sorted(
        (effect for effect in effects if effect.primary),
        key=lambda effect: conditions.of_levels(effect.condition, effect.workload).order,
    )
    return tuple(
        EffectLine(
            condition=conditions.of_levels(effect.condition, effect.workload).text,
            factor=effect.factor,
            level=effect.level,
            reference=effect.reference,
            value=effect.value,
            low=effect.low,
            high=effect.high,
            blocks=effect.blocks,
            verdict=effect.verdict.value if effect.decided else None,
            conclusion=effect.conclusion if effect.decided else None,
            null=null_value(effect),
            unit=effect.unit,
            crossed=effect.kind == "interaction",
            response=effect.response if several else "",
            risk=risk_of(effect, risks) if effect.decided else "",
        )
        for effect in ordered
    )


def blocks_in_words(blocks: Mapping[str, int], study: Study) -> dict[str, int]:
    """Counts by condition key as counts by condition text."""
    conditions = Conditions(study)
    return {conditions.of_key(key).text: count for key, count in blocks.items()}


_GROWTH = 1.1  # blocks, from one remembered interval to the next: some fifty in a trial of a thousand blocks

_Seen = tuple[int, float | None, float | None]


class Narrowing:
    """What the effects of one trial were, by condition and comparison."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], list[_Seen]] = {}

    def of(self, lines: Iterable[EffectLine]) -> tuple[EffectLine, ...]:
        """These effects with the intervals that they had at half as many blocks, as far as these have been seen."""
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


SCHEMA = 1
MOST_BYTES = 16 << 20
_MARK = "iotrial standing"


def standing_path(store: Path) -> Path:
    """Where the running trial of a store is described: ``trials.standing.json`` for ``trials.db``."""
    return store.with_suffix(".standing.json")


def write_standing(path: Path, progress: Progress) -> None:
    """Replace the file at once, for its owner alone. A full disk, a folder that is gone, a file that may not be written:
    nothing is written and nothing raised."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError, ValueError):
        text = json.dumps(standing_json(progress), allow_nan=False)
        with suppress(FileNotFoundError):  # of a process of this number that was killed while it wrote
            draft.unlink()
        try:
            with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)


def read_standing(path: Path) -> Progress | None:
    """What the file says; None where it is missing, damaged, of another version, or no such file at all."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with suppress(OSError, ValueError, RecursionError):
        number = os.open(path, flags)
        with os.fdopen(number, "rb") as file:
            facts = os.fstat(number)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > MOST_BYTES:
                return None
            return standing_of(json.loads(file.read(MOST_BYTES)))
    return None


def remove_standing(path: Path) -> None:
    """The trial is over. Never raises for what the system says."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def standing_json(progress: Progress) -> dict[str, Any]:
    """The document of the file (schemas/standing.schema.json). Numbers that are not finite become null."""
    body = asdict(progress)
    body["effects"] = [_finite(one) for one in body["effects"]]
    return {"what": _MARK, "schema": SCHEMA, **_finite(body)}


def standing_of(found: object) -> Progress:
    """The value of such a document. Raises ValueError for any other."""
    if not isinstance(found, dict) or found.get("what") != _MARK or found.get("schema") != SCHEMA:
        raise ValueError("no standing of this version")
    blocks = found.get("blocks")
    effects = found.get("effects")
    if not isinstance(blocks, dict) or not isinstance(effects, list):
        raise ValueError("blocks or effects are missing")
    return Progress(
        trial=_whole(found, "trial"),
        study=_text(found, "study"),
        elapsed_s=_number(found, "elapsed_s"),
        budget_s=_number(found, "budget_s"),
        blocks={str(name): _whole(blocks, name) for name in blocks},
        void=_whole(found, "void"),
        failures=_whole(found, "failures"),
        effects=tuple(_effect(one) for one in effects),
        activity=_text(found, "activity"),
        margin=_number(found, "margin"),
        conditions=_whole(found, "conditions"),
        conditions_decided=_whole(found, "conditions_decided"),
        upcoming=_text(found, "upcoming"),
        outlook_s=_number_or_none(found, "outlook_s"),
    )


def _effect(found: object) -> EffectLine:
    if not isinstance(found, dict) or not isinstance(found.get("crossed"), bool):
        raise ValueError("an effect is no object")
    verdict = found.get("verdict")
    return EffectLine(
        condition=_text(found, "condition"),
        factor=_text(found, "factor"),
        level=_text(found, "level"),
        reference=_text(found, "reference"),
        value=_number_or_none(found, "value"),
        low=_number_or_none(found, "low"),
        high=_number_or_none(found, "high"),
        blocks=_whole(found, "blocks"),
        verdict=None if verdict is None else _text(found, "verdict"),
        conclusion=None if found.get("conclusion") is None else Conclusion(_text(found, "conclusion")),
        null=_number(found, "null"),
        unit=_text(found, "unit"),
        crossed=found["crossed"],
        before_low=_number_or_none(found, "before_low"),
        before_high=_number_or_none(found, "before_high"),
        before_blocks=_whole(found, "before_blocks"),
        response=_text(found, "response"),
        risk=_text(found, "risk"),
    )


def _finite(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in body.items()
    }


def _text(found: Mapping[str, object], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value


def _whole(found: Mapping[str, object], name: str) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is no count")
    return value


def _number(found: Mapping[str, object], name: str) -> float:
    value = _number_or_none(found, name)
    if value is None:
        raise ValueError(f"{name} is no number")
    return value


def _number_or_none(found: Mapping[str, object], name: str) -> float | None:
    """``json`` reads NaN, Infinity and integers of any length: none of these is a number here."""
    value = found.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise ValueError(f"{name} is no number")
    return float(value)
