"""Root does not work in a folder that another user can swap, and a swap that happens all the same has no
effect."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from running import iotrial

from iotrial.errors import IotrialError, RequestError
from iotrial.lab.folder import settled
from iotrial.lab.journal import Journal
from iotrial.lab.objects.path import LabPath
from iotrial.lab.target import Target
from iotrial.probe.client import Probe

pytestmark = pytest.mark.root

NOBODY = 65534
ROOT = frozenset({0})


@pytest.fixture
def ground(disk_folder: Path) -> Iterator[Path]:
    """Yield a root-owned folder with only root-owned ancestors (pytest's own lies in /tmp)."""
    folder = disk_folder / "ground"
    folder.mkdir(mode=0o755)
    disk_folder.chmod(0o711)  # user nobody must be able to get here
    yield folder
    disk_folder.chmod(0o700)
    shutil.rmtree(folder)


@contextmanager
def swapping(folder: Path, victim: Path) -> Iterator[None]:
    """Have user nobody swap the folder for a symbolic link to another one and back, continuously."""
    aside, link = folder.with_name("aside"), folder.with_name("link")
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            link.symlink_to(victim)
            while True:
                folder.rename(aside)
                link.rename(folder)
                folder.rename(link)
                aside.rename(folder)
        finally:
            os._exit(1)
    try:
        until = time.monotonic() + 20
        while not folder.is_symlink() and time.monotonic() < until:  # wait until the swapping has begun
            pass
        yield
        assert os.waitpid(child, os.WNOHANG) == (0, 0)  # still swapping
    finally:
        os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
        if aside.exists():
            if folder.is_symlink():
                folder.unlink()
            aside.rename(folder)


@pytest.fixture
def between(ground: Path) -> tuple[Path, Path]:
    """Return root's folder below a folder of another user, and another folder of root's that was never named."""
    stranger, victim = ground / "stranger", ground / "victim"
    (stranger / "roots").mkdir(parents=True)
    victim.mkdir()
    (victim / "letter").write_text("precious")
    os.utime(victim, ns=(10**18, 10**18))
    os.chown(stranger, NOBODY, NOBODY)
    return stranger / "roots", victim


def assert_as_it_was(victim: Path) -> None:
    assert [path.name for path in victim.iterdir()] == ["letter"]
    assert (victim / "letter").read_text() == "precious"
    assert victim.stat().st_mtime_ns == 10**18


@pytest.mark.parametrize("lab", ["directory", "image"])
def test_the_program_refuses_a_folder_below_a_stranger_s_while_it_is_swapped(
    lab: str, between: tuple[Path, Path], state: Path
) -> None:
    folder, victim = between
    with swapping(folder, victim):
        for _ in range(3):
            words = ("--lab", lab, "--on", str(folder), "--time", "1s")
            done = iotrial("run", "files/permissions", *words, check=None)
            assert done.returncode == 2, done.stderr
            assert f"belongs to user {NOBODY}" in done.stderr or "no such folder" in done.stderr
    assert_as_it_was(victim)


def test_a_lab_s_folder_is_made_and_removed_where_it_was_named_or_not_at_all(
    between: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, victim = between
    journal = Journal(tmp_path / "journal")
    made = refused = 0
    with Probe(isolate=False) as probe:
        target = Target(probe)
        with swapping(folder, victim):
            until = time.monotonic() + 3
            while time.monotonic() < until:
                try:
                    LabPath().make_folder(target, journal, f"{folder}/iotrial-lab-0f")
                    made += 1
                except IotrialError:
                    refused += 1
                for entry in journal.pending():
                    with suppress(IotrialError):
                        LabPath().undo(target, entry, journal)
                    journal.drop(entry)
                for place in (folder, folder.with_name("aside")):
                    with suppress(OSError):
                        (place / "iotrial-lab-0f").rmdir()  # left by an undo that met the link
                assert_as_it_was(victim)
    assert made
    assert refused  # some attempts met the link


def test_an_image_is_made_through_no_link(between: tuple[Path, Path]) -> None:
    folder, victim = between
    link = folder.with_name("link")
    link.symlink_to(victim)
    with Probe(isolate=False) as probe, pytest.raises(IotrialError, match="Not a directory"):
        probe.call("image", folder=str(link), size=4096, fill="write")
    (victim / "below").mkdir()
    with Probe(isolate=False) as probe, pytest.raises(IotrialError, match="has become a link"):
        probe.call("image", folder=str(link / "below"), size=4096, fill="write")


def refusal(folder: Path, owners: frozenset[int] = ROOT) -> str:
    with pytest.raises(RequestError) as caught:
        settled(str(folder), "--on", owners)
    return caught.value.message


def test_every_folder_above_is_looked_at(ground: Path) -> None:
    deep = ground / "a" / "b" / "c"
    deep.mkdir(parents=True)
    assert settled(str(deep), "--on", ROOT) == str(deep)
    os.chown(ground / "a", NOBODY, NOBODY)
    assert f"{ground}/a belongs to user {NOBODY}" in refusal(deep)
    assert settled(str(deep), "--on", ROOT | {NOBODY}) == str(deep)  # user who ran sudo
    assert settled(str(deep), "--on") == str(deep)  # without root nobody gains rights


def test_a_folder_in_which_everybody_may_rename_is_refused_unless_it_is_sticky(ground: Path) -> None:
    deep = ground / "shared" / "roots"
    deep.mkdir(parents=True)
    (ground / "shared").chmod(0o777)
    assert "everybody may rename" in refusal(deep)
    (ground / "shared").chmod(0o1777)
    assert settled(str(deep), "--on", ROOT) == str(deep)
    assert settled(str(ground / "shared"), "--on", ROOT) == f"{ground}/shared"
    os.chown(deep, NOBODY, NOBODY)
    assert "everybody may rename" in refusal(deep)  # its owner may rename it


def test_links_of_root_s_are_followed_and_a_stranger_s_in_a_sticky_folder_are_not(ground: Path) -> None:
    (ground / "data" / "home").mkdir(parents=True)
    (ground / "home").symlink_to("data/home")
    (ground / "absolute").symlink_to(f"{ground}/home/../home")
    for path in (ground / "home", ground / "absolute"):
        assert settled(str(path), "--on", ROOT) == f"{ground}/data/home"
    sticky = ground / "tmp"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "mine").symlink_to(ground / "data")
    assert settled(str(sticky / "mine" / "home"), "--on", ROOT) == f"{ground}/data/home"
    os.lchown(sticky / "mine", NOBODY, NOBODY)
    assert "everybody may rename" in refusal(sticky / "mine" / "home")


def test_links_in_a_circle_and_what_is_no_folder_are_errors(ground: Path) -> None:
    (ground / "one").symlink_to("two")
    (ground / "two").symlink_to("one")
    (ground / "file").write_text("x")
    for name in ("one", "file", "file/below", "missing"):
        with pytest.raises(OSError):
            settled(str(ground / name), "--on", ROOT)


def test_a_group_or_an_access_control_list_that_lets_others_write_is_seen(ground: Path) -> None:
    folder = ground / "shared"
    folder.mkdir()
    os.chown(folder, 0, 1)  # the group of user daemon (1)
    folder.chmod(0o775)
    assert "user 1 may rename" in refusal(folder)
    assert settled(str(folder), "--on", ROOT | {1}) == str(folder)
    os.chown(folder, 0, 0)
    assert settled(str(folder), "--on", ROOT) == str(folder)
    # owner rwx, user 7 rwx, group r-x, mask rwx, others r-x (linux/posix_acl_xattr.h)
    entries = [(1, 7, 2**32 - 1), (2, 7, 7), (4, 5, 2**32 - 1), (16, 7, 2**32 - 1), (32, 5, 2**32 - 1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(folder, "system.posix_acl_access", acl)
    except OSError:
        pytest.skip("this file system has no access control lists")
    assert "user 7 may rename" in refusal(folder)
