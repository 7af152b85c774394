"""Published cases of crash consistency: what is promised holds, and without the fsync it does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "powercut"))

import cases
import laboratory

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone]  # as test_powercut.py
#: of the 27 cases, those whose loss is seen at once if nothing is synced; all run in benchmarks/powercut/cases.py
NAMES = (
    "create a file and fsync it, no fsync of the folder",
    "rename a file, make a new one of its name, fsync that",
    "make a symbolic link, fsync the folder",
)


def named(name: str) -> cases.Case:
    (case,) = (case for case in cases.CASES if case.name == name)
    return case


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("filesystem", sorted(laboratory.SIZES))
def test_what_is_promised_holds(filesystem: str, name: str) -> None:
    tally = cases.tried_case(named(name), filesystem, 20, 4096)
    assert tally.bad == 0, tally.examples


@pytest.mark.parametrize("name", NAMES)
def test_without_the_fsync_it_is_lost(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(cases.os, "fsync", lambda _: None)
    tally = cases.tried_case(named(name), "ext4", 20, 4096)
    assert tally.verdicts["lost acknowledged"] > 0


def test_a_file_replaced_without_fsync_is_empty_on_xfs_and_whole_on_ext4() -> None:
    """ext4 writes the data of a file that replaces another (auto_da_alloc, ext4(5)); XFS does not."""
    case = named("replace a file by rename, no fsync")
    found = cases.tried_case(case, "xfs", 60, 4096)
    assert "f is empty" in found.examples["lost acknowledged"]
    assert cases.tried_case(case, "ext4", 60, 4096).bad == 0


def test_every_case_has_a_check_that_passes_on_its_own_result(tmp_path: Path) -> None:
    """Without any cut: on the file system of the tests."""
    for number, case in enumerate(cases.CASES):
        root = tmp_path / str(number)
        root.mkdir()
        case.prepare(root)
        case.act(root)
        assert case.check(root) == [], case.name
