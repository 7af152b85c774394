"""Arrays of a guest's disks, checked against md and the kernel; knobs of arrays and of their disks' queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from booted import MEMBER_SIZE, SERIALS, Booted

from iotrial.errors import LabError, UnsupportedLevel
from iotrial.guest.array import LEVELS, ArrayPlace
from iotrial.knobs.knob import RunContext, WorkDraft
from iotrial.lab import cache, host, registry
from iotrial.lab.disk import disk_place
from iotrial.lab.journal import Journal
from iotrial.lab.place import FileSet
from iotrial.study.model import Setting
from iotrial.study.work import JobContext, LabContext
from iotrial.workloads.rebuild import RebuildWork

#: data disks among four, without redundancy
OF_FOUR = {"raid0": 4, "raid1": 1, "raid4": 3, "raid5": 3, "raid6": 2, "raid10": 2}


@pytest.fixture(scope="module")
def array(booted: Booted, disk_folder: Path) -> Iterator[ArrayPlace]:
    booted.target.call("mkdir", path="/run/iotrial", mode="0755")
    place = ArrayPlace(
        "lab",
        booted.target,
        Journal(disk_folder / "journal-of-the-array"),
        serials=SERIALS,
        disk=None,
        mount_point="/run/iotrial/lab",
        filesystem="ext4",
        size_bytes=MEMBER_SIZE,
    )
    place.open()
    yield place
    place.close()
    assert " active " not in booted.target.read("/proc/mdstat")


@pytest.fixture
def context(array: ArrayPlace, tmp_path: Path) -> RunContext:
    return RunContext(
        target=array.target,
        place=array,
        journal=Journal(tmp_path / "journal"),
        files=None,
        work=WorkDraft(),
        boot_id=host.boot_id(array.target),
    )


def turn(context: RunContext, name: str, value: str) -> str:
    """Write the setting, recreate the array if needed, verify, and return what is read back."""
    knob, setting = registry.knob(name), Setting(name, value)
    wanted = knob.parse(setting)
    knob.write(context, setting, wanted)
    assert isinstance(context.place, ArrayPlace)
    if knob.stage.name == "FORMAT":
        context.place.format()
    knob.verify(context, setting, wanted)
    return knob.read(context, setting)


@pytest.mark.parametrize("level", sorted(LEVELS))
def test_an_array_has_the_level_disks_and_size_that_it_should(context: RunContext, level: str) -> None:
    turn(context, "raid.level", level)
    output = context.target.read("/proc/mdstat")
    (line,) = [line for line in output.splitlines() if line.startswith("md0 :")]
    assert f" active {level} " in line
    assert all(f"{disk}[" in line for disk in ("vda", "vdb", "vdc", "vdd"))
    assert "resync" not in output
    size = int(context.target.read("/sys/block/md0/size")) * 512
    # md keeps a little of each disk for itself
    assert 0.9 * OF_FOUR[level] * MEMBER_SIZE < size <= OF_FOUR[level] * MEMBER_SIZE
    place = context.place
    place.make_files(FileSet(f"{level}-s0", f"{place.root}/{level}", 8, 100_000, "random", 1), seed=7)
    place.settle(always=True, fresh=True)
    assert context.target.call("fileset_verify", set=f"{level}-s0")["bytes"] == 800_000


def test_chunk_and_bitmap_are_what_md_says(context: RunContext) -> None:
    turn(context, "raid.level", "raid5")
    turn(context, "raid.chunk", "128 KiB")
    assert int(context.target.read("/sys/block/md0/md/chunk_size")) == 131072
    turn(context, "raid.bitmap", "internal")
    assert "bitmap:" in context.target.read("/proc/mdstat")
    turn(context, "raid.bitmap", "none")
    assert "bitmap:" not in context.target.read("/proc/mdstat")
    turn(context, "raid.chunk", "64 KiB")


def test_the_stripe_cache_is_raid5s_and_no_other_has_one(context: RunContext) -> None:
    turn(context, "raid.level", "raid5")
    assert turn(context, "raid.stripe_cache", "1024") == "1024"
    assert context.target.read("/sys/block/md0/md/stripe_cache_size") == "1024"
    turn(context, "raid.level", "raid1")
    with pytest.raises(UnsupportedLevel, match="no stripe cache"):
        registry.knob("raid.stripe_cache").read(context, Setting("raid.stripe_cache", "256"))


def test_btrfs_mirrors_its_disks_itself_and_reads_are_counted_at_all_of_them(context: RunContext) -> None:
    place = context.place
    assert isinstance(place, ArrayPlace)
    place.want_filesystem("btrfs")
    place.want_array("level", "raid1")
    assert turn(context, "raid.maker", "btrfs") == "btrfs"
    assert registry.knob("raid.level").read(context, Setting("raid.level", "raid1")) == "raid1"
    assert set(place.devices.values()) == {"vda", "vdb", "vdc", "vdd"}
    assert "md0" not in context.target.call("list", path="/sys/block")["names"]
    kinds = context.target.call("list", path="/sys/fs/btrfs")["names"]
    (uuid,) = [name for name in kinds if len(name) == 36]
    assert context.target.call("list", path=f"/sys/fs/btrfs/{uuid}/devices")["names"] == sorted(place.members)
    place.make_files(FileSet("b-s0", f"{place.root}/b", 8, 100_000, "random", 1), seed=7)
    place.settle(always=True, fresh=True)
    assert context.target.call("fileset_verify", set="b-s0")["bytes"] == 800_000
    place.want_filesystem("ext4")
    with pytest.raises(LabError, match="btrfs can only join disks for a btrfs file system, found"):
        place.format()
    turn(context, "raid.maker", "md")


def test_the_device_mapper_stripes_whole_chunks_over_all_disks(context: RunContext) -> None:
    turn(context, "raid.level", "raid0")
    turn(context, "raid.chunk", "256 KiB")
    assert turn(context, "raid.maker", "lvm") == "lvm"
    place = context.place
    assert isinstance(place, ArrayPlace)
    assert place.found("chunk") == "256 KiB"
    size = int(context.target.read(f"/sys/block/{place.device}/size")) * 512
    assert size % (4 * 256 << 10) == 0
    assert 0.98 * 4 * MEMBER_SIZE < size < 4 * MEMBER_SIZE
    before = [int(context.target.read(f"/sys/block/{disk}/stat").split()[6]) for disk in place.members]
    place.make_files(FileSet("l-s0", f"{place.root}/l", 8, 1_000_000, "random", 1), seed=7)
    place.settle(always=True, fresh=True)
    after = [int(context.target.read(f"/sys/block/{disk}/stat").split()[6]) for disk in place.members]
    assert all(b - a > 2 * 1_000_000 // 512 * 0.8 for a, b in zip(before, after, strict=True))
    place.want_array("level", "raid1")
    with pytest.raises(LabError, match="the device mapper stripes"):
        place.format()
    place.want_array("level", "raid0")
    turn(context, "raid.chunk", "64 KiB")
    turn(context, "raid.maker", "md")


def test_a_queue_setting_is_turned_on_every_disk_and_read_ahead_on_the_array(context: RunContext) -> None:
    for value in ("mq-deadline", "none"):
        turn(context, "block.scheduler", value)
        for disk in ("vda", "vdb", "vdc", "vdd"):
            assert f"[{value}]" in context.target.read(f"/sys/block/{disk}/queue/scheduler")
    before = context.target.read("/sys/block/vda/queue/read_ahead_kb")
    turn(context, "block.read_ahead_kb", "640")
    assert context.target.read("/sys/block/md0/queue/read_ahead_kb") == "640"
    assert context.target.read("/sys/block/vda/queue/read_ahead_kb") == before


def test_disks_that_differ_are_told(context: RunContext) -> None:
    turn(context, "block.nr_requests", "64")
    context.target.write("/sys/block/vdc/queue/nr_requests", "32")
    setting = Setting("block.nr_requests", "64")
    assert registry.knob("block.nr_requests").read(context, setting) == "64 and 64 and 32 and 64"
    turn(context, "block.nr_requests", "64")


def test_too_few_disks_for_a_level_are_told(array: ArrayPlace, tmp_path: Path) -> None:
    few = ArrayPlace(
        "few",
        array.target,
        Journal(tmp_path / "journal"),
        serials=("few.0", "few.1"),
        disk=None,
        mount_point="/run/iotrial/few",
        filesystem="ext4",
        size_bytes=MEMBER_SIZE,
    )
    few.members = ("x", "y")
    few.want_array("level", "raid5")
    with pytest.raises(LabError, match="raid5 needs 3 disks, but the lab has 2"):
        few.format()


def rebuilt(context: RunContext, work: RebuildWork) -> dict[str, Any]:
    """Prepare and run the rebuild as a run does; return the probe's answer with the derived numbers."""
    place = context.place
    at = LabContext(context.target, place.root, place.root, device=place.device, disks=place.queues)
    work.provide(at)
    assert context.target.read("/sys/block/md0/md/degraded") == "1"
    job = JobContext(device=place.device)
    answer = context.target.call(
        "rebuild", set=None, stretch=0.0, devices=list(place.queues), **work.probe_job(job)
    )
    assert context.target.read("/sys/block/md0/md/degraded") == "0"
    return {**answer, **work.measured(answer, job).numbers}


