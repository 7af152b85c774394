"""File sets, checked with hashlib, zlib, lstat, readlink and fincore."""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import stat
import subprocess
import time
import zlib
from collections import Counter
from pathlib import Path

import pytest
from probe_client import MIB, Lab, Probe, ProbeError, content, make_set, names


@pytest.mark.parametrize("kind", ["text", "random", "zeros", "words", "c"])
@pytest.mark.parametrize(("directories", "size"), [(1, 64), (3, 1000), (1, 70_000)])
def test_a_file_set_is_what_it_says(
    probe: Probe, folder: Path, kind: str, directories: int, size: int
) -> None:
    made = probe(
        "fileset",
        set="s",
        dir=str(folder / "deep/s"),
        count=7,
        size=size,
        seed=99,
        content=kind,
        directories=directories,
        mode="0440",
    )
    assert (made["files"], made["bytes"]) == (7, 7 * size)
    crc = 0
    for index in range(7):
        part = f"d{index % directories:03}/" if directories > 1 else ""
        path = folder / "deep/s" / f"{part}f{index:06}"
        truth = content(kind, 99, index, size)
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(truth).digest()
        assert stat.S_IMODE(path.stat().st_mode) == 0o440
        crc = zlib.crc32(truth, crc)
    found = probe("fileset_verify", set="s")
    assert found == {"files": 7, "bytes": 7 * size, "checksum": f"crc32:{crc:08x}"}
    assert sum(len(files) for _, _, files in os.walk(folder)) == 7


def test_text_never_holds_a_word_to_search_for(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder, count=1, size=MIB) / "f000000"
    assert set(path.read_bytes()) <= set(b"0123456789abcdef\n")


