"""Checks programs that the user names by path: refused if another user could replace them.

A user who may write to a program, or to a folder above it, decides what runs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from iotrial.errors import RequestError
from iotrial.lab import registry
from iotrial.ownership import other_writer
from iotrial.study.model import Study
from iotrial.study.programs import PROGRAM_KNOB


def check_programs(study: Study) -> None:
    """Check the programs that a study names.

    Raises RequestError for a path that is neither a program nor a folder of programs, or that others may
    write to; MissingTool if a workload lacks one of its programs there.
    """
    for setting in study.settings:
        if setting.knob == PROGRAM_KNOB:
            path = registry.knob(PROGRAM_KNOB).parse(setting)
            _check(Path(path))
            for workload in study.workloads:
                workload.work.check_program(path)


def chosen(study: Study) -> bool:
    """Return whether the user has named where the programs are."""
    return any(setting.knob == PROGRAM_KNOB for setting in study.settings)


def _check(path: Path) -> None:
    try:
        true = path.resolve(strict=True)
        found = true.stat()
    except OSError as error:
        raise RequestError(f"program {path}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) and not (stat.S_ISREG(found.st_mode) and found.st_mode & 0o111):
        raise RequestError(f"program {path}: expected a program or a folder of programs, found neither")
    for one in (path, *_within(true)):
        other = other_writer(one)
        if other is not None:
            raise RequestError(
                f"program {path}: {other}, so another user could replace the program",
                hint="install it where only root or you can write",
            )


def _within(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (
            entry.resolve() for entry in folder.iterdir() if entry.is_file() and os.access(entry, os.X_OK)
        )
