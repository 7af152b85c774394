"""A store in a folder where another user was first: root follows none of his links and writes to none of his files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from store_examples import header

from iotrial.errors import RequestError
from iotrial.store import Store

OTHER = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_a_new_store_is_readable_by_its_owner_only(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with Store.open(tmp_path / "new" / "trials.db") as store:
            store.create_trial(header())
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "new").iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["trials.db", "trials.db-wal", "trials.db-shm"], 0o600)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@only_root
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("place", ["file", "dangling", "folder", "above", "behind an own link"])
def test_a_link_of_another_user_is_not_followed(tmp_path: Path, place: str, read_only: bool) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with Store.open(target / "trials.db") as store:
        store.create_trial(header())
    content = (target / "trials.db").read_bytes()
    link, path = {
        "file": ((tmp_path / "link", target / "trials.db"), tmp_path / "link"),
        "dangling": ((tmp_path / "link", target / "new.db"), tmp_path / "link"),
        "folder": ((tmp_path / "link", target), tmp_path / "link" / "trials.db"),
        "above": ((tmp_path / "link", tmp_path), tmp_path / "link" / "target" / "trials.db"),
        "behind an own link": ((tmp_path / "link", target / "trials.db"), tmp_path / "own"),
    }[place]
    link[0].symlink_to(link[1])
    (tmp_path / "own").symlink_to("link")
    os.lchown(link[0], OTHER, OTHER)
    with pytest.raises(RequestError, match=f"user {OTHER}.* not followed") as refused:
        Store.open(path, read_only=read_only)
    assert refused.value.exit_status == 2
    assert [one.name for one in target.iterdir()] == ["trials.db"]
    assert (target / "trials.db").read_bytes() == content


@only_root
@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_root_does_not_write_to_a_file_of_another_user(tmp_path: Path, end: str) -> None:
    path = tmp_path / "trials.db"
    with Store.open(path) as store:
        store.create_trial(header())
    foreign = tmp_path / f"trials.db{end}"
    foreign.touch()
    os.chown(foreign, OTHER, OTHER)
    content = foreign.read_bytes()
    with pytest.raises(RequestError, match=f"belongs to user {OTHER}"):
        Store.open(path)
    assert foreign.read_bytes() == content
    assert foreign.stat().st_uid == OTHER


@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_a_link_in_the_place_of_a_file_of_sqlite_is_not_written_through(tmp_path: Path, end: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    (tmp_path / f"trials.db{end}").symlink_to(victim)
    with pytest.raises(RequestError, match="is a link, and is not followed"):
        Store.open(tmp_path / "trials.db")
    assert victim.read_bytes() == b""


def test_an_own_link_leads_to_the_store(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "trials.db").symlink_to("disk/real.db")
    with Store.open(tmp_path / "trials.db") as store:
        store.create_trial(header())
    assert [one.name for one in (tmp_path / "disk").iterdir()] == ["real.db"]
    with Store.open(tmp_path / "disk" / "real.db", read_only=True) as store:
        assert len(store.listing()[0]) == 1
