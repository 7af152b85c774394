"""JSON documents: what a verb prints with ``--json``, and what others may read.

A document is declared once, as a Struct next to the code that builds it. It is printed as it is, and
``scripts/generators/schemas.py`` derives ``schemas/`` from it: the first paragraph of its docstring is the schema's title,
the rest the description. A field that is ``UNSET`` is left out; numbers that are not finite are printed as null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]
Probability = Annotated[float, Meta(ge=0, le=1)]
#: a number that is printed as null where it is not finite
Unbounded = Annotated[float, Meta(extra_json_schema={"nullable": True})]
#: labels by the name of their factor, words by what they tell
Labels = Mapping[str, str]

#: of an object that has ``ratio`` where its scale is log, else ``difference``
RATIO_OR_DIFFERENCE = Meta(
    extra_json_schema={"oneOf": [{"required": ["ratio"]}, {"required": ["difference"]}]}
)


def ratio_or_difference(value: float | None, *, by_ratio: bool) -> dict[str, float | UnsetType | None]:
    """Return the fields of such an object: ``ratio`` or ``difference`` has the value, the other is left out."""
    name = "ratio" if by_ratio else "difference"
    return {"ratio": UNSET, "difference": UNSET, name: value}


class JsonObject(Struct, frozen=True, forbid_unknown_fields=True):
    """An object in a document. Where keys may be added, ``forbid_unknown_fields`` is False."""

    @classmethod
    def of(cls, source: object, **more: Any) -> Self:
        """The fields from ``more``, all others from the attributes of the same names."""
        rest = (name for name in cls.__struct_fields__ if name not in more)
        return cls(**more, **{name: getattr(source, name) for name in rest})


class JsonDocument(JsonObject, frozen=True, tag_field="schema", tag=1):
    """A whole document. ``schema``, its first key, is the version of its form."""


class Error(JsonObject, frozen=True):
    """What went wrong."""

    code: Annotated[
        str,
        Meta(
            pattern="^[a-z_]+$",
            description="which kind: bad_request, unknown_name, bad_study, needs_root, missing_tool, no_space, lab, knob, "
            "probe, store, restore_incomplete, stopped, ...",
        ),
    ]
    message: str
    hint: str | None


class Failure(JsonObject, frozen=True):
    """an error with --json, on standard error"""

    error: Error


def plain(value: object) -> Any:
    """The value as ``json.dumps(..., allow_nan=False)`` takes it."""
    return _finite(msgspec.to_builtins(value, str_keys=True, enc_hook=_builtin))


def json_text(document: JsonObject, indent: int | None = 1) -> str:
    """The text that is printed."""
    return json.dumps(plain(document), indent=indent, allow_nan=False)


def _builtin(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, float):  # of numpy
        return float(value)
    raise NotImplementedError(f"{type(value).__name__} in a JSON document")


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(part) for key, part in value.items()}
        case list() | tuple():
            return [_finite(part) for part in value]
        case float() if not math.isfinite(value):
            return None
    return value
