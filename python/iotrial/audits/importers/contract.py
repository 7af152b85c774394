"""The interface of an importer: its input, its result, and limits that apply to every file."""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iotrial.audits.model import Observation
from iotrial.errors import RequestError

MAX_BYTES = 32 << 20
MAX_OBSERVATIONS = 500_000
MAX_ROWS = 200_000
MAX_COLUMNS = 512
MAX_LABEL = 200
#: from this rank on a format takes any table
TABLES = 90


@dataclass(frozen=True, slots=True)
class Source:
    """A file as text. ``label`` is the group given by the user (``LABEL=FILE``); ``alone``: it is the only file.

    ``stem`` is the group that its name gives, once all files are known (``with_stems``).
    """

    name: str
    text: str
    label: str | None = None
    alone: bool = True
    stem: str = ""


_SUFFIXES = re.compile(r"(?:\.(?:csv|dat|htm|html|json|log|md|out|tsv|txt|xls))+$", re.IGNORECASE)
_NUMBERED = re.compile(
    r"(?:(.+?)[-_ ./])?(?:(?:run|rep|repeat|repetition|iter|iteration|trial|sample)[-_ .]?)?([0-9]{1,6})",
    re.IGNORECASE,
)


def with_stems(sources: Sequence[Source]) -> list[Source]:
    """The files, each with its label or its name as a group: without suffix and repeat number.

    A number at the end is one of a repeat only if the files of that name are numbered 1, 2, 3 or 0, 1, 2 and so on: raid-0
    and raid-1, ext3 and ext4, qd-1 and qd-32 are groups of their own. Folders count where they tell files of one name apart:
    before/1.json, before/2.json, after/1.json.
    """
    paths = [Path(_SUFFIXES.sub("", source.name) or source.name) for source in sources]
    names = [path.name or source.name for path, source in zip(paths, sources, strict=True)]
    if len(set(names)) < len({source.name for source in sources}):
        levels = zip(*(path.parent.parts for path in paths), strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda parts: len(set(parts)) == 1, levels))
        parts = [path.parts[shared:] for path in paths]
        if len(set(names)) == 1 and all(len(one) > 1 for one in parts):
            parts = [one[:-1] for one in parts]
        names = ["/".join(one) or name for one, name in zip(parts, names, strict=True)]
    numbers: dict[str | None, list[int]] = defaultdict(list)
    for name in names:
        if found := _NUMBERED.fullmatch(name):
            numbers[found[1]].append(int(found[2]))
    repeated = {
        name
        for name, given in numbers.items()
        if set(given) == set(range(1, max(given) + 1))
        or {0, 1, 2} <= set(given) == set(range(max(given) + 1))
    }
    stems = []
    for name in names:
        found = _NUMBERED.fullmatch(name)
        is_repeat = found is not None and found[1] in repeated and (found[1] or len(names) > 1)
        stems.append((found[1] or "all") if found and is_repeat else name)
    return [replace(one, stem=one.label or stem) for one, stem in zip(sources, stems, strict=True)]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the user specified about the columns and the claims; None and empty: guess."""

    group: str | None = None
    values: tuple[str, ...] = ()
    unit: str | None = None
    conditions: tuple[str, ...] = ()
    order: str | None = None
    run: str | None = None
    series: str | None = None
    reference: str | None = None
    responses: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    decimal: str | None = None  # "comma" or "point"
    columns: tuple[str, ...] = ()  # the role of each column of a table, in order


@dataclass(frozen=True, slots=True)
class Imported:
    """The content of one file. ``unread`` describes what was left out, ``group_column`` names the treatment's column.

    ``columns`` is what each column of a table was taken for, as ``--columns`` says it.
    """

    observations: tuple[Observation, ...]
    reference: str | None = None
    claims: tuple[str, ...] = ()
    same: tuple[tuple[str, ...], ...] = ()
    traced: str | None = None
    title: str | None = None
    study: str | None = None
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    group_column: str = ""
    columns: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    """A format: how to recognise it and how to read it. Lower ranks are tried first.

    ``settle``, if given, decides on groups and conditions once all files of the format are read, and returns notes. Its last
    argument are the groups that only file names give.
    """

    name: str
    title: str
    recognises: Callable[[str], bool]
    read: Callable[[Source, ReadOptions], Imported]
    rank: int = 10
    settle: (
        Callable[
            [Sequence[Observation], ReadOptions, Collection[str]],
            tuple[tuple[Observation, ...], tuple[str, ...]],
        ]
        | None
    ) = None


def label(text: object) -> str:
    """Return a label on one line and of limited length."""
    return " ".join(str(text).split())[:MAX_LABEL] or "(empty)"


def damaged(name: str, what: object) -> str:
    """Say for ``unread`` that something in a file is cut off or damaged."""
    return f"{name}: cut off or damaged ({str(what)[:100]})"


def no_result(
    source: Source, title: str, unread: Sequence[str] = (), *, hint: str | None = None
) -> RequestError:
    """Return the error for a file without a result of its format. ``unread``: what was left out."""
    return RequestError(
        f"{source.name}: contains no result of {title}{''.join(f' ({line})' for line in unread[:1])}",
        hint=hint,
    )


def too_many(name: str, most: int, what: str) -> RequestError:
    """Return the error for a file beyond a limit."""
    return RequestError(f"{name}: more than {most} {what}", hint="split the file and audit the parts")


def json_of(source: Source) -> Any:
    """Parse the file as one JSON document. Raises RequestError."""
    try:
        return json.loads(source.text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{source.name}: not JSON ({str(error)[:100]})") from None


def open_source(path: Path, *, name: str, label: str | None, alone: bool) -> Source:
    """Read the file as text. Raises RequestError if it is not a file, too large or not text."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        absent = isinstance(error, FileNotFoundError | NotADirectoryError)
        hint = 'name an existing file of results, or "-" for standard input' if absent else None
        raise RequestError(f"read {name}: {error.strerror or error}", hint=hint) from error
    return source_of(data, name=name, label=label, alone=alone)


def source_of(data: bytes, *, name: str, label: str | None = None, alone: bool = True) -> Source:
    """Decode bytes into a source. Raises RequestError if there are too many, or they are not text."""
    if len(data) > MAX_BYTES:
        raise too_many(name, MAX_BYTES >> 20, "MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        try:
            text = data.decode("utf-16") if data[:2] in (b"\xff\xfe", b"\xfe\xff") else data.decode("latin-1")
        except UnicodeDecodeError:
            text = "\0"
    if "\0" in text or "\u0a0d" in text:  # a line end of UTF-16 that is read one byte too late
        raise RequestError(f"{name}: not a text file", hint="export it as CSV or JSON first")
    return Source(name, text.replace("\r\n", "\n").replace("\r", "\n"), label, alone)