def test_a_disk_that_is_new_to_an_array_is_written_from_end_to_end(context: RunContext) -> None:
    turn(context, "raid.level", "raid1")
    found = rebuilt(context, RebuildWork())
    last = context.place.queues[-1]
    size = int(context.target.read(f"/sys/block/{last}/size")) * 512
    assert 0.9 * size < found["bytes"] <= size
    assert found["devices"][last]["write_bytes"] >= found["bytes"]
    assert len(found["parts_ns"]) == RebuildWork().parts - 1
    assert sorted(found["parts_ns"]) == found["parts_ns"]
    assert found["parts_ns"][-1] < found["rebuild_ns"]
    # the harmonic mean of the part rates equals the overall rate
    parts = [found[f"rate_part_{number}"] for number in range(1, RebuildWork().parts + 1)]
    mean = len(parts) / sum(1 / rate for rate in parts)
    assert mean == pytest.approx(found["rebuild_rate"], rel=1e-6)
    assert found["announced_share"] > 0


def test_with_a_bitmap_only_what_was_written_meanwhile_is_written_to_a_disk_that_comes_back(
    context: RunContext,
) -> None:
    turn(context, "raid.level", "raid1")
    away = RebuildWork(returns="same", away_bytes=4 << 20)
    last = context.place.queues[-1]
    written = {}
    for bitmap in ("none", "internal"):
        # with 1 KiB blocks, file and journal lie in the first half of the disk; with larger blocks the
        # journal is in the middle
        disk_place("the test", context.place).want_mkfs_option("blocks", "-b 1024")
        turn(context, "raid.bitmap", bitmap)
        written[bitmap] = rebuilt(context, away)["devices"][last]["write_bytes"]
    assert float(context.target.read("/sys/block/md0/md/bitmap/time_base")) == 5
    assert written["internal"] >= 4 << 20
    # one bitmap bit covers 64 MiB of the 128 MiB disks
    assert written["internal"] < 0.6 * written["none"]
    turn(context, "raid.bitmap", "none")


