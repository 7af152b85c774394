"""A study as an object that JSON can hold, and back without loss.

The form follows the frozen classes of ``model``: a class becomes an object of its fields, a tuple a list,
and the work of a workload carries the name of its class. The number in ``schema`` rises when a reader of
the old form would misread the new one; fields that are added with a default need no new number.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any

from iotrial.errors import StudyError
from iotrial.study import model

SCHEMA = 1


def study_to_json(study: model.Study) -> dict[str, Any]:
    """The study as nested dicts, lists, text and numbers."""
    return {"schema": SCHEMA, "study": _encoded(study)}


def study_from_json(data: object, *, origin: str = "stored study") -> model.Study:
    """The study that ``study_to_json`` made this of; StudyError where it is of a newer form or damaged."""
    if not isinstance(data, Mapping) or not isinstance(data.get("schema"), int):
        raise StudyError("holds no study", file=origin)
    if data["schema"] > SCHEMA:
        message = f"has schema {data['schema']}, and this iotrial reads up to {SCHEMA}"
        raise StudyError(message, file=origin, hint="a newer iotrial wrote it; update this one")
    try:
        study = _decoded(model.Study, data.get("study"), "study")
    except (_Damaged, RecursionError) as error:
        raise StudyError(f"is damaged: {error}", file=origin) from error
    assert isinstance(study, model.Study)
    return study


_WORKS = frozenset(typing.get_args(model.Work))


class _Damaged(ValueError):
    pass


def _encoded(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _encoded(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"is": type(value).__name__, **fields} if isinstance(value, model.Work) else fields
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _encoded(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_encoded(inner) for inner in value]
    return value


def _decoded(wanted: Any, data: Any, path: str) -> Any:
    """``data`` as a value of type ``wanted`` (classes of ``model``, tuples, mappings, unions, plain values)."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return _member(arguments, data, path)
    if origin is tuple:
        if not isinstance(data, list):
            raise _Damaged(f"{path}: wanted a list")
        if arguments[-1] is Ellipsis:
            return tuple(_decoded(arguments[0], inner, f"{path}[{i}]") for i, inner in enumerate(data))
        if len(data) != len(arguments):
            raise _Damaged(f"{path}: wanted {len(arguments)} entries")
        pairs = zip(arguments, data, strict=True)
        return tuple(_decoded(part, inner, f"{path}[{i}]") for i, (part, inner) in enumerate(pairs))
    if origin is Mapping:
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            raise _Damaged(f"{path}: wanted an object")
        return {key: _decoded(arguments[1], inner, f"{path}.{key}") for key, inner in data.items()}
    if dataclasses.is_dataclass(wanted):
        return _instance(wanted, data, path)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        try:
            return wanted(data)
        except ValueError as error:
            raise _Damaged(f"{path}: {error}") from None
    if wanted is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if type(data) is not wanted:
        raise _Damaged(f"{path}: wanted {getattr(wanted, '__name__', wanted)}")
    return data


def _member(members: tuple[Any, ...], data: Any, path: str) -> Any:
    if data is None and type(None) in members:
        return None
    named = data.get("is") if isinstance(data, dict) else None
    for member in members:
        if dataclasses.is_dataclass(member):
            if getattr(member, "__name__", None) == named:
                fields = {key: value for key, value in data.items() if key != "is"}
                return _decoded(member, fields, path)
            if named is None and member not in _WORKS:  # only works say which they are
                return _decoded(member, data, path)
        elif member is not type(None):
            return _decoded(member, data, path)
    raise _Damaged(f"{path}: no form of it is known")


def _instance(wanted: Any, data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        raise _Damaged(f"{path}: wanted an object")
    hints = _hints(wanted)
    unknown = data.keys() - hints.keys()
    if unknown:
        raise _Damaged(f"{path}: unknown {', '.join(sorted(map(str, unknown)))}")
    given = {name: _decoded(hints[name], data[name], f"{path}.{name}") for name in hints if name in data}
    try:
        return wanted(**given)
    except TypeError as error:
        raise _Damaged(f"{path}: {error}") from None


@cache
def _hints(wanted: Any) -> dict[str, Any]:
    return typing.get_type_hints(wanted)
