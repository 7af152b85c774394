"""Struct fields as the schema of study files: one declaration gives type, limits, description and the key in the file.

A field is an annotated type:
``size_bytes: Annotated[Size, Meta(ge=0, description="size of each file")] = 4096``.
Its key in a file is the field name without the unit (``size``), and the file writes the value with the unit
(``"4 KiB"``). The same declaration serves to read a file or a stored object (``from_table``) and to generate
the reference of a workload kind (``reference``).

A study may be untrusted, so every text has a maximum length, every list a maximum count, and names and labels
cannot contain characters that could disguise them on a terminal.
"""

from __future__ import annotations

import difflib
import math
import re
import typing
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from iotrial import units
from iotrial.decoding import convert
from iotrial.study.disks import DiskSpec, parse_disk

MAX_FACTORS = 64
MAX_LEVELS = 256
MAX_WORKLOADS = 64
MAX_CLAIMS = 256
MAX_LABEL = 100
MAX_INTERACTIONS = 256
MAX_PLACES = 16
MAX_SETTINGS = 64

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_STUDY_NAME = re.compile(rf"({_NAME.pattern}/)?{_NAME.pattern}")
#: also used in file system names
_PLACE = re.compile(r"[a-z][a-z0-9-]*")
_KNOB = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

S = TypeVar("S", bound=Struct)
Path = tuple[str | int, ...]


class ReadFrom(Enum):
    """Where values come from, which determines how they are checked."""

    #: a study file: keys and units as people write them
    FILE = "file"
    #: this user's own store: values once read from a file. May hold text that no file could: a program's path
    STORE = "store"
    #: a packed trial, untrusted: only what a study file could contain
    PACKED = "packed"


class Problem(ValueError):
    """A value that a study cannot have. ``path`` leads to it inside its table."""

    def __init__(self, message: str, *path: str | int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint


class UnknownKey(Problem):
    """A table has a key that does not exist."""

    def __init__(self, name: str, known: list[str], *path: str | int) -> None:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        nearest = f'did you mean "{near[0]}"? ' if near else ""
        super().__init__(
            f'unknown key "{printed(name)}"', *path, name, hint=f"{nearest}known: {', '.join(known)}"
        )
        self.name = name


class MissingKey(Problem):
    """A table lacks a required key. ``path`` leads to the table."""

    def __init__(self, name: str, *path: str | int) -> None:
        super().__init__(f'"{name}" is missing', *path)
        self.name = name


@dataclass(frozen=True, slots=True)
class Form:
    """How values of a type are written in a file.

    ``read`` parses the value from a file; ``check`` runs on values from files and from packed studies. Both
    raise ValueError. ``unit`` is the suffix of field names of this type; it is removed to get the key.
    """

    what: str
    read: Callable[[Any], Any] | None = None
    check: Callable[[Any], object] | None = None
    show: Callable[[Any], str] = str
    unit: str = ""


def formed(form: Form) -> Meta:
    """Attach a form to an annotated type."""
    return Meta(extra={"form": form})


def keyed(key: str) -> Meta:
    """Give a field a key that differs from its name."""
    return Meta(extra={"key": key})


# permitted text


def shown(value: object) -> str:
    """Format a value from the file for an error message: short and of bounded length."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() if abs(value) >= 2**63:
            return "a huge number"
        case str():
            short = value if len(value) <= 40 else f"{value[:37]}..."
            return '"' + "".join(c if c.isprintable() else "?" for c in short) + '"'
        case list() | tuple():
            return "a list"
        case dict():
            return "a table"
        case _:
            return str(value)


def printed(text: str) -> str:
    """Make text from the file safe for a message: bounded, no control characters."""
    return shown(text)[1:-1]


def printable(text: str) -> str:
    """Return the text. Raises ValueError if it contains a control, format or unassigned character."""
    if text.isprintable():  # covers all of these, and is faster
        return text
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
            raise ValueError(f"holds the character U+{ord(character):04X}, which cannot be displayed safely")
    return text


def prose(text: str) -> str:
    """Return the text. Raises ValueError as ``printable`` does, but allows line breaks and tabs."""
    printable(text.replace("\n", " ").replace("\t", " "))
    return text


def label(text: str) -> str:
    """Return the label of a level. Raises ValueError if it cannot be used on a command line or in a report."""
    if not text:
        raise ValueError('a label cannot be empty; write { label = "none", value = "" }')
    if len(text) > MAX_LABEL:
        raise ValueError(
            f"a label has at most {MAX_LABEL} characters, found {len(text)}; write {{ label, value }}"
        )
    printable(text)
    if text != text.strip():
        raise ValueError("a label cannot start or end with a blank")
    if "," in text or "+" in text:
        raise ValueError(f'a label cannot contain "," or "+", found "{text}"; write {{ label, value }}')
    if text.casefold() == "all" or text.startswith("control:"):
        raise ValueError(f'the label "{text}" is reserved')
    return text


def scalar(value: object) -> str:
    """Return a level's value as text. Raises ValueError unless it is text, a whole number, true or false."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if abs(value) >= 2**63:
            raise ValueError("a whole number must fit into 64 bits")
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"expected text, a whole number, true or false, found {shown(value)}")
    if len(value) > 4096:
        raise ValueError(f"a level's value has at most 4096 characters, found {len(value)}")
    return prose(value)


