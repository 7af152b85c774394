"""The suite of real trials without running any: choice of the next cell, the record, the rates, the neighbour load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from scipy import stats

from exact import bounds
from iotrial.study.reader import load
from marked import put
from trials import conducting, record
from trials.cells import Cell, cells, draw, targets
from trials.neighbour import BurstyNeighbour
from trials.summary import alarm, covered, found, summary

IDENTICAL = Cell("probe", "quiet", 0.0)


def line(**changes: object) -> dict[str, object]:
    """Return the record of a trial of identical arms in which nothing was found."""
    return {
        "at": "2026-01-01T00:00:00+00:00",
        "workload": "probe",
        "neighbour": "quiet",
        "injected": 0.0,
        "machine": "a machine",
        "commit": "0123456789ab",
        "state": "done",
        "alpha": 0.05,
        "verdict": "equivalent",
        "p_anytime": 0.4,
        "low": 0.99,
        "high": 1.01,
        "blocks": 100,
        "valid": True,
        "seconds": 2.0,
        "seconds_in_all": 3.0,
        "one_then_the_other": {"different": True},
        **changes,
    }


def test_every_cell_comes_to_its_number_and_every_prefix_is_balanced() -> None:
    target = targets(cells(), identical=200, injected=50)
    assert sum(target.values()) == 4 * 200 + 8 * 50
    done: Counter[Cell] = Counter()
    while (cell := draw(target, done)) is not None:
        done[cell] += 1
        shares = [done[c] / wanted for c, wanted in target.items()]
        assert max(shares) - min(shares) <= 1 / 50 + 1e-9
    assert done == target


def test_the_order_of_cells_is_drawn() -> None:
    target = targets(cells(), identical=4, injected=1)
    assert len({draw(target, Counter()) for _ in range(300)}) == len(target)


def test_the_record_takes_up_after_a_torn_line_and_counts_all_but_interrupted_trials(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    with record.Record(path) as kept:
        kept.add(line())
        kept.add(line(state="interrupted"))
        kept.add(line(state="failed"))
    with path.open("a") as file:
        file.write('{"at": "20')
    with record.Record(path) as kept:
        kept.add(line(state="invalid"))
    lines, torn = record.read(path)
    assert [one["state"] for one in lines] == ["done", "interrupted", "failed", "invalid"]
    assert torn == 1
    assert record.counted(lines) == {IDENTICAL: 3}


def test_two_suites_cannot_write_to_one_record(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    with record.Record(path), pytest.raises(record.Busy), record.Record(path):
        pass


def test_bounds_are_exact() -> None:
    # by definition: at the upper bound at most this many hits, at the lower at least this many, have a
    # probability of 2.5 %
    for hits, trials in ((3, 50), (41, 200), (199, 200)):
        low, high = bounds(hits, trials)
        assert stats.binom.cdf(hits, trials, high) == pytest.approx(0.025)
        assert stats.binom.sf(hits - 1, trials, low) == pytest.approx(0.025)
    assert bounds(0, 200)[0] == 0.0
    assert bounds(0, 200)[1] == pytest.approx(1 - 0.025 ** (1 / 200))
    assert bounds(50, 50)[1] == 1.0


def test_a_false_alarm_is_one_at_any_look_and_invalid_and_failed_trials_stay_in_the_denominator() -> None:
    lines = [
        line(p_anytime=0.05),
        line(p_anytime=0.0500001),
        line(state="invalid", valid=False, p_anytime=0.001),
        {k: v for k, v in line(state="failed").items() if k not in ("p_anytime", "low", "high", "verdict")},
        line(state="interrupted", p_anytime=0.001),
    ]
    assert [alarm(one) for one in lines[:4]] == [True, False, True, False]
    text = summary(lines, 0)
    assert "| probe | quiet | 4 | 0.500 [0.068, 0.932] |" in text
    assert "1 interrupted" in text
    assert "called invalid 1, failed 1" in text


def test_found_is_on_the_right_side_and_covered_is_of_the_truth() -> None:
    right = line(injected=0.05, p_anytime=0.01, low=1.02, high=1.08)
    wrong = line(injected=0.05, p_anytime=0.01, low=0.92, high=0.99)
    open_ended = line(injected=0.05, low=None, high=None)
    assert (found(right), covered(right)) == (True, True)
    assert (found(wrong), covered(wrong)) == (False, False)
    assert covered(open_ended)
    assert not covered(line(injected=0.10, low=1.02, high=1.08))
    assert not covered(line(state="failed"))


def test_both_studies_can_be_read_and_compare_two_labels_of_the_same_thing() -> None:
    for workload in ("command", "probe"):
        study = load(conducting.STUDIES / f"{workload}.toml")
        (factor,) = study.treatment_factors
        assert [level.label for level in factor.levels] == [conducting.PLAIN, conducting.TREATED]
        assert factor.levels[0].settings == factor.levels[1].settings
        assert [r.name for r in study.responses if r.primary] == ["wall"]


def test_the_runner_stretches_the_treated_arm_and_leaves_the_others_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from iotrial.design.model import Arm, ArmKind, PlannedRun
    from iotrial.runner.run import Runner

    asked: list[float] = []
    positive = ArmKind.POSITIVE

    def start(self: Runner, session: object, *, injected: float) -> None: ...

    def run(self: Runner, condition: object, run: PlannedRun, *, block: int) -> None:
        self._measure(None, None, 0.02 * (run.arm.kind is positive))  # type: ignore[arg-type]

    def measure(self: Runner, context: object, workload: object, stretch: float) -> None:
        asked.append(stretch)

    for name, stand_in in (("__init__", start), ("run", run), ("_measure", measure)):
        monkeypatch.setattr(Runner, name, stand_in)
    runner = conducting.StretchedRunner(None, injected=1.02, slowdown=0.05)
    for name, kind, label in (
        ("treated", ArmKind.TREATMENT, "treated"),
        ("plain", ArmKind.TREATMENT, "plain"),
        ("control:negative", ArmKind.NEGATIVE, "plain"),
        ("control:positive", positive, "plain"),
        ("control:positive", positive, "treated"),
    ):
        runner.run(None, PlannedRun(0, Arm(name, kind, {"label": label}), None), block=0)
    assert asked == [0.05, 0.0, 0.0, 0.02, pytest.approx(1.05 * 1.02 - 1.0)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_neighbour_ends_with_the_context(tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    neighbour = BurstyNeighbour(tmp_path, cpu)
    with neighbour:
        assert neighbour._child is not None
        pid = neighbour._child.pid
        assert alive(pid)
        assert os.sched_getaffinity(pid) == {cpu}
    assert not alive(pid)
    assert not list(tmp_path.iterdir())


def test_the_neighbour_ends_when_the_suite_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from trials.neighbour import BurstyNeighbour\n"
        "with BurstyNeighbour(Path(sys.argv[2]), 0) as n: print(n._child.pid, flush=True); time.sleep(60)\n"
    )
    folder = str(Path(conducting.__file__).parent.parent)
    suite = subprocess.Popen([sys.executable, "-c", code, folder, str(tmp_path)], stdout=subprocess.PIPE)
    assert suite.stdout is not None
    pid = int(suite.stdout.readline())
    suite.kill()
    suite.wait()
    suite.stdout.close()
    until = time.monotonic() + 10
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(pid)


def test_lines_are_strict_json(tmp_path: Path) -> None:
    with record.Record(tmp_path / "r.jsonl") as kept, pytest.raises(ValueError):
        kept.add(line(p_anytime=float("nan")))
    assert json.dumps(line())


def test_tables_go_to_their_marked_place_and_nowhere_else(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("a\n<!-- one -->\nold\n<!-- end -->\nb\n<!-- two -->\n<!-- end -->\n")
    put(document, "one", r"new \1")
    put(document, "one", r"newer \1")
    assert document.read_text() == (
        "a\n<!-- one -->\n\nnewer \\1\n\n<!-- end -->\nb\n<!-- two -->\n<!-- end -->\n"
    )
    with pytest.raises(ValueError, match="wanted one place marked three, found 0"):
        put(document, "three", "")


def test_the_documents_have_a_place_for_every_table() -> None:
    from simulate import PRINTED_ONLY, TABLES

    top = Path(conducting.__file__).resolve().parents[3]
    benchmarks = (top / "BENCHMARKS.md").read_text()
    method = "".join((top / "docs" / page).read_text() for page in ("method-details.md", "method-tables.md"))
    assert TABLES.keys() > PRINTED_ONLY
    for name in TABLES:
        assert method.count(f"<!-- simulated: {name} -->") == (name not in PRINTED_ONLY), name
    assert benchmarks.count("<!-- truth -->") == 1
    assert benchmarks.count("<!-- prediction -->") == 1
