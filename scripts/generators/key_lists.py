"""Generate the lists of keys in docs/workloads.md from the kinds' Structs. ``scripts/manual`` writes them, and a test
compares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import NODEFAULT

from iotrial.study.reference import all_keys, default_of, tables_of, type_of, words_of
from iotrial.study.schema import Key, keys_of, metas_of, plain_of
from iotrial.study.work import FileSet, Work, kind, kinds

#: a table lists at most this many words; a number's range is shown up to this upper limit
_MOST_WORDS, _WIDE = 20, 10_000
#: marks around a generated list
_BEGIN, _END = "<!-- keys -->\n", "<!-- end -->\n"


def with_keys(text: str) -> str:
    """Return the text of ``docs/workloads.md`` with the key list of each kind regenerated from its Struct."""
    for name, work in kinds().items():
        text = _with_list(text, f'### `kind = "{name}"`\n', markdown(work), name)
    outputs = keys_of(dict(tables_of(kind("command")))["output"]).values()
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
    shared = {*keys_of(FileSet), *(key.name for parent in parents for key in all_keys(parent))}
    return _items((key for key in all_keys(work) if key.name not in shared), work.vocabulary)


def _items(keys: Iterable[Key], vocabulary: Mapping[str, Mapping[str, str]] = MappingProxyType({})) -> str:
    """Return one line a key: ``- `key` (default): meaning``. Of several words the default is first."""
    lines = []
    for key in keys:
        words = vocabulary.get(key.name, {})
        choices = words_of(plain_of(key.wanted)) or (tuple(words) if len(words) <= _MOST_WORDS else ())
        default = _left_out(key)
        if choices:
            ordered = sorted(choices, key=lambda choice: choice != key.default)
            what = ", ".join(f"`{choice}`" for choice in ordered) + (
                "; required" if default == "required" else ""
            )
        elif default == "required" or not default:
            what = f"{type_of(key)}; required" if default else type_of(key)
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
    default = default_of(key)
    is_text = isinstance(key.default, str) or (key.form is not None and key.form.read is not None)
    choices = words_of(plain_of(key.wanted))
    return default if not default or not is_text else f"`{default}`" if choices else f'`"{default}"`'
