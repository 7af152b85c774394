"""Helpers of the peer comparisons: the interval of a median against the binomial distribution, and the command line."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from scipy.stats import binom

import comparison

FOLDER = Path(comparison.__file__).parent
SCRIPTS = sorted(file.name for file in FOLDER.glob("*.py") if file.name != "comparison.py")


@pytest.mark.parametrize("n", [6, 7, 10, 13, 50, 100, 399, 1500])
def test_the_interval_of_a_median_holds_95_in_a_hundred_and_the_next_narrower_one_does_not(n: int) -> None:
    middle, ends = comparison.median([float(value) for value in reversed(range(n))])
    assert middle == (n - 1) / 2
    assert ends is not None
    below = int(ends[0])
    assert ends == (below, n - 1 - below)
    # the interval misses the median if fewer than k of n coin tosses are heads, or fewer than k tails
    assert 1 - 2 * binom.cdf(below, n, 0.5) >= 0.95 > 1 - 2 * binom.cdf(below + 1, n, 0.5)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_fewer_than_six_values_give_no_interval(n: int) -> None:
    assert comparison.median([7.0] * n) == (7.0, None)
    assert comparison.spelled([7.0] * n, ".1f") == ("7.0", "fewer than 6 pairs")


def test_numbers_are_spelled_on_the_scale_that_is_asked_for() -> None:
    assert comparison.spelled([math.log(2)] * 6, ".2f", math.exp) == ("2.00", "2.00 to 2.00")


def ended(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / script), *words], capture_output=True, text=True, check=False
    )


def test_there_are_comparisons() -> None:
    assert {"overhead.py", "syscalls.py", "accounting.py", "matrix.py", "streams.py"} <= set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_comparison_is_a_script_with_a_quick_mode_that_is_not_written_down(
    script: str, tmp_path: Path
) -> None:
    assert "--quick" in ended(script, "--help").stdout
    document = tmp_path / "page.md"
    refused = ended(script, "--quick", "--write", str(document))
    assert refused.returncode == 2
    assert "a quick look is not written down" in refused.stderr
    assert not document.exists()


def test_each_comparison_has_its_place_in_the_document() -> None:
    document = (FOLDER.parents[1] / "BENCHMARKS.md").read_text()
    for script in SCRIPTS:
        assert document.count(f"<!-- {script.removesuffix('.py')} -->") == 1, script
