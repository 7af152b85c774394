"""One trial as a file that other programs read: one module a format, called like the format.

Each has ``SUFFIX``, how the names of its files end, and ``write(document, file)``, which raises RequestError where a library
that it needs is missing, before it writes. A packed trial, which iotrial itself reads, is the store's
(``iotrial.store.packed``).
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

if TYPE_CHECKING:
    from iotrial.report.document import Document


class Format(Protocol):
    """A module of this folder."""

    SUFFIX: str

    def write(self, document: Document, file: BinaryIO) -> None:
        """Write the trial."""


def names() -> tuple[str, ...]:
    """The names of all formats; nothing is imported."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def format_of(name: str) -> Format:
    """The format of this name."""
    return cast(Format, importlib.import_module(f"{__name__}.{name}"))
