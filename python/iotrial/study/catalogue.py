"""The studies shipped with iotrial, by names such as ``files/permissions``, and lookup of any study by name or path.

Listing uses ``catalogue/index.json``, which `make manual` writes, and reads a study itself only if its file has changed
since: the command line answers fast.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from iotrial.errors import UnknownName

if TYPE_CHECKING:
    from iotrial.study.model import Study

CATALOGUE = Path(__file__).parents[1] / "catalogue"
INDEX = CATALOGUE / "index.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One shipped study as listed.

    ``time_s``: its budget of measuring. ``safety``: the gravest of its settings (``report.safety.worst``), None if the
    study is not the one that was indexed.
    """

    name: str
    title: str
    question: str
    time_s: float
    safety: str | None = None

    def has(self, words: Iterable[str]) -> bool:
        """Return whether all words are found in name, title or question; upper and lower case do not count."""
        text = f"{self.name}\n{self.title}\n{self.question}".casefold()
        return all(word.casefold() in text for word in words)


def names() -> tuple[str, ...]:
    """Return the names of all shipped studies, sorted."""
    return tuple(sorted(_shipped()))


def entries() -> tuple[Entry, ...]:
    """Return all shipped studies, sorted by name. Raises StudyError if one that is not as indexed is not valid."""
    index = json.loads(INDEX.read_bytes()) if INDEX.exists() else {}
    found = []
    for name, file in sorted(_shipped().items()):
        row = index.get(name)
        if row is not None and row.pop("crc32") == crc32(file.read_bytes()):
            found.append(Entry(name, **row))
        else:
            study = look_up(name)
            found.append(Entry(name, study.title, study.question, study.budget.time_s))
    return tuple(found)


def text(name: str) -> str:
    """Return the TOML of a shipped study with the text files it names embedded. Raises UnknownName."""
    if name not in _shipped():
        raise UnknownName("study", name, _shipped())
    return find(name).text


def find(name_or_path: str, *, trusted: bool = False) -> Study:
    """Return the shipped study of this name, or the study in the TOML file at this path.

    Shipped studies are trusted; a file is trusted if the user says so or if only he and root could have
    written it. Raises UnknownName if it is neither a name nor a path, and StudyError if the file is not a
    valid study.
    """
    from iotrial.study.reader import load, read_study

    shipped = _shipped()
    if name_or_path in shipped:
        text = shipped[name_or_path].read_text("utf-8")
        return read_study(text, name_or_path, trusted=True, read_text_file=_text_reader(name_or_path))
    if name_or_path.endswith(".toml") or name_or_path.startswith((".", "/", "~")) or _is_file(name_or_path):
        return load(Path(name_or_path).expanduser(), trusted=trusted)
    raise UnknownName("study", name_or_path, shipped)


def look_up(name: str) -> Study:
    """Return the shipped study of this name to look at, not to run: see ``to_run`` of ``read_study``. Raises KeyError."""
    from iotrial.study.reader import read_study

    text = _shipped()[name].read_text("utf-8")
    return read_study(text, name, trusted=True, read_text_file=_text_reader(name), to_run=False)


def is_shipped(study: Study) -> bool:
    """Return whether this is a shipped study as ``find`` returns it, not a file of the same name or a packed trial of it."""
    return study.trusted and study.origin in _shipped()


def _text_reader(name: str) -> Callable[[str], str]:
    """Return a function that reads text files next to a shipped study, by file name only."""
    family = name.partition("/")[0]

    def text_of(file: str) -> str:
        found = next((one for one in (CATALOGUE / family).iterdir() if one.name == file), None)
        if found is None:
            raise ValueError("is missing")
        return found.read_text("utf-8")

    return text_of


@cache
def _shipped() -> dict[str, Path]:
    found = (file for file in CATALOGUE.glob("*/*.toml") if not file.parent.name.startswith(("_", ".")))
    return {f"{file.parent.name}/{file.stem}": file for file in found}


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False
