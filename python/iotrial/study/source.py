"""A study file while it is read: its text, its lines, and errors that know both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import Struct

from iotrial.errors import StudyError, UnknownName
from iotrial.study.locator import Locator
from iotrial.study.schema import MissingKey, Path, Problem, UnknownKey, from_table, printed

S = TypeVar("S", bound=Struct)


class Source:
    """One study file. ``origin`` is what errors call it; ``beside`` reads a text file in its folder, ValueError where it
    cannot."""

    def __init__(self, text: str, origin: str, beside: Callable[[str], str] | None = None) -> None:
        self.text = text
        self.origin = origin
        #: the text files that it named, by name
        self.read: dict[str, str] = {}
        self._beside = beside
        self._locator: Locator | None = None

    def error(self, message: str, *path: str | int, hint: str | None = None) -> StudyError:
        """An error about the value at this path of the document."""
        return StudyError(message, file=self.origin, line=self.line(*path), hint=hint)

    def unknown(self, kind: str, name: str, known: Iterable[str], *path: str | int) -> StudyError:
        """An error about a name that does not exist, with the nearest that does."""
        missing = UnknownName(kind, printed(name), known)
        return self.error(missing.message, *path, hint=missing.hint)

    def table(self, struct: type[S], data: object, *path: str | int) -> S:
        """The table at this path as a Struct; StudyError where it does not fit."""
        try:
            return from_table(struct, data)
        except Problem as problem:
            raise self.explained(problem, path) from None

    def explained(self, problem: Problem, path: Path) -> StudyError:
        """The error of a problem in the table at this path."""
        inside = (*path, *problem.path)
        if isinstance(problem, UnknownKey):
            message = f'{table_name(inside[:-1])} has no key "{printed(problem.name)}"'
        elif isinstance(problem, MissingKey):
            what = f'"{problem.name}"' if inside else f"the table [{problem.name}]"
            message = f"{table_name(inside)} lacks {what}"
        else:
            message = problem.message
        return self.error(message, *inside, hint=problem.hint)

    def text_beside(self, name: str, *path: str | int) -> str:
        """The text of a file beside the study's own; StudyError where it cannot be had."""
        if self._beside is None:
            hint = "write its text into the study"
            raise self.error("only a study in a file of its own can name another file", *path, hint=hint)
        try:
            self.read[name] = self._beside(name)
        except ValueError as error:
            raise self.error(f"{printed(name)}: {error}", *path) from None
        return self.read[name]

    def line(self, *path: str | int) -> int | None:
        """The line of this path, or of the nearest parent that the file holds."""
        if self._locator is None:
            self._locator = Locator(self.text)
        return self._locator.line(*path)


def table_name(path: Path) -> str:
    """How a table is called in a message: ``[study]``, ``[[factor]]``, ``the file``."""
    names = [str(part) for part in path if isinstance(part, str)]
    if not names:
        return "the file"
    inner = ".".join(names)
    return f"[[{inner}]]" if isinstance(path[-1], int) else f"[{inner}]"
