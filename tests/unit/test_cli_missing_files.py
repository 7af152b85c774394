"""Verbs on a missing file or folder report that and suggest what to do. They create nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PACKED = DOCS / "catalogue" / "files" / "permissions.iotrial"
TABLE = ("audit", str(DOCS / "audits" / "links.csv"), "--response", "real", "--reference", "regular")


def said(folder: Path, *words: str) -> tuple[int, str]:
    """Run the program with its own state folder. Return exit status and standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "iotrial", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)},
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("report", str(PACKED), "--html"),
        ("report", str(PACKED), "--markdown"),
        ("compare", str(PACKED), str(PACKED), "--html"),
        ("audit", str(PACKED), "--markdown"),
        ("run", "files/permissions", "--lab", "directory", "--time", "1s", "--html"),
    ],
    ids=lambda words: f"{words[0]}{words[-1]}",
)
def test_a_report_into_a_folder_that_is_not_there_is_refused_and_makes_none(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    status, text = said(tmp_path, *words, "reprots/june/page.html")
    assert status == 2
    assert "no such folder: reprots/june" in text
    assert "hint: make it with `mkdir -p reprots/june`" in text
    assert not (tmp_path / "reprots").exists()
    assert not (tmp_path / "state").exists()


@pytest.mark.slow
def test_a_tilde_leads_home_and_that_of_a_stranger_is_a_folder_that_is_not_there(tmp_path: Path) -> None:
    status, text = said(tmp_path, *TABLE, "--markdown", "~/audit.md")
    assert status == 0, text
    assert "regular" in (tmp_path / "audit.md").read_text()
    status, text = said(tmp_path, *TABLE, "--markdown", "~no-such-user/audit.md")
    assert status == 2
    assert "no such folder: ~no-such-user" in text
    assert not (tmp_path / "~no-such-user").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("report", "gone.iotrial"), ("import", "gone.iotrial"), ("audit", "gone.csv")],
    ids=lambda w: w[0],
)
def test_a_file_that_is_not_there_is_named_with_what_to_do(tmp_path: Path, words: tuple[str, ...]) -> None:
    status, text = said(tmp_path, *words)
    assert status == 2
    assert words[1] in text
    assert "No such file" in text
    assert "hint: " in text
