"""Impossible file layouts, and missing tools for them, are reported before anything is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotrial.errors import MissingTool, UnsupportedLevel
from iotrial.lab import registry
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.runner import refusals, requirements
from iotrial.runner.requirements import Installed
from iotrial.runner.resolve import resolve
from iotrial.study.model import Setting, Study
from iotrial.study.reader import read_study


def study(knob: str, *levels: str, files: int = 20, size: str = "4 MiB", filesystem: str = "xfs") -> Study:
    words = ", ".join(f'"{level}"' for level in levels)
    text = f"""
[study]
name = "own"
question = "?"
[lab]
kind = "image"
filesystem = "{filesystem}"
[[factor]]
name = "f"
knob = "{knob}"
levels = [{words}]
[[workload]]
name = "w"
kind = "files"
files = {files}
size = "{size}"
operations = ["open", "read-to-end", "close"]
"""
    return read_study(text, "own.toml", trusted=False)


def test_shares_are_those_of_extents_beyond_one_a_file() -> None:
    # (extents - files) / extents for 20 files: 21 are 4.8 %, 40 are 50 %, 2,000 are 99 %, 20,000 are 99.9 %
    resolved = resolve(study("file.fragmentation", "0 %", "5 %", "50%", "99 %", "99.9 %"), root=True)
    found = [settings[0].value for settings in resolved.settings.values()]
    assert found == ["0 %", "5 %", "50 %", "99 %", "99.9 %"]


@pytest.mark.parametrize(
    ("levels", "files", "size", "words"),
    [
        (("0 %", "5 %"), 10, "4 MiB", "5 % is impossible with 10 files: with 11 extents it is 9.091 %"),
        (
            ("0 %", "50 %"),
            20,
            "4 KiB",
            "50 % of 20 files of 4,096 bytes are 40 extents, and they have only 20",
        ),
        (("0 %", "100 %"), 20, "4 MiB", '"100 %" is not a share'),
        (("0 %", "half"), 20, "4 MiB", '"half" is not a share'),
    ],
)
def test_a_share_that_the_files_cannot_have_is_refused(
    levels: tuple[str, ...], files: int, size: str, words: str
) -> None:
    with pytest.raises(UnsupportedLevel) as caught:
        resolve(study("file.fragmentation", *levels, files=files, size=size), root=True)
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("filesystem", FILESYSTEMS)
def test_a_missing_defragmenter_names_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, filesystem: str
) -> None:
    wanted = FILESYSTEMS[filesystem]
    asked = study("file.defragment", "untouched", "rewritten", "defragmented", filesystem=filesystem)
    monkeypatch.setattr(requirements, "TOOL_FOLDERS", str(tmp_path))
    with pytest.raises(MissingTool, match=wanted.defragment[0]) as caught:
        refusals.check_files(asked, Installed())
    assert caught.value.hint == f"apt-get install {wanted.package}"
    refusals.check_files(
        study("file.defragment", "untouched", "rewritten", filesystem=filesystem), Installed()
    )


def test_a_share_of_rewritten_files_is_a_whole_number_of_them() -> None:
    resolve(study("file.rewritten", "0 %", "10 %", "100 %"), root=True)
    with pytest.raises(UnsupportedLevel, match="1 % of 20 files is not a whole number"):
        resolve(study("file.rewritten", "0 %", "1 %"), root=True)
    with pytest.raises(UnsupportedLevel, match="101"):
        resolve(study("file.rewritten", "0 %", "101 %"), root=True)


@pytest.mark.parametrize("value", ["0 %", "96 %", "old", "8e1 %", ""])
def test_an_age_that_leaves_no_room_or_is_none_is_refused(value: str) -> None:
    knob = registry.knob("filesystem.age")
    with pytest.raises(UnsupportedLevel):
        knob.parse(Setting(knob.name, value))
    assert [knob.parse(Setting(knob.name, text)) for text in ("fresh", "80%", "5 %")] == [
        "fresh",
        "80 %",
        "5 %",
    ]
