"""Find the line of a key, table or list entry in a TOML document.

``tomllib`` returns values without positions, and an error about a value is only useful with its line. The
scanner walks a document that ``tomllib`` has already accepted, so it looks only at the structure: headers,
keys and brackets. Strings are skipped: a ``#`` or a ``[[factor]]`` inside one is not a comment or a header.
Paths are those of the parsed document: ``("factor", 1, "levels", 0)``.
"""

from __future__ import annotations

import bisect
import re
import tomllib

Path = tuple[str | int, ...]

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
