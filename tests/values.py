"""Modified copies of frozen dataclasses and Structs."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, TypeVar

import msgspec

from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.model import Study

V = TypeVar("V")


def replace(value: V, /, **changes: Any) -> V:
    """Return a copy of a dataclass or Struct with some fields changed."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]


def check_limits(study: Study, *, origin: str) -> None:
    """Raise StudyError if this study would be refused when read from a packed trial."""
    study_from_json(json.loads(json.dumps(study_to_json(study))), origin=origin, foreign=True)
