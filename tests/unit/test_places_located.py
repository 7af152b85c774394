"""Location of places: command-line syntax, refusals, and which places share a disk."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import jsonschema
import pytest
from place_studies import DEVICE, HEAD, PLACES, chosen

from iotrial.cli import cli
from iotrial.cli.run_request import named
from iotrial.documents import plain
from iotrial.errors import IotrialError, RequestError
from iotrial.lab.guard import Consent
from iotrial.runner.places import Where
from iotrial.runner.planning import default_folder
from iotrial.runner.resolve import resolve
from iotrial.runner.same_disk import Machine, disks_under, shared, sharing
from iotrial.runner.start import located_of
from iotrial.store.model import shared_disks_in_words

SCHEMAS = Path(__file__).parents[2] / "schemas"
ON_A_DISK = Where(consent=Consent("/dev/sdx", "S-1234"))


def locate(*places: str, device: str | None = None, erase: Sequence[str] = (), discard: bool = False, of: Sequence[str] = ()):  # type: ignore[no-untyped-def]  # fmt: skip
    return named(places, device, erase, discard_contents=discard, discard_contents_of=of)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a path that passes for a block device, as /dev/sdx does on a real machine."""
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
        (["ssd"], {}, "expected NAME=FOLDER"),
        (["ssd="], {}, "expected NAME=FOLDER"),
        (["ssd=/nowhere/at/all"], {}, "there is no such folder"),
        (["ssd=/", "ssd=/"], {}, "given twice"),
        (["ssd=/dev/sdx"], {}, "its serial number or WWN is missing"),
        (["ssd=/dev/sdx"], {"erase": ["S-1234"]}, "no disk of that name"),
        (["ssd=/dev/sdx"], {"erase": ["ssd="]}, "its serial number or WWN is missing"),
        (["ssd=/dev/sdx"], {"erase": ["ssd=A", "ssd=B"]}, "given twice"),
        (["ssd=/dev/sdx"], {"erase": ["ssd=A", "disk=B"]}, "no disk of that name"),
        (["ssd=/"], {"erase": ["ssd=A"]}, "no disk of that name"),
        (["ssd=/dev/sdx"], {"erase": ["ssd=A"], "discard": True}, "which disk"),
        (["ssd=/dev/sdx"], {"erase": ["ssd=A"], "of": ["disk"]}, "--discard-contents-of disk"),
        ([], {"erase": ["A", "B"], "device": "/dev/sdx"}, "no disk of that name"),
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
    (note,) = shared_disks_in_words(plain([together]))
    assert "places ssd and disk lie on one disk" in note
    assert "A/A" in note
    assert "--place NAME=FOLDER" in note


def test_a_log_beside_its_file_system_is_told_too(tmp_path: Path) -> None:
    mode = DEVICE.replace("lab.device", "filesystem.log").replace(
        '["ssd", "disk", "tape"]', '["internal", "external"]'
    )
    resolved = resolve(chosen(mode.replace('default = ["ssd", "disk"]', "")), root=True)
    (note,) = shared_disks_in_words(plain(sharing(resolved, str(tmp_path))))
    assert "the log (log) lies on the same disk as the file system" in note


def test_groups_of_places_are_those_that_any_disk_joins() -> None:
    disks = {"a": {"sda"}, "b": {"sdb"}, "c": {"sda", "sdb"}, "d": {"sdd"}}
    places = [(name, frozenset(found)) for name, found in disks.items()]
    assert shared(places) == ((("a", "b", "c"), ("sda", "sdb")),)
    assert shared(places[:2]) == ()


def machine(tmp_path: Path, number: int) -> Machine:
    """Return a machine where a folder with this device number is on md0, over a partition of sda and the whole of sdb."""
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


@pytest.mark.root
def test_without_the_model_a_study_of_devices_compares_a_disk_with_itself(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for words in ((), ("--disk", "none"), ("--place", "disk=/")):
        try:
            cli.main(["plan", "block/device", *words, "--json"], standalone_mode=False)
        except IotrialError as error:
            pytest.skip(error.message)  # no FUSE here
        document = json.loads(capsys.readouterr().out)
        places = {place["name"]: place["modelled"] for place in document["places"]}
        found[words] = (places["disk"], any(group["compared"] for group in document["shared"]))
    assert found[()] == ("disk-7200", False)
    assert found["--disk", "none"] == (None, True)
    assert found["--place", "disk=/"][0] is None
