"""Requirements of a trial: programs and kernel modules, checked on this machine or collected for a guest.

Optional workloads are left out, with a note, if their program is not installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path

from msgspec import structs

from iotrial.errors import MissingTool
from iotrial.guest.initramfs import Needs
from iotrial.lab.simulated_disk import FUSE
from iotrial.study.model import Study

#: Debian packages of programs that studies often run.
PACKAGES = {
    **dict.fromkeys(
        ("cat", "cp", "dd", "ls", "md5sum", "sha256sum", "sort", "split", "sync", "wc"), "coreutils"
    ),
    **{name: name for name in ("bzip2", "curl", "fio", "gcc", "git", "grep", "gzip", "make", "perl")},
    **{name: name for name in ("python3", "rsync", "sqlite3", "tar", "unzip", "zip", "zstd")},
    "find": "findutils",
    "php": "php-cli",
    "xz": "xz-utils",
}
TOOL_FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/bin"


@cache
def package_of(program: str) -> str:
    """Return the Debian package of a program: as known here, that of this machine's own copy, or one of the same name."""
    path = shutil.which(program, path=TOOL_FOLDERS)
    if program in PACKAGES or path is None:
        return PACKAGES.get(program, program)
    real = os.path.realpath(path)
    # packages list files below /bin that a merged /usr has in /usr/bin
    command = ["dpkg-query", "-S", real, real.removeprefix("/usr")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return program
    return done.stdout.partition(":")[0] or program


class Means(ABC):
    """Requirements of the machine that runs a trial."""

    @abstractmethod
    def program(self, name: str, package: str) -> None:
        """Require a program, from this Debian package. Raises MissingTool."""

    @abstractmethod
    def module(self, name: str) -> None:
        """Require a kernel module."""

    @abstractmethod
    def modelled_disk(self) -> None:
        """Require what a simulated disk is served through. Raises MissingTool."""

    @abstractmethod
    def bring(self, needs: Needs) -> None:
        """Require what only guests can have."""


class Installed(Means):
    """This machine: missing programs are refused. Missing kernel features are reported when they are used."""

    def program(self, name: str, package: str) -> None:
        if shutil.which(name, path=TOOL_FOLDERS) is None:
            raise MissingTool.program("lab", name, package)

    def module(self, name: str) -> None:
        """Do nothing: the kernel loads modules on demand."""

    def modelled_disk(self) -> None:
        if not Path(FUSE).exists():
            raise MissingTool(f"a simulated disk needs {FUSE}, which is missing", hint="modprobe fuse")

    def bring(self, needs: Needs) -> None:
        """Do nothing: refused earlier (``sites_of``)."""


class Brought(Means):
    """A guest: collects requirements, from which its initramfs is built."""

    def __init__(self) -> None:
        self.needs = Needs()

    def program(self, name: str, package: str) -> None:
        self.needs |= Needs(packages=frozenset({package}), programs=frozenset({name}))

    def module(self, name: str) -> None:
        self.needs |= Needs(modules=frozenset({name}))

    def modelled_disk(self) -> None:
        self.needs |= Needs(modules=frozenset({"fuse", "loop"}))

    def bring(self, needs: Needs) -> None:
        self.needs |= needs


def without_missing(study: Study) -> tuple[Study, list[str]]:
    """Return the study without optional workloads that lack their program, and a note for each.

    If none would be left, the study stays unchanged, and what is missing is refused later.
    """
    missing = {
        workload.name: (program, package)
        for workload in study.workloads
        for program, package in workload.work.optional_programs().items()
        if shutil.which(program, path=TOOL_FOLDERS) is None
    }
    if not missing or len(missing) == len(study.workloads):
        return study, []
    notes = [
        f"workload {name} is skipped: {program} is not installed (apt-get install {package})"
        for name, (program, package) in missing.items()
    ]
    kept = structs.replace(
        study,
        workloads=tuple(w for w in study.workloads if w.name not in missing),
        responses=tuple(r for r in study.responses if r.workload not in missing),
        claims=tuple(
            c
            for c in study.claims
            if c.workload not in missing and c.condition.get("workload") not in missing
        ),
    )
    return kept, notes
