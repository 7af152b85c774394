"""Workload kind ``random``: refused keys, the probe's job, and the meaning of its answer."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from store_examples import run

from iotrial.errors import StudyError
from iotrial.report.metrics import unit_of
from iotrial.report.within import KINDS
from iotrial.stats.spec import stretched_response
from iotrial.store.packed.records import PackedRun, from_value, to_value
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.model import Response
from iotrial.study.reader import read_study
from iotrial.study.schema import Problem
from iotrial.study.work import JobContext, work_of
from iotrial.workloads.random import RandomWork, by_second
from values import check_limits, replace

BLOCK = 4096


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"size": "2 KiB"}, "larger than a file"),
        ({"depth": 2}, '"depth" is only for'),
        ({"engine": "mmap", "direct": True}, '"direct" is only for'),
        ({"engine": "io_uring", "block": "1 MiB", "depth": 2048}, "more memory than 1 GiB"),
        ({"ramp": 100}, '"ramp" is only for'),
        ({"files": 3, "pool": 2}, "too small for 3 files per run"),
        ({"rate": 1e-5, "operations": 1}, "expected 0, or 1.16e-05 to 1e\\+09 operations per second"),
        ({"rate": 1, "operations": 43_201, "replicates": 2}, "86,402 operations at 1 per second take"),
    ],
)
def test_keys_that_cannot_work_together_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(Problem, match=message):
        work_of(RandomWork, keys)


@pytest.mark.parametrize("rate", [-1.0, 2e9, float("inf"), float("nan"), "fast"])
def test_a_rate_that_the_probe_would_refuse_is_no_rate(rate: object) -> None:
    with pytest.raises(Problem, match="rate"):
        work_of(RandomWork, {"rate": rate})


def test_a_random_workload_has_times_for_what_it_does() -> None:
    def names(share: float) -> list[str]:
        specs = RandomWork(write_share=share).responses()
        return [spec.name for spec in specs if spec.name.startswith(("read_", "write_"))]

    read, write = ([f"{way}_{p}" for p in ("p50", "p99", "p999")] for way in ("read", "write"))
    assert (names(0.0), names(0.3), names(1.0)) == (read, read + write, write)
    first, second, *_ = RandomWork().responses()
    assert (first.name, second.name, second.unit, second.better) == ("wall", "rate", "1/s", "higher")


def _answer(**changed: Any) -> dict[str, Any]:
    marks = {"p50_ns": 1000, "p99_ns": 2000, "p999_ns": 3000, "histogram": [[1000, 400]]}
    return {
        "wall_ns": 1_060_000,
        "spun": {"wall_ns": 60_000, "cpu_ns": 60_000},
        "operations": {"read": marks},
        **changed,
    }


@pytest.mark.parametrize(
    ("stretched", "seconds"), [("rate", 1.06e-3), ("wall", 1.06e-3), ("cpu", 1e-3), ("read_p50", 1e-3)]
)
def test_the_rate_holds_the_slow_down_only_where_it_was_meant_for_time(
    stretched: str, seconds: float
) -> None:
    work = RandomWork(operations=200, replicates=2)
    measured = work.measured(_answer(), JobContext(stretched))
    assert measured.numbers["rate"] == pytest.approx(400 / seconds)
    assert (measured.numbers["read_p50"], measured.numbers["read_p999"]) == (1e-6, 3e-6)
    assert measured.histograms == {"read": [[1000, 400]]}


@pytest.mark.parametrize(
    "given",
    [
        {"operations": 1000},
        {"operations": 100, "block_bytes": 512},
        {"operations": 10, "write_share": 0.3},
        {"operations": 3},
        {"operations": 500, "direct": True, "block_bytes": 512},
        {"operations": 40, "order": "sequential"},
        {"operations": 4000, "order": "sequential"},
    ],
)
def test_a_cold_run_reads_at_least_what_is_expected_of_it(given: dict[str, Any]) -> None:
    """Against draws from Python's own generator: pages that are touched, or blocks if each comes from the device."""
    work, size, files = RandomWork(**given), 256 * BLOCK, 2
    expected = work.reads_bytes(size, files)
    behind_a_server = work.buffered().reads_bytes(size, files)
    source = random.Random(1)
    for _ in range(200):
        blocks = range(files * size // work.block_bytes)
        if work.order == "sequential":
            drawn = [n % len(blocks) for n in range(work.operations)]
        else:
            drawn = source.choices(blocks, k=work.operations)
        read = [block for block in drawn if source.random() >= work.write_share]
        pages = {block * work.block_bytes // BLOCK for block in read}
        got = len(read) * work.block_bytes if work.direct else len(pages) * BLOCK
        assert expected <= got
        assert 0 < behind_a_server <= len(pages) * BLOCK  # whose page cache holds what has been read
    assert expected > 0


def test_only_a_work_that_writes_is_said_to_write() -> None:
    assert not RandomWork().writes()
    assert RandomWork(write_share=0.01).writes()


def test_the_slow_down_is_not_looked_for_in_a_percentile() -> None:
    specs = RandomWork().responses()

    def stretched(primary: str) -> str:
        given = [
            Response("w", s.name, s.unit, s.scale, s.better, s.name == primary, s.stretchable) for s in specs
        ]
        found = stretched_response(given)
        assert found is not None
        return found.name

    assert {name: stretched(name) for name in ("rate", "cpu", "read_p99", "read_p50")} == {
        "rate": "rate",
        "cpu": "cpu",
        "read_p99": "wall",
        "read_p50": "wall",
    }


OPEN = """
[study]
name = "load"
question = "How long does one wait under load?"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0644", "0444"]
[[workload]]
name = "w"
kind = "random"
rate = 2000
series = true
write_share = 0.5
"""


def test_a_study_of_open_arrivals_is_read_stored_and_held_against_the_limits() -> None:
    study = read_study(OPEN, "x.toml", trusted=False)
    work = study.workloads[0].work
    assert isinstance(work, RandomWork)
    assert (work.rate, work.series) == (2000.0, True)
    again = study_from_json(json.loads(json.dumps(study_to_json(study))))
    assert again == study
    check_limits(again, origin="x")
    too_slow = replace(study, workloads=(replace(study.workloads[0], work=replace(work, rate=1e-6)),))
    with pytest.raises(StudyError, match="operations per second"):
        check_limits(too_slow, origin="x")


def test_under_load_the_tail_of_latency_is_primary_and_the_slow_down_goes_into_the_time_of_all() -> None:
    study = read_study(OPEN, "x.toml", trusted=False)
    assert [r.name for r in study.responses][:2] == ["read_p99", "write_p99"]
    assert [r.name for r in study.responses if r.primary] == ["read_p99"]
    closed = read_study(OPEN.replace("rate = 2000", ""), "x.toml", trusted=False)
    assert {r.name for r in study.responses} == {r.name for r in closed.responses}
    found = stretched_response(study.responses)
    assert found is not None
    assert found.name == "wall"


def test_the_probe_is_asked_for_ramp_arrivals_and_seconds_as_the_study_has_them() -> None:
    def asked(work: RandomWork) -> tuple[object, ...]:
        fields = work.probe_job(JobContext())
        return fields["ramp"], fields["rate"], fields["series"]

    assert asked(RandomWork()) == (0, None, False)
    assert asked(RandomWork(ramp=500, rate=2000.0, series=True)) == (500, 2000.0, True)


def test_how_late_operations_began_is_told_of_open_arrivals_alone() -> None:
    late = {"p50_ns": 40, "p99_ns": 5_000_000, "p999_ns": 7_000_000}
    work = RandomWork(operations=400, rate=100.0)
    numbers = work.measured(_answer(late=late), JobContext("wall")).numbers
    assert {name: value for name, value in numbers.items() if name.startswith("late")} == {
        "late_p50": pytest.approx(4e-8),
        "late_p99": pytest.approx(5e-3),
        "late_p999": pytest.approx(7e-3),
    }
    assert unit_of("late_p99") == "s"
    closed = RandomWork(operations=400)
    assert "late_p50" not in closed.measured(_answer(late=None), JobContext("wall")).numbers


def _second(count: int, ms: int) -> dict[str, int]:
    ns = ms * 1_000_000
    return {"count": count, "p50_ns": ns, "p99_ns": 2 * ns, "max_ns": 3 * ns}


def test_whole_seconds_become_a_series_and_what_is_left_of_one_does_not() -> None:
    work = RandomWork(operations=35, series=True)
    seconds = [_second(20, 1), _second(0, 0), _second(10, 2), _second(5, 1)]
    answer = _answer(series=seconds, wall_ns=3_900_000_000, spun={"wall_ns": 500_000_000, "cpu_ns": 0})
    assert work.measured(answer, JobContext("wall")).seconds == {
        "at_s": [0.5, 1.5, 2.5],
        "operations_rate": [20.0, 0.0, 10.0],
        "latency_p50": [0.001, None, 0.002],
        "latency_p99": [0.002, None, 0.004],
        "latency_max": [0.003, None, 0.006],
    }
    short = _answer(series=seconds[:2], wall_ns=1_900_000_000, spun={"wall_ns": 0, "cpu_ns": 0})
    assert work.measured(short, JobContext("wall")).seconds == {}


@pytest.mark.parametrize(
    ("lasted", "step", "kept"), [(300, 1, 300), (301, 2, 151), (598, 2, 299), (599, 2, 300), (4000, 2, 300)]
)
def test_of_a_long_run_every_second_one_is_left_out_and_what_the_last_one_sums_up(
    lasted: int, step: int, kept: int
) -> None:
    """The probe reports at most 600 seconds separately; everything later is in the last one."""
    seconds = [_second(n + 1, 1) for n in range(min(lasted, 599))] + [_second(10**6, 9)]
    found = by_second(seconds, lasted + 0.5)
    assert len(found["at_s"]) == kept
    assert found["at_s"][:2] == [0.5, 0.5 + step]
    assert found["operations_rate"][:2] == [1.0, 1.0 + step]
    assert max(found["operations_rate"]) < 600


def test_the_longest_series_beside_the_most_samples_fits_into_a_packed_trial() -> None:
    seconds = by_second([_second(10, 1)] * 600, 1e4)
    names = ["at_s", *(kind[0] for kind in KINDS), "cpu_steal", "cpu_idle"]
    samples = {name: [0.5] * 191 for name in names}
    record = replace(run(), checks={"cache": "as-is", "clock": {}, "series": samples, "seconds": seconds})
    kind_of_record, value = to_value(PackedRun(record, 1, 0.0))
    assert from_value(kind_of_record, json.loads(json.dumps(value)), "x") == PackedRun(record, 1, 0.0)
