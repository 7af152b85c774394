"""Kernels and tools for guests: distribution packages, fetched and unpacked into the state folder, never installed.

apt resolves the dependencies and checks the signatures. It works on our own directories instead of the system's, so
neither the system's package lists nor its record of installed packages is touched. Nothing from a package is executed
on this machine: the files are unpacked, and run in guests only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from iotrial.errors import LabError, MissingTool
from iotrial.guest.architecture import GUEST, HERE
from iotrial.lab.lock import still_held, taken
from iotrial.polling import attempts

#: Debian's kernel package for virtual machines: few modules, but those that a guest needs
_KERNEL = re.compile(rf"linux-image-(\d+\.\d+(?:\.\d+)?)((?:-\d+)?(?:\+deb\d+)?)-cloud-{GUEST.debian}")
_LEAST_FREE_BYTES = 1 << 30
_NOTED = "kernels.json"
#: for another process that fetches packages
_LONGEST_WAIT_S = 900.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """An unpacked kernel: its release as in uname, its image, its modules."""

    release: str
    image: Path
    modules: Path


class Packages:
    """Packages below one folder. Fetched packages are never deleted; several processes may fetch at the same time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder if GUEST is HERE else folder / GUEST.debian

    def kernels(self) -> tuple[str, ...]:
        """Return the available kernel versions, the newest of each series, in ascending order: ("6.1.0", "6.12.117")."""
        newest: dict[tuple[int, int], tuple[tuple[int, ...], str]] = {}
        for name in self._kernel_packages:
            key = _numbers(name)
            series = (key[0], key[1])
            if series not in newest or key > newest[series][0]:
                newest[series] = (key, name)
        return tuple(_version(name) for _, (_, name) in sorted(newest.items()))

    def kernel(self, version: str, *, whole: bool = False) -> Kernel:
        """Return the newest kernel of this version or series ("6.12" or "6.12.117"), fetching it if none is there yet.

        A kernel that was fetched before stays in use, so that trials are comparable and no network is needed. ``whole``: the
        general kernel built from the same source, which also has hardware drivers and is ten times as large.

        Raises LabError listing the available versions.
        """
        key = f"{version} whole" if whole else version
        name = self._fetched.get(key) or self._newest(version)
        if whole:
            name = name.replace("-cloud-", "-")
        tree = self._tree([name], alone=True)
        self._note_fetched(key, name)
        (image,) = (tree / "boot").glob("vmlinuz-*")
        release = image.name.removeprefix("vmlinuz-")
        modules = next(path for path in (tree / "lib/modules", tree / "usr/lib/modules") if path.is_dir())
        return Kernel(release, image, modules / release)

    def _newest(self, version: str) -> str:
        fitting = [
            name
            for name in self._kernel_packages
            if (_version(name) + ".").startswith(version.rstrip(".") + ".")
        ]
        if not fitting:
            raise LabError(
                f"guest kernel {version}: not in the package sources of this machine",
                hint="available: " + ", ".join(self.kernels()),
            )
        return max(fitting, key=_numbers)

    @property
    def _fetched(self) -> dict[str, str]:
        """Fetched kernel packages by the version that was requested."""
        try:
            noted = json.loads((self._folder / _NOTED).read_text())
        except (OSError, ValueError):
            return {}
        return {str(key): str(name) for key, name in noted.items()} if isinstance(noted, dict) else {}

    def _note_fetched(self, version: str, name: str) -> None:
        if self._fetched.get(version) != name:
            with self._locked():
                (self._folder / _NOTED).write_text(json.dumps({**self._fetched, version: name}))

    def tree(self, names: Iterable[str]) -> Path:
        """Return a folder with these packages and all their dependencies, unpacked into one file tree."""
        return self._tree(sorted(set(names)), alone=False)

    @cached_property
    def _kernel_packages(self) -> tuple[str, ...]:
        """Kernel packages in apt's own lists, or in ours if those are empty."""
        for lists in ((), self._own_lists):
            if lists:
                self._update()
            output = self._apt(["apt-cache", *lists, "pkgnames", "linux-image-"], "list kernels")
            found = tuple(sorted(name for name in output.split() if _KERNEL.fullmatch(name)))
            if found:
                return found
        return ()

    def _tree(self, names: Sequence[str], *, alone: bool) -> Path:
        key = hashlib.sha256("\n".join([str(alone), *names]).encode()).hexdigest()[:16]
        tree = self._folder / "trees" / key
        if tree.is_dir():
            return tree
        with self._locked():
            if tree.is_dir():  # another process has done it while we waited for the lock
                return tree
            self._check_space()
            making, packages = self._folder / f"making-{key}", self._folder / f"packages-{key}"
            for old in (making, packages):
                shutil.rmtree(old, ignore_errors=True)
            making.mkdir(parents=True)
            (packages / "partial").mkdir(parents=True)
            self._download(names, packages, alone=alone)
            for package in sorted(packages.glob("*.deb")):
                self._apt(["dpkg-deb", "-x", str(package), str(making)], f"unpack {package.name}")
            shutil.rmtree(packages)
            tree.parent.mkdir(exist_ok=True)
            making.rename(tree)
        return tree

    def _download(self, names: Sequence[str], into: Path, *, alone: bool) -> None:
        empty = self._folder / "status"
        empty.write_text("")  # pretend that nothing is installed, so that all dependencies are fetched
        what = f"fetch {', '.join(names)}"
        if alone:
            words = ["apt-get", "-q", "download", *names]
        else:
            words = [
                "apt-get", "-q", "--yes", "--download-only", "--no-install-recommends",
                "-o", f"Dir::State::status={empty}", "-o", f"Dir::Cache::archives={into}",
                "-o", "Debug::NoLocking=true", "install", *names,
            ]  # fmt: skip
        try:
            self._apt(words, what, cwd=into)
        except LabError:
            self._update()
            self._apt([words[0], *self._own_lists, *words[1:]], what, cwd=into)

    @property
    def _own_lists(self) -> tuple[str, ...]:
        return (
            "-o",
            f"Dir::State::lists={self._folder / 'lists'}",
            "-o",
            f"Dir::Cache={self._folder / 'cache'}",
        )

    def _update(self) -> None:
        for name in ("lists/partial", "cache/archives/partial"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        self._apt(["apt-get", *self._own_lists, "-q", "update"], "look up what packages there are")

    def _apt(self, words: Sequence[str], what: str, cwd: Path | None = None) -> str:
        # as root, apt would drop to a user who cannot write here
        options = ["-o", "APT::Sandbox::User="] if words[0] == "apt-get" else []
        if GUEST is not HERE and words[0].startswith("apt"):
            options += ["-o", f"APT::Architecture={GUEST.debian}"]
        argv = [words[0], *options, *words[1:]]
        try:
            done = subprocess.run(
                argv, cwd=cwd, env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise MissingTool(
                f"guest: {what}: {words[0]} is not installed",
                hint="the guest lab takes kernels and tools from the packages of Debian or Ubuntu",
            ) from error
        if done.returncode != 0:
            output = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
            raise LabError(
                f"guest: {what}: {words[0]} ended with {done.returncode}: {' / '.join(output)}",
                hint="`apt-get update` shows whether the package sources of this machine can be reached",
            )
        return done.stdout

    def _check_space(self) -> None:
        free = shutil.disk_usage(self._folder).free
        if free < _LEAST_FREE_BYTES:
            raise LabError(
                f"guest: {self._folder} has {free >> 20} MiB free, expected {_LEAST_FREE_BYTES >> 20} for packages",
                hint="free some space there, or set XDG_STATE_HOME to a folder on another disk",
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the folder. Raises Busy if another process keeps it for ``_LONGEST_WAIT_S``."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / "lock"
        with path.open("w") as lock:
            if not any(taken(lock.fileno()) for _ in attempts(_LONGEST_WAIT_S, every_s=0.1)):
                raise still_held(lock.fileno(), path, _LONGEST_WAIT_S)
            yield


def _version(package: str) -> str:
    found = _KERNEL.fullmatch(package)
    assert found is not None
    return found[1]


def _numbers(package: str) -> tuple[int, ...]:
    """Return a sort key: the numbers of the version and of the package revision."""
    found = _KERNEL.fullmatch(package)
    assert found is not None
    return tuple(int(number) for number in re.findall(r"\d+", found[1] + found[2].partition("+")[0]))
