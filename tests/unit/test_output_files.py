"""The files that a user names: whole or not at all, through nobody else's link, never over another file unasked."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pytest

from iotrial.errors import IotrialError, RequestError, StoreError
from iotrial.output_files import (
    PRIVATE,
    append,
    file_in,
    folder_below,
    held_folder,
    output_file,
    refuse_taken,
)
from program import iotrial

DOCS = Path(__file__).parents[2] / "docs"
PACKED = str(DOCS / "catalogue" / "system" / "power.iotrial")
TABLE = ("audit", str(DOCS / "audits" / "links.csv"), "--response", "real", "--reference", "regular")
TRY = ("try", "vm.swappiness=10,60", "--plan")
STRANGER = 65534
LIBC = ctypes.CDLL(None, use_errno=True)

#: verbs that write one file, with the words before its name
WRITERS = {
    "report": ("report", PACKED, "--html"),
    "audit": (*TABLE, "--markdown"),
    "export": ("export", "1", "--to"),
    "try": (*TRY, "--save"),
}


def write(path: Path, content: bytes = b"new", **options: object) -> None:
    with output_file(path, **options) as file:  # type: ignore[arg-type]
        file.write(content)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))  # noqa: PTH208  dot files too


def of_a_verb(name: str, file: Path | str, *more: str, cwd: Path) -> tuple[int, str]:
    words = WRITERS[name]
    after = ("--", "true") if words[0] == "try" else ()
    done = iotrial(*words, str(file), *more, *after, cwd=cwd, timeout=60)
    return done.returncode, done.stderr


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    done = iotrial("import", PACKED, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "state"


@pytest.mark.slow
@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("name", WRITERS)
def test_every_verb_writes_a_new_file_replaces_none_unasked_and_follows_no_link(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / "out.file"
    status, said = of_a_verb(name, file, cwd=tmp_path)
    assert (status, stat.S_ISREG(file.lstat().st_mode)) == (0, True), said
    whole = file.stat().st_size
    file.write_bytes(b"precious")
    status, said = of_a_verb(name, file, cwd=tmp_path)
    assert (status, file.read_bytes()) == (2, b"precious")
    assert "already exists" in said
    assert "--force replaces it" in said
    status, said = of_a_verb(name, file, "--force", cwd=tmp_path)
    assert status == 0, said
    assert abs(file.stat().st_size - whole) < 100  # times differ
    link = tmp_path / "a-link"
    link.symlink_to(file)
    before = file.read_bytes()
    for more in ((), ("--force",)):
        status, said = of_a_verb(name, link, *more, cwd=tmp_path)
        assert (status, file.read_bytes(), link.is_symlink()) == (2, before, True)
        assert "is a link, and is not followed" in said
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.slow
@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("name", WRITERS)
def test_every_verb_writes_to_a_pipe_that_the_user_made(tmp_path: Path, name: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with (tmp_path / "read").open("wb") as out, subprocess.Popen(["cat", str(pipe)], stdout=out) as reader:
        try:
            status, said = of_a_verb(name, pipe, cwd=tmp_path)
            assert (status, reader.wait(10)) == (0, 0), said
        finally:
            reader.kill()
    assert (tmp_path / "read").stat().st_size
    assert pipe.is_fifo()


@pytest.mark.usefixtures("state")
def test_standard_output_by_its_name_is_not_emptied_and_gets_all_of_it(tmp_path: Path) -> None:
    plain = iotrial("report", PACKED, "--markdown", "-", cwd=tmp_path)
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        done = iotrial("report", PACKED, "--markdown", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(plain.stdout.rstrip())


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x"

    def fill(file: BinaryIO) -> None:
        file.write(b"half")
        raise KeyError

    with pytest.raises(KeyError), output_file(path) as file:
        fill(file)
    assert names(tmp_path) == []
    write(path, b"whole")
    with pytest.raises(RequestError, match="already exists"):
        write(path)
    assert path.read_bytes() == b"whole"
    with pytest.raises(KeyError), output_file(path, force=True) as file:
        fill(file)
    assert path.read_bytes() == b"whole"
    write(path, force=True)
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["x"]


def test_a_file_has_its_name_only_once_its_bytes_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    synced: list[tuple[str, int, bool]] = []

    def fsync(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().suffix
        synced.append((name, os.fstat(descriptor).st_size if name else 0, path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    write(path, b"whole")
    assert synced == [(".part", 5, False), ("", 0, True)]


def test_a_name_taken_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(RequestError, match="already exists"), output_file(path):
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs"
    assert names(tmp_path) == ["x"]


def test_a_file_system_without_hard_links_works_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    write(tmp_path / "x")
    with pytest.raises(RequestError, match="already exists"), output_file(tmp_path / "y"):
        (tmp_path / "y").write_bytes(b"theirs")
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == {"x": b"new", "y": b"theirs"}


@pytest.mark.parametrize("force", [False, True])
def test_no_link_folder_or_socket_is_replaced_or_written_through(tmp_path: Path, force: bool) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "made")
    (tmp_path / "folder").mkdir()
    for name, why in (("dangling", "is a link"), ("folder", "not a regular file"), ("folder/..", "a folder")):
        with pytest.raises(RequestError, match=why):
            write(tmp_path / name, force=force)
        with pytest.raises(RequestError, match=why):
            refuse_taken(tmp_path / name, force=force)
    assert names(tmp_path) == ["dangling", "folder"]


def test_what_cannot_be_a_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        write(tmp_path / "no" / "x")
    with pytest.raises(StoreError, match="Not a directory"):
        write(Path("/dev/null/x"))
    with pytest.raises(RequestError, match="cannot be the name"):
        write(tmp_path / "nul\0")
    with pytest.raises(RequestError, match="cannot be the name"):
        write(tmp_path / "\ud800")
    with pytest.raises(StoreError, match="too long"):
        write(tmp_path / ("x" * 300))
    write(tmp_path / ("ä" * 127))  # 254 bytes
    write(Path("/dev/null"))


def test_a_link_above_is_followed_if_it_is_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "true").mkdir()
    (tmp_path / "way").symlink_to("true")
    write(tmp_path / "way" / "x")
    assert (tmp_path / "true" / "x").read_bytes() == b"new"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes_hold_from_the_start_and_a_replaced_file_keeps_its_own(tmp_path: Path, umask: int) -> None:
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    before = os.umask(umask)
    try:
        seen = []
        with output_file(tmp_path / "shared") as file:
            seen.append(os.fstat(file.fileno()).st_mode & 0o7777)
        with output_file(tmp_path / "secret", mode=PRIVATE) as file:
            seen.append(os.fstat(file.fileno()).st_mode & 0o7777)
        assert seen == [mode(tmp_path / "shared"), mode(tmp_path / "secret")] == [0o666 & ~umask, 0o600]
        (tmp_path / "secret").chmod(0o644)
        write(tmp_path / "secret", mode=PRIVATE, force=True)
        assert mode(tmp_path / "secret") == 0o600
        for kept in (0o600, 0o640, 0o664):
            (tmp_path / "shared").chmod(kept)
            write(tmp_path / "shared", force=True)
            assert mode(tmp_path / "shared") == kept
    finally:
        os.umask(before)


def test_an_append_is_whole_and_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary"
    append(path, b"one ")
    append(path, b"two")
    assert path.read_bytes() == b"one two"
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(IotrialError):
            append(tmp_path / name, b"three")
    assert path.read_bytes() == b"one two"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    for _ in range(2):
        done = iotrial("report", PACKED, "--markdown", str(path), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert path.read_text().count("# ") > 1
    assert path.read_bytes().startswith(b"one two")


def test_a_streamed_file_has_its_name_from_the_start_unless_it_replaces_another(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with output_file(path, streamed=True) as file:
        file.write(b"first")
        file.flush()
        assert path.read_bytes() == b"first"
    with output_file(path, streamed=True, force=True) as file:
        file.write(b"second")
        file.flush()
        assert path.read_bytes() == b"first"
    assert path.read_bytes() == b"second"


def exchange(one: Path, other: Path) -> None:
    """Swap two names in one step: renameat2(2) with RENAME_EXCHANGE."""
    if LIBC.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def swapped(one: Path, other: Path, seed: int, *, user: int | None = None) -> Iterator[None]:
    """Swap two names over and over in another process, of this user."""
    child = os.fork()
    if child == 0:
        if user is not None:
            os.setresuid(user, user, user)
        drawn = random.Random(seed)
        while True:
            exchange(one, other)
            time.sleep(drawn.random() * 2e-4)
    try:
        yield
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the process that swaps has died"
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def written_and_refused(attempt: Callable[[str], None]) -> tuple[int, int]:
    """Write files for two seconds. Return how many were written, and how often that was refused."""
    written = refused = 0
    until = time.monotonic() + 2
    while time.monotonic() < until:
        try:
            attempt(f"{written}.html")
            written += 1
        except (RequestError, StoreError):
            refused += 1
    return written, refused


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_folder_below_that_is_swapped_for_a_link_leads_nowhere_else(tmp_path: Path, seed: int) -> None:
    """As ``apply --output DIR`` writes: DIR is the user's, what is below may be swapped by others."""
    outside, top = tmp_path / "outside", tmp_path / "top"
    outside.mkdir()
    (top / "etc").mkdir(parents=True)
    (tmp_path / "evil").symlink_to(outside)

    def attempt(name: str) -> None:
        with (
            held_folder(top) as held,
            folder_below(held, ("etc",), top) as folder,
            file_in(folder, name, top / "etc" / name) as file,
        ):
            file.write(b"x")

    with swapped(top / "etc", tmp_path / "evil", seed):
        written, refused = written_and_refused(attempt)
    assert names(outside) == []
    assert written
    assert refused


