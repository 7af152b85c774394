"""All figures of a trial as files in a folder: SVG and CSV of each, an index, and a list of the files written.

The list (``figures.json``) holds the SHA-256 of every file written here. An existing file is replaced only if its
content still matches the list; otherwise nothing is written at all. Nothing is ever deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from iotrial.errors import RequestError, StoreError
from iotrial.output_files import file_in, held_folder, read_in
from iotrial.report.document import Document
from iotrial.report.figure import Figure, csv_of, named, svg_of
from iotrial.report.figures import draw_figures
from iotrial.report.markdown import escaped
from iotrial.terminal import escape

INDEX, LIST = "index.md", "figures.json"
_LARGEST_LIST = 1 << 20
_HINT = "name another folder, or move that file away: only unchanged files of an earlier --figures are overwritten"


@dataclass(frozen=True, slots=True)
class FigureFiles:
    """One figure as stored in the folder."""

    title: str
    sentence: str
    svg: Path
    csv: Path


def write_figures(document: Document, folder: Path) -> tuple[FigureFiles, ...]:
    """Draw all figures and write them.

    Raises RequestError if ``folder`` is not a folder or holds other files of these names; then nothing is written.
    Raises StoreError on an I/O error.
    """
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"cannot write figures to {escape(folder)}: expected a folder, found a file")
    figures = list(named(draw_figures(document, most_panels=None).every()))
    names = [INDEX, LIST, *(f"{name}{ending}" for name, _ in figures for ending in (".svg", ".csv"))]
    try:
        with held_folder(folder, make=0o777) as held:
            _refuse_strangers(held, folder, names)
            made = dict(_listed(held))
            for name, data in _contents(document, figures):
                _keep(held, folder, made, name, data)
    except OSError as error:
        raise StoreError(f"cannot write figures to {escape(folder)}: {error.strerror}") from error
    return tuple(
        FigureFiles(figure.title, figure.sentence, *(folder / f"{name}.{kind}" for kind in ("svg", "csv")))
        for name, figure in figures
    )


def _contents(document: Document, figures: Iterable[tuple[str, Figure]]) -> Iterator[tuple[str, bytes]]:
    for name, figure in figures:
        yield f"{name}.svg", svg_of(figure)
        yield f"{name}.csv", csv_of(figure).encode()
    yield INDEX, _index(document, figures).encode("utf-8", "replace")


def _keep(held: int, folder: Path, made: dict[str, list[str]], name: str, data: bytes) -> None:
    """Write one file atomically. The list is updated first, so that a kill in between leaves no unknown file."""
    made[name] = sorted({*made.get(name, ()), digest := hashlib.sha256(data).hexdigest()})
    _write(held, folder / LIST, _list(made))
    _write(held, folder / name, data)
    made[name] = [digest]
    _write(held, folder / LIST, _list(made))


def _write(held: int, path: Path, data: bytes) -> None:
    with file_in(held, path.name, path, force=True) as file:
        file.write(data)


def _refuse_strangers(held: int, folder: Path, names: Iterable[str]) -> None:
    """Raise RequestError for the first name that is taken by a file, folder or link not written here."""
    made = _listed(held)
    for name in names:
        try:
            found = os.stat(name, dir_fd=held, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if name == LIST and made:
            continue  # it was parsed, and is one of our lists
        if not stat.S_ISREG(found.st_mode) or _digest(held, name) not in made.get(name, ()):
            raise RequestError(
                f"cannot write figures to {escape(folder)}: {name} exists, and is not an unchanged file of an "
                f"earlier --figures",
                hint=_HINT,
            )


def _digest(held: int, name: str) -> str:
    return hashlib.sha256(read_in(held, name) or b"").hexdigest()


def _listed(held: int) -> Mapping[str, list[str]]:
    """Return the digests of files written here before, by name. Empty if there is no list, or another file has its name."""
    try:
        document = json.loads(read_in(held, LIST, most=_LARGEST_LIST) or b"")
    except ValueError:
        return {}
    made = document.get("made") if isinstance(document, dict) else None
    if not isinstance(made, dict):
        return {}
    return {
        name: digests
        for name, digests in made.items()
        if isinstance(digests, list) and all(isinstance(digest, str) for digest in digests)
    }


def _list(made: Mapping[str, list[str]]) -> bytes:
    document = {"made by": "iotrial report --figures", "made": dict(sorted(made.items()))}
    return f"{json.dumps(document, indent=1)}\n".encode()


def _index(document: Document, figures: Iterable[tuple[str, Figure]]) -> str:
    """Format every figure with its title, sentence and files as Markdown."""
    header = document.trial.header
    lines = [
        f"# Figures: {escaped(document.title)}",
        "",
        f"**{escaped(document.summary.headline)}**",
        "",
        f"Trial {escaped(header.id)} of {escaped(header.study.name)}, iotrial {escaped(header.version)}. Each "
        f"figure is stored as SVG and CSV. Text in a CSV that starts like a formula has an apostrophe in front.",
        "",
    ]
    for name, figure in figures:
        lines += [
            f"## {escaped(figure.title)}",
            "",
            f"![{escaped(figure.title)}]({name}.svg)",
            "",
            escaped(figure.sentence),
            "",
            f"*How to read it:* {escaped(figure.reading)}" if figure.reading else "",
            "",
            f"[{name}.svg]({name}.svg), [{name}.csv]({name}.csv): "
            f"{len(figure.rows):,} rows of {escaped(', '.join(figure.columns))}",
            "",
        ]
    if len(lines) == 6:
        lines.append("There is nothing to draw.")
    return "\n".join(lines).rstrip() + "\n"
