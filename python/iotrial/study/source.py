"""The source of a study file: its text, its line numbers, and errors that report both."""

from __future__ import annotations

import bisect
import re
import tomllib
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import Struct

from iotrial.errors import StudyError, unknown
from iotrial.study.input_files import InputFile
from iotrial.study.schema import MissingKey, Path, Problem, UnknownKey, from_table, printed

S = TypeVar("S", bound=Struct)


class Source:
    """One study file.

    ``origin`` is its name in errors. ``read_text_file`` reads a text file in the study's folder, ``find_file`` finds
    any other file there; both raise ValueError if they cannot. Without ``keeps_lines`` the document is searched for
    lines only if there is an error.
    """

    def __init__(
        self,
        text: str,
        origin: str,
        read_text_file: Callable[[str], str] | None = None,
        find_file: Callable[[str], InputFile] | None = None,
        *,
        keeps_lines: bool = True,
    ) -> None:
        self.text = text
        self.origin = origin
        #: text files that the study names, by name
        self.read: dict[str, str] = {}
        #: other files that the study names, by name
        self.found: dict[str, InputFile] = {}
        self._read_text_file = read_text_file
        self._find_file = find_file
        self._keeps_lines = keeps_lines
        self._locator: Locator | None = None

    def error(self, message: str, *path: str | int, hint: str | None = None) -> StudyError:
        """Return an error about the value at this path of the document."""
        return StudyError(message, file=self.origin, line=self.line(*path), hint=hint)

    def unknown(self, kind: str, name: str, known: Iterable[str], *path: str | int) -> StudyError:
        """Return an error about an unknown name, with the nearest known name as a hint."""
        message, hint = unknown(kind, printed(name), known)
        return self.error(message, *path, hint=hint)

    def table(self, struct: type[S], data: object, *path: str | int) -> S:
        """Read the table at this path as a Struct. Raises StudyError if it is not valid."""
        try:
            return from_table(struct, data)
        except Problem as problem:
            raise self.explained(problem, path) from None

    def explained(self, problem: Problem, path: Path) -> StudyError:
        """Convert a Problem in the table at this path to a StudyError."""
        inside = (*path, *problem.path)
        if isinstance(problem, UnknownKey):
            message = f'{table_name(inside[:-1])} has no key "{printed(problem.name)}"'
        elif isinstance(problem, MissingKey):
            what = f'"{problem.name}"' if inside else f"the table [{problem.name}]"
            message = f"{table_name(inside)} lacks {what}"
        else:
            message = problem.message
        return self.error(message, *inside, hint=problem.hint)

    def text_next_to_study(self, name: str, *path: str | int) -> str:
        """Return the text of a file in the study's folder. Raises StudyError if it cannot be read."""
        if self._read_text_file is None:
            hint = "write its text into the study"
            raise self.error("only a study in its own file can refer to another file", *path, hint=hint)
        try:
            self.read[name] = self._read_text_file(name)
        except ValueError as error:
            raise self.error(f"{printed(name)}: {error}", *path) from None
        return self.read[name]

    def file_next_to_study(self, name: str, *path: str | int) -> InputFile:
        """Return the folder and checksum of a file in the study's folder. Raises StudyError if it cannot be read."""
        if self._find_file is None:
            hint = "write the study to a file next to it"
            raise self.error("only a study in its own file can refer to another file", *path, hint=hint)
        try:
            self.found[name] = self._find_file(name)
        except ValueError as error:
            raise self.error(f"{printed(name)}: {error}", *path) from None
        return self.found[name]

    def line(self, *path: str | int) -> int | None:
        """Return the line of this path, or of its nearest parent in the file."""
        if self._locator is None:
            self._locator = Locator(self.text)
        return self._locator.line(*path)

    def line_to_keep(self, *path: str | int) -> int | None:
        """Return the line of this path, for a study that remembers it; None without ``keeps_lines``."""
        return self.line(*path) if self._keeps_lines else None


