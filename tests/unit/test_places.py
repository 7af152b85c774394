"""Places: declaration in a study, location on the command line, and refusals before anything is made."""

from __future__ import annotations

import pytest
from place_studies import DEVICE, LOG, MODE, PLACES, chosen, read

from iotrial.errors import RequestError, StudyError, UnknownName
from iotrial.lab.guard import Consent
from iotrial.runner.places import Where
from iotrial.runner.resolve import resolve
from iotrial.study.catalogue import find
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.select import select
from values import check_limits


def test_a_place_is_an_object_with_a_name_and_nothing_that_says_where_it_lies() -> None:
    study = read(PLACES, DEVICE)
    assert [place.name for place in study.places] == ["ssd", "disk", "tape"]
    assert study.places[0].text == "the solid-state disk"
    assert study.places[1].size_bytes == 100 << 20
    for key in ("folder", "path", "device", "disk_path"):
        with pytest.raises(StudyError, match="has no key"):
            read(PLACES + f'{key} = "/dev/sda"\n', DEVICE)


@pytest.mark.parametrize("name", ["SSD", "/dev/sda", "..", "a.b", "-x", "", "ä", "x" * 33])
def test_the_name_of_a_place_can_be_part_of_a_path_without_being_one(name: str) -> None:
    with pytest.raises(StudyError):
        read(PLACES.replace('name = "ssd"', f'name = "{name}"'), DEVICE.replace("ssd", name))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (DEVICE, 'lab.device "ssd": the study declares no place'),
        (PLACES.replace('"tape"', '"taps"') + DEVICE, '"tape"'),
        (PLACES + '[[place]]\nname = "ssd"\n' + DEVICE, 'place "ssd" is given twice'),
        (PLACES + MODE, 'no run uses place "ssd"'),
        (PLACES + '[[place]]\nname = "log"\nholds = "log"\n' + DEVICE, "no file system uses one"),
        (
            PLACES + DEVICE + '[[factor]]\nname = "fs"\nknob = "filesystem.type"\nlevels = ["ext4", "xfs"]\n',
            'place "disk" has its own file system',
        ),
        (PLACES + '[[place]]\nname = "log"\nholds = "log"\nfilesystem = "xfs"\n' + DEVICE + LOG, "a device without"),
        (PLACES + '[[place]]\nname = "log"\nholds = "files"\n' + DEVICE + LOG, '"log" is the place of the file systems'),
        (PLACES + '[[place]]\nname = "log"\nholds = "log"\nkind = "device"\n' + DEVICE + LOG, "must be an image"),
    ],
)  # fmt: skip
def test_places_that_cannot_be_meant_are_refused_in_the_file(text: str, wanted: str) -> None:
    with pytest.raises(StudyError) as caught:
        read(text)
    assert wanted in f"{caught.value.message} {caught.value.hint}"


def test_a_study_with_places_is_stored_and_read_again() -> None:
    study = read(PLACES, DEVICE, LOG, '[[place]]\nname = "log"\nholds = "log"\n')
    assert study_from_json(study_to_json(study)) == study
    check_limits(study, origin="stored")
    data = study_to_json(study)
    data["study"]["places"][0]["name"] = "../etc"
    with pytest.raises(StudyError, match="place"):
        check_limits(study_from_json(data), origin="stored")


def test_only_places_of_levels_that_run_are_made() -> None:
    resolved = resolve(chosen(PLACES, DEVICE), root=True)
    assert [(site.name, site.kind, site.filesystems) for site in resolved.sites] == [
        ("ssd", "image", ("ext4",)),
        ("disk", "image", ("xfs",)),
    ]
    assert [site.size_bytes >> 20 for site in resolved.sites] == [64, 300]  # the minimum of mkfs.xfs
    assert resolve(chosen(PLACES, DEVICE), root=False, lab="directory").lab == "directory"


def test_a_condition_of_file_systems_has_an_image_for_each_on_every_place() -> None:
    plain = PLACES.replace('filesystem = "xfs"\n', "")
    both = (
        '[[factor]]\nname = "fs"\nknob = "filesystem.type"\nlevels = ["ext4", "btrfs"]\nrole = "condition"\n'
    )
    first, second = resolve(chosen(plain, DEVICE, both), root=True).sites
    assert [first.place(kind) for kind in first.filesystems] == ["ssd.ext4", "ssd.btrfs"]
    assert [second.place(kind) for kind in second.filesystems] == ["disk.ext4", "disk.btrfs"]
    (alone, _) = resolve(chosen(plain, DEVICE), root=True).sites
    assert alone.place("ext4") == "ssd"


ON_A_DISK = Where(consent=Consent("/dev/sdx", "S-1234"))


def test_disks_and_images_are_places_of_one_trial() -> None:
    mixed = resolve(chosen(PLACES, DEVICE), root=True, located={"disk": ON_A_DISK})
    assert (mixed.lab, [site.kind for site in mixed.sites]) == ("image", ["image", "device"])
    said = "\n".join(mixed.changes)
    assert "named with --place disk= and --erase disk= are overwritten" in said
    assert "ZEROS" in said
    other = Where(consent=Consent("/dev/sdy", "S-5678"))
    assert (
        resolve(chosen(PLACES, DEVICE), root=True, located={"disk": ON_A_DISK, "ssd": other}).lab == "device"
    )


