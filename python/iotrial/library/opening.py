"""Open a trial: by its number, its id or "last" in the store, or from a packed file. The store is only read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from iotrial.errors import RequestError
from iotrial.library.display import Card
from iotrial.library.table import Column, Table
from iotrial.library.trial import Trial
from iotrial.paths import store_path
from iotrial.report.notation import day_and_time
from iotrial.report.opening import document_of, packed_document
from iotrial.store import Store
from iotrial.store.model import StoredTrial
from iotrial.terminal import escape
from iotrial.units import format_duration

if TYPE_CHECKING:
    from iotrial.report.document import Document

Where = str | os.PathLike[str]


class Trials(Table[Trial]):
    """The trials of a store by number, oldest first. ``damaged`` holds the error of each trial that cannot be read."""

    noun = "trial"
    heads = ("number", "started", "state", "took", "study")

    def __init__(
        self,
        rows: Iterable[Trial],
        facts: Mapping[str, object] | None = None,
        orders: Mapping[str, Sequence[str]] | None = None,
        *,
        damaged: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(rows, facts, orders)
        self.damaged = dict(damaged or {})

    def _of(self, rows: Iterable[Trial]) -> Self:
        return type(self)(rows, self._facts, self._orders, damaged=self.damaged)

    def _card(self) -> Card:
        card = super()._card()
        newest = self._rows[-self.most_shown :]
        lines = (f"The newest {len(newest)}:",) if len(newest) < len(self) else ()
        if not self:
            lines = ("Start with: iotrial run files/permissions",)
        rows = tuple(self._cells(row) for row in newest)
        return Card(card.title, lines=lines, heads=card.heads, rows=rows)

    def _cells(self, row: Trial) -> tuple[str, ...]:
        number = "" if row.number is None else str(row.number)
        when = day_and_time(row._stored.header.started)
        name = row.study.name + (" (imported)" if row.imported is not None else "")
        return number, when, row.state, format_duration(row.duration_s), name

    def _columns(self) -> list[Column[Trial]]:
        return [
            Column("number", "count", lambda one: one.number or 0),
            Column("id", "text", lambda one: one.id),
            Column("study", "label", lambda one: one.study.name),
            Column("state", "label", lambda one: one.state),
            Column("started", "time", lambda one: one.started),
            Column("duration_s", "number", lambda one: one.duration_s, "s"),
            Column("imported", "text", lambda one: one.imported),
        ]


def trials(store: Where | None = None) -> Trials:
    """Return all trials of a store (None: the user's own), not analysed yet; empty if there is no store.

    Raises StoreError if the file is not a store. Trials that cannot be read cause a warning; the others are
    returned.
    """
    path = _path(store)
    if not path.exists():
        return Trials(())
    with _opened(path) as opened:
        sound, damaged = opened.listing()
    for lost in damaged:
        warnings.warn(f"trial {lost.number} cannot be read: {escape(lost.problem)}", stacklevel=2)
    found = (_of_store(one, path) for one in sound)
    return Trials(found, damaged={lost.number: lost.problem for lost in damaged})


def trial(ref: str | int = "last", store: Where | None = None) -> Trial:
    """Return the stored trial with this number, id, unique prefix of an id, or "last".

    ``store`` is a file other than the user's own store. Raises UnknownName if there is no such trial,
    RequestError if there is no store, StoreError if the file is not a store.
    """
    path = _path(store)
    if not path.exists():
        hint = "start with `iotrial run files/permissions`, or open a packed trial: iotrial.open(FILE)"
        raise RequestError("the store has no trials yet", hint=hint)
    with _opened(path) as opened:
        found = opened.find(ref)
    return _of_store(found, path)


def open(path: Where) -> Trial:
    """Read the packed trial in this file; it is read immediately and not stored.

    The file is treated as untrusted: raises PackedError (a RequestError) if it is not a packed trial or is
    inconsistent.
    """
    document = packed_document(Path(path).expanduser())
    made = Trial(document.trial, lambda: document, number=None)
    assert made.document is document  # load now, so that nothing is read later
    return made


def _of_store(stored: StoredTrial, path: Path) -> Trial:
    return Trial(stored, partial(_document, path, stored.number), number=stored.number)


def _document(path: Path, number: int) -> Document:
    with Store.open(path, read_only=True) as opened:
        return document_of(opened, number)


def _path(store: Where | None) -> Path:
    return store_path() if store is None else Path(store).expanduser()


def _opened(path: Path) -> Store:
    opened = Store.open(path, read_only=True)
    for warning in opened.warnings:
        warnings.warn(escape(warning), stacklevel=3)
    return opened
