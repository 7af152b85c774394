"""The positive control: a stretch in proportion to the work."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from probe_client import READING, Probe, ProbeError, make_set


def ratio(total_ns: int, stretched_ns: int) -> float:
    return total_ns / (total_ns - stretched_ns)


@pytest.mark.parametrize("stretch", [0.06, 0.5])
def test_the_stretch_is_proportional_to_the_work(probe: Probe, folder: Path, stretch: float) -> None:
    make_set(probe, folder, count=500)
    assert probe("files", set="s", operations=READING)["stretched_ns"] == 0
    ratios = []
    for _ in range(7):
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        done = probe("files", set="s", operations=READING, replicates=10, stretch=stretch)
        around = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - start
        assert around >= done["wall_ns"]
        worked = done["wall_ns"] - done["stretched_ns"]
        assert sum(o["total_ns"] for o in done["operations"].values()) == pytest.approx(worked, abs=3)
        ratios.append(ratio(done["wall_ns"], done["stretched_ns"]))
    # More where another process took the processor from the spin.
    assert min(ratios) == pytest.approx(1 + stretch, rel=1e-4)


def test_the_stretch_of_one_operation_is_in_its_total_and_in_the_wall(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, count=500)
    ratios = []
    for _ in range(7):
        done = probe("files", set="s", operations=READING, replicates=10, stretch=0.06, stretch_of="read")
        ratios.append(ratio(done["operations"]["read"]["total_ns"], done["stretched_ns"]))
        totals = sum(o["total_ns"] for o in done["operations"].values())
        assert totals == pytest.approx(done["wall_ns"], abs=3)
    assert min(ratios) == pytest.approx(1.06, rel=1e-4)
    with pytest.raises(ProbeError, match="stretch_of"):
        probe("files", set="s", operations=READING, stretch=0.06, stretch_of="fsync")
    for wrong in (-1, 1e9):
        with pytest.raises(ProbeError, match="stretch"):
            probe("files", set="s", operations=READING, stretch=wrong)


def test_the_stretch_of_commands_is_real_time_of_each(probe: Probe) -> None:
    steps = [{"name": "sleep", "argv": ["sleep", "0.1"]}]
    start = time.monotonic()
    done = probe("command", steps=steps, stretch=0.5, replicates=3)
    around = (time.monotonic() - start) * 1e9
    assert ratio(done["wall_ns"], done["stretched_ns"]) == pytest.approx(1.5, rel=0.05)
    assert around >= done["wall_ns"] >= 0.45e9
    # The spin is CPU time, which sleeping is not.
    assert done["user_ns"] > 0.1 * done["stretched_ns"]
    assert done["steps"][0]["wall_ns"] == done["wall_ns"]