def test_words_compress_as_a_text_does(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder, count=1, size=MIB, content="words") / "f000000"
    for compressed in (zlib.compress(path.read_bytes()), lzma.compress(path.read_bytes())):
        assert 2.7 < MIB / len(compressed) < 4.3


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.parametrize(("count", "size", "folders"), [(10, 8192, 3), (2, 1024, 1), (9, 3072, 1)])
def test_c_compiles_and_links_without_a_warning_but_for_headers(
    probe: Probe, folder: Path, count: int, size: int, folders: int
) -> None:
    path = make_set(probe, folder, count=count, size=size, content="c", directories=folders)
    files = sorted(file for file in path.rglob("f*") if file.is_file())
    include = [f"-I{place}" for place in {file.parent for file in files}]
    argv = [
        "gcc",
        "-Wall",
        "-Wextra",
        "-Wno-sign-compare",
        *include,
        "-x",
        "c",
        *files,
        "-o",
        folder / "program",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stderr.count("warning:") == done.stderr.count("#pragma once in main file"), done.stderr
    subprocess.run([folder / "program"], check=True)


def test_verification_names_the_file_that_is_not_what_it_should_be(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder) / "f000007"
    good = path.read_bytes()
    for bad, said in [
        (good[:50] + b"X" + good[51:], "offset 50"),
        (good + b"x", "expected 100 bytes, found 101"),
        (good[:-1], "expected 100 bytes, found 99"),
    ]:
        path.write_bytes(bad)
        with pytest.raises(ProbeError, match=f"f000007.*{said}") as caught:
            probe("fileset_verify", set="s")
        assert caught.value.code == "verify"
    path.write_bytes(good)
    probe("fileset_verify", set="s")
    path.unlink()
    with pytest.raises(ProbeError, match="f000007"):
        probe("fileset_verify", set="s")


def test_a_set_never_replaces_a_file_and_can_be_registered_again(probe: Probe, folder: Path) -> None:
    make_set(probe, folder)
    with pytest.raises(ProbeError, match="f000000") as caught:
        make_set(probe, folder)
    assert caught.value.errno == 17  # EEXIST
    make_set(probe, folder, create=False)
    assert probe("fileset_verify", set="s")["files"] == 20
    make_set(probe, folder, create=False, size=101)
    with pytest.raises(ProbeError, match="expected 101 bytes, found 100"):
        probe("fileset_verify", set="s")


def test_modes_are_set_on_the_files_selected(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder)
    assert probe("set_mode", set="s", files=[3, 5, 19], mode="0444") == {"changed": 3}
    truth = Counter(f"{stat.S_IMODE(file.stat().st_mode):04o}" for file in path.iterdir())
    assert probe("get_mode", set="s")["modes"] == truth == {"0444": 3, "0644": 17}
    assert probe("get_mode", set="s", files=[3, 4])["modes"] == {"0444": 1, "0644": 1}
    for files in ([20], [1, 1], [-1]):
        with pytest.raises(ProbeError) as caught:
            probe("set_mode", set="s", files=files, mode="0444")
        assert caught.value.code == "bad_request"


def test_a_new_size_keeps_inode_mode_and_content(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder)
    inode = (path / "f000002").stat().st_ino
    probe("set_mode", set="s", mode="0444")
    assert probe("set_size", set="s", files=[2], size=5000) == {"changed": 1}
    status = (path / "f000002").stat()
    assert (status.st_size, status.st_ino, stat.S_IMODE(status.st_mode)) == (5000, inode, 0o444)
    assert (path / "f000002").read_bytes() == content("text", 1, 2, 5000)
    assert probe("fileset_verify", set="s")["bytes"] == 19 * 100 + 5000


def kernel_state(path: Path) -> str:
    """Return the atime state by relatime's rule: mount(8) and fs/inode.c."""
    found = os.lstat(path)
    if time.time_ns() - found.st_atime_ns > 24 * 3600 * 10**9:
        return "day-old"
    fresh = found.st_atime_ns > found.st_mtime_ns and found.st_atime_ns > found.st_ctime_ns
    return "fresh" if fresh else "stale"


@pytest.mark.parametrize("state", ["stale", "fresh", "day-old"])
def test_access_times_are_put_into_the_state_that_was_asked_for(
    probe: Probe, folder: Path, state: str
) -> None:
    path = make_set(probe, folder)
    probe("set_atime_state", set="s", files=list(range(12)), state=state)
    assert {kernel_state(path / f"f{n:06}") for n in range(12)} == {state}
    assert probe("get_atime_state", set="s", files=list(range(12)))["states"] == {state: 12}
    times = [file.stat().st_atime_ns for file in path.iterdir()]
    assert probe("atimes", set="s") == {
        "sum_ns": str(sum(times)),
        "newest_ns": max(times),
        "oldest_ns": min(times),
    }


@pytest.mark.root
@pytest.mark.parametrize(("state", "updated"), [("stale", True), ("fresh", False), ("day-old", True)])
def test_the_kernel_treats_the_states_as_relatime_should(lab: Lab, state: str, updated: bool) -> None:
    lab.mount("remount", "relatime")
    make_set(lab.probe, lab.mounted)
    lab.probe("set_atime_state", set="s", state=state)
    before = lab.probe("atimes", set="s")
    lab.probe("files", set="s", operations=["open", "read", "close"])
    after = lab.probe("atimes", set="s")
    assert (before != after) is updated
    # The probe's own verbs do not change atimes.
    lab.probe("set_atime_state", set="s", state="stale")
    before = lab.probe("atimes", set="s")
    for verb in ("warm", "evict", "residency", "fileset_verify"):
        lab.probe(verb, set="s")
    assert lab.probe("atimes", set="s") == before


@pytest.mark.parametrize("directories", [1, 4])
@pytest.mark.parametrize(
    "kind", ["regular", "hardlink", "symlink-absolute", "symlink-relative", "symlink-chain"]
)
def test_links_are_what_lstat_and_readlink_say(
    probe: Probe, folder: Path, kind: str, directories: int
) -> None:
    path = make_set(probe, folder, directories=directories)
    before = {file.name: file.stat().st_ino for file in path.rglob("f*")}
    chosen = [1, 2, 7]
    assert probe("link", set="s", files=chosen, view="A", kind=kind) == {"made": 3}
    linked = sorted((folder / "s.A").rglob("f*"))
    assert [name.name for name in linked] == ["f000001", "f000002", "f000007"]
    for name in linked:
        status = os.lstat(name)
        assert name.stat().st_ino == before[name.name], "leads to the file"
        if kind.startswith("symlink"):
            hops, at = [], name
            while at.is_symlink():
                hops.append(str(at.readlink()))
                at = at.parent / hops[-1]
            assert len(hops) == (4 if kind == "symlink-chain" else 1)
            assert {hop.startswith("/") for hop in hops} == {kind == "symlink-absolute"}
        else:
            assert stat.S_ISREG(status.st_mode)
            assert status.st_nlink == (2 if kind == "hardlink" else 1)
    assert probe("get_link", set="s", view="A") == {"kinds": {kind: 3}}
    assert (folder / "s.A.chain").exists() is (kind == "symlink-chain")
    moved = 3 if kind == "regular" else 0
    assert len(list(path.rglob("f*"))) == 20 - moved
    probe("fileset_verify", set="s")
    probe("set_atime_state", set="s", view="A", state="stale")
    hour = 3600 * 10**9
    for name in linked:
        status = os.lstat(name)
        assert status.st_mtime_ns - status.st_atime_ns == hour
    assert probe("unlink", set="s", view="A") == {"removed": 3}
    assert names(folder) == ["s"]
    assert {file.name: file.stat().st_ino for file in path.rglob("f*")} == before
    probe("fileset_verify", set="s")


def test_a_view_may_hold_several_kinds_and_lose_some_names(probe: Probe, folder: Path) -> None:
    make_set(probe, folder)
    probe("link", set="s", files=[0, 1], view="v", kind="hardlink")
    probe("link", set="s", files=[2], view="v", kind="symlink-chain", chain=7)
    assert probe("get_link", set="s", view="v")["kinds"] == {"hardlink": 2, "symlink-chain": 1}
    assert len(names(folder / "s.v.chain")) == 6
    with pytest.raises(ProbeError) as caught:
        probe("link", set="s", files=[0], view="v", kind="symlink-absolute")
    assert caught.value.errno == 17  # EEXIST
    assert probe("unlink", set="s", view="v", files=[1, 2]) == {"removed": 2}
    assert names(folder / "s.v") == ["f000000"]
    assert probe("unlink", set="s", view="v") == {"removed": 1}
    with pytest.raises(ProbeError, match="view v"):
        probe("get_link", set="s", view="v")
    with pytest.raises(ProbeError, match="view"):
        probe("link", set="s", view="../out", kind="hardlink")


def test_evicted_pages_are_gone_and_warm_ones_there(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, size=10_000)
    assert probe("evict", set="s") == {"evicted": 20}
    assert probe("residency", set="s") == {"pages": 60, "resident": 0, "dirty": 0}
    assert probe("warm", set="s", files=[0, 1], names=True) == {"bytes": 20_000}
    assert probe("residency", set="s")["resident"] == 6
    assert probe("residency", set="s", files=[2])["resident"] == 0
    if shutil.which("fincore"):
        shown = subprocess.run(
            ["fincore", "-nbo", "PAGES", folder / "s/f000001", folder / "s/f000002"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert [int(pages) for pages in shown.stdout.split()] == [3, 0]
