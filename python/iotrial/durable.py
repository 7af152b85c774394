"""Write files durably: after a power cut a file has its old or its new content, never a part of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

#: flags of open(2) for a file that must be new: no link is followed, nobody else's file is written to
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def replacing(path: Path, draft: Path) -> Iterator[BinaryIO]:
    """Yield a file with mode 0600, named ``draft`` and then renamed to ``path``. Raises OSError.

    A draft of the same name that an interrupted write has left is removed first.
    """
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, NEW_FILE, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
