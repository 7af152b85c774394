"""Small programs with a state file, through ``iotrial try``: what a trial says where its runs depend on each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from trials import programs


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lasting", "dear", "one-way", "stalling", "quiet"])
def test_a_trial_of_a_program_with_a_known_truth_says_nothing_untrue(kind: str, tmp_path: Path) -> None:
    line = programs.trial(kind, tmp_path, time_s=40.0)
    assert line["conclusion"] not in programs.WRONG[kind], line
