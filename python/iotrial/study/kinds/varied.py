"""A work as the table that declares it, and the same work with some of its keys at other values (knob ``work.option``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from iotrial.study.kinds.contract import KeyProblem, WorkloadKind
from iotrial.study.model import Work
from iotrial.study.wire import Written


def table_of(work: Work) -> dict[str, Any]:
    """The table of a workload that declares this work: ``size_bytes`` is written as ``size = "N B"``."""
    keys: dict[str, Any] = {}
    for field in dataclasses.fields(work):
        value = getattr(work, field.name)
        if field.name == "steps":
            keys["step"] = [{"name": step.name, "argv": list(step.argv)} for step in value]
        elif field.name == "picks":
            keys["pick"] = [dataclasses.asdict(pick) for pick in value]
        elif field.name in ("environment", "servers", "serve_environment"):
            keys[field.name] = dict(value)
        elif field.name.endswith("_bytes"):
            keys[field.name.removesuffix("_bytes")] = f"{value} B"
        elif field.name.endswith("_s"):
            keys[field.name.removesuffix("_s")] = f"{Decimal(repr(value)):f} s"
        else:
            keys[field.name] = list(value) if isinstance(value, tuple) else value
    return keys


def varied(kind: WorkloadKind[Any], work: Work, options: Mapping[str, str]) -> Work:
    """The work with these keys at these values, as a study file would write them.

    Raises KeyProblem for a key that this kind does not let be varied, and for a value that cannot work.
    """
    if not options:
        return work
    table = table_of(work)
    for name, text in options.items():
        if name not in kind.options:
            known = ", ".join(kind.options) or "none"
            raise KeyProblem(
                f'a workload of kind "{kind.name}" has no option "{name}" to vary', hint=f"it has: {known}"
            )
        table[name] = _value(name, kind.keys.model_fields[name], text)
    try:
        return kind.build(kind.keys.model_validate(table))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise KeyProblem(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None


def _value(name: str, field: FieldInfo, text: str) -> object:
    if any(isinstance(entry, Written) for entry in field.metadata):
        return text  # a size, a duration, a line: written as text in a file too
    if field.annotation is bool:
        if text not in ("true", "false"):
            raise KeyProblem(f'{name}: wanted true or false, found "{text}"')
        return text == "true"
    if field.annotation is int and text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    return text