def fitting(pattern: re.Pattern[str], what: str, longest: int = 64) -> Callable[[str], object]:
    """Return a check that raises ValueError unless the whole text matches."""

    def check(text: str) -> None:
        printable(text)
        if len(text) > longest:
            raise ValueError(f"a {what} has at most {longest} characters, found {len(text)}")
        if not pattern.fullmatch(text):
            raise ValueError(f'expected a {what} (pattern {pattern.pattern}), found "{text}"')

    return check


def one_of(*words: str) -> Meta:
    """Restrict text to one of these words."""

    def check(text: str) -> None:
        if text not in words:
            raise ValueError(f"expected one of {', '.join(words)}, found {shown(text)}")

    return formed(Form("text", check=check))


def _variable(text: str) -> None:
    if len(text) > 128 or not _VARIABLE.fullmatch(text):
        raise ValueError("expected the name of a variable: letters, digits and _, not starting with a digit")


def sorted_pairs(table: object) -> object:
    """Convert a table to pairs sorted by name, the stored format."""
    return [list(pair) for pair in sorted(table.items())] if isinstance(table, dict) else table


def _bit_rate(text: str) -> str:
    return units.format_bit_rate(units.parse_bit_rate(text))


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


Name = Annotated[str, formed(Form("name", check=fitting(_NAME, "name")))]
StudyName = Annotated[str, formed(Form("name", check=fitting(_STUDY_NAME, "study's name, or family/name")))]
PlaceName = Annotated[str, formed(Form("name", check=fitting(_PLACE, "name of a place", 32)))]
KnobName = Annotated[str, formed(Form("knob", check=fitting(_KNOB, "knob's name")))]
Label = Annotated[str, formed(Form("label", check=label))]
Line = Annotated[str, Meta(max_length=500), formed(Form("text", check=printable))]
Prose = Annotated[str, Meta(max_length=8192), formed(Form("text", check=prose))]
Argument = Annotated[str, Meta(max_length=4096), formed(Form("text", check=prose))]
#: text long enough for the content of a file
LongText = Annotated[str, Meta(max_length=1 << 17), formed(Form("text", check=prose))]
Variable = Annotated[str, formed(Form("name", check=_variable))]
Scalar = Annotated[str, formed(Form("text, number, true or false", read=scalar, check=scalar))]
Size = Annotated[int, formed(Form("size", read=units.parse_size, show=units.format_size, unit="_bytes"))]
Duration = Annotated[
    float, formed(Form("duration", read=units.parse_duration, show=units.format_duration, unit="_s"))
]
BitRate = Annotated[
    float,
    formed(Form("rate", read=units.parse_bit_rate, show=units.format_bit_rate, unit="_bits_per_s")),
]
Share = Annotated[float, formed(Form("share", read=units.parse_fraction, show=units.format_percent))]
Margin = Annotated[float, formed(Form("margin", read=units.parse_margin, show=units.format_percent))]
Alpha = Annotated[float, formed(Form("number", read=units.parse_alpha))]
Disk = Annotated[DiskSpec | None, formed(Form("modelled disk", read=parse_disk))]
Variables = Annotated[
    tuple[tuple[Variable, Argument], ...],
    Meta(max_length=64),
    formed(Form("table of text", read=sorted_pairs)),
]
Arguments = Annotated[tuple[Argument, ...], Meta(max_length=256), formed(Form("list of text"))]
#: one text, or a list of accepted ones
Words = formed(Form("text or list of text", read=_several))
RateWord = Annotated[str, formed(Form("rate", read=_bit_rate))]


