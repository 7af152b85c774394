"""The source of a study file: its text, its line numbers, and errors that report both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import Struct

from iotrial.errors import StudyError, UnknownName
from iotrial.study.input_files import InputFile
from iotrial.study.locator import Locator
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
        missing = UnknownName(kind, printed(name), known)
        return self.error(missing.message, *path, hint=missing.hint)

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
