"""The file beside a store that keeps what was made of it: it may be deleted at any time, and then is made anew.

What another version of the analysis made is not used, so everything in it bears the mark of the code that made it.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import suppress
from functools import cache
from pathlib import Path

import iotrial

#: packages whose code decides what a trial says
_DECIDES = ("analysis", "design", "study", "report", "store")


def beside(store: Path) -> Path:
    """Where what was analysed of a store's trials is kept: ``trials.analysed`` for ``trials.db``."""
    return store.with_suffix(".analysed")


def opened(path: Path, table: str) -> sqlite3.Connection | None:
    """A connection to this file with this table, made where they are missing; None where that cannot be."""
    with suppress(sqlite3.Error, OSError):
        # for its owner's eyes, as the store is
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, timeout=1.0)
        try:
            connection.execute("PRAGMA synchronous = OFF")  # lost is made anew
            connection.execute(table)
        except sqlite3.Error:
            connection.close()
            return None
        return connection
    return None


@cache
def by() -> str:
    """What says so: this version, and the code that decides."""
    return digest_of(_DECIDES, "*.py")


@cache
def digest_of(folders: tuple[str, ...], pattern: str) -> str:
    """Of this version, and of the files of this program in these folders, as they were when this process first asked."""
    digest = hashlib.sha256(iotrial.__version__.encode())
    root = Path(iotrial.__file__).parent
    for folder in folders:
        for file in sorted((root / folder).rglob(pattern)):
            if "__pycache__" not in file.parts and file.is_file():
                digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return digest.hexdigest()
