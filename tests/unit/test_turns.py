"""Each test marked `long` runs on one day of the week (tests/conftest.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def collected(*words: str) -> list[str]:
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        *words,
    ]
    done = subprocess.run(argv, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_every_long_test_has_one_turn_and_the_others_run_in_each() -> None:
    words = ("tests/unit/test_stats_power.py", "tests/unit/test_stats_forecast.py")
    quick, long = (set(collected(*words, "-m", mark)) for mark in ("not long", "long"))
    turns = [set(collected(*words, "--turn", str(turn))) for turn in range(1, 8)]
    assert len(long) > 7
    assert quick
    assert all(turn >= quick for turn in turns)
    assert sorted(name for turn in turns for name in turn - quick) == sorted(long)