# reading


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table.

    ``field`` is the name of the Struct's field, ``wanted`` its annotated type; ``default`` is NODEFAULT if
    the key is required.
    """

    name: str
    field: str
    wanted: Any
    default: Any

    @property
    def text(self) -> str:
        """Description of the key, for a reference."""
        return next((meta.description for meta in metas_of(self.wanted) if meta.description), "")

    @property
    def form(self) -> Form | None:
        """How its values are written."""
        return form_of(self.wanted)


@cache
def keys_of(struct: type[Struct]) -> dict[str, Key]:
    """Return the keys of the table that a Struct is read from, by name."""
    hints = typing.get_type_hints(struct, include_extras=True)
    found = {}
    for entry in msgspec.structs.fields(struct):
        wanted = hints[entry.name]
        form = form_of(wanted)
        named = next(
            (extra["key"] for meta in metas_of(wanted) if "key" in (extra := meta.extra or {})), None
        )
        name = named or (entry.name.removesuffix(form.unit) if form else entry.name)
        default = entry.default if entry.default_factory is NODEFAULT else entry.default_factory()
        found[name] = Key(name, entry.name, wanted, default)
    return found


def from_table(struct: type[S], table: object, read_from: ReadFrom = ReadFrom.FILE) -> S:
    """Read a table of a study file, or the ``msgspec.to_builtins`` form of a Struct, into the Struct.

    Raises Problem, with the path from ``table`` on.
    """
    return struct(**values_of(struct, table, read_from))


def values_of(struct: type[Struct], table: object, read_from: ReadFrom = ReadFrom.FILE) -> dict[str, Any]:
    """Return the values that a table gives to fields of a Struct, by field, without those it omits. Raises Problem."""
    return _fields(struct, table, (), read_from)


def converted(wanted: Any, value: object, *path: str | int, read_from: ReadFrom = ReadFrom.FILE) -> Any:
    """Convert a value to this type. Raises Problem."""
    return _converted(_described(wanted), value, path, read_from)


@dataclass(frozen=True, slots=True)
class _Described:
    """What reading needs to know about a type. It is the same for every value, so it is computed once.

    ``parts``: the types of the elements. ``outer``: the container with its limits on length.
    """

    wanted: Any
    plain: Any
    form: Form | None
    origin: Any
    parts: tuple[_Described, ...] = ()
    outer: Any = None


@cache
def _described(wanted: Any) -> _Described:
    plain, metas = plain_of(wanted), _own_metas(wanted)
    origin, arguments = typing.get_origin(plain), typing.get_args(plain)
    form = form_of(wanted)
    if origin in (typing.Union, UnionType):
        (member,) = (argument for argument in arguments if argument is not NoneType)
        inner = _described(Annotated[(member, *metas)] if metas else member)
        return _Described(wanted, plain, form, typing.Union, (inner,))
    container = (
        list
        if origin is tuple
        else dict
        if isinstance(origin, type) and issubclass(origin, Mapping)
        else None
    )
    if container is None:
        return _Described(wanted, plain, form, origin)
    lengths = [meta for meta in metas if meta.min_length is not None or meta.max_length is not None]
    outer = Annotated[(container, *lengths)] if lengths else container
    parts = tuple(_described(argument) for argument in arguments if argument is not Ellipsis)
    return _Described(wanted, plain, form, container, parts, outer)


def _converted(kind: _Described, value: object, path: Path, read_from: ReadFrom) -> Any:
    form = kind.form
    if form is None:
        return _typed(kind, value, path, read_from)
    try:
        if form.read is not None and read_from is ReadFrom.FILE:
            value = form.read(value)
        found = _typed(kind, value, path, read_from)
        if form.check is not None and found is not None and read_from is not ReadFrom.STORE:
            form.check(found)
    except Problem:
        raise
    except ValueError as error:
        raise _explained(
            str(getattr(error, "message", error)), path, hint=getattr(error, "hint", None)
        ) from None
    return found


def _fields(struct: type[Struct], table: object, path: Path, read_from: ReadFrom) -> dict[str, Any]:
    keys = keys_of(struct)
    if read_from is not ReadFrom.FILE:
        keys = {key.field: key for key in keys.values()}
    if not isinstance(table, dict):
        raise _explained(f"expected a table, found {shown(table)}", path)
    # Report an unknown key before a missing one: a misspelt key usually explains the missing one.
    for name in table:
        if name not in keys:
            raise UnknownKey(str(name), list(keys), *path)
    for name, key in keys.items():
        if key.default is NODEFAULT and name not in table:
            raise MissingKey(name, *path)
    return {
        key.field: _converted(_described(key.wanted), table[name], (*path, name), read_from)
        for name, key in keys.items()
        if name in table
    }


def _typed(kind: _Described, value: object, path: Path, read_from: ReadFrom) -> Any:
    if kind.plain is Any:
        return value
    if kind.origin is typing.Union:
        if value is None:
            return None
        if isinstance(value, Struct):
            return value  # already parsed by its form
        return _typed(kind.parts[0], value, path, read_from)
    if kind.origin is list:
        entries = _leaf(kind.outer, value, path)
        each: Sequence[_Described] = kind.parts
        if typing.get_args(kind.plain)[-1] is Ellipsis:
            each = kind.parts * len(entries)
        elif len(entries) != len(each):
            raise _explained(f"expected {len(each)} entries, found {len(entries)}", path)
        return tuple(
            _converted(part, entry, (*path, index), read_from)
            for index, (part, entry) in enumerate(zip(each, entries, strict=True))
        )
    if kind.origin is dict:
        names, values = kind.parts
        return {
            _converted(names, name, (*path, name), read_from): _converted(
                values, entry, (*path, name), read_from
            )
            for name, entry in _leaf(kind.outer, value, path).items()
        }
    if isinstance(kind.plain, type) and issubclass(kind.plain, Struct):
        return kind.plain(**_fields(kind.plain, value, path, read_from))
    return _leaf(kind.wanted, value, path)


def _leaf(wanted: Any, value: object, path: Path) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise _explained(f"expected a finite number, found {value}", path)
    try:
        return convert(value, wanted)
    except msgspec.ValidationError as error:
        raise _explained(_complaint(str(error), wanted, value), path) from None


def _explained(message: str, path: Path, hint: str | None = None) -> Problem:
    key = ".".join(str(part) for part in path if isinstance(part, str))
    return Problem(f"{printed(key)}: {message}" if key else message, *path, hint=hint)


_WANTED = {
    "str": "text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_BOUNDS = {">=": "at least", ">": "above", "<=": "at most", "<": "below"}
_BOUND = re.compile(r"Expected `\w+` (>=|>|<=|<) ([^ ]+)")
_LENGTH = re.compile(r"Expected `(\w+)` of length (>=|<=) ([0-9]+)")
_TYPE = re.compile(r"Expected `(\w+)")


def _complaint(message: str, wanted: Any, value: object) -> str:
    """Reword an error of msgspec for this project's messages."""
    plain = plain_of(wanted)
    if typing.get_origin(plain) is Literal or (isinstance(plain, type) and issubclass(plain, Enum)):
        choices = choices_of(plain)
        *first, last = (f'"{choice}"' if isinstance(choice, str) else str(choice) for choice in choices)
        listed = f"{', '.join(first)} or {last}" if first else last
        return f"expected {listed}, found {shown(value)}"
    if match := _LENGTH.match(message):
        if match[2] == ">=":
            return "cannot be empty" if match[3] == "1" else f"at least {match[3]} entries are needed"
        return f"at most {match[3]} {'characters' if match[1] == 'str' else 'entries'} are allowed"
    if match := _BOUND.match(message):
        return f"expected {_BOUNDS[match[1]]} {float(match[2]):.15g}, found {shown(value)}"
    if (match := _TYPE.match(message)) and match[1] in _WANTED:
        return f"expected {_WANTED[match[1]]}, found {shown(value)}"
    return f"{message[:1].lower()}{message[1:]}, found {shown(value)}"


