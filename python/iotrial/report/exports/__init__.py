"""Exports of one trial to files for other programs: one module per format, named after the format.

Each module has ``SUFFIX``, the file name extension, and ``write(document, file)``, which raises RequestError before it
writes if a library that it needs is missing. The packed trial, which iotrial itself reads, belongs to the store
(``iotrial.store.packed``).
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

if TYPE_CHECKING:
    from iotrial.report.document import Document


class Format(Protocol):
    """A module of this package."""

    SUFFIX: str

    def write(self, document: Document, file: BinaryIO) -> None:
        """Write the trial."""


def names() -> tuple[str, ...]:
    """Return the names of all formats, without importing them."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def format_of(name: str) -> Format:
    """Import the format of this name."""
    return cast(Format, importlib.import_module(f"{__name__}.{name}"))
