"""The studies that iotrial ships, by names such as ``files/permissions``, and the way to any study by name
or path.

Listing reads the head of each file only and imports no reader, so that a command line can answer fast.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from iotrial.errors import UnknownName

if TYPE_CHECKING:
    from iotrial.study.model import Study


@dataclass(frozen=True, slots=True)
class Entry:
    """One shipped study as a list shows it."""

    name: str
    title: str
    question: str


def names() -> tuple[str, ...]:
    """The names of all shipped studies, sorted."""
    return tuple(sorted(_shipped()))


def entries() -> tuple[Entry, ...]:
    """All shipped studies with title and question, by name."""
    found = []
    for name, file in sorted(_shipped().items()):
        head = tomllib.loads(file.read_text("utf-8")).get("study", {})
        found.append(Entry(name, str(head.get("title", name)), str(head.get("question", ""))))
    return tuple(found)


def text(name: str) -> str:
    """The TOML of a shipped study, with the texts that lie beside it; UnknownName where there is none of this name."""
    if name not in _shipped():
        raise UnknownName("study", name, _shipped())
    return find(name).text


def find(name_or_path: str, *, trusted: bool = False) -> Study:
    """The shipped study of this name, or the study in the TOML file of this path.

    Shipped studies are trusted; a file is where the user says so, or where it is his own. UnknownName where it is neither,
    StudyError where the file holds no study.
    """
    from iotrial.study.reader import load, read_study

    shipped = _shipped()
    if name_or_path in shipped:
        text = shipped[name_or_path].read_text("utf-8")
        return read_study(text, name_or_path, trusted=True, beside=_beside(name_or_path))
    if name_or_path.endswith(".toml") or name_or_path.startswith((".", "/", "~")) or _is_file(name_or_path):
        return load(Path(name_or_path).expanduser(), trusted=trusted)
    raise UnknownName("study", name_or_path, shipped)


def is_shipped(study: Study) -> bool:
    """Whether a study is one that ships, as ``find`` gives it: a file of the same name, or a packed trial of it, is not."""
    return study.trusted and study.origin in _shipped()


def _beside(name: str) -> Callable[[str], str]:
    """What reads the texts that lie beside a shipped study, by their names alone."""
    family = name.partition("/")[0]

    def text_of(file: str) -> str:
        found = next(
            (one for one in (files("iotrial") / "catalogue" / family).iterdir() if one.name == file), None
        )
        if found is None:
            raise ValueError("is not there")
        return found.read_text("utf-8")

    return text_of


@cache
def _shipped() -> dict[str, Traversable]:
    found = {}
    catalogue = files("iotrial") / "catalogue"
    if not catalogue.is_dir():
        return {}
    for family in catalogue.iterdir():
        if not family.is_dir() or family.name.startswith(("_", ".")):
            continue
        for file in family.iterdir():
            if file.name.endswith(".toml"):
                found[f"{family.name}/{file.name.removesuffix('.toml')}"] = file
    return found


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False
