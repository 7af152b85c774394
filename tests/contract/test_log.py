"""A file system log on a second device, checked with the kernel, the file systems' own tools and each
device's counters."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotrial.errors import KnobError, RequestError
from iotrial.knobs.knob import RunContext, WorkDraft
from iotrial.lab import host, registry
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.image import ImagePlace
from iotrial.lab.journal import Journal
from iotrial.lab.lock import MachineLock
from iotrial.lab.log_device import LogPlace, log_bytes
from iotrial.lab.restore import restore
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.study.model import Setting

pytestmark = pytest.mark.root

MIB = 1 << 20


@pytest.fixture(scope="module")
def context(disk_folder: Path) -> Iterator[RunContext]:
    journal = Journal(disk_folder / "journal-of-the-log")
    with MachineLock(), Probe(isolate=True) as probe:
        target = Target(probe)
        target.call("mkdir", path="/run/iotrial", mode="0755")
        target.mount("iotrial", "/run/iotrial", "tmpfs", ["mode=0755", "size=1m"])
        log = LogPlace("here.log", target, journal, folder=str(disk_folder), size_bytes=64 * MIB)
        place = ImagePlace(
            "here",
            target,
            journal,
            folder=str(disk_folder),
            mount_point="/run/iotrial/here",
            filesystem="xfs",
            size_bytes=300 * MIB,
            log=log,
        )
        place.open()
        yield RunContext(target, place, journal, None, WorkDraft(), host.boot_id(target))
        place.close()
        target.unmount("/run/iotrial")
        target.call("remove", path="/run/iotrial", recursive=True)
        assert not any(r.kept for r in restore(journal, target))


def turn(context: RunContext, filesystem: str, value: str, *options: str) -> ImagePlace:
    place, knob = context.place, registry.knob("filesystem.log")
    assert isinstance(place, ImagePlace)
    place.want_filesystem(filesystem)
    knob.write(context, Setting(knob.name, value), value)
    for option in options:
        place.want_mkfs_option(option.split("=")[0], option)
    place.format()
    knob.verify(context, Setting(knob.name, value), value)
    return place


def flushes(device: str | None) -> int:
    return int(Path(f"/sys/block/{device}/stat").read_text().split()[15])


def fsync_a_file(place: ImagePlace) -> dict[str, int]:
    """Write and fsync a file; return the number of flushes that each device got."""
    before = {holds: flushes(device) for holds, device in place.devices.items()}
    place.target.run(["dd", "if=/dev/zero", f"of={place.root}/file", "bs=4k", "count=1", "conv=fsync"])
    return {holds: flushes(device) - before[holds] for holds, device in place.devices.items()}


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("filesystem", ["xfs", "ext4"])
def test_an_external_log_is_on_the_second_device_and_its_flushes_too(
    context: RunContext, filesystem: str
) -> None:
    for value in ("internal", "external", "external", "internal"):
        place = turn(context, filesystem, value)
        assert set(place.devices) == {"data", "log"}
        assert (fsync_a_file(place)["log"] > 0) == (value == "external")
        knob = registry.knob("filesystem.log")
        other = {"internal": "external", "external": "internal"}[value]
        with pytest.raises(KnobError, match="wrote"):
            knob.verify(context, Setting(knob.name, other), other)


@pytest.mark.parametrize("value", ["internal", "external"])
def test_the_log_has_the_same_size_wherever_it_is(context: RunContext, value: str) -> None:
    place = turn(context, "xfs", value)
    line = next(line for line in output("xfs_db", "-r", *_log_of(place, value), "-c", "sb 0", "-c", "p logblocks",
                                        f"/dev/{place.device}").splitlines())  # fmt: skip
    assert int(line.split("=")[1]) * 4096 == 64 * MIB
    place = turn(context, "ext4", value, "-J size=16")
    where = place.device if value == "internal" else place.devices["log"]
    text = output("dumpe2fs", "-h", f"/dev/{where}")
    words = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if value == "internal":
        assert words["Total journal size"].strip() == "16M"
    else:
        assert int(words["Block count"]) * 4096 == 16 * MIB
        own = output("dumpe2fs", "-h", f"/dev/{place.device}")
        uuid = next(
            line.split(":")[1].strip() for line in own.splitlines() if line.startswith("Journal UUID")
        )
        assert uuid == words["Filesystem UUID"].strip()


def _log_of(place: ImagePlace, value: str) -> list[str]:
    return ["-l", f"/dev/{place.devices['log']}"] if value == "external" else []


@pytest.mark.parametrize("filesystem", ["xfs", "ext4"])
def test_a_mount_with_an_external_log_is_remounted_and_made_cold(
    context: RunContext, filesystem: str
) -> None:
    place = turn(context, filesystem, "external")
    fsync_a_file(place)
    for fresh in (False, True):
        place.to_neutral(always=True, fresh=fresh)
        place.want_options("mount.atime", ("noatime",), remountable=True)
        place.settle(always=True, fresh=fresh)
        found = place.target.mount_at(place.root)
        assert found is not None
        assert "noatime" in found.options
        registry.knob("filesystem.log").verify(context, Setting("filesystem.log", "external"), "external")
        assert place.target.stat(f"{place.root}/file")["kind"] == "file"


def test_a_log_that_does_not_fit_is_refused_and_its_device_is_made_large_enough_by_itself(
    context: RunContext,
) -> None:
    place = context.place
    assert isinstance(place, ImagePlace)
    assert place.log is not None
    with pytest.raises(RequestError, match="a log of 65 MiB on a device of 64 MiB"):
        place.log.mkfs_options(FILESYSTEMS["xfs"], ["-l size=65m"], "external")
    assert log_bytes(None, ["-b size=4096", "-l size=200m"], 512 * MIB) == 200 * MIB
    assert log_bytes(None, ["-l size=8m", "-J size=16"], 512 * MIB) == 64 * MIB
    assert log_bytes(8 * MIB, [], 512 * MIB) == 8 * MIB
    assert log_bytes(None, [], 16 * MIB) == 5 * MIB
