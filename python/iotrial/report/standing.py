"""How a running trial stands, in a small file beside the store, for whoever wants to follow it without disturbing it.

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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from iotrial.analysis.model import Conclusion
from iotrial.report.progress import EffectLine, Progress

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
