"""Requests of the lab's device in whole trials: their number matches the work, and nothing else in a trial
depends on them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from breaking import image_study, last_trial, nothing_left
from probe_between import install
from running import failures_of, iotrial, run_json, stored_runs, write_study

from iotrial.probe.binary import find_binary

pytestmark = pytest.mark.root

READS, MIB = 300, 1 << 20

STUDY = f"""
[study]
name = "blocks"
question = "Does the scheduler matter to single blocks?"
[lab]
kind = "image"
size = "64 MiB"
[budget]
time = "60 s"
blocks = 2
[[factor]]
name = "scheduler"
knob = "block.scheduler"
levels = ["none", "mq-deadline"]
[[workload]]
name = "blocks"
kind = "random"
size = "2 MiB"
operations = {READS}
direct = true
[[workload]]
name = "dd"
kind = "command"
files = 1
size = "1 MiB"
argv = ["dd", "if={{file}}", "of=/dev/null", "bs=8K", "iflag=direct", "status=none"]
"""


def events(state: Path) -> list[tuple[str, Any]]:
    connection = sqlite3.connect(state / "trials.db")
    found = connection.execute("SELECT kind, text FROM event ORDER BY sequence").fetchall()
    connection.close()
    return [(kind, json.loads(text) if kind in ("call", "requests") else text) for kind, text in found]


def notes(state: Path) -> list[str]:
    return [text for kind, text in events(state) if kind == "not-accounted"]


def test_direct_reads_are_as_many_requests_in_store_and_report(state: Path, tmp_path: Path) -> None:
    report = run_json(write_study(tmp_path, STUDY), "--no-controls", "--no-stop", "--trust")
    if any("requests were not counted" in note for note in notes(state)):
        pytest.skip(str(notes(state)))  # the kernel is too old or lacks type information (BTF)
    assert notes(state) == []
    assert failures_of(state) == []
    assert report["trial"]["state"] == "done"
    assert len(stored_runs(state)) == 2 * 2 * 2, "a repetition that was accounted is a run"
    wanted = {"blocks": READS, "dd": MIB // 8192}
    reads = [found for kind, found in events(state) if kind == "requests" and found["kind"] == "read"]
    # commands are accounted up to three times, other work in such a short trial at least once
    assert {(r["condition"], r["arm"]) for r in reads if r["repetition"] == 0} == {
        (f"workload={name}", arm) for name in wanted for arm in ("none", "mq-deadline")
    }
    for found in reads:
        assert found["count"] == wanted[found["condition"].removeprefix("workload=")]
        assert sum(count for _, count in found["histogram"]) == found["count"]
        shortest, longest = found["histogram"][0][0], found["histogram"][-1][0]
        assert 0.7 * shortest * found["count"] <= found["total_ns"] <= longest * found["count"]
    for name, count in wanted.items():
        own = [row for row in report["evidence"] if row["condition"]["workload"] == name]
        rows = {(row["metric"], row["treatment"]): row for row in own}
        for arm in ("none", "mq-deadline"):
            assert rows["accounted_requests.read", arm]["value"] == count
            assert rows["accounted_requests.read", arm]["moved"] is None
            # by the device's own counters, in runs that were not traced
            assert rows["device_read_ios", arm]["value"] == count
            half, most = (rows[f"accounted_request_{p}.read", arm] for p in ("p50", "p99"))
            assert 0 < half["value"] <= most["value"] < 10
            assert (half["unit"], half["moved"], most["moved"]) == ("s", None, None)
    # each read(2) of dd is one request, and dd reads once more at the end
    calls = {
        row["treatment"]: row["value"]
        for row in report["evidence"]
        if row["metric"] == "accounted_calls.read"
    }
    assert min(calls.values()) > MIB // 8192
    (page,) = (state / "reports").glob("1-*.html")
    assert "accounted: half of the read requests took at most" in page.read_text()


@pytest.mark.long
def test_where_bpf_is_refused_nothing_is_counted_and_the_trial_is_as_good(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = tmp_path / "ioprobe-without-btf"
    hide = f'mount -t tmpfs none /sys/kernel/btf && exec {find_binary()} "$@"'
    probe.write_text(f"#!/bin/sh\nexec unshare -m sh -c '{hide}' sh \"$@\"\n")
    probe.chmod(0o755)
    monkeypatch.setenv("IOTRIAL_PROBE", str(probe))
    report = run_json(write_study(tmp_path, STUDY), "--no-controls", "--no-stop", "--trust")
    assert report["trial"]["state"] == "done"
    said = notes(state)
    assert sorted(report["diagnostics"]["not_accounted"]) == sorted(said)
    assert any(one.startswith("requests were not counted: count requests by BPF: ") for one in said)
    assert all("/sys/kernel/btf" in one for one in said)
    assert not {"call", "request"} & {kind for kind, _ in events(state)}
    metrics = {row["metric"].partition(".")[0] for row in report["evidence"]}
    assert not metrics & {"accounted_calls", "accounted_requests"}


def test_a_probe_that_dies_in_an_accounted_repetition_costs_the_trial_nothing(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = image_study(tmp_path, blocks=3)
    second = install(tmp_path, verb="files", where={"account_requests": "True"}, nth=2, does="half")
    for name, value in second.items():
        monkeypatch.setenv(name, value)
    done = iotrial("run", study, "--no-controls", "--no-stop")
    assert "were not counted: the probe" in done.stderr
    assert last_trial()["state"] == "done"
    assert len(stored_runs(state)) == 3 * 2
    assert len({found["arm"] for kind, found in events(state) if kind == "requests"}) == 1
    nothing_left(state)
