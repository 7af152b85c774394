"""The reference of a workload kind as text, made from its keys and responses alone."""

from __future__ import annotations

import textwrap
import typing
from collections.abc import Iterable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal

from msgspec import NODEFAULT

from iotrial.study.reader import WorkloadTable
from iotrial.study.schema import Key, choices_of, keys_of, plain_of
from iotrial.study.work import ACTIVITY_RESPONSES, Work, kind

_WIDTH = 100


def describe(name: str) -> str:
    """The reference of the kind of this name (``iotrial show --workload KIND``); UnknownName where there is none."""
    return reference(kind(name))


def reference(work: type[Work]) -> str:
    """All keys, words and responses of one kind."""
    common = [key for key in keys_of(WorkloadTable).values() if key.name != "kind"]
    beside = [Key(name, name, wanted, None) for name, wanted in work.file_keys.items()]
    keys = [*beside, *keys_of(work).values()]
    parts = [f'kind = "{work.kind}"\n', _paragraph(work.about), "Keys of every workload:\n", _keys(common)]
    parts += [f'Keys of kind "{work.kind}":\n', _keys(keys)]
    for key, words in work.vocabulary.items():
        parts += [f"Words of {key}:\n", _rows((word, "", text) for word, text in words.items())]
    parts += [
        "Responses (the first is primary unless the study says otherwise):\n",
        _rows(
            (spec.name, f"{spec.unit}, by {'ratio' if spec.scale == 'log' else 'difference'}", spec.text)
            for spec in work.documented
        ),
    ]
    parts += [
        "Responses of every workload, where a study names them:\n",
        _rows((spec.name, f"{spec.unit}, by difference", spec.text) for spec in ACTIVITY_RESPONSES),
    ]
    if work.notes:
        parts.append(_paragraph(work.notes))
    return "\n".join(parts).rstrip("\n") + "\n"


def _keys(keys: Iterable[Key]) -> str:
    return _rows((key.name, _written(key), key.text) for key in keys)


def _written(key: Key) -> str:
    """Type and default of a key: ``size = 4 KiB``, ``number, required``."""
    form = key.form
    plain = plain_of(key.wanted)
    choices = _choices(plain)
    what = " | ".join(map(str, choices)) if choices else form.what if form is not None else _plain(plain)
    if key.default is NODEFAULT:
        return f"{what}, required"
    if key.default in (None, "", (), {}):
        return what
    if isinstance(key.default, bool):
        return f"{what}, {str(key.default).lower()}"
    return f"{what}, {form.show(key.default) if form else key.default}"


def _choices(plain: Any) -> tuple[Any, ...]:
    if typing.get_origin(plain) is Literal or (isinstance(plain, type) and issubclass(plain, Enum)):
        return choices_of(plain)
    return ()


def _plain(plain: Any) -> str:
    origin, arguments = typing.get_origin(plain) or plain, typing.get_args(plain)
    if origin in (typing.Union, UnionType):
        (member,) = (part for part in arguments if part is not NoneType)
        return _plain(plain_of(member))
    if origin is bool:
        return "true | false"
    if origin in (int, float):
        return "number"
    if origin is tuple:
        return "list of text"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "table"
    return "text"


def _rows(rows: Iterable[tuple[str, str, str]]) -> str:
    rows = list(rows)
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    indent = 2 + first + 2 + (second + 2 if second else 0)
    lines = []
    for name, written, text in rows:
        head = f"  {name:<{first}}  " + (f"{written:<{second}}  " if second else "")
        wrapped = textwrap.wrap(text, max(40, _WIDTH - indent), break_on_hyphens=False) or [""]
        lines += [(head + wrapped[0]).rstrip(), *(" " * indent + line for line in wrapped[1:])]
    return "\n".join(lines) + "\n"


def _paragraph(text: str) -> str:
    return textwrap.fill(text, _WIDTH) + "\n"