def test_a_load_works_meanwhile_and_leaves_its_file_as_it_was(context: RunContext) -> None:
    turn(context, "raid.level", "raid1")
    place = context.place
    place.make_files(FileSet("loaded", f"{place.root}/loaded", 1, 1 << 20, "random", 1), seed=9)
    work = RebuildWork(load="write")
    at = LabContext(context.target, place.root, place.root, device=place.device, disks=place.queues)
    work.provide(at)
    job = JobContext(device=place.device)
    answer = context.target.call(
        "rebuild", set="loaded", stretch=0.0, devices=list(place.queues), **work.probe_job(job)
    )
    assert answer["load_operations"] > 10
    assert work.measured(answer, job).numbers["load_rate"] > 0
    context.target.call("fileset_verify", set="loaded")


def test_an_array_that_cannot_lack_a_disk_is_not_rebuilt(context: RunContext) -> None:
    turn(context, "raid.level", "raid0")
    place = context.place
    at = LabContext(context.target, place.root, place.root, device=place.device, disks=place.queues)
    with pytest.raises(LabError, match="with redundancy"):
        RebuildWork().provide(at)


def test_an_array_is_made_without_its_last_disk_where_its_level_does_without(context: RunContext) -> None:
    turn(context, "raid.level", "raid5")
    assert turn(context, "raid.state", "degraded") == "degraded"
    output = context.target.read("/proc/mdstat")
    assert "[4/3]" in output
    assert turn(context, "raid.state", "whole") == "whole"
    with pytest.raises(LabError, match="cannot run with a disk missing"):
        turn(context, "raid.level", "raid0") and turn(context, "raid.state", "degraded")
    turn(context, "raid.state", "whole")


def _read_by_disks(context: RunContext) -> int:
    """Read 240 KiB of the array past the page cache; return the KiB that were read from its disks."""
    names = ("vda", "vdb", "vdc", "vdd")
    before = [int(context.target.read(f"/sys/block/{name}/stat").split()[2]) for name in names]
    argv = ["dd", "if=/dev/md0", "of=/dev/null", "iflag=direct", "bs=4k", "count=60"]
    context.target.run(argv).output("a read")
    after = [int(context.target.read(f"/sys/block/{name}/stat").split()[2]) for name in names]
    return (sum(after) - sum(before)) // 2


def test_a_cold_array_keeps_no_stripes(context: RunContext) -> None:
    """A degraded RAID5 reads through its stripe cache, which no drop of the page cache empties."""
    turn(context, "raid.level", "raid5")
    turn(context, "raid.state", "degraded")
    turn(context, "raid.stripe_cache", "512")
    cache.prepare(context, "cold-files")
    first = _read_by_disks(context)
    assert first >= 240
    context.worker.call("drop_caches", what=3)
    assert _read_by_disks(context) < first / 4  # this is what makes a run depend on the one before
    cache.prepare(context, "cold-files")
    assert _read_by_disks(context) == first
    assert context.target.read("/sys/block/md0/md/stripe_cache_size").strip() == "512"
    turn(context, "raid.state", "whole")
    cache.prepare(context, "cold-files")
    # udev may read a few blocks in one of them
    assert min(_read_by_disks(context), _read_by_disks(context)) == 240
    turn(context, "raid.level", "raid1")
    cache.prepare(context, "cold-files")  # it has no stripe cache
