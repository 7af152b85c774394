"""Programs and parts of a kernel that a trial needs: looked for on this machine, or noted for a guest that will have them."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod

from iotrial.errors import MissingTool
from iotrial.lab.guest.initramfs import Needs
from iotrial.lab.modelled import FUSE

#: the Debian packages of programs that studies often run
PACKAGES = {
    **dict.fromkeys(("cat", "cp", "dd", "ls", "md5sum", "sha256sum", "sort", "wc"), "coreutils"),
    **{name: name for name in ("bzip2", "curl", "fio", "gcc", "git", "grep", "gzip", "make", "perl")},
    **{name: name for name in ("python3", "rsync", "sqlite3", "tar", "unzip", "zip", "zstd")},
    "find": "findutils",
    "php": "php-cli",
    "xz": "xz-utils",
}
TOOL_FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/bin"


class Means(ABC):
    """What the machine where a trial happens must have."""

    @abstractmethod
    def program(self, name: str, package: str) -> None:
        """A program, with the Debian package that brings it. Raises MissingTool."""

    @abstractmethod
    def module(self, name: str) -> None:
        """A module of the kernel."""

    @abstractmethod
    def modelled_disk(self) -> None:
        """What a modelled disk is served through. Raises MissingTool."""

    @abstractmethod
    def bring(self, needs: Needs) -> None:
        """What only guests can have."""


class Installed(Means):
    """This machine: what is not there is refused. What its kernel can do, the kernel itself says when it is asked."""

    def program(self, name: str, package: str) -> None:
        if shutil.which(name, path=TOOL_FOLDERS) is None:
            raise MissingTool(f"{name} is not installed", hint=f"apt-get install {package}")

    def module(self, name: str) -> None:
        """The kernel loads it when it is asked for."""

    def modelled_disk(self) -> None:
        if not os.path.exists(FUSE):  # noqa: PTH110
            raise MissingTool(
                f"a modelled disk is served through {FUSE}, which is not there", hint="modprobe fuse"
            )

    def bring(self, needs: Needs) -> None:
        """Refused before (``sites_of``)."""


class Brought(Means):
    """A guest: what is needed is noted, and its initramfs is made of it."""

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
