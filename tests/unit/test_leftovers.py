"""Leftovers of an earlier trial are reported once its conductor is gone, even if a power cut removed its lock file."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotrial.cli.pending_restore import mention_leftovers
from iotrial.lab import lock
from iotrial.lab.lock import MachineLock, is_held


@pytest.fixture
def lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a machine lock and set a state folder, both private to this test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "iotrial.lock"
    monkeypatch.setattr(lock, "is_held_here", lambda: is_held(path))
    return path


def leave(tmp_path: Path, count: int) -> None:
    journal = tmp_path / "iotrial" / "journal"
    journal.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (journal / f"{number:06}.entry").write_text("x")


def test_after_a_power_cut_there_is_no_lock_and_the_leftovers_are_mentioned(
    lock_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(tmp_path, 3)
    assert not lock_file.exists()
    mention_leftovers()
    out, err = capsys.readouterr()
    assert out == ""
    assert "left 3 to undo; run `iotrial restore`" in err


def test_while_a_conductor_is_at_work_they_are_its_own(
    lock_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(tmp_path, 1)
    with MachineLock(lock_file):
        mention_leftovers()
        assert capsys.readouterr().err == ""
    mention_leftovers()
    assert "iotrial restore" in capsys.readouterr().err


def test_a_journal_that_is_no_folder_is_mentioned(
    lock_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "iotrial").mkdir()
    (tmp_path / "iotrial" / "journal").write_text("")
    mention_leftovers()
    err = capsys.readouterr().err
    assert str(tmp_path / "iotrial" / "journal") in err
    assert "iotrial restore" in err


def test_an_empty_journal_or_none_is_no_reason_for_a_word(
    lock_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mention_leftovers()
    leave(tmp_path, 0)
    mention_leftovers()
    assert capsys.readouterr() == ("", "")
    assert not lock_file.exists()