def test_a_kill_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    child = os.fork()
    if child == 0:
        with output_file(path, force=True) as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert path.read_bytes() == b"old"


def as_stranger(work: Callable[[], None]) -> None:
    """Do this in a process of another user."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(STRANGER, STRANGER, STRANGER)
            os.setresuid(STRANGER, STRANGER, STRANGER)
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def public() -> Iterator[Path]:
    """Yield a folder where everybody may do everything, as /tmp without its sticky bit, that all users reach."""
    folder = Path(f"/tmp/iotrial-public-{os.getpid()}")
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.root
def test_root_follows_no_link_of_another_user_on_the_way(public: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()

    def plant() -> None:
        (public / "reports").symlink_to(secret)
        (public / "file").symlink_to(secret / "file")
        os.mkfifo(public / "pipe")
        (public / "own").mkdir()

    as_stranger(plant)
    for name, why in (
        ("reports/x.html", f"belongs to user {STRANGER}, and is not followed"),
        ("file", "is a link"),
        ("pipe", "not a regular file"),
    ):
        for force in (False, True):
            with pytest.raises(RequestError, match=why):
                write(public / name, force=force)
    for words in (("report", PACKED, "--figures"),):
        done = iotrial(*words, str(public / "reports" / "below"), cwd=tmp_path)
        assert done.returncode == 2
        assert "is not followed" in done.stderr
    assert names(secret) == []
    write(public / "own" / "x")  # a folder of another user is no link: it is what was named
    assert (public / "own" / "x").stat().st_uid == 0


@pytest.mark.root
def test_a_file_that_another_user_planted_is_not_shared_with_him(public: Path) -> None:
    place = public / "report.html"
    as_stranger(lambda: place.write_bytes(b"mine"))
    kept = place.open("rb")
    write(place, b"for root", force=True)
    assert (place.stat().st_uid, place.read_bytes(), kept.read()) == (0, b"for root", b"mine")
    kept.close()
    os.chown(place, 0, 12)
    place.chmod(0o640)
    write(place, b"again", force=True)
    found = place.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, 12, 0o640)


@pytest.mark.root
def test_the_owner_of_a_new_file_is_set_on_the_file_and_not_by_its_name(public: Path) -> None:
    """A hard link to a file of root in the place of the new one must not be given away."""
    victim = public / "victim"
    victim.write_bytes(b"root's")

    def attack() -> None:
        with output_file(public / "x", mode=PRIVATE, owner=(STRANGER, STRANGER)):
            (part,) = public.glob(".x.*.part")
            part.unlink()
            os.link(victim, part)

    with pytest.raises(RequestError, match="was replaced while it was written"):
        attack()
    assert victim.stat().st_uid == 0


@pytest.mark.root
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_folder_that_another_user_swaps_for_a_link_leads_root_nowhere_else(
    public: Path, tmp_path: Path, seed: int
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    way, evil = public / "reports", public / "evil"

    def plant() -> None:
        way.mkdir()
        evil.symlink_to(secret)

    as_stranger(plant)
    with swapped(way, evil, seed, user=STRANGER):
        written, refused = written_and_refused(lambda name: write(way / name))
    assert names(secret) == []
    assert written
    assert refused


@pytest.mark.root
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.usefixtures("state")
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, name: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "iotrial-test", disk], check=True)
    try:
        (disk / "old").write_bytes(b"precious")
        with (disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while ballast.write(bytes(4096)):
                pass
        for file, more in (("old", ("--force",)), ("new", ())):
            status, said = of_a_verb(name, disk / file, *more, cwd=tmp_path)
            assert status == 1, said
            assert "No space left" in said
        assert names(disk) == ["ballast", "old"]
        assert (disk / "old").read_bytes() == b"precious"
    finally:
        subprocess.run(["umount", disk], check=True)
