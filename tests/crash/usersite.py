"""A private disk with a user's files, which must stay untouched, and runs of the program on it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import host_state

from iotrial.probe.binary import find_binary
from own_loop import own_loop
from program import Forks

HERE = Path(__file__).parent
DISK_BYTES = 2 << 30  # sparse; the lab leaves a margin of 1 GiB free


@dataclass(frozen=True)
class Ended:
    """How a run of the program ended. ``steps``: those that it passed, empty if it was killed."""

    status: int
    stdout: str
    stderr: str
    steps: list[str]
    seconds: float


class Site:
    """The disk, the state folder, and a process that forks runs of the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = folder.name
        self.state_home = folder / "state"
        self.disk = folder / "disk"
        self.output = folder / "output"
        for path in (self.state_home, self.disk, self.output):
            path.mkdir(parents=True)
        image = folder / "disk.img"
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image))
        self._kept = ExitStack()
        _run("mount", f"/dev/{self._kept.enter_context(own_loop(image))}", str(self.disk))
        self.home = self.disk / "home"
        self._furnish()
        self.seen()  # reading a link's target for the first time changes its access time
        self._forks = Forks(HERE / "zygote.py")

    def _furnish(self) -> None:
        """Fill a user's home folder. File times are long ago, so that any access shows."""
        (self.home / "papers").mkdir(parents=True)
        (self.home / "papers" / "letter").write_text("dear reader")
        (self.home / "script").write_text("#!/bin/sh\n")
        (self.home / "script").chmod(0o4751)
        (self.home / "link").symlink_to("papers/letter")
        os.link(self.home / "script", self.home / "papers" / "same")
        os.chown(self.home / "papers", 1000, 1000)
        for number, path in enumerate(sorted([*self.home.rglob("*"), self.home], reverse=True)):
            os.utime(
                path, ns=(10**18 + number, 10**18 + 777 * number), follow_symlinks=path.is_symlink() is False
            )

    def close(self) -> None:
        if self._forks.alive:
            self.run("restore")  # after a case that failed
        self._forks.close()
        _run("umount", str(self.disk))
        self._kept.close()

    def environment(self, probe: Path) -> dict[str, str]:
        # with the last one, tests of other workers know whose processes these are
        names = ("PATH", "HOME", "PYTHONPATH", "PYTEST_XDIST_WORKER")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return {**kept, "XDG_STATE_HOME": str(self.state_home), "IOTRIAL_PROBE": str(probe), "TERM": "dumb"}

    def probe_without_anonymous_files(self) -> Path:
        """Return a probe that cannot create unnamed files (O_TMPFILE), as on some file systems."""
        refusing = Path(__file__).with_name("refusing.py")
        wrapper = self.folder / "probe-without-anonymous-files"
        wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} {refusing} {find_binary()} "$@"\n')
        wrapper.chmod(0o755)
        return wrapper

    @contextmanager
    def every_loop_device_taken(self) -> Iterator[None]:
        """Attach every loop device, so that the kernel must add a new one."""
        taken = []
        for path in sorted(Path("/sys/block").glob("loop*")):
            if not (path / "loop").exists():
                image = self.folder / f"{path.name}.img"
                image.write_bytes(bytes(1 << 20))
                _run("losetup", f"/dev/{path.name}", str(image))
                taken.append(path.name)
        try:
            yield
        finally:
            for name in taken:
                _run("losetup", "-d", f"/dev/{name}")

    def run(
        self,
        *argv: str,
        probe: Path | None = None,
        die_at: int | None = None,
        kinds: tuple[str, ...] = (),
        kill_after: float | None = None,
        signal_number: int = signal.SIGKILL,
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run the program to its end, or kill it: at a step, or after some seconds."""
        steps = self.output / "steps"
        steps.unlink(missing_ok=True)
        pid = self._forks.begin(
            argv=argv, environment={**self.environment(probe or find_binary()), **(environment or {})},
            cwd=str(self.folder), output=str(self.output), die_at=die_at, kinds=kinds,
        )  # fmt: skip
        began = time.monotonic()
        if kill_after is not None:
            descriptor = os.pidfd_open(pid)
            time.sleep(kill_after)
            with suppress(ProcessLookupError):  # it had already exited
                signal.pidfd_send_signal(descriptor, signal_number)
            os.close(descriptor)
        status = self._forks.status()
        assert status is not None
        seconds = time.monotonic() - began
        return Ended(
            status,
            (self.output / "stdout").read_text(),
            (self.output / "stderr").read_text(),
            steps.read_text().splitlines() if steps.exists() else [],
            seconds,
        )

    def seen_as_new(self) -> dict[str, object]:
        """Return ``seen`` with loop devices as after boot: the baseline for later states."""
        as_never_used()
        return self.seen()

    def seen(self) -> dict[str, object]:
        """Return everything that must be as before: the machine, the user's files, free space, processes of ours."""
        return {
            **host_state.machine(),
            **{f"file {name}": facts for name, facts in host_state.files(self.disk).items()},
            "space": host_state.space(self.disk),
            "processes": host_state.processes(self.token),
        }

    def forget(self) -> None:
        """Empty the state folder, so that the next case starts fresh."""
        journal = self.state_home / "iotrial" / "journal"
        assert not list(journal.glob("*.entry")), "a case must not hide what the one before it has left"
        shutil.rmtree(self.state_home / "iotrial", ignore_errors=True)


@contextmanager
def site(parent: Path) -> Iterator[Site]:
    """Yield a site; remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="iotrial-crash-", dir=parent))
    made = Site(folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


#: settings of a loop device as after boot: attaching changes them, but only the first time
NEVER_USED = {"read_ahead_kb": "128", "rotational": "0"}


@contextmanager
def idle_loops_kept() -> Iterator[None]:
    """Restore the initial ``NEVER_USED`` settings of idle loop devices at the end. Only for tests that run alone."""
    before = {file: file.read_text() for file in _idle_files()}
    try:
        yield
    finally:
        for file, text in before.items():
            file.write_text(text)


def as_never_used() -> None:
    """Reset idle loop devices to their settings after boot.

    Call it before each comparison: changes by an earlier trial or test would hide those of the next one.
    """
    for file in _idle_files():
        file.write_text(NEVER_USED[file.name])


def _idle_files() -> list[Path]:
    idle = [path for path in Path("/sys/block").glob("loop*") if not (path / "loop").exists()]
    return [path / "queue" / name for path in idle for name in NEVER_USED]


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"


def drawn() -> random.Random:
    """Return a generator with its own seed for each case; the seed is printed if a case fails."""
    seed = int.from_bytes(os.urandom(6), "big")
    print(f"seed {seed}")
    return random.Random(seed)
