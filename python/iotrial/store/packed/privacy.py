"""Removes private data from a packed trial: folders and names of the user's machine, and terminal escapes.

Measurements stay as they are; what concerns the user is reduced to what another machine can use. The result
is the same every time, so that an imported trial is exported as it came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import structs

from iotrial.store.limits import MAX_REASON
from iotrial.store.model import Event, TrialHeader
from iotrial.store.packed.records import OPTIONS, PackedRecord, PackedRun, PackedState
from iotrial.study.model import Study
from iotrial.study.schema import printable

_PATH_OPTIONS = (
    "--html", "--markdown", "--on", "--like", "--device", "--erase", "--place",
)  # fmt: skip
_PATH = re.compile(r"(?<![\w.~)\]}/-])(?:~|\.{1,2})?/[^\s,:;\"'|]*")


class Privacy:
    """What to remove from one trial: its lab's folder and the user's home in texts, paths in facts."""

    def __init__(self, header: TrialHeader, *, home: str | None = None) -> None:
        folder = header.options.get("folder")
        places = [(folder, "LAB")] if isinstance(folder, str) else []
        located = header.options.get("places")
        for name, options in located.items() if isinstance(located, Mapping) else ():
            if isinstance(options, Mapping) and isinstance(options.get("folder"), str):
                places.append((options["folder"], str(name)))
        places.append((str(Path.home()) if home is None else home, "~"))
        self._places = [(place.rstrip("/"), mark) for place, mark in places if len(place.rstrip("/")) > 1]

    def reduced(self, record: PackedRecord) -> PackedRecord:
        """Return the record as it may leave the machine."""
        match record:
            case TrialHeader():
                return self._header(record)
            case PackedState():
                return replace(record, reason=self._cleaned(record.reason))
            case PackedRun():
                run = record.run
                checks = self._facts(run.checks)
                return replace(record, run=replace(run, failure=self._cleaned(run.failure), checks=checks))
            case Event():
                return replace(record, text=self._cleaned(record.text) or "")
            case _:
                return record

    def _header(self, header: TrialHeader) -> TrialHeader:
        kept = {name: header.options[name] for name in header.options if name in OPTIONS}
        if "argv" in kept:
            kept["argv"] = _words(kept["argv"], header.study)
        return replace(
            header,
            study=_study(header.study),
            lab=_without_paths(self._facts(header.lab)),
            host=_without_paths(self._facts(header.host)),
            options=kept,
        )

    def _cleaned(self, text: str | None) -> str | None:
        if text is None:
            return None
        for place, mark in self._places:
            text = re.sub(re.escape(place) + r"(?![\w.-])", mark, text)
        text = visible(text)
        return text if len(text) <= MAX_REASON else text[: MAX_REASON - 1] + "…"

    def _facts(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._cleaned(value)
        if isinstance(value, Mapping):
            return {visible(str(key)): self._facts(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._facts(inner) for inner in value]
        return value


def visible(text: str) -> str:
    """Return the text with every unsafe character escaped; lines end in ``\\n``."""
    text = text.replace("\r\n", "\n")
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" or _safe(c) else f"\\u{{{ord(c):x}}}" for c in text)


def _safe(character: str) -> bool:
    try:
        printable(character)
    except ValueError:
        return False
    return True


def _study(study: Study) -> Study:
    """Return the study without its file's folder, and untrusted. A catalogue name is kept: it is the same everywhere."""
    origin = study.origin if study.origin == study.name else PurePosixPath(study.origin).name
    return structs.replace(study, origin=visible(origin), text=visible(study.text), trusted=False)


def _words(argv: object, study: Study) -> list[str]:
    """Return the command line without options that name files and folders; other paths are cut to their last part."""
    kept: list[str] = []
    skip = False
    for word in map(str, argv if isinstance(argv, list | tuple) else ()):
        name, equals, value = word.partition("=")
        if skip or name in _PATH_OPTIONS:
            skip = not skip and not equals
            continue
        if word != study.name:
            base = PurePosixPath(value if equals else word).name
            if (value if equals else word).startswith(("/", "./", "../", "~")) or word == study.origin:
                word = f"{name}={base}" if equals else base
        kept.append(visible(word))
    return kept


def _without_paths(value: Any) -> Any:
    if isinstance(value, str):
        return _PATH.sub(lambda found: PurePosixPath(found[0]).name, value)
    if isinstance(value, Mapping):
        return {key: _without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_paths(inner) for inner in value]
    return value
