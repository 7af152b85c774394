"""Generate the reference text of a workload kind from its declared keys and responses."""

from __future__ import annotations

import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal

from msgspec import NODEFAULT, Struct

from iotrial.study.schema import Key, choices_of, keys_of, metas_of, plain_of
from iotrial.study.tables import WorkloadTable
from iotrial.study.work import ACTIVITY_RESPONSES, FileSet, Work, kind, kinds

_WIDTH = 100
#: a table lists at most this many words; a number's range is shown up to this upper limit
_MOST_WORDS, _WIDE = 20, 10_000
#: more choices than this are listed in the description instead of the type column
_FEW_WORDS = 6
#: marks around a generated list in docs/workloads.md
_BEGIN, _END = "<!-- keys -->\n", "<!-- end -->\n"


def describe(name: str) -> str:
    """Return the reference of the named kind (``iotrial show --workload KIND``). Raises UnknownName."""
    return reference(kind(name))


def reference(work: type[Work]) -> str:
    """Return the reference of one kind: all keys, words and responses."""
    common = [key for key in keys_of(WorkloadTable).values() if key.name != "kind"]
    parts = [f'kind = "{work.kind}"\n', _paragraph(work.about), "Keys of every workload:\n", _keys(common)]
    parts += [f'Keys of kind "{work.kind}":\n', _keys(_all_keys(work))]
    for name, struct in _tables_of(work):
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
    if work.notes:
        parts.append(_paragraph(work.notes))
    return "\n".join(parts).rstrip("\n") + "\n"


def _tables_of(work: type[Work]) -> Iterator[tuple[str, type[Struct]]]:
    """Yield each key of a kind that is a list of tables, with the Struct of those tables."""
    for key in keys_of(work).values():
        plain = plain_of(key.wanted)
        entry = plain_of(typing.get_args(plain)[0]) if typing.get_origin(plain) is tuple else None
        if isinstance(entry, type) and issubclass(entry, Struct) and _what(key).startswith("[["):
            yield key.name, entry


def _keys(keys: Iterable[Key]) -> str:
    return _rows((key.name, _written(key), _text(key)) for key in keys)


def _text(key: Key) -> str:
    choices = _choices(plain_of(key.wanted))
    listed = f": {', '.join(map(str, choices))}" if len(choices) > _FEW_WORDS else ""
    return f"{key.text}{listed}"


def _written(key: Key) -> str:
    """Return the type and default of a key: ``size, 4 KiB``, ``number, required``."""
    choices = _choices(plain_of(key.wanted))
    what = " | ".join(map(str, choices)) if len(choices) <= _FEW_WORDS else "word"
    what = what or _what(key)
    default = "required" if key.default is NODEFAULT else _default(key)
    return f"{what}, {default}" if default else what


def _what(key: Key) -> str:
    return key.form.what if key.form is not None else _plain(plain_of(key.wanted))


def _default(key: Key) -> str:
    """Return the default as text, or "" if there is none worth showing."""
    if key.default in (None, "", (), {}):
        return ""
    if isinstance(key.default, bool):
        return str(key.default).lower()
    return key.form.show(key.default) if key.form else str(key.default)


def with_keys(text: str) -> str:
    """Return the text of ``docs/workloads.md`` with the key list of each kind regenerated from its Struct."""
    for name, work in kinds().items():
        text = _with_list(text, f'### `kind = "{name}"`\n', markdown(work), name)
    outputs = keys_of(dict(_tables_of(kind("command")))["output"]).values()
    return _with_list(text, "#### `[[workload.output]]`\n", _items(outputs), "output")


def _with_list(text: str, heading: str, items: str, name: str) -> str:
    """Replace the text between two marks: the first ones below the heading."""
    before, _, section = text.partition(heading)
    lead, found, rest = section.partition(_BEGIN)
    assert found, name
    return f"{before}{heading}{lead}{_BEGIN}{items}{rest[rest.index(_END) :]}"


def markdown(work: type[Work]) -> str:
    """Return the keys of a kind as a list for ``docs/workloads.md``, without those that another list there has: the keys
    of every file set, and those of a kind that it builds on."""
    parents = [other for other in kinds().values() if other is not work and issubclass(work, other)]
    shared = {*keys_of(FileSet), *(key.name for parent in parents for key in _all_keys(parent))}
    return _items((key for key in _all_keys(work) if key.name not in shared), work.vocabulary)


def _items(keys: Iterable[Key], vocabulary: Mapping[str, Mapping[str, str]] = MappingProxyType({})) -> str:
    """Return one line a key: ``- `key` (default): meaning``. Of several words the default is first."""
    lines = []
    for key in keys:
        words = vocabulary.get(key.name, {})
        choices = _choices(plain_of(key.wanted)) or (tuple(words) if len(words) <= _MOST_WORDS else ())
        default = _left_out(key)
        if choices:
            ordered = sorted(choices, key=lambda choice: choice != key.default)
            what = ", ".join(f"`{choice}`" for choice in ordered) + (
                "; required" if default == "required" else ""
            )
        elif default == "required" or not default:
            what = f"{_what(key)}; required" if default else _what(key)
        else:
            limits = _limits(key)
            what = f"{limits}; {default}" if limits else default
        lines.append(f"- `{key.name}` ({what}): {key.text}")
    return "\n".join(lines) + "\n"


def _limits(key: Key) -> str:
    """Return the limits of a number with a narrow range, else ""."""
    limits = [
        (meta.ge, meta.le) for meta in metas_of(key.wanted) if meta.ge is not None and meta.le is not None
    ]
    if key.form is None and limits and limits[0][1] <= _WIDE:
        return "{:g} to {:g}".format(*limits[0])
    return ""


def _left_out(key: Key) -> str:
    if key.default is NODEFAULT:
        return "required"
    default = _default(key)
    is_text = isinstance(key.default, str) or (key.form is not None and key.form.read is not None)
    choices = _choices(plain_of(key.wanted))
    return default if not default or not is_text else f"`{default}`" if choices else f'`"{default}"`'


def _all_keys(work: type[Work]) -> list[Key]:
    file_keys = [Key(name, name, wanted, None) for name, wanted in work.file_keys.items()]
    return [*file_keys, *keys_of(work).values()]


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