@pytest.mark.parametrize(
    ("located", "lab", "wanted"),
    [
        ({"sdd": Where("/x")}, None, "sdd"),
        ({"tape": Where("/x")}, None, "not used by the chosen levels"),
        ({"ssd": ON_A_DISK, "disk": Where(consent=Consent("/dev/sdy", "s-1234"))}, None, "are on one disk"),
        ({"ssd": ON_A_DISK}, "directory", "does not use a disk"),
        ({}, "device", "place ssd: no disk given"),
        ({"ssd": ON_A_DISK}, "device", "place disk: no disk given"),
    ],
)
def test_places_that_are_located_wrongly_are_refused(
    located: dict[str, Where], lab: str | None, wanted: str
) -> None:
    with pytest.raises(RequestError) as caught:
        resolve(chosen(PLACES, DEVICE), root=True, lab=lab, located=located)
    assert wanted in caught.value.message


def test_a_place_that_the_study_has_not_is_refused() -> None:
    plain = DEVICE.replace("lab.device", "file.mode").replace('["ssd", "disk", "tape"]', '["0444", "0777"]')
    plain = plain.replace('default = ["ssd", "disk"]', "")
    with pytest.raises(RequestError, match="declares no place"):
        resolve(chosen(plain), root=True, located={"ssd": Where("/x")})
    with pytest.raises(UnknownName) as caught:
        resolve(chosen(PLACES, DEVICE), root=True, located={"sdd": Where("/x")})
    assert "ssd" in str(caught.value.hint)


def test_a_disk_for_the_whole_lab_is_no_disk_of_a_place() -> None:
    with pytest.raises(RequestError) as caught:
        resolve(chosen(PLACES, DEVICE), root=True, lab="device", consent=Consent("/dev/sdx", "S-1234"))
    assert "--place ssd=PATH --erase ssd=NAME" in str(caught.value.hint)


def test_kinds_that_a_place_wants_are_held_to() -> None:
    wants_a_disk = PLACES.replace('size = "100 MiB"', 'kind = "device"')
    with pytest.raises(RequestError, match="place disk: no disk given"):
        resolve(chosen(wants_a_disk, DEVICE), root=True)
    wants_a_folder = PLACES.replace('size = "100 MiB"', 'kind = "directory"')
    with pytest.raises(RequestError, match="needs a place of kind directory"):
        resolve(chosen(wants_a_folder, DEVICE), root=True)
    wants_an_image = PLACES.replace('size = "100 MiB"', 'kind = "image"')
    with pytest.raises(RequestError, match="needs an image"):
        resolve(chosen(wants_an_image, DEVICE), root=True, located={"disk": ON_A_DISK})


def test_the_log_is_a_place_without_being_declared() -> None:
    mode = DEVICE.replace("lab.device", "filesystem.log").replace(
        '["ssd", "disk", "tape"]', '["internal", "external"]'
    )
    study = chosen(mode.replace('default = ["ssd", "disk"]', ""))
    lab, log = resolve(study, root=True).sites
    assert (lab.name, log.name, log.kind, log.size_bytes >> 20) == ("", "log", "log", 16)
    assert resolve(study, root=True, located={"log": Where("/x")}).sites[1].where.folder == "/x"
    with pytest.raises(RequestError, match="a log is an image"):
        resolve(study, root=True, located={"log": ON_A_DISK})


def test_no_option_of_mkfs_meets_the_mkfs_of_a_place_that_takes_it_for_something_else() -> None:
    # -d is a profile to mkfs.btrfs, a source folder to mke2fs, and a geometry to mkfs.xfs
    mixed = PLACES.replace('filesystem = "xfs"', 'filesystem = "btrfs"')
    option = '[[factor]]\nname = "data"\nknob = "mkfs.option"\nlevels = ["default", "-d single"]\n'
    with pytest.raises(RequestError, match="not on the list of ext4"):
        resolve(chosen(mixed, DEVICE, option), root=True)


def test_a_file_system_without_a_log_is_given_none() -> None:
    kinds = (
        '[[factor]]\nname = "fs"\nknob = "filesystem.type"\nlevels = ["ext4", "btrfs"]\nrole = "condition"\n'
    )
    plain = PLACES.replace('filesystem = "xfs"\n', "")
    for parts in ((plain, DEVICE, LOG, kinds), (PLACES.replace('"xfs"', '"btrfs"'), DEVICE, LOG)):
        with pytest.raises(RequestError, match="btrfs does not support an external log"):
            resolve(chosen(*parts), root=True)
    resolve(chosen(PLACES, DEVICE, LOG), root=True)
    without = '[[factor]]\nname = "j"\nknob = "mkfs.option"\nlevels = ["default", "-O ^has_journal"]\n'
    with pytest.raises(RequestError, match="there is no place for one"):
        resolve(chosen(plain, DEVICE, LOG, without), root=True)


def test_the_disk_of_the_whole_lab_is_that_of_its_only_place() -> None:
    one = find("matrix/iozone")
    chosen_ = select(one)
    resolved = resolve(chosen_, root=True, lab="device", consent=Consent("/dev/sdx", "S-1234"))
    assert [(site.name, site.kind) for site in resolved.sites] == [("here", "device")]
    both = select(one, conditions={"device": ["all"]})
    with pytest.raises(RequestError, match="has places"):
        resolve(both, root=True, lab="device", consent=Consent("/dev/sdx", "S-1234"))


# the command line
