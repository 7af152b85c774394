"""Contract test of every knob, on a real lab: what is written is read back, and the original value is
restored.

A new knob is tested as soon as it is in the registry; ``VALUES`` must then name the values to try.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotrial.errors import KnobError, UnsupportedLevel
from iotrial.knobs.declaration import Stage
from iotrial.knobs.knob import FileSelection, RunContext, WorkDraft
from iotrial.lab import host, registry, superblock
from iotrial.lab.image import ImagePlace
from iotrial.lab.journal import Journal
from iotrial.lab.place import FileSet
from iotrial.lab.restore import restore
from iotrial.lab.target import Target
from iotrial.study.model import Setting

#: these tests change sysctls and huge pages of the machine
pytestmark = [pytest.mark.root, pytest.mark.alone]

#: knob: values to try, and the option that addresses it
VALUES: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "bdi.max_ratio": (("20", "100"), ()),
    "bdi.min_ratio": (("5", "0"), ()),
    "bdi.strict_limit": (("1", "0"), ()),
    "block.add_random": (("1", "0"), ()),
    "block.max_sectors_kb": (("128", "256"), ()),
    "block.nomerges": (("2", "0", "1"), ()),
    "block.nr_requests": (("64", "128"), ()),
    "block.read_ahead_kb": (("0", "512"), ()),
    "block.rotational": (("0", "1"), ()),
    "block.rq_affinity": (("2", "0", "1"), ()),
    "block.scheduler": (("none", "mq-deadline", "kyber", "bfq"), ()),
    "block.stable_writes": (("1", "0"), ()),
    "block.tunable": (("100", "default"), (("key", "read_expire"),)),
    "block.wbt_lat_usec": (("0", "2000"), ()),
    "block.write_cache": (("write through", "write back"), ()),
    "cache.state": (("cold", "warm", "as-is"), ()),
    "command.argument": (("4", "a b"), (("placeholder", "{threads}"),)),
    "cpu.governor": (("performance", "powersave"), ()),
    "environment.variable": (("1", ""), (("variable", "ARM"),)),
    "file.atime_state": (("stale", "fresh", "day-old"), ()),
    "file.attribute": (("no-atime", "sync", "none"), ()),
    "file.defragment": (("defragmented", "rewritten", "untouched"), ()),
    "file.fragmentation": (("50 %", "90%", "0 %"), ()),
    "file.link": (("regular", "symlink-absolute", "symlink-relative", "symlink-chain", "hardlink"), ()),
    "file.mode": (("0444", "0777", "0000"), ()),
    "file.rewritten": (("0 %", "50 %", "100 %"), ()),
    "file.size": (("1 B", "10 KiB"), ()),
    "filesystem.age": (("60 %", "fresh"), ()),
    "filesystem.log": (("external", "internal"), ()),
    "filesystem.trim": (("fstrim", "none"), ()),
    "filesystem.type": (("ext4", "xfs", "btrfs"), ()),
    "lab.device": (("here",), ()),
    "matrix.file_size": (("1 MiB", "64 KiB"), ()),
    "matrix.record_size": (("4 KiB", "1 MiB"), ()),
    "memory.huge_pages": (("always", "madvise"), ()),
    "memory.limit": (("none", "64 MiB"), ()),
    "mkfs.option": (
        ("-b 1024", "-I 512", "-O ^dir_index,^flex_bg", "-J size=4", "-i 4096", "-m 1", "-G 32", "default"),
        (),
    ),
    "mount.atime": (("strictatime", "relatime", "noatime", "nodiratime", "lazytime"), ()),
    "mount.option": (("commit=30", "nodelalloc", "default"), ()),
    "mount.readonly": (("ro", "rw"), ()),
    "process.cpu": (("0", "any"), ()),
    "process.io_priority": (("idle", "best-effort-0", "none"), ()),
    "process.nice": (("5", "-5", "0"), ()),
    "program.path": (("/usr/bin", "/bin"), ()),
    "process.user": (("self", "root", "unprivileged"), ()),
    "work.option": (("4 KiB", "1 MiB"), (("option", "block_size"),)),
    "sysctl": (("50", "200"), (("key", "vm.vfs_cache_pressure"),)),
}


@pytest.fixture(scope="module")
def place(target: Target, disk_folder: Path) -> Iterator[ImagePlace]:
    place = ImagePlace(
        "ext4",
        target,
        Journal(disk_folder / "journal-of-the-place"),
        folder=str(disk_folder),
        mount_point="/run/iotrial/ext4",
        filesystem="ext4",
        size_bytes=320 << 20,
    )
    place.site = "here"
    place.open()
    yield place
    place.close()
    assert not any(r.kept for r in restore(Journal(disk_folder / "journal-of-the-place"), target))


@pytest.fixture
def context(target: Target, place: ImagePlace, tmp_path: Path) -> Iterator[RunContext]:
    place.want_filesystem("ext4")
    place.format()
    files = FileSet("ext4-s0", f"{place.root}/s0", 12, 65536, "text", 1)
    place.make_files(files, seed=7)
    journal = Journal(tmp_path / "journal")
    yield RunContext(
        target=target,
        place=place,
        journal=journal,
        files=FileSelection("ext4-s0", None, 65536, 12),
        work=WorkDraft(),
        boot_id=host.boot_id(target),
    )
    assert not any(r.kept for r in restore(journal, target))


def settle(context: RunContext, stage: Stage) -> None:
    assert isinstance(context.place, ImagePlace)
    if stage is Stage.MOUNT:
        context.place.settle(always=True, fresh=False)
    if stage is Stage.FORMAT:
        context.place.format()


#: tested in guests, because only these have arrays and a network, and are machines: see test_guest_array.py,
#: test_guest_encryption.py, test_guest_served.py, test_guest_io_groups.py, test_guest_lru_gen.py, and test_guest_trial.py
#: for whole trials
IN_GUESTS = {
    "guest.disk_aio", "guest.disk_cache", "guest.disk_format", "guest.disk_interface",
    "guest.memory", "guest.processors", "kernel.version",
    "raid.bitmap", "raid.chunk", "raid.level", "raid.maker", "raid.state", "raid.stripe_cache",
    "block.encryption", "memory.lru_gen",
    "io.cost.qos", "io.latency", "io.max", "io.weight",
    "guest.sysctl", "link.coalescing", "link.mtu", "link.offload", "link.rate", "link.ring",
    "nas.attribute_cache", "nas.close_to_open", "nas.connections", "nas.export", "nas.lookup_cache",
    "nas.protocol", "nas.read_ahead", "nas.threads", "nas.transfer",
}  # fmt: skip


def test_every_knob_is_tried_here() -> None:
    assert set(VALUES) | IN_GUESTS == set(registry.knobs())


#: memory.limit needs its own control group next to or below the caller's, see test_memory_limit.py;
#: filesystem.log a second device, see test_log.py
ELSEWHERE = {"memory.limit", "filesystem.log"}


@pytest.mark.parametrize("name", sorted(VALUES.keys() - ELSEWHERE))
def test_each_value_is_read_back_and_the_original_is_put_back(name: str, context: RunContext) -> None:
    knob = registry.knob(name)
    values, options = VALUES[name]
    settings = [Setting(name, value, options) for value in values]
    wanted = tuple(knob.parse(setting) for setting in settings)
    try:
        original = knob.read(context, settings[0])
    except UnsupportedLevel as error:
        pytest.skip(error.message)
    knob.prepare(context, settings[0], (*wanted, knob.neutral(settings[0], wanted) or ""))
    for setting, value in zip(settings, wanted, strict=True):
        if isinstance(context.place, ImagePlace) and knob.stage is Stage.MOUNT:
            context.place.to_neutral(always=True, fresh=False)
        neutral = knob.neutral(setting, wanted)
        if neutral is not None:
            knob.write(context, setting, neutral)
        knob.write(context, setting, value)
        settle(context, knob.stage)
        knob.verify(context, setting, value)
        assert knob.read(context, setting) == value
        if knob.stage is Stage.WORK:
            knob.enter(context, setting, value)
            knob.leave(context, setting)
    if knob.stage not in (Stage.MOUNT, Stage.FORMAT):
        if knob.name in ("file.atime_state",) and original not in knob.LEVELS:
            return
        knob.restore(context, settings[0], original)
        assert knob.read(context, settings[0]) == original


def test_remounting_with_relatime_leaves_noatime_behind(context: RunContext) -> None:
    # mount(8) of util-linux 2.38 passes both options in a remount, and the mount stays noatime
    knob = registry.knob("mount.atime")
    for value in ("noatime", "relatime", "noatime", "strictatime", "lazytime", "noatime"):
        assert isinstance(context.place, ImagePlace)
        context.place.to_neutral(always=True, fresh=False)
        knob.write(context, Setting("mount.atime", value), value)
        context.place.settle(always=True, fresh=False)
        options = context.target.read("/proc/self/mountinfo").splitlines()
        line = next(line for line in options if f" {context.place.root} " in line)
        assert ("noatime" in line) == (value == "noatime")
        assert ("relatime" in line) == (value == "relatime")
        assert ("lazytime" in line) == (value == "lazytime")


@pytest.mark.parametrize("value", ["allocsize=1m", "allocsize=64k", "logbsize=65536", "logbufs=4"])
def test_a_size_that_the_kernel_shows_in_another_unit_has_taken(context: RunContext, value: str) -> None:
    knob = registry.knob("mount.option")
    place = context.place
    assert isinstance(place, ImagePlace)
    place.want_filesystem("xfs")
    place.format()
    place.to_neutral(always=True, fresh=False)
    knob.write(context, Setting("mount.option", value), value)
    place.settle(always=True, fresh=False)
    shown = context.target.mount_at(place.root)
    assert shown is not None
    assert any(option.startswith(value.partition("=")[0]) for option in shown.options)
    knob.verify(context, Setting("mount.option", value), value)


def test_a_scheduler_that_the_kernel_lacks_is_an_error_that_names_what_it_has(context: RunContext) -> None:
    knob = registry.knob("block.scheduler")
    with pytest.raises(UnsupportedLevel) as caught:
        knob.write(context, Setting("block.scheduler", "elevator9"), "elevator9")
    assert "none" in str(caught.value.hint)


def test_a_value_that_the_kernel_refuses_names_knob_target_and_both_values(context: RunContext) -> None:
    knob = registry.knob("block.nr_requests")
    with pytest.raises(KnobError) as caught:
        knob.write(context, Setting("block.nr_requests", "4096"), "99999999")
    assert "block.nr_requests" in caught.value.message
    assert 'wrote "99999999"' in caught.value.message


def test_a_setting_that_a_scheduler_drags_along_is_seen(context: RunContext) -> None:
    # `none` sets nr_requests to 128, others to 256: the reason for pinning
    scheduler, requests = registry.knob("block.scheduler"), registry.knob("block.nr_requests")
    at = {}
    for value in ("mq-deadline", "none"):
        setting = Setting("block.scheduler", value)
        requests.prepare(context, Setting("block.nr_requests", "128"), ("128",))
        scheduler.prepare(context, setting, ("mq-deadline", "none"))
        scheduler.write(context, setting, value)
        at[value] = requests.read(context, Setting("block.nr_requests", "128"))
    assert at["mq-deadline"] != at["none"]


def test_limits_of_the_queue_drag_read_ahead_along_and_it_is_put_back_after_them(context: RunContext) -> None:
    folder = Path(f"/sys/block/{context.place.device}/queue")
    ahead = (folder / "read_ahead_kb").read_text()
    for name, value in (
        ("block.max_sectors_kb", "512"),
        ("block.rotational", "0"),
        ("block.stable_writes", "1"),
    ):
        setting = Setting(name, value)
        knob = registry.knob(name)
        knob.prepare(context, setting, (value,))
        knob.write(context, setting, value)
    assert not any(r.kept for r in restore(context.journal, context.target))
    assert (folder / "read_ahead_kb").read_text() in (ahead, "128\n")


def test_bytes_of_dirty_pages_clear_their_share_and_both_are_put_back(context: RunContext) -> None:
    share, limit = Path("/proc/sys/vm/dirty_ratio"), Path("/proc/sys/vm/dirty_bytes")
    before = share.read_text()
    if limit.read_text() != "0\n":
        pytest.skip("this machine has a limit in bytes in force")
    setting = Setting("sysctl", "268435456", (("key", "vm.dirty_bytes"),))
    knob = registry.knob("sysctl")
    knob.prepare(context, setting, ("268435456",))
    knob.write(context, setting, "268435456")
    assert (share.read_text(), limit.read_text()) == ("0\n", "268435456\n")
    assert not any(r.kept for r in restore(context.journal, context.target))
    assert (share.read_text(), limit.read_text()) == (before, "0\n")


def test_several_mount_options_are_mounted_at_once_and_each_is_read_back(context: RunContext) -> None:
    place = context.place
    assert isinstance(place, ImagePlace)
    knob = registry.knob("mount.option")
    every = ("commit=30", "nodelalloc", "nobarrier", "noauto_da_alloc", "noblock_validity", "inode_readahead_blks=64",
             "max_batch_time=0", "journal_ioprio=5", "lazytime", "default")  # fmt: skip
    place.to_neutral(always=True, fresh=True)
    for value in every:
        knob.write(context, Setting("mount.option", value), value)
    place.settle(always=True, fresh=True)
    for value in every:
        knob.verify(context, Setting("mount.option", value), value)
    shown = Path(f"/proc/fs/ext4/{place.device}/options").read_text().split()
    assert {
        "commit=30",
        "nodelalloc",
        "nobarrier",
        "noauto_da_alloc",
        "noblock_validity",
        "max_batch_time=0",
    } <= set(shown)
    place.to_neutral(always=True, fresh=True)
    place.settle(always=True, fresh=True)
    with pytest.raises(KnobError):
        knob.verify(context, Setting("mount.option", "nodelalloc"), "nodelalloc")


def test_several_options_of_mkfs_are_made_at_once_and_read_from_the_superblock(context: RunContext) -> None:
    place = context.place
    assert isinstance(place, ImagePlace)
    knob = registry.knob("mkfs.option")
    every = ("-b 4096", "-I 512", "-O ^dir_index", "-O ^flex_bg", "-O ^metadata_csum", "-J size=16", "-m 0", "-i 8192",
             "-E stride=16", "-E num_backup_sb=0", "-O sparse_super2", "default")  # fmt: skip
    for value in every:
        knob.write(context, Setting("mkfs.option", value), value)
    place.format()
    for value in every:
        knob.verify(context, Setting("mkfs.option", value), value)
    output = subprocess.run(
        ["dumpe2fs", "-h", f"/dev/{place.device}"], capture_output=True, text=True, check=True
    ).stdout
    features = next(line for line in output.splitlines() if line.startswith("Filesystem features")).split()
    assert not {"dir_index", "flex_bg", "metadata_csum"} & set(features)
    assert "sparse_super2" in features
    for value in ("-I 256", "-O dir_index", "-J size=8", "-m 5", "-i 65536", "-E stride=8"):
        assert superblock.contradicts(value, output) is not None, value
