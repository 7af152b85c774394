"""Changed copies of frozen values, whatever they are made of."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, TypeVar

import msgspec

from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.model import Study

V = TypeVar("V")


def replace(value: V, /, **changes: Any) -> V:
    """The value with some fields changed: of a dataclass or of a Struct."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]


def check_limits(study: Study, *, origin: str) -> None:
    """StudyError where a packed study that says this is refused."""
    study_from_json(json.loads(json.dumps(study_to_json(study))), origin=origin, foreign=True)
