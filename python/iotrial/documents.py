"""JSON documents: what a verb prints with ``--json``, and what others may read.

A document is declared once, as a Struct next to the code that builds it. It is printed as it is, and
``scripts/generators/schemas.py`` derives ``schemas/`` from it: the first paragraph of its docstring is the schema's title,
the rest the description. A field that is ``UNSET`` is left out; numbers that are not finite are printed as null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar, get_origin, get_type_hints

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

#: either of the two
Size = float | UnsetType | None


class JsonObject(Struct, frozen=True, forbid_unknown_fields=True):
    """An object in a document. Where keys may be added, ``forbid_unknown_fields`` is False."""

    @classmethod
    def of(cls, source: Any, /, **more: Any) -> Self:
        """The fields from ``more``, all others from the attributes of the same names.

        ``ratio`` or ``difference`` is the source's ``value``, by its ``scale``; the other is left out.
        """
        rest = [name for name in cls.__struct_fields__ if name not in more]
        if "ratio" in rest and "difference" in rest:
            kept, dropped = ("ratio", "difference") if source.scale == "log" else ("difference", "ratio")
            more = {**more, kept: source.value, dropped: UNSET}
            rest = [name for name in rest if name not in more]
        return cls(**more, **{name: getattr(source, name) for name in rest})


Declared = TypeVar("Declared", bound=JsonObject)


def has_fields_of(
    finding: type, *, only: Sequence[str] | None = None, without: Sequence[str] = ()
) -> Callable[[type[Declared]], type[Declared]]:
    """Return a decorator that adds the fields of a finding to an object of a document, so that they are declared once.

    ``finding`` is a dataclass or Struct. Its fields ``only``, or all but ``without``, precede the object's own.
    An own field of the same name takes the place of the finding's, whose description it keeps unless it has another; own
    fields ``ratio`` and ``difference`` take that of ``value``.
    """

    def made(declared: type[Declared]) -> type[Declared]:
        own = {field.name: field for field in msgspec.structs.fields(declared)}
        fields: dict[str, tuple[Any, ...]] = {}
        for name, kind in get_type_hints(finding, include_extras=True).items():
            if name in without or (only is not None and name not in only):
                continue
            names = ("ratio", "difference") if name == "value" and "ratio" in own else (name,)
            fields |= dict.fromkeys(names, (kind,))
        for name, field in own.items():
            kind, (described, *_) = field.type, fields.get(name, (None,))
            if get_origin(described) is Annotated and get_origin(kind) is not Annotated:
                kind = Annotated[kind, *described.__metadata__]
            fields[name] = (kind,) if field.required else (kind, field.default)
        whole: Any = msgspec.defstruct(
            declared.__name__,
            [(name, *field) for name, field in fields.items()],
            bases=(JsonObject,),
            module=declared.__module__,
            namespace={"__doc__": declared.__doc__},
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=declared.__struct_config__.forbid_unknown_fields,
        )
        found: type[Declared] = whole
        return found

    return made


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
