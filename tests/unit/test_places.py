"""Places: how a study declares them, how the command line locates them, and what is refused before anything is made."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import jsonschema
import pytest

from iotrial.cli import cli
from iotrial.cli.placing import named
from iotrial.conduct.backing import Machine, disks_under, shared
from iotrial.conduct.resolve import resolve
from iotrial.conduct.sharing import notes, sharing
from iotrial.conduct.sites import Where
from iotrial.conduct.start import default_folder, located_of
from iotrial.errors import IotrialError, RequestError, StudyError, UnknownName
from iotrial.lab.guard import Consent
from iotrial.study.catalogue import find
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.limits import check_limits
from iotrial.study.model import Study
from iotrial.study.reader import read_study
from iotrial.study.select import select

SCHEMAS = Path(__file__).parents[2] / "schemas"
HEAD = """
[study]
name = "places"
question = "Is one place as fast as another?"
[lab]
kind = "image"
size = "64 MiB"
[[workload]]
name = "read"
kind = "files"
files = 4
operations = ["open", "read-to-end", "close"]
"""
DEVICE = """
[[factor]]
name = "device"
knob = "lab.device"
levels = ["ssd", "disk", "tape"]
default = ["ssd", "disk"]
"""
PLACES = """
[[place]]
name = "ssd"
text = "the solid-state disk"
[[place]]
name = "disk"
size = "100 MiB"
filesystem = "xfs"
[[place]]
name = "tape"
"""
MODE = """
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
"""
LOG = """
[[factor]]
name = "log"
knob = "filesystem.log"
levels = ["internal", "external"]
"""


def read(*parts: str) -> Study:
    return read_study("".join((HEAD, *parts)), "places.toml", trusted=True)


def chosen(*parts: str, **sets: Sequence[str]) -> Study:
    return select(read(*parts), sets=sets)


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
        (PLACES + '[[place]]\nname = "ssd"\n' + DEVICE, 'two places are called "ssd"'),
        (PLACES + MODE, 'no run happens at place "ssd"'),
        (PLACES + '[[place]]\nname = "log"\nholds = "log"\n' + DEVICE, "no file system is given one"),
        (
            PLACES + DEVICE + '[[factor]]\nname = "fs"\nknob = "filesystem.type"\nlevels = ["ext4", "xfs"]\n',
            'place "disk" has a file system of its own',
        ),
        (PLACES + '[[place]]\nname = "log"\nholds = "log"\nfilesystem = "xfs"\n' + DEVICE + LOG, "a bare device"),
        (PLACES + '[[place]]\nname = "log"\nholds = "files"\n' + DEVICE + LOG, '"log" is the place of the file systems'),
        (PLACES + '[[place]]\nname = "log"\nholds = "log"\nkind = "device"\n' + DEVICE + LOG, "lies on an image"),
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
    assert [site.size_bytes >> 20 for site in resolved.sites] == [64, 300]  # the least that mkfs.xfs takes
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
        ({"tape": Where("/x")}, None, "no run of the chosen levels happens there"),
        ({"ssd": ON_A_DISK, "disk": Where(consent=Consent("/dev/sdy", "s-1234"))}, None, "named on one disk"),
        ({"ssd": ON_A_DISK}, "directory", "no use for a disk"),
        ({}, "device", "place ssd: no disk is named"),
        ({"ssd": ON_A_DISK}, "device", "place disk: no disk is named"),
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
    with pytest.raises(RequestError, match="place disk: no disk is named"):
        resolve(chosen(wants_a_disk, DEVICE), root=True)
    wants_a_folder = PLACES.replace('size = "100 MiB"', 'kind = "directory"')
    with pytest.raises(RequestError, match="wants a place of kind directory"):
        resolve(chosen(wants_a_folder, DEVICE), root=True)
    wants_an_image = PLACES.replace('size = "100 MiB"', 'kind = "image"')
    with pytest.raises(RequestError, match="wants an image"):
        resolve(chosen(wants_an_image, DEVICE), root=True, located={"disk": ON_A_DISK})


def test_the_log_is_a_place_without_being_declared() -> None:
    mode = DEVICE.replace("lab.device", "filesystem.log").replace(
        '["ssd", "disk", "tape"]', '["internal", "external"]'
    )
    study = chosen(mode.replace('default = ["ssd", "disk"]', ""))
    lab, log = resolve(study, root=True).sites
    assert (lab.name, log.name, log.kind, log.size_bytes >> 20) == ("", "log", "log", 16)
    assert resolve(study, root=True, located={"log": Where("/x")}).sites[1].where.folder == "/x"
    with pytest.raises(RequestError, match="a log lies on an image"):
        resolve(study, root=True, located={"log": ON_A_DISK})


def test_no_option_of_mkfs_meets_the_mkfs_of_a_place_that_takes_it_for_something_else() -> None:
    # -d is a profile to mkfs.btrfs, a folder to copy to mke2fs, and a geometry to mkfs.xfs
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
        with pytest.raises(RequestError, match="btrfs has no log"):
            resolve(chosen(*parts), root=True)
    resolve(chosen(PLACES, DEVICE, LOG), root=True)
    without = '[[factor]]\nname = "j"\nknob = "mkfs.option"\nlevels = ["default", "-O ^has_journal"]\n'
    with pytest.raises(RequestError, match="lies nowhere"):
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


def locate(*places: str, device: str | None = None, erase: Sequence[str] = (), discard: bool = False, of: Sequence[str] = ()):  # type: ignore[no-untyped-def]  # fmt: skip
    return named(places, device, erase, discard_contents=discard, discard_contents_of=of)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> str:
    """A path that is taken for a block device, as /dev/sdx is where there is one."""
    real = Path.is_block_device
    monkeypatch.setattr(Path, "is_block_device", lambda path: str(path).startswith("/dev/sd") or real(path))
    return "/dev/sdx"


def test_a_folder_is_named_by_place(tmp_path: Path) -> None:
    assert locate(f"ssd={tmp_path}") == (None, {"ssd": Where(str(tmp_path))})
    assert locate(erase=()) == (None, {})


def test_a_disk_is_named_twice(disk: str) -> None:
    assert locate(f"ssd={disk}", erase=["ssd=S-1234"]) == (None, {"ssd": ON_A_DISK})
    waived = Where(consent=Consent(disk, "S-1234", True))
    assert locate(f"ssd={disk}", erase=["ssd=S-1234"], of=["ssd"]) == (None, {"ssd": waived})
    assert locate(device=disk, erase=["S=1"]) == (Consent(disk, "S=1"), {})


@pytest.mark.parametrize(
    ("places", "options", "wanted"),
    [
        (["ssd"], {}, "wanted NAME=FOLDER"),
        (["ssd="], {}, "wanted NAME=FOLDER"),
        (["ssd=/nowhere/at/all"], {}, "there is no such folder"),
        (["ssd=/", "ssd=/"], {}, "given twice"),
        (["ssd=/dev/sdx"], {}, "--erase ssd=SERIAL-OR-WWN is missing"),
        (["ssd=/dev/sdx"], {"erase": ["S-1234"]}, "for no disk that is named"),
        (["ssd=/dev/sdx"], {"erase": ["ssd="]}, "the serial number or WWN is missing"),
        (["ssd=/dev/sdx"], {"erase": ["ssd=A", "ssd=B"]}, "given twice"),
        (["ssd=/dev/sdx"], {"erase": ["ssd=A", "disk=B"]}, "for no disk that is named"),
        (["ssd=/"], {"erase": ["ssd=A"]}, "is no disk"),
        (["ssd=/dev/sdx"], {"erase": ["ssd=A"], "discard": True}, "does not say of which disk"),
        (["ssd=/dev/sdx"], {"erase": ["ssd=A"], "of": ["disk"]}, "--discard-contents-of disk"),
        ([], {"erase": ["A", "B"], "device": "/dev/sdx"}, "for no disk that is named"),
    ],
)
def test_places_without_consent_or_with_too_much_of_it_are_refused(
    disk: str, places: list[str], options: dict[str, object], wanted: str
) -> None:
    with pytest.raises(RequestError) as caught:
        locate(*places, **options)
    assert wanted in caught.value.message


def test_a_folder_of_a_place_is_checked_as_that_of_the_lab(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    resolved = resolve(chosen(PLACES, DEVICE), root=True, located={"ssd": Where(str(gone))})
    with pytest.raises(RequestError, match=r"--place ssd=.*no such folder"):
        default_folder(resolved, None)


def test_what_is_stored_of_places_finds_them_again() -> None:
    class Header:
        options: dict[str, object] = {  # noqa: RUF012
            "places": {"ssd": {"folder": "/x"}, "disk": {"disk": "S-1234", "discard_contents": True}}
        }

    found = located_of(Header())  # type: ignore[arg-type]
    assert found["ssd"] == Where("/x")
    assert found["disk"] == Where(consent=Consent(None, "S-1234", True))
    Header.options = {}
    assert located_of(Header()) == {}  # type: ignore[arg-type]


# whether places share a disk


def test_two_places_in_one_folder_are_said_to_lie_on_one_disk(tmp_path: Path) -> None:
    resolved = resolve(chosen(PLACES, DEVICE), root=True)
    (together,) = sharing(resolved, str(tmp_path / "to" / "be" / "made"))
    assert together.places == ("ssd", "disk")
    (note,) = notes([together.facts()])
    assert "places ssd and disk lie on one disk" in note
    assert "A/A" in note
    assert "--place NAME=FOLDER" in note


def test_a_log_beside_its_file_system_is_told_too(tmp_path: Path) -> None:
    mode = DEVICE.replace("lab.device", "filesystem.log").replace(
        '["ssd", "disk", "tape"]', '["internal", "external"]'
    )
    resolved = resolve(chosen(mode.replace('default = ["ssd", "disk"]', "")), root=True)
    (note,) = notes([group.facts() for group in sharing(resolved, str(tmp_path))])
    assert "the log (log) lies on the same disk as the file system" in note


def test_groups_of_places_are_those_that_any_disk_joins() -> None:
    disks = {"a": {"sda"}, "b": {"sdb"}, "c": {"sda", "sdb"}, "d": {"sdd"}}
    places = [(name, frozenset(found)) for name, found in disks.items()]
    assert shared(places) == ((("a", "b", "c"), ("sda", "sdb")),)
    assert shared(places[:2]) == ()


def machine(tmp_path: Path, number: int) -> Machine:
    """A machine on which a folder with this device number lies on md0 over a partition of sda and a whole sdb."""
    folder = tmp_path / "sys"
    for name, dev in (("sda/sda1", "8:1"), ("sdb", "8:16"), ("md0", "9:0")):
        (folder / "devices" / name).mkdir(parents=True)
        (folder / "devices" / name / "dev").write_text(f"{dev}\n")
    (folder / "devices" / "sda" / "dev").write_text("8:0\n")
    (folder / "devices" / "sda" / "sda1" / "partition").write_text("1\n")
    slaves = folder / "devices" / "md0" / "slaves"
    slaves.mkdir()
    (slaves / "sda1").symlink_to(folder / "devices" / "sda" / "sda1")
    (slaves / "sdb").symlink_to(folder / "devices" / "sdb")
    block = folder / "dev" / "block"
    block.mkdir(parents=True)
    at = {"8:1": "sda/sda1", "8:16": "sdb"}
    for dev, name in at.items():
        (block / dev).symlink_to(folder / "devices" / name)
    (block / f"{os.major(number)}:{os.minor(number)}").symlink_to(folder / "devices" / "md0")
    return Machine(folder, tmp_path / "mountinfo")


def test_an_array_lies_on_the_disks_of_its_members(tmp_path: Path) -> None:
    number = tmp_path.stat().st_dev
    if os.major(number) in (0, 8):
        pytest.skip("this folder has no block device of its own, or one of the stand-ins' numbers")
    assert disks_under(str(tmp_path), machine(tmp_path, number)) == {"sda", "sdb"}


def test_a_folder_of_memory_has_no_disk(tmp_path: Path) -> None:
    if os.major(Path("/dev/shm").stat().st_dev):
        pytest.skip("/dev/shm is no memory here")
    assert disks_under("/dev/shm") == {f"0:{os.minor(Path('/dev/shm').stat().st_dev)}"}


def test_the_plan_lists_places_and_what_they_share_as_its_schema_says(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "".join(
        (HEAD.replace('"image"', '"directory"'), PLACES.replace('filesystem = "xfs"\n', ""), DEVICE)
    )
    (tmp_path / "mine.toml").write_text(text)
    (tmp_path / "there").mkdir()
    cli.main(
        ["plan", str(tmp_path / "mine.toml"), "--place", f"disk={tmp_path / 'there'}", "--json"],
        standalone_mode=False,
    )
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads((SCHEMAS / "plan.schema.json").read_text()))
    places = {place["name"]: place for place in document["places"]}
    assert (places["disk"]["folder"], places["disk"]["located"]) == (str(tmp_path / "there"), True)
    assert (places["ssd"]["folder"], places["ssd"]["located"]) == (str(state / "lab"), False)
    assert all(set(group["places"]) <= set(places) for group in document["shared"])


def test_without_the_model_a_study_of_devices_compares_a_disk_with_itself(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for words in ((), ("--disk", "none"), ("--place", "disk=/")):
        try:
            cli.main(["plan", "block/device", *words, "--json"], standalone_mode=False)
        except IotrialError as error:
            pytest.skip(error.message)  # not root, or no FUSE
        document = json.loads(capsys.readouterr().out)
        places = {place["name"]: place["modelled"] for place in document["places"]}
        found[words] = (places["disk"], any(group["compared"] for group in document["shared"]))
    assert found[()] == ("disk-7200", False)
    assert found["--disk", "none"] == (None, True)
    assert found["--place", "disk=/"][0] is None
