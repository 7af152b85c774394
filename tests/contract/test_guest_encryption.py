"""dm-crypt below the lab's file system, checked against the device mapper's table and what blkid finds on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from booted import Booted

from iotrial.guest.place import GuestPlace
from iotrial.knobs.encryption import CIPHER
from iotrial.knobs.knob import RunContext, Undone, WorkDraft
from iotrial.lab import host, registry
from iotrial.lab.disk import DiskPlace
from iotrial.lab.image import ImagePlace
from iotrial.lab.journal import Journal
from iotrial.lab.objects.mapping import LabMapping, mapped
from iotrial.lab.place import FileSet
from iotrial.lab.restore import restore
from iotrial.lab.target import Target
from iotrial.study.disks import parse_disk
from iotrial.study.model import Setting

TRIAL, MAPPING = "0123456789abcdef", "iotrial-01234567-one"
KNOB = registry.knob("block.encryption")
LEVELS = (
    CIPHER,
    f"{CIPHER} no_read_workqueue no_write_workqueue",
    f"{CIPHER} sector_size:4096",
    f"{CIPHER} no_read_workqueue no_write_workqueue same_cpu_crypt sector_size:4096",
    f"{CIPHER} submit_from_crypt_cpus",
    "none",
)


@pytest.fixture(params=["disk", "model"])
def context(booted: Booted, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunContext]:
    """Yield a lab on one of the guest's disks, and one on a modelled disk in the guest's memory."""
    target, journal = booted.target, Journal(tmp_path / "journal")
    boot_id = host.boot_id(target)
    target.call("mkdir", path="/run/iotrial", mode="0755")
    common = {"mount_point": "/run/iotrial/one", "filesystem": "ext4", "size_bytes": 64 << 20}
    place: DiskPlace
    if request.param == "disk":
        place = GuestPlace("one", target, journal, boot_id=boot_id, trial=TRIAL, **common)  # type: ignore[arg-type]
    else:
        place = ImagePlace(
            "one", target, journal, folder="", disk=parse_disk("ssd-sata"), boot_id=boot_id, trial=TRIAL,
            **common,  # type: ignore[arg-type]
        )  # fmt: skip
    place.open()
    yield RunContext(target, place, journal, None, WorkDraft(), boot_id=boot_id, trial=TRIAL)
    place.close()
    assert mapped(target, MAPPING) is None
    assert not [entry for entry in journal.pending() if entry.knob == LabMapping.name]


def place_of(context: RunContext) -> DiskPlace:
    assert isinstance(context.place, DiskPlace)
    return context.place


def encrypt(context: RunContext, level: str) -> None:
    setting = Setting(KNOB.name, level)
    KNOB.write(context, setting, KNOB.parse(setting))
    place_of(context).format()
    KNOB.verify(context, setting, KNOB.parse(setting))


def table_of(target: Target) -> list[str]:
    return target.run(["dmsetup", "table", "--showkeys", MAPPING]).output("the table").split()


def file_system_on(target: Target, device: str) -> str:
    return target.run(["blkid", "-p", "-o", "value", "-s", "TYPE", f"/dev/{device}"]).stdout.strip()


def test_every_level_is_in_the_kernels_table_and_only_its_options_are(context: RunContext) -> None:
    place, target = place_of(context), context.target
    below = str(place.device)
    size = int(target.read(f"/sys/block/{below}/size"))
    for level in LEVELS:
        encrypt(context, level)
        if level == "none":
            assert place.device == below
            assert mapped(target, MAPPING) is None
            continue
        words = table_of(target)
        assert words[:4] == ["0", str(size), "crypt", CIPHER]
        assert len(words[4]) == 128  # 512 bits
        assert sorted(words[9:]) == sorted(level.split()[1:])
        assert int(words[8]) == len(words[9:]) if words[8:] else not level.split()[1:]
        assert target.read(f"/sys/block/{place.device}/dm/name") == MAPPING
        assert target.read(f"/sys/block/{place.device}/queue/logical_block_size") == (
            "4096" if "sector_size:4096" in level else "512"
        )


def test_the_disk_holds_a_file_system_only_where_it_is_not_encrypted(context: RunContext) -> None:
    place, target = place_of(context), context.target
    below = str(place.device)
    for level in (CIPHER, "none", f"{CIPHER} sector_size:4096"):
        encrypt(context, level)
        assert file_system_on(target, str(place.device)) == "ext4"
        assert file_system_on(target, below) == ("ext4" if level == "none" else "")


def test_what_is_written_is_read_back_cold_and_counted_on_the_mapped_device(context: RunContext) -> None:
    place, target = place_of(context), context.target
    encrypt(context, f"{CIPHER} no_read_workqueue no_write_workqueue")
    place.make_files(FileSet("e-s0", f"{place.root}/e", 4, 200_000, "random", 1), seed=7)
    place.settle(always=True, fresh=True)

    def sectors() -> int:
        return int(target.read(f"/sys/block/{place.device}/stat").split()[2])

    before = sectors()
    assert target.call("fileset_verify", set="e-s0")["bytes"] == 800_000
    assert sectors() - before >= 800_000 // 512
    assert place.devices == {"data": place.device}


def test_queue_settings_act_on_the_disk_below_and_read_ahead_on_the_mapped_one(context: RunContext) -> None:
    place = place_of(context)
    below = str(place.device)
    encrypt(context, CIPHER)
    assert place.device != below
    scheduler, ahead = registry.knob("block.scheduler"), registry.knob("block.read_ahead_kb")
    scheduler.write(context, Setting(scheduler.name, "mq-deadline"), "mq-deadline")
    assert "[mq-deadline]" in context.target.read(f"/sys/block/{below}/queue/scheduler")
    scheduler.write(context, Setting(scheduler.name, "none"), "none")
    ahead.write(context, Setting(ahead.name, "640"), "640")
    assert context.target.read(f"/sys/block/{place.device}/queue/read_ahead_kb") == "640"


def test_a_mapping_is_undone_from_its_entry_alone_once_nothing_is_mounted_on_it(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LabMapping, "released_within_s", 0.2)
    place, target = place_of(context), context.target
    encrypt(context, CIPHER)
    others = {entry.knob for entry in context.journal.pending()} - {LabMapping.name}
    # a journal of another process: what is left of a trial that was killed
    left = Journal(context.journal.folder)
    (busy,) = restore(left, target, spare=others)
    assert busy.kept
    assert busy.problem is not None
    assert MAPPING in busy.problem
    assert mapped(target, MAPPING) is not None
    target.unmount(place.root)
    target.call("device_close", device=place.device)
    assert [one.outcome for one in restore(left, target, spare=others)] == [Undone.RESTORED]
    assert mapped(target, MAPPING) is None
    assert restore(left, target, spare=others) == ()
    context.journal._held.clear()
    # the lab's own device is still there
    place.device, place.mapping, place._below, place._mounted = place._below, None, None, None
