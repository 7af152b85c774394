"""The positive control: a slowdown in proportion to the work."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import Any

import pytest
from probe_client import READING, Probe, ProbeError, make_set, rounding_ns

from iotrial.stats.eprocess import excluded, interval


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
        operations = done["operations"]
        totals = sum(o["total_ns"] for o in operations.values())
        assert totals == pytest.approx(worked, abs=rounding_ns(len(operations)))
        ratios.append(ratio(done["wall_ns"], done["stretched_ns"]))
    # Larger if another process took the CPU during the spin.
    assert min(ratios) == pytest.approx(1 + stretch, rel=1e-4)


def test_the_stretch_of_one_operation_is_in_its_total_and_in_the_wall(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, count=500)
    ratios = []
    for _ in range(7):
        done = probe("files", set="s", operations=READING, replicates=10, stretch=0.06, stretch_of="read")
        ratios.append(ratio(done["operations"]["read"]["total_ns"], done["stretched_ns"]))
        operations = done["operations"]
        totals = sum(o["total_ns"] for o in operations.values())
        assert totals == pytest.approx(done["wall_ns"], abs=rounding_ns(len(operations)))
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
    # The spin uses CPU time, sleeping does not.
    assert done["user_ns"] > 0.1 * done["stretched_ns"]
    assert done["steps"][0]["wall_ns"] == done["wall_ns"]


@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_the_mean_of_many_short_stretches_is_right_to_a_thousandth_of_the_work(
    probe: Probe, folder: Path, clock: str
) -> None:
    """The mean of short spins is accurate.

    A spin ends at a clock reading; readings are up to some 10 % of such a spin apart. In total the error is
    at most a few of these steps.
    """
    make_set(probe, folder)
    base = spun = 0
    for _ in range(600):
        done = probe("files", set="s", files=[0], operations=READING, stretch=0.06, stretch_clock=clock)
        work = done[f"{clock}_ns"] - done["stretched_ns"]
        # only if the spin kept the CPU; the CPU-time clock has larger steps
        if done["stretched_ns"] < (0.1 if clock == "wall" else 0.15) * work:
            base += work
            spun += done["stretched_ns"]
            assert done["injected"] == pytest.approx(1 + done["stretched_ns"] / work, rel=0.1)
    assert 1 + spun / base == pytest.approx(1.06, rel=1e-3)


@pytest.mark.parametrize("by", ["wall", "cpu"])
def test_the_stretch_of_commands_is_in_every_step(probe: Probe, by: str) -> None:
    steps = [{"name": "a", "argv": ["true"]}, {"name": "b", "argv": ["echo", "b"]}]
    ratios: dict[str, list[float]] = {"a": [], "b": []}
    for _ in range(9):
        for name, step in zip("ab", steps, strict=True):
            done = probe("command", steps=[step], stretch=0.5, stretch_clock=by)
            assert done["cpu_ns"] == done["user_ns"] + done["sys_ns"]
            ratios[name].append(ratio(done[f"{by}_ns"], done["stretched_ns"]))
    # A spin that loses the CPU is longer, never shorter.
    for found in ratios.values():
        assert min(found) == pytest.approx(1.5, rel=5e-3)
    whole = probe("command", steps=steps, stretch=0.5, stretch_clock=by, replicates=2)
    assert sum(step["wall_ns"] for step in whole["steps"]) == whole["wall_ns"]
    assert 1.4 < whole["injected"] < 1.1 * ratio(whole[f"{by}_ns"], whole["stretched_ns"])


def test_the_cpu_time_of_short_operations_is_counted(probe: Probe, folder: Path) -> None:
    """getrusage reports a running thread's use as of the last tick, so mostly nothing."""
    make_set(probe, folder)
    for _ in range(20):
        done = probe("files", set="s", operations=READING)
        assert done["cpu_ns"] > 0
        assert done["cpu_ns"] == pytest.approx(done["user_ns"] + done["sys_ns"], abs=8000)
    with pytest.raises(ProbeError, match="not measured per operation"):
        probe("files", set="s", operations=READING, stretch=0.1, stretch_clock="cpu", stretch_of="read")
    with pytest.raises(ProbeError, match="stretch_clock"):
        probe("files", set="s", operations=READING, stretch_clock="sundial")


def value(done: dict[str, Any], name: str) -> float:
    return float(done["operations"]["read"]["total_ns"] if name == "read" else done[name])


@pytest.mark.parametrize(
    ("work", "name", "how"),
    [
        (["true"], "wall_ns", {}),
        (["true"], "cpu_ns", {"stretch_clock": "cpu"}),
        (["md5sum", "/etc/passwd"], "wall_ns", {}),
        (None, "wall_ns", {}),
        (None, "read", {"stretch_of": "read"}),
        (None, "cpu_ns", {"stretch_clock": "cpu"}),
    ],
)
def test_a_trial_recovers_the_ratio_that_was_put_in(
    probe: Probe, folder: Path, work: list[str] | None, name: str, how: dict[str, str]
) -> None:
    """Run blocks of original and slowed copy in random order, and evaluate them with the interval of every
    verdict.

    Sixty blocks, and more on a machine so busy that they do not show the slowdown.
    """
    make_set(probe, folder)
    contrasts: list[float] = []
    while len(contrasts) < 60 or (len(contrasts) < 600 and not excluded(contrasts, 0.0, 1e-4)):
        found = {}
        for stretch in random.sample([0.0, 0.5], 2):
            if work is None:
                done = probe("files", set="s", operations=READING, stretch=stretch, **how)
            else:
                steps = [{"name": "step", "argv": work}]
                done = probe("command", steps=steps, stretch=stretch, **how)
            found[stretch] = math.log(value(done, name))
        contrasts.append(found[0.5] - found[0.0])
    # False alarm: once in ten thousand.
    assert not excluded(contrasts, math.log(1.5), 1e-4), interval(contrasts, 1e-4)
    assert excluded(contrasts, 0.0, 1e-4)


def test_nothing_is_spun_between_the_processes(probe: Probe, tmp_path: Path) -> None:
    """A process that follows a spin is slower; the slowed copy would then not be the original times a
    constant."""
    noting = "date +%s%N > "
    steps = [
        {"name": "a", "argv": ["sh", "-c", f"sleep 0.1; {noting}{tmp_path}/a"]},
        {"name": "b", "argv": ["sh", "-c", f"{noting}{tmp_path}/b"]},
    ]
    done = probe("command", steps=steps, stretch=20.0)
    between_ns = int((tmp_path / "b").read_text()) - int((tmp_path / "a").read_text())
    assert done["stretched_ns"] > 2e9
    assert between_ns < 1e9
