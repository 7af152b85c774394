"""The suite of real trials end to end, through the real conductor, on a fake probe with random times."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path

import pytest
from stand_in_probe import StandInProbe

from iotrial.lab.lock import MachineLock
from iotrial.runner import planning, session
from trials import record, suite
from trials.cells import Cell
from trials.conducting import conduct
from trials.summary import summary

ALPHA = 0.05


@pytest.fixture(autouse=True)
def stood_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Replace the probe and the machine lock, and use a private state folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for module in (session, planning, suite):
        monkeypatch.setattr(module, "Probe", StandInProbe)
        monkeypatch.setattr(module, "MachineLock", lambda: MachineLock(tmp_path / "lock"))
    monkeypatch.setattr(StandInProbe, "on_job", staticmethod(lambda: None))
    (tmp_path / "state").mkdir()
    return tmp_path


@pytest.mark.parametrize("workload", ["command", "probe"])
def test_identical_arms_go_on_to_the_end_and_are_run_in_hyperfines_order_too(
    stood_in: Path, workload: str
) -> None:
    before = StandInProbe.jobs
    facts, ended_by = conduct(Cell(workload, "quiet", 0.0), stood_in / "trial.db")
    assert ended_by is None
    assert facts["state"] in ("done", "invalid")  # invalid once in a thousand, as designed
    assert (facts["alpha"], facts["margin"]) == (ALPHA, 0.01)
    assert 0.0 < facts["p_anytime"] <= 1.0
    assert abs(facts["ratio"] - 1.0) < 0.02
    beside = facts["one_then_the_other"]
    assert beside["runs_each"] == facts["blocks"]
    assert facts["blocks"] == 100 or facts["seconds"] > 4.0
    rehearsals = workload == "command"
    # in the first 24 blocks and then in every second: METHOD.md
    controls = sum(block < 24 or block % 2 == 0 for block in range(facts["blocks"]))
    assert (
        StandInProbe.jobs - before
        == rehearsals + 2 * facts["blocks"] + 2 * controls + 2 * beside["runs_each"]
    )
    json.dumps(facts, allow_nan=False)


@pytest.mark.parametrize("workload", ["command", "probe"])
def test_an_injected_slow_down_is_what_is_measured_and_it_stops_at_a_verdict(
    stood_in: Path, workload: str
) -> None:
    facts, _ = conduct(Cell(workload, "quiet", 0.10), stood_in / "trial.db")
    assert facts["verdict"] == "slower"
    assert facts["decided"]
    assert facts["blocks"] < 100
    assert abs(facts["ratio"] - 1.10) < 0.02
    assert 0 < facts["seen_after_blocks"] <= facts["blocks"]
    assert 0.0 < facts["seen_after_seconds"] <= facts["seconds"]
    assert facts["one_then_the_other"] is None
    # the treated arm's slowdown does not leak into others: the positive control shows its own 2 %
    positive = next(c for c in facts["controls"] if c["kind"] == "positive")
    assert abs(positive["ratio"] - 1.02) < 0.02


def test_the_suite_completes_its_cells_one_line_a_trial_and_takes_up_where_it_was(stood_in: Path) -> None:
    path, state = stood_in / "trials.jsonl", stood_in / "suite"
    target = {Cell("probe", "quiet", 0.10): 2, Cell("command", "bursty", 0.10): 1}
    assert suite.run(target, path, state, budget_s=0.0) == 0  # no time: nothing is started
    assert record.read(path) == ([], 0)
    assert suite.run(target, path, state, budget_s=60.0) == 0
    lines, torn = record.read(path)
    assert torn == 0
    assert record.counted(lines) == target
    assert len({line["seed"] for line in lines}) == 3
    assert all(line["machine"] and line["commit"] and line["versions"]["iotrial"] for line in lines)
    assert suite.run(target, path, state, budget_s=60.0) == 0  # already complete
    assert len(record.read(path)[0]) == 3
    assert "| probe | quiet | 10% | 2 |" in summary(lines, torn)
    assert not list((state / "iotrial" / "lab").iterdir())
    kept = [p.name for p in state.iterdir() if p.suffix == ".db"]
    assert kept == []


def test_what_a_killed_suite_has_left_is_cleared_away_and_two_suites_do_not_share_a_state_folder(
    stood_in: Path,
) -> None:
    state = stood_in / "suite"
    state.mkdir()
    for suffix in ("", "-wal", "-shm"):
        (state / f"trial.db{suffix}").write_text("torn")
    target = {Cell("probe", "quiet", 0.10): 1}
    assert suite.run(target, stood_in / "one.jsonl", state, budget_s=60.0) == 0
    assert [line["state"] for line in record.read(stood_in / "one.jsonl")[0]] != ["failed"]
    with (state / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(record.Busy):
            suite.run(target, stood_in / "another.jsonl", state, budget_s=60.0)


def test_a_trial_that_fails_is_a_line_and_the_suite_goes_on_until_nothing_else_happens(
    stood_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> None:
        raise RuntimeError("the disk has gone")

    monkeypatch.setattr(StandInProbe, "on_job", staticmethod(breaks))
    path = stood_in / "trials.jsonl"
    assert suite.run({Cell("probe", "quiet", 0.0): 50}, path, stood_in / "suite", budget_s=60.0) == 1
    lines, _ = record.read(path)
    assert [line["state"] for line in lines] == ["failed"] * suite.FAILURES_TO_STOP
    assert "the disk has gone" in lines[0]["problem"]


def test_a_signal_ends_the_suite_and_the_trial_in_hand_is_made_again(
    stood_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = StandInProbe.jobs

    def interrupts() -> None:
        if StandInProbe.jobs == began + 20:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(StandInProbe, "on_job", staticmethod(interrupts))
    path, target = stood_in / "trials.jsonl", {Cell("probe", "quiet", 0.10): 1}
    assert suite.run(target, path, stood_in / "suite", budget_s=60.0) == 128 + signal.SIGTERM
    lines, _ = record.read(path)
    assert [line["state"] for line in lines] == ["interrupted"]
    assert not record.counted(lines)
    assert suite.run(target, path, stood_in / "suite", budget_s=60.0) == 0
    assert record.read(path)[0][0]["state"] == "interrupted"
    assert record.counted(record.read(path)[0]) == target
