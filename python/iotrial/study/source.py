"""A study file while it is read: its text, its lines, and errors that know both.

pydantic says what is wrong in its own words; here they become the words of this project, with the line,
what was wanted, what was found, and the nearest known key.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from iotrial.errors import StudyError, UnknownName
from iotrial.study.locator import Locator
from iotrial.study.wire import shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=BaseModel)

_WANTED = {
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "a finite number",
}


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

    def table(self, model: type[Model], data: object, *path: str | int) -> Model:
        """The table at this path by its wire model; StudyError where it does not fit."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            # An unknown key explains the missing one beside it, so it is the one to report.
            problems = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
            raise self._explained(problems[0], model, path) from None

    def _explained(
        self, problem: ErrorDetails, model: type[BaseModel], path: tuple[str | int, ...]
    ) -> StudyError:
        place = tuple(part for part in problem["loc"] if not _is_tag(part))
        inside = (*path, *place)
        key = ".".join(str(part) for part in place if isinstance(part, str))
        table = table_name(path)
        if problem["type"] == "extra_forbidden":
            known = list(model.model_fields)
            near = difflib.get_close_matches(str(place[-1]), known, n=1, cutoff=0.5)
            nearest = f'did you mean "{near[0]}"? ' if near else ""
            message = f'{table} has no key "{printed(str(place[-1]))}"'
            return self.error(message, *inside, hint=f"{nearest}known: {', '.join(known)}")
        if problem["type"] == "missing":
            what = f"the table [{key}]" if not path else f'"{key}"'
            return self.error(f"{table} lacks {what}", *path)
        cause = problem.get("ctx", {}).get("error")
        hint = getattr(cause, "hint", None)
        return self.error(f"{printed(key) or table}: {_complaint(problem, cause)}", *inside, hint=hint)

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


def table_name(path: tuple[str | int, ...]) -> str:
    """How a table is called in a message: ``[study]``, ``[[factor]]``, ``the file``."""
    names = [str(part) for part in path if isinstance(part, str)]
    if not names:
        return "the file"
    inner = ".".join(names)
    return f"[[{inner}]]" if isinstance(path[-1], int) else f"[{inner}]"


def printed(text: str) -> str:
    """Text of the file made fit for a message: bounded, no control characters."""
    return shown(text)[1:-1]


def _is_tag(part: str | int) -> bool:
    """Whether pydantic put this into a path to name the member of a union that was tried."""
    return isinstance(part, str) and part.startswith(
        ("dict[", "list[", "function-", "literal[", "constrained-")
    )


def _complaint(problem: ErrorDetails, cause: Any) -> str:
    found = shown(problem["input"])
    context = problem.get("ctx", {})
    kind = problem["type"]
    if cause is not None:
        return str(cause)
    if kind in _WANTED:
        return f"wanted {_WANTED[kind]}, found {found}"
    if kind == "literal_error":
        return f"wanted {context['expected'].replace(chr(39), chr(34))}, found {found}"
    if kind in ("string_too_long", "too_long"):
        limit = context["max_length"]
        return f"at most {limit} {'characters' if kind.startswith('string') else 'entries'} are allowed"
    if kind in ("string_too_short", "too_short"):
        return "cannot be empty"
    for bound, words in (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most")):
        if bound in context:
            return f"wanted {words} {context[bound]:.15g}, found {found}"
    return f"{problem['msg'].lower()}, found {found}"
