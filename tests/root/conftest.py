"""What any user may enter and run: root's own folders are closed to others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from as_nobody import NOBODY
from iotrial.probe.binary import find_binary


@pytest.fixture
def everybody() -> Iterator[Path]:
    """A folder with a probe that any user may run, ``ioprobe``, and a folder of nobody's, ``home``."""
    folder = Path("/var/tmp") / f"iotrial-everybody-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o755)
    shutil.copy(find_binary(), folder / "ioprobe")
    (folder / "ioprobe").chmod(0o755)
    (folder / "home").mkdir()
    shutil.chown(folder / "home", NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)
