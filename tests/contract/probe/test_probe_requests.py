"""Requests of a device counted over any time: the verbs that a live trial uses for a device's latency."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from probe_client import MIB, Lab, Probe, ProbeError

from iotrial.live.sources import source_of
from iotrial.live.sources.base import WindowVoid

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="labs need root")


def write(lab: Lab, count: int) -> None:
    """Write this many blocks of 4 KiB, each a request of its own."""
    options = ["bs=4k", f"count={count}", "oflag=direct", "conv=notrunc", "status=none"]
    done = lab.probe("run", argv=["dd", "if=/dev/zero", f"of={lab.mounted}/file", *options])
    assert done["exit"] == 0, done


def test_counts_grow_by_the_requests_made_between_two_readings(lab: Lab, probe: Probe) -> None:
    try:
        probe("requests_start", devices=[lab.name])
    except ProbeError as error:
        if error.code != "unsupported":
            raise
        pytest.skip(str(error))
    stat = Path(f"/sys/block/{lab.name}/stat")
    for _ in range(20):  # sometimes a kernel skips a program for some milliseconds (docs/evidence.md)
        first = probe("requests_read")["requests"][lab.name].get("write", {}).get("count", 0)
        before = int(stat.read_text().split()[4])
        write(lab, 200)
        time.sleep(0.05)
        second = probe("requests_read")["requests"][lab.name]["write"]
        after = int(stat.read_text().split()[4])
        assert second["count"] == second["untimed"] + sum(count for _, count in second["histogram"])
        assert second["count"] - first <= after - before
        if second["count"] - first == after - before:
            break
    assert second["count"] - first == after - before >= 200
    with pytest.raises(ProbeError, match="already counted"):
        probe("requests_start", devices=[lab.name])
    with pytest.raises(ProbeError, match="already counted"):
        probe("command", steps=[{"name": "x", "argv": ["true"]}], devices=[lab.name], account_requests=True)
    probe("requests_stop")
    for verb in ("requests_read", "requests_stop"):
        with pytest.raises(ProbeError, match="not counted"):
            probe(verb)


def test_devices_that_are_none_are_refused(probe: Probe) -> None:
    for name in ("../vda", "", "loop999"):
        with pytest.raises(ProbeError):
            probe("requests_start", devices=[name])
    with pytest.raises(ProbeError, match="missing field"):
        probe("requests_start")


def test_a_live_trial_reads_the_latency_of_its_device(lab: Lab, probe: Probe) -> None:
    try:
        probe("requests_start", devices=[lab.name])
    except ProbeError as error:
        if error.code != "unsupported":
            raise
        pytest.skip(str(error))
    probe("requests_stop")
    sources = {
        what: source_of(f"device:{lab.name}:{what}")
        for what in ("latency-p50", "latency-p99", "latency", "requests", "throughput", "utilisation")
    }
    for source in sources.values():
        source.start()
    try:
        for _ in range(20):
            for source in sources.values():
                source.begin()
            began = time.monotonic()
            write(lab, 500)
            time.sleep(0.1)
            try:
                found = {name: source.end() for name, source in sources.items()}
            except WindowVoid:
                continue  # as above
            break
        took_s = time.monotonic() - began
        assert 0 < found["latency-p50"] <= found["latency-p99"] < took_s
        assert 500 / (took_s + 0.5) <= found["requests"] <= 1000 / 0.1
        assert 500 * 4096 / (took_s + 0.5) <= found["throughput"] <= 16 * MIB / 0.1
        assert 0 <= found["utilisation"] <= 100
        assert 0 <= found["latency"] < took_s
    finally:
        for source in sources.values():
            source.stop()
