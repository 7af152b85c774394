"""The commands of README, of the guides and of `make trial` end with an answer in the time that they name."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from running import iotrial

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.waiting]
ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/try.md", "docs/best.md", "docs/apply.md", "Makefile")
COMMAND = re.compile(r"^(?:\$ |\t@\$\(BIN\)/)?(iotrial (?:try|best) .*)$", re.M)
#: programs of a command that take a server of the reader's
SERVED = ("pgbench", "siege")
#: settings whose effect depends on the disk: test_documentation.py plans these commands
OF_A_DISK = ("block.", "filesystem.")
MEASURE = """#!/bin/sh
sleep 0.0$((6 - ${BLOCK%k} / 16)); echo took=0.0$((6 - ${BLOCK%k} / 16))
"""


def documented() -> dict[str, list[str]]:
    """Return the words of each command, by its line."""
    found = {}
    for page in PAGES:
        for line in COMMAND.findall((ROOT / page).read_text()):
            words = shlex.split(line, comments=True)
            if not any(word in SERVED or word.startswith(OF_A_DISK) for word in words):
                found[line] = words[1:]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Fill a folder: a file of data, a script."""
    line = b"2026-11-29 01:51:23 host service[123]: error 17 while reading block %d of the volume\n"
    text = b"".join(line % number for number in range(20_000))
    (tmp_path / "data").write_bytes(text * 2)
    (tmp_path / "measure.sh").write_text(MEASURE)
    (tmp_path / "measure.sh").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("line", list(documented()))
def test_a_documented_command_ends_with_an_answer(state: Path, folder: Path, line: str) -> None:
    words = documented()[line]
    if "fio" in words and shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    at = words.index("--") if "--" in words else len(words)
    yes = [] if "--yes" in words else ["--yes"]
    done = iotrial(*words[:at], *yes, *words[at:], cwd=folder, check=None)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ndecided" not in done.stdout.partition(".")[0], done.stdout
