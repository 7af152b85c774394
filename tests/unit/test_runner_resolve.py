"""What can run here is decided before anything is changed; refusals come with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotrial.errors import MissingTool, PrivilegeError, RequestError, UnknownName, UnsupportedLevel
from iotrial.lab.guard import Consent
from iotrial.runner import requirements
from iotrial.runner.resolve import disk_bytes, image_bytes, resolve
from iotrial.study.catalogue import find, names
from iotrial.study.model import Role, Scale, Setting, Study
from iotrial.study.reader import read_study
from iotrial.study.select import select
from iotrial.study.work import Step
from iotrial.workloads.command import CommandWork
from iotrial.workloads.files import FilesWork
from values import replace


def study(name: str = "files/permissions", **wanted: list[str]) -> Study:
    return select(find(name), conditions=wanted)


OWN = """
[study]
name = "own"
question = "?"
[[factor]]
name = "f"
knob = "{knob}"
levels = ["{low}", "{high}"]
[[workload]]
name = "w"
kind = "command"
argv = ["{program}", "{{file}}"]
"""


def own(knob: str = "file.mode", low: str = "0600", high: str = "0644", program: str = "cat") -> Study:
    text = OWN.format(knob=knob, low=low, high=high, program=program)
    return read_study(text, "own.toml", trusted=False)


def test_root_gets_the_image_lab_and_others_the_directory_lab() -> None:
    assert resolve(study(), root=True).lab == "image"
    assert resolve(study(), root=False).lab == "directory"


def test_a_directory_lab_without_root_names_what_it_cannot_vary() -> None:
    resolved = resolve(study(filesystem=["all"], reader=["all"]), root=False)
    note, left_warm = resolved.notes
    assert "filesystem, mount, reader" in note
    assert "names and inodes stay in memory" in left_warm
    assert {f.name for f in resolved.study.factors} == {"mode", "size", "cache", "reader"}


def test_what_the_user_asked_for_himself_is_refused_and_not_dropped() -> None:
    with pytest.raises(RequestError, match=r"filesystem\.type"):
        resolve(study(filesystem=["xfs"]), root=False, explicit={"filesystem"})


def test_a_mount_option_as_treatment_needs_root() -> None:
    with pytest.raises(PrivilegeError, match="root"):
        resolve(study("mount/atime"), root=False)


def test_a_missing_program_of_the_lab_names_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(requirements, "TOOL_FOLDERS", str(tmp_path))
    with pytest.raises(MissingTool) as caught:
        resolve(study(filesystem=["xfs"]), root=True)
    assert "apt-get install" in str(caught.value.hint)


def test_a_missing_command_is_told_before_the_trial() -> None:
    with pytest.raises(MissingTool, match="no-such-program"):
        resolve(own(program="no-such-program"), root=False)


@pytest.mark.parametrize(
    ("knob", "low", "high", "error"),
    [
        ("file.mood", "a", "b", UnknownName),
        ("file.mode", "0644", "rw", UnsupportedLevel),
        ("block.scheduler", "none", "cfq", UnsupportedLevel),
    ],
)
def test_unknown_knobs_and_levels_are_refused(knob: str, low: str, high: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        resolve(own(knob, low, high), root=True)


def test_a_foreign_study_with_a_shell_needs_trust() -> None:
    with pytest.raises(RequestError) as caught:
        resolve(own(program="sh"), root=False)
    assert "--trust" in str(caught.value.hint)
    assert resolve(own(program="sh"), root=False, trust=True).lab == "directory"


def test_hostile_options_of_the_lab_are_refused() -> None:
    plain = study()
    for bad in (
        replace(plain.lab, mkfs_options=("-J device=/dev/vda",)),
        replace(plain.lab, mount_options=("exec", "suid")),
        replace(plain.lab, filesystem="ntfs"),
    ):
        with pytest.raises(RequestError):
            resolve(replace(plain, lab=bad), root=True)


def test_few_files_under_access_times_are_remarked_upon() -> None:
    assert resolve(study("mount/atime"), root=True).notes == ()
    plain = study("mount/atime")
    few = tuple(replace(w, work=replace(w.work, files=50, pool=50)) for w in plain.workloads)
    (note,) = resolve(replace(plain, workloads=few), root=True).notes
    assert "timestamps change only" in note


def test_responses_that_no_slow_down_can_be_put_into_are_refused_and_one_that_can_is_enough() -> None:
    plain = study()
    counts = tuple(replace(r, primary=r.name == "device_write_bytes") for r in plain.responses)
    resolve(replace(plain, responses=counts), root=True)
    differences = tuple(replace(r, scale=Scale.DIFFERENCE) for r in plain.responses)
    with pytest.raises(RequestError, match="no known slowdown"):
        resolve(replace(plain, responses=differences), root=True)
    with pytest.raises(RequestError, match="no response is primary"):
        resolve(
            replace(plain, responses=tuple(replace(r, primary=False) for r in plain.responses)), root=True
        )


def test_levels_of_a_bundle_must_turn_the_same_knobs() -> None:
    plain = study()
    mode = plain.factor("mode")
    more = replace(mode.levels[0], settings=(*mode.levels[0].settings, Setting("block.read_ahead_kb", "0")))
    factor = replace(mode, levels=(more, *mode.levels[1:]))
    factors = tuple(factor if f.name == "mode" else f for f in plain.factors)
    with pytest.raises(RequestError, match="read_ahead_kb"):
        resolve(replace(plain, factors=factors), root=True)


def test_the_plan_says_what_is_changed_as_root() -> None:
    assert any("loop device" in change for change in resolve(study(), root=True).changes)
    assert resolve(study(), root=False).changes == ()
    system = resolve(study(cache=["cold"]), root=True).changes
    assert not any("page cache of the whole machine" in change for change in system)


#: questions raised in articles that give no figure or claim to compare a trial with
NOTHING_PUBLISHED = {
    "application/backup",
    "system/lru-gen",
    "block/zeros",
    "filesystem/block-size",
    "filesystem/block-size-xfs",
    "filesystem/steady-state",
    "filesystem/website",
    "lvm/stripe",
    "nas/attribute-cache",
    "nas/clients",
    "nas/ftp",
    "nas/nvme-tcp",
    "system/kernel",
    "system/screen-follow-up",
}


@pytest.mark.parametrize("name", names())
def test_every_study_of_the_catalogue_resolves_in_full(name: str) -> None:
    resolved = resolve(select(find(name), full=True), root=True)
    assert resolved.study.claims or name in NOTHING_PUBLISHED


def test_a_cold_run_must_read_what_its_operations_need() -> None:
    whole = FilesWork(operations=("open", "read-to-end", "close"))
    twice = FilesWork(operations=("open", "read", "read", "close"), buffer_bytes=1000)
    names_only = FilesWork(operations=("getdents", "lstat"))
    command = CommandWork(steps=(Step("c", ("cat", "{file}")),))
    assert whole.reads_bytes(10_000, 3) == 30_000
    assert twice.reads_bytes(10_000, 3) == 6_000
    assert twice.reads_bytes(64, 3) == 192
    assert names_only.reads_bytes(10_000, 3) == 1
    assert command.reads_bytes(10_000, 3) == 30_000
    assert replace(command, reads="names").reads_bytes(10_000, 3) == 1


CONSENT = Consent("/dev/sdx", "S-1234")


def test_a_device_lab_needs_root_and_a_disk_that_was_named() -> None:
    with pytest.raises(PrivilegeError, match="the device lab: needs root"):
        resolve(study(), root=False, lab="device", consent=CONSENT)
    with pytest.raises(RequestError, match="no disk given") as caught:
        resolve(study(), root=True, lab="device")
    assert "lsblk" in str(caught.value.hint)
    assert resolve(study(), root=True, lab="device", consent=CONSENT).lab == "device"


@pytest.mark.parametrize("lab", ["image", "directory", None])
def test_a_disk_that_was_named_for_another_lab_is_refused(lab: str | None) -> None:
    with pytest.raises(RequestError, match="--device and --erase name a disk"):
        resolve(study(), root=True, lab=lab, consent=CONSENT)


def test_a_disk_is_never_the_lab_that_is_chosen_for_you() -> None:
    for name in names():
        assert resolve(study(name), root=True).lab != "device"


def test_a_device_lab_holds_one_file_system_at_a_time() -> None:
    with pytest.raises(RequestError, match="one file system at a time"):
        resolve(study(filesystem=["all"]), root=True, lab="device", consent=CONSENT)
    resolve(study(filesystem=["ext4"]), root=True, lab="device", consent=CONSENT)


def test_what_is_overwritten_is_announced_to_the_byte() -> None:
    said = "\n".join(resolve(study(), root=True, lab="device", consent=CONSENT).changes)
    assert "the first 536,870,912 bytes of the disk" in said
    assert "ZEROS" in said


def test_a_lab_is_as_large_as_the_largest_of_its_file_systems_needs() -> None:
    small = own("filesystem.type", "ext4", "xfs")
    small = replace(small, lab=replace(small.lab, size_bytes=(20 << 20) + 1))
    assert disk_bytes(small) == 300 << 20
    assert disk_bytes(replace(small, factors=())) == (20 << 20) + 4096
    assert image_bytes(small) == 300 << 20
    assert "an image of 300 MiB" in "\n".join(resolve(small, root=True).changes)
    pinned = replace(small, factors=(), fixed=(Setting("filesystem.type", "btrfs"),))
    assert image_bytes(pinned) == disk_bytes(pinned) == 128 << 20
    of_its_own = replace(small, factors=(replace(small.factors[0], role=Role.CONDITION),))
    assert image_bytes(of_its_own) == (20 << 20) + 4096


GUEST_DISK = """
[study]
name = "guest-disk"
question = "?"
[lab]
kind = "guest"
{lab}
[[factor]]
name = "disk"
knob = "guest.disk_interface"
levels = ["virtio-blk", "sata"]
plot = "whole"
[[workload]]
name = "w"
kind = "files"
operations = ["open", "read-to-end", "close"]
"""


@pytest.mark.parametrize(
    ("lab", "why"),
    [('disk = "ssd-sata"', "simulated inside the guest"), ("disks = 3", "always attached by virtio-blk")],
)
def test_how_a_disk_is_attached_is_refused_where_qemu_attaches_none_or_several(lab: str, why: str) -> None:
    text = GUEST_DISK.format(lab=lab)
    with pytest.raises(RequestError, match=why):
        resolve(read_study(text, "own.toml", trusted=False), root=False)


AIO = """
[[factor]]
name = "aio"
knob = "guest.disk_aio"
levels = ["threads", "native"]
[[factor]]
name = "cache"
knob = "guest.disk_cache"
levels = ["{cache}", "directsync"]
"""


def test_linux_aio_is_refused_where_qemu_would_use_the_page_cache() -> None:
    study = GUEST_DISK.format(lab="")
    resolve(read_study(study + AIO.format(cache="none"), "own.toml", trusted=False), root=False)
    with pytest.raises(RequestError, match=r"guest\.disk_aio.*only past the host's page cache"):
        resolve(read_study(study + AIO.format(cache="writeback"), "own.toml", trusted=False), root=False)


def test_a_guest_gets_the_drivers_of_every_way_to_attach_its_disk() -> None:
    resolved = resolve(read_study(GUEST_DISK.format(lab=""), "own.toml", trusted=False), root=False)
    assert resolved.needs is not None
    assert {"ahci", "sd_mod"} <= resolved.needs.modules
    assert "nvme" not in resolved.needs.modules
