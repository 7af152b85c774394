"""Helpers to check how a lab on a stand-in is refused, and to change the disk before or during that."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from stand_in import SIZE, StandIn, place_on, run

from iotrial.errors import RequestError
from iotrial.lab.journal import Journal
from iotrial.lab.target import Target


def refused(
    disk: StandIn, tmp_path: Path, *, path: str | None = None, apart_from: range = range(0), **words: object
) -> str:
    """Return the message with which the lab is refused, with and without discarding; check that the disk is
    unchanged, apart from a range of bytes that others may write."""
    before = disk.digest(apart_from)
    journal = Journal(tmp_path / "journal")
    message = ""
    for discard in (False, True) if words.pop("always", True) else (False,):
        with (
            place_on(path or disk.path, journal, discard=discard, **words) as place,  # type: ignore[arg-type]
            pytest.raises(RequestError) as caught,
        ):
            place.open()
        message = caught.value.message
    assert journal.pending() == ()
    assert disk.digest(apart_from) == before
    return message


def accepted(disk: StandIn, tmp_path: Path, *, path: str | None = None) -> None:
    with place_on(path or disk.path, Journal(tmp_path / "journal")) as place:
        place.open()
        assert place.device == disk.name
    assert disk.empty


@contextmanager
def partition(disk: StandIn) -> Iterator[str]:
    """Yield a partition made with the kernel's own ioctl (BLKPG), which needs no partition table on the disk
    and no support for one."""
    run("addpart", disk.path, "1", "2048", "65536")
    path = Path(f"{disk.path}p1")
    made = not path.exists()
    if made:
        major, minor = map(int, Path(f"/sys/class/block/{path.name}/dev").read_text().split(":"))
        os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(major, minor))
    try:
        yield str(path)
    finally:
        run("delpart", disk.path, "1")
        if made:
            path.unlink()


@contextmanager
def mounted(device: str, folder: Path, *options: str) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    run("mount", *options, device, str(folder))
    run("sync", "-f", str(folder))  # the superblock, which says when it was mounted
    try:
        yield
    finally:
        run("umount", str(folder))


@contextmanager
def mapped_linearly(device: str) -> Iterator[None]:
    """Map the device with a device mapper target. The name contains the process id, so that leftovers of a
    killed run do not matter."""
    name = f"iotrial-test-{os.getpid()}"
    run("dmsetup", "create", name, "--table", f"0 {SIZE // 512} linear {device} 0")
    try:
        yield
    finally:
        run("dmsetup", "remove", name)


@contextmanager
def meanwhile(monkeypatch: pytest.MonkeyPatch, verb: str, act: Callable[[], object]) -> Iterator[None]:
    """Call ``act`` just after the first call of a verb."""
    plain = Target.call
    done: list[str] = []

    def call(self: Target, requested_verb: str, **fields: object) -> dict[str, object]:
        answer = plain(self, requested_verb, **fields)
        if requested_verb == verb and not done:
            done.append(requested_verb)
            act()
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Target, "call", call)
        yield
    assert done