def choices_of(plain: Any) -> tuple[Any, ...]:
    """Return the values of a Literal or an Enum."""
    if typing.get_origin(plain) is Literal:
        return typing.get_args(plain)
    return tuple(member.value for member in plain)


def plain_of(wanted: Any) -> Any:
    """Return the type without its limits."""
    return typing.get_args(wanted)[0] if typing.get_origin(wanted) is Annotated else wanted


def _own_metas(wanted: Any) -> tuple[Meta, ...]:
    return typing.get_args(wanted)[1:] if typing.get_origin(wanted) is Annotated else ()


def metas_of(wanted: Any) -> tuple[Meta, ...]:
    """Return all metas of a type, including those inside ``X | None``."""
    plain = plain_of(wanted)
    inside: tuple[Meta, ...] = ()
    if typing.get_origin(plain) in (typing.Union, UnionType):
        inside = tuple(meta for part in typing.get_args(plain) for meta in metas_of(part))
    return (*inside, *_own_metas(wanted))


def form_of(wanted: Any) -> Form | None:
    """Return the form of a type, None if it has none."""
    found: Form | None = None
    for meta in metas_of(wanted):
        found = (meta.extra or {}).get("form", found)
    return found


# Comparison of level labels: "10KiB", "10 kib" and "10 KiB" are the same label.


def fold(label: str) -> str:
    """Normalise a label: no whitespace, case folded."""
    return "".join(label.split()).casefold()


def match(text: str, labels: Iterable[str]) -> str | None:
    """Return the label that equals ``text`` exactly or after ``fold``; None if there is none."""
    labels = tuple(labels)
    if text in labels:
        return text
    folded = fold(text)
    return next((label for label in labels if fold(label) == folded), None)
