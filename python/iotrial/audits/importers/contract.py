"""The interface of an importer: its input, its result, and limits that apply to every file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from iotrial.audits.model import Observation
from iotrial.errors import RequestError

MAX_BYTES = 32 << 20
MAX_OBSERVATIONS = 500_000
MAX_ROWS = 200_000
MAX_COLUMNS = 512
MAX_LABEL = 200


@dataclass(frozen=True, slots=True)
class Source:
    """A file as text. ``label`` is the group given by the user (``LABEL=FILE``); ``alone``: it is the only file."""

    name: str
    text: str
    label: str | None = None
    alone: bool = True

    @property
    def stem(self) -> str:
        """The file's name as a group label: without folder, suffix and repeat number."""
        stem = Path(self.name).name.split(".")[0]
        return self.label or re.sub(r"[-_ ]?[0-9]{1,6}$", "", stem) or stem


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


@dataclass(frozen=True, slots=True)
class Imported:
    """The content of one file. ``unread`` describes what was left out, ``group_column`` names the treatment's column."""

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


@dataclass(frozen=True, slots=True)
class Format:
    """A format: how to recognise it and how to read it. Lower ranks are tried first."""

    name: str
    title: str
    recognises: Callable[[str], bool]
    read: Callable[[Source, ReadOptions], Imported]
    rank: int = 10


def label(text: object) -> str:
    """Return a label on one line and of limited length."""
    return " ".join(str(text).split())[:MAX_LABEL] or "(empty)"


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
        raise RequestError(
            f"{name}: larger than {MAX_BYTES >> 20} MiB", hint="split the file and audit the parts"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        try:
            text = data.decode("utf-16") if data[:2] in (b"\xff\xfe", b"\xfe\xff") else data.decode("latin-1")
        except UnicodeDecodeError:
            raise RequestError(f"{name}: not a text file") from None
    if "\0" in text:
        raise RequestError(
            f"{name}: contains NUL bytes, so it is not a text file", hint="export it as CSV or JSON first"
        )
    return Source(name, text.replace("\r\n", "\n").replace("\r", "\n"), label, alone)
