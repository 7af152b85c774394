"""Generate the reference text of a workload kind from its declared keys and responses."""

from __future__ import annotations

import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal

from msgspec import NODEFAULT, Struct

from iotrial.study.schema import Key, choices_of, keys_of, plain_of
from iotrial.study.tables import WorkloadTable
from iotrial.study.work import ACTIVITY_RESPONSES, Work, kind

_WIDTH = 100
#: more choices than this are listed in the description instead of the type column
_FEW_WORDS = 6


def describe(name: str) -> str:
    """Return the reference of the named kind (``iotrial show --workload KIND``). Raises UnknownName."""
    return reference(kind(name))


def reference(work: type[Work]) -> str:
    """Return the reference of one kind: all keys, words and responses."""
    common = [key for key in keys_of(WorkloadTable).values() if key.name != "kind"]
    parts = [f'kind = "{work.kind}"\n', _paragraph(work.about), "Keys of every workload:\n", _keys(common)]
    parts += [f'Keys of kind "{work.kind}":\n', _keys(all_keys(work))]
    for name, struct in tables_of(work):
        parts += [f"Keys of [[workload.{name}]]:\n", _keys(keys_of(struct).values())]
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
    parts.append("More: docs/workloads.md")
    return "\n".join(parts).rstrip("\n") + "\n"


def tables_of(work: type[Work]) -> Iterator[tuple[str, type[Struct]]]:
    """Yield each key of a kind that is a list of tables, with the Struct of those tables."""
    for key in keys_of(work).values():
        plain = plain_of(key.wanted)
        entry = plain_of(typing.get_args(plain)[0]) if typing.get_origin(plain) is tuple else None
        if isinstance(entry, type) and issubclass(entry, Struct) and type_of(key).startswith("[["):
            yield key.name, entry


def _keys(keys: Iterable[Key]) -> str:
    return _rows((key.name, _written(key), _text(key)) for key in keys)


def _text(key: Key) -> str:
    choices = words_of(plain_of(key.wanted))
    listed = f": {', '.join(map(str, choices))}" if len(choices) > _FEW_WORDS else ""
    return f"{key.text}{listed}"


def _written(key: Key) -> str:
    """Return the type and default of a key: ``size, 4 KiB``, ``number, required``."""
    choices = words_of(plain_of(key.wanted))
    what = " | ".join(map(str, choices)) if len(choices) <= _FEW_WORDS else "word"
    what = what or type_of(key)
    default = "required" if key.default is NODEFAULT else default_of(key)
    return f"{what}, {default}" if default else what


def type_of(key: Key) -> str:
    return key.form.what if key.form is not None else _plain(plain_of(key.wanted))


def default_of(key: Key) -> str:
    """Return the default as text, or "" if there is none worth showing."""
    if key.default in (None, "", (), {}):
        return ""
    if isinstance(key.default, bool):
        return str(key.default).lower()
    return key.form.show(key.default) if key.form else str(key.default)


def all_keys(work: type[Work]) -> list[Key]:
    file_keys = [Key(name, name, wanted, None) for name, wanted in work.file_keys.items()]
    return [*file_keys, *keys_of(work).values()]


def words_of(plain: Any) -> tuple[Any, ...]:
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
