"""Open the store, or the trial that a user names, for verbs that only read."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from iotrial.cli.output import tell, warn
from iotrial.errors import RequestError, UnknownName
from iotrial.paths import store_path
from iotrial.report.opening import document_of, packed_document
from iotrial.store import Store
from iotrial.store.loading import keeping_all

if TYPE_CHECKING:
    from iotrial.report.document import Document

#: from this number of blocks on, announce the analysis
LONG = 2_000


def store_to_read(*, needed: bool) -> Store | None:
    """Open the store read-only. Return None if there is none (with ``needed``: raise RequestError).

    Warnings about the whole file go to standard error.
    """
    path = store_path()
    if not path.exists():
        if needed:
            raise RequestError(
                "the store has no trials yet", hint="start with `iotrial run files/permissions`"
            )
        return None
    store = Store.open(path, read_only=True)
    for warning in store.warnings:
        warn(warning)
    return store


def is_packed(ref: str) -> bool:
    """Return whether a name is that of a packed trial: by its form, or because there is such a file."""
    return _names_file(ref) or _is_file(ref)


def _names_file(ref: str) -> bool:
    return ref.endswith(".iotrial") or "/" in ref


def _is_file(ref: str) -> bool:
    path = Path(ref).expanduser()
    return not ref.isdigit() and ref != "last" and os.path.lexists(path) and not path.is_dir()


def document_at(ref: str) -> Document:
    """Load a stored trial, or else the packed trial in the file of this name.

    What was loaded lives until the program ends, so it is kept out of garbage collection.
    """
    with keeping_all():
        document = _document_at(ref)
        gc.freeze()
    return document


def _document_at(ref: str) -> Document:
    is_file = _is_file(ref)
    on_analysis = _announce if sys.stderr.isatty() else None
    store = None if _names_file(ref) else store_to_read(needed=not is_file)
    with nullcontext() if store is None else store:
        number = None
        if store is not None:
            try:
                number = store.find(ref).number
            except UnknownName:
                if not is_file:
                    raise
        if store is None or number is None:
            return packed_document(Path(ref).expanduser(), on_analysis=on_analysis)
        return document_of(store, number, on_analysis=on_analysis)


def _announce(blocks: int) -> None:
    """Announce the analysis of a long trial, which takes a while."""
    if blocks >= LONG:
        tell(f"analysing {blocks:,} blocks", err=True)