def table_name(path: Path) -> str:
    """Return the name of a table in messages: ``[study]``, ``[[factor]]``, ``the file``."""
    names = [str(part) for part in path if isinstance(part, str)]
    if not names:
        return "the file"
    inner = ".".join(names)
    return f"[[{inner}]]" if isinstance(path[-1], int) else f"[{inner}]"


# Find the line of a key, table or list entry in a TOML document.


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t\r]*")
_BLANK_AND_COMMENTS = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}\n#]*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")' r"|'''.*?'{3,5}(?!')" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'",
    re.DOTALL,
)


class Locator:
    """Lines of one document by path. A path that does not exist has the line of its nearest parent."""

    def __init__(self, text: str) -> None:
        self._lines = _Scanner(text).lines()

    def line(self, *path: str | int) -> int | None:
        """Return the line (from 1) of this path or of the nearest parent in the document."""
        for length in range(len(path), 0, -1):
            found = self._lines.get(path[:length])
            if found is not None:
                return found
        return None


class _Scanner:
    """One pass over a valid document. Tables nested deeper than in any study get no lines."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._newlines = [m.start() for m in re.finditer("\n", text)]
        self._found: dict[Path, int] = {}
        self._entries: dict[Path, int] = {}  # number of [[headers]] seen so far for each list of tables

    def lines(self) -> dict[Path, int]:
        try:
            self._document()
        except (IndexError, ValueError, RecursionError):
            return self._found  # not a document this scanner understands: keep the lines found so far
        return self._found

    def _document(self) -> None:
        table: Path = ()
        while True:
            self._skip(_BLANK_AND_COMMENTS)
            if self._at >= len(self._text):
                return
            if self._text.startswith("[[", self._at):
                table = self._header(brackets=2)
            elif self._text[self._at] == "[":
                table = self._header(brackets=1)
            else:
                self._pair(table)

    def _header(self, *, brackets: int) -> Path:
        line = self._line()
        self._at += brackets
        keys = self._key()
        self._at += brackets
        path: Path = ()
        for depth, key in enumerate(keys):
            path = (*path, key)
            if depth == len(keys) - 1 and brackets == 2:
                self._entries[path] = self._entries.get(path, 0) + 1
            self._found.setdefault(path, line)
            if path in self._entries:
                path = (*path, self._entries[path] - 1)
                self._found.setdefault(path, line)
        return path

    def _pair(self, table: Path) -> None:
        line = self._line()
        path = table
        for key in self._key():
            path = (*path, key)
            self._found.setdefault(path, line)
        self._skip(_BLANK)
        self._at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _key(self) -> list[str]:
        """Read a dotted key and leave the position after it."""
        keys = []
        while True:
            self._skip(_BLANK)
            if match := _BARE_KEY.match(self._text, self._at):
                keys.append(match[0])
                self._at = match.end()
            else:
                start = self._at
                self._string()
                keys.append(tomllib.loads(f"key = {self._text[start : self._at]}")["key"])
            self._skip(_BLANK)
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _value(self, path: Path) -> None:
        opening = self._text[self._at]
        if opening in "\"'":
            self._string()
        elif opening == "[":
            self._list(path)
        elif opening == "{":
            self._inline_table(path)
        elif opening in ",]}\n#":
            raise ValueError("no value here")
        else:
            self._skip(_SCALAR)

    def _list(self, path: Path) -> None:
        self._at += 1
        index = 0
        while True:
            self._skip(_BLANK_AND_COMMENTS)
            if self._text[self._at] == "]":
                self._at += 1
                return
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._found.setdefault((*path, index), self._line())
            self._value((*path, index))
            index += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while True:
            self._skip(_BLANK_AND_COMMENTS)
            if self._text[self._at] == "}":
                self._at += 1
                return
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._pair(path)

    def _string(self) -> None:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise ValueError("no string here")
        self._at = match.end()

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def _line(self) -> int:
        return bisect.bisect_left(self._newlines, self._at) + 1
