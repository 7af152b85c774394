"""An unusable state folder: every verb reports it before anything is changed, and never with a traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from breaking import command_study, iotrial, traces

from as_nobody import NOBODY

pytestmark = pytest.mark.root

AS_NOBODY = str(Path(__file__).parents[1] / "as_nobody.py")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state-home"
    folder.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.delenv("IOTRIAL_STORE", raising=False)
    return folder


@pytest.fixture
def small_disk(home: Path) -> Iterator[Path]:
    """Yield a disk of 64 KiB at the state folder (a tmpfs is enough: nothing is measured on it)."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(home)], check=True)
    yield home
    subprocess.run(["umount", str(home)], check=True)


def refused(words: list[str], says: str, *, environment: dict[str, str] | None = None) -> None:
    done = iotrial(*words, env=environment)
    assert done.returncode in (1, 2), (words, done.stderr)
    assert says in done.stderr, (words, done.stderr)
    assert "hint:" in done.stderr or words[0] in ("report", "resume"), (words, done.stderr)


@pytest.mark.parametrize("lab", ["image", "directory"])
def test_a_read_only_state_folder_is_told_before_anything_is_made(
    small_disk: Path, tmp_path: Path, lab: str
) -> None:
    study = command_study(tmp_path, ["test", "-n", "{word}"], lab=lab)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    refused(["run", study], "Read-only file system")
    refused(["run", study, "--on", str(tmp_path)], "Read-only file system")
    assert traces(small_disk / "iotrial", tmp_path) == []
    assert list(small_disk.iterdir()) == []


def test_a_full_state_folder_is_told_before_anything_is_made(small_disk: Path, tmp_path: Path) -> None:
    study = command_study(tmp_path, ["test", "-n", "{word}"])
    (small_disk / "full").write_bytes(bytes(64 << 10))
    done = iotrial("run", study, "--on", str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert "hint:" in done.stderr
    assert traces(small_disk / "iotrial", tmp_path) == []


def test_a_state_folder_whose_parents_are_missing_is_made(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = home / "not" / "there" / "yet"
    monkeypatch.setenv("XDG_STATE_HOME", str(deep))
    done = iotrial("run", command_study(tmp_path, ["test", "-n", "{word}"]), "--on", str(tmp_path))
    assert done.returncode in (0, 3, 6), done.stderr
    assert (deep / "iotrial").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("verb", ["run", "resume", "report", "trials", "restore"])
def test_a_file_where_the_state_folder_should_be_is_told(home: Path, tmp_path: Path, verb: str) -> None:
    (home / "iotrial").write_text("not a folder")
    study = [command_study(tmp_path, ["test", "-n", "{word}"])] if verb == "run" else []
    done = iotrial(verb, *study)
    if verb in ("run", "resume"):
        assert done.returncode in (1, 2), done.stderr
        assert str(home / "iotrial") in done.stderr
        assert "hint:" in done.stderr
    elif verb == "restore":  # cannot know whether something is left to restore
        assert done.returncode == 5, done.stderr
        assert str(home / "iotrial" / "journal") in done.stdout
    else:
        assert done.returncode in (0, 1, 2), done.stderr
    assert (home / "iotrial").read_text() == "not a folder"


@pytest.mark.parametrize("verb", ["run", "resume", "report", "trials", "restore"])
def test_a_state_folder_of_somebody_else_is_told(home: Path, tmp_path: Path, verb: str) -> None:
    folder = Path("/var/tmp") / f"iotrial-others-{os.getpid()}"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    try:
        (folder / "iotrial").mkdir(mode=0o700)
        (folder / "iotrial" / "journal").mkdir(mode=0o700)
        study = command_study(tmp_path, ["test", "-n", "{word}"])
        shutil.copy(study, folder / "study.toml")
        words = [str(folder / "study.toml")] if verb == "run" else []
        done = subprocess.run(
            [sys.executable, AS_NOBODY, verb, *words],
            env={**os.environ, "XDG_STATE_HOME": str(folder), "HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode in ((1, 2) if verb in ("run", "resume") else (0, 1, 2)), done.stderr
        assert list((folder / "iotrial").rglob("*")) == [folder / "iotrial" / "journal"]
        assert not [p for p in folder.rglob("*") if p.stat().st_uid == NOBODY]
    finally:
        shutil.rmtree(folder)
