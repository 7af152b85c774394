"""Downloads of kernels and tools, with a fake apt to check order, refusals and faults."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from iotrial.errors import LabError
from iotrial.guest import packages
from iotrial.guest.packages import Packages
from iotrial.lab.lock import Busy

NAMES = """
linux-image-6.1.0-47-cloud-amd64
linux-image-6.1.0-50-cloud-amd64
linux-image-6.1.0-9-cloud-amd64
linux-image-6.12.9+deb12-cloud-amd64
linux-image-6.12.117+deb12-cloud-amd64
linux-image-6.12.117+deb12-cloud-amd64-unsigned
linux-image-6.12-cloud-amd64
linux-image-amd64
"""
APT_CACHE = f"""#!/bin/sh
echo "apt-cache $*" >>"$LOG"
cat <<'END'{NAMES}END
"""
APT_GET = """#!/bin/sh
echo "apt-get $*" >>"$LOG"
[ -e "$LOG.broken" ] && { echo "E: no network" >&2; exit 100; }
case "$*" in *download*) for last; do :; done; echo "$last" >"$last.deb";; esac
"""
DPKG_DEB = """#!/bin/sh
name=$(cat "$2") && release=${name#linux-image-}
mkdir -p "$3/boot" "$3/lib/modules/$release" && echo kernel >"$3/boot/vmlinuz-$release"
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"apt-cache": APT_CACHE, "apt-get": APT_GET, "dpkg-deb": DPKG_DEB}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def calls(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_of_each_series_the_newest_is_listed_by_its_numbers(log: Path, tmp_path: Path) -> None:
    assert Packages(tmp_path / "guest").kernels() == ("6.1.0", "6.12.117")


@pytest.mark.parametrize(
    ("asked", "release"),
    [
        ("6.12", "6.12.117+deb12-cloud-amd64"),
        ("6.12.9", "6.12.9+deb12-cloud-amd64"),
        ("6.1", "6.1.0-50-cloud-amd64"),
    ],
)
def test_a_series_or_a_version_is_its_newest_package(
    log: Path, tmp_path: Path, asked: str, release: str
) -> None:
    kernel = Packages(tmp_path / "guest").kernel(asked)
    assert kernel.release == release
    assert kernel.image.read_text() == "kernel\n"
    assert kernel.modules.is_dir()


def test_the_whole_kernel_is_that_of_the_same_version_for_any_machine(log: Path, tmp_path: Path) -> None:
    packages = Packages(tmp_path / "guest")
    assert packages.kernel("6.12", whole=True).release == "6.12.117+deb12-amd64"
    assert packages.kernel("6.12").release == "6.12.117+deb12-cloud-amd64"
    fetched = [line for line in calls(log) if "download" in line]
    assert len(fetched) == 2
    assert packages.kernel("6.12", whole=True).release == "6.12.117+deb12-amd64"
    assert len([line for line in calls(log) if "download" in line]) == 2


def test_a_version_that_cannot_be_had_is_told_with_those_that_can(log: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError) as caught:
        Packages(tmp_path / "guest").kernel("6.2")
    assert caught.value.hint == "available: 6.1.0, 6.12.117"


def test_what_was_fetched_needs_nothing_more(log: Path, tmp_path: Path) -> None:
    first = Packages(tmp_path / "guest").kernel("6.12")
    before = calls(log)
    assert Packages(tmp_path / "guest").kernel("6.12") == first
    assert calls(log) == before


def test_what_cannot_be_fetched_is_told_and_leaves_no_half_a_tree(log: Path, tmp_path: Path) -> None:
    broken = tmp_path / "log.broken"
    broken.touch()
    packages = Packages(tmp_path / "guest")
    with pytest.raises(LabError, match="no network"):
        packages.kernel("6.12")
    assert not (tmp_path / "guest" / "trees").exists()
    broken.unlink()
    assert packages.kernel("6.12").release == "6.12.117+deb12-cloud-amd64"
    assert not list((tmp_path / "guest").glob("making-*"))


def test_a_tree_without_a_network_is_tried_with_lists_of_our_own(log: Path, tmp_path: Path) -> None:
    (tmp_path / "log.broken").touch()
    with pytest.raises(LabError):
        Packages(tmp_path / "guest").tree(["xfsprogs"])
    assert [line for line in calls(log) if "update" in line]
    assert all("Dir::State::lists" in line for line in calls(log) if "update" in line)


def test_nothing_is_fetched_onto_a_disk_that_is_nearly_full(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iotrial.guest.packages.shutil.disk_usage", lambda _: SimpleNamespace(free=100 << 20))
    with pytest.raises(LabError, match="has 100 MiB free"):
        Packages(tmp_path / "guest").tree(["xfsprogs"])
    assert calls(log) == []


def test_a_lock_that_stays_held_ends_the_wait_and_its_holder_is_named(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "_LONGEST_WAIT_S", 0.3)
    folder = tmp_path / "guest"
    folder.mkdir()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        holder = subprocess.Popen(["sleep", "30"], pass_fds=(lock.fileno(),))
    try:
        with pytest.raises(Busy, match=f"held by process {holder.pid} .*sleep 30"):
            Packages(folder).tree(["fio"])
    finally:
        holder.kill()
        holder.wait()
    assert Packages(folder).tree(["fio"]).is_dir(), "once it is free, it is taken"
