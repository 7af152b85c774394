"""Samples within a run: they show a load of known size, and their number is bounded."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest
from probe_client import MIB, Probe, ProbeError

LINES = ("cpu_user_ns", "cpu_sys_ns", "cpu_idle_ns", "cpu_iowait_ns", "cpu_steal_ns")


def test_a_busy_process_shows_in_the_time_of_the_processors(probe: Probe) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    probe("sample_start", period_ms=20)
    subprocess.run(["sh", "-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"], check=True)
    samples = probe("sample_stop")
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    assert used > 0.1
    ticks = 2 / os.sysconf("SC_CLK_TCK")
    assert (samples["cpu_user_ns"][-1] - samples["cpu_user_ns"][0]) / 1e9 >= used - 4 * ticks
    assert len(samples["at_ns"]) >= 5
    assert {len(samples[name]) for name in LINES} == {len(samples["at_ns"])}
    assert all(earlier < later for earlier, later in pairwise(samples["at_ns"]))


def test_a_write_shows_in_the_page_cache_and_on_the_device(probe: Probe, folder: Path) -> None:
    number = folder.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
    path = folder / "big"
    probe("sample_start", period_ms=10, devices=[device])
    with path.open("wb", buffering=0) as file:
        for _ in range(64):
            file.write(os.urandom(MIB))
            time.sleep(0.002)
        dirty_kib = next(
            int(line.split()[1])
            for line in Path("/proc/meminfo").read_text().splitlines()
            if line.startswith("Dirty:")
        )
        time.sleep(0.05)
        os.fsync(file.fileno())
    samples = probe("sample_stop")
    written = samples["devices"][device]["write_bytes"]
    assert written[-1] - written[0] >= 64 * MIB
    assert max(samples["dirty_kib"]) >= dirty_kib / 2
    assert samples["devices"][device]["busy_ns"][-1] > samples["devices"][device]["busy_ns"][0]


@pytest.mark.long
def test_a_long_run_keeps_its_first_sample_and_no_more_than_there_is_room_for(probe: Probe) -> None:
    start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    probe("sample_start", period_ms=10)
    after_start = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 1_000_000_000
    time.sleep(2.6)
    at_ns = probe("sample_stop")["at_ns"]
    assert start <= at_ns[0] <= after_start
    assert 90 <= len(at_ns) <= 192
    assert at_ns[-1] - at_ns[0] >= 2.5e9
    assert (
        at_ns[-1] - at_ns[-21] >= 20 * 15e6
    )  # every second sample was dropped; a late one has a shorter interval to the next


def test_what_cannot_be_sampled_is_refused(probe: Probe) -> None:
    for fields in ({"period_ms": 9}, {"period_ms": 60_001}, {"devices": ["a"] * 5}, {"devices": ["../vda"]}):
        with pytest.raises(ProbeError) as caught:
            probe("sample_start", **fields)
        assert caught.value.code == "bad_request"
    with pytest.raises(ProbeError, match="no sampler is running"):
        probe("sample_stop")
    with pytest.raises(ProbeError, match="loop999"):
        probe("sample_start", devices=["loop999"])
    probe("sample_start")
    with pytest.raises(ProbeError, match="already running"):
        probe("sample_start")
    assert len(probe("sample_stop")["at_ns"]) >= 2
