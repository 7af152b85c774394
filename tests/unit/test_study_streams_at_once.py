"""Concurrent streams, rewriting and copying in a study file: files needed, refusals, meaning of the numbers."""

from __future__ import annotations

from typing import Any

import pytest
from test_study_stream import study, work

from iotrial.errors import StudyError
from iotrial.runner.outcome import activity
from iotrial.study.schema import Problem
from iotrial.study.work import JobContext, varied
from iotrial.workloads.stream import among

MIB = 1 << 20


@pytest.mark.parametrize(
    ("keys", "files"),
    [
        ('operation = "read"', 1),
        ('operation = "read"\nstreams = 3', 3),
        ('operation = "read"\nstreams = 3\nshared = true', 1),
        ('operation = "write"\nstreams = 3\nshared = true', 1),
        ('operation = "copy"', 2),
        ('operation = "copy"\nstreams = 3', 6),
        ('operation = "copy"\nstreams = 3\nshared = true', 4),
        ('operation = "read"\nstreams = 2\nfiles = 5\npool = 9', 5),
    ],
)
def test_a_run_works_on_as_many_files_as_its_streams_need(keys: str, files: int) -> None:
    found = work(keys)
    assert found.files == files
    assert found.pool == (9 if "pool" in keys else files)  # shared by all arms, unless there are more


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('operation = "read"\nstreams = 3\nfiles = 2', "need 3 files"),
        ('operation = "copy"\nfiles = 1', "need 2 files"),
        ('operation = "read"\nstreams = 0', "at least 1"),
        ('operation = "read"\nstreams = 65', "at most 64"),
        ('operation = "read"\nstreams = 2\npool = 1', "too small"),
        ('operation = "read"\non = "device"\nstreams = 2', '"streams" is only for'),
        ('operation = "copy"\non = "device"', "only read"),
        ('operation = "read"\ncopy_with = "copy-file-range"', "is only for a copy"),
        (
            'operation = "copy"\ncopy_with = "copy-file-range"\ndirect = true',
            '"direct" is only for copy_with',
        ),
        ('operation = "copy"\ndata = "random"', '"data" is only for writing'),
        ('operation = "copy"\ntime = "3 s"', '"time" is only for a read'),
        ('operation = "copy"\nvolume = "1500 B"\nblock_size = "1 KiB"', "whole blocks"),
        ('operation = "rewrite"\ntruncate = false', '"truncate" is only for writing'),
    ],
)
def test_streams_that_cannot_be_are_refused_when_they_are_read(keys: str, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        study(keys)
    assert message in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ("streams = 2", 2 * MIB),
        ("streams = 2\nshared = true", MIB),
        ("streams = 2\nshared = true\ndirect = true", 2 * MIB),
        ('volume = "64 KiB"\nblock_size = "64 KiB"\nstreams = 2', 128 << 10),
    ],
)
def test_a_cold_run_reads_what_its_streams_need_and_no_more_is_asked_of_it(keys: str, wanted: int) -> None:
    found = work(f'operation = "read"\nsize = "1 MiB"\n{keys}')
    assert found.reads_bytes(MIB, found.files) == wanted


def test_a_copy_begins_cold_and_reads_what_it_copies_unless_blocks_may_be_shared() -> None:
    found = study('operation = "copy"\nsize = "1 MiB"')
    copy = found.workload("w")
    assert copy.cache == "cold"
    assert copy.work.reads_bytes(MIB, 2) == MIB
    assert "device_write_bytes_synced" in [r.name for r in found.responses]
    shared = work('operation = "copy"\nsize = "1 MiB"\ncopy_with = "copy-file-range"')
    assert shared.reads_bytes(MIB, 2) == 0


def test_who_leaves_other_files_behind_has_files_of_its_own() -> None:
    for operation, own in (("read", False), ("write", True), ("rewrite", True), ("copy", True)):
        found = work(f'operation = "{operation}"')
        assert found.leaves_other_files() is own


def test_the_number_of_streams_may_be_a_factor_where_there_are_files_for_all() -> None:
    base = work('operation = "read"\nfiles = 4')
    assert varied(base, {"streams": "4"}) == work('operation = "read"\nfiles = 4\nstreams = 4')
    with pytest.raises(Problem, match="need 5 files"):
        varied(base, {"streams": "5"})


# What the numbers mean.


def test_the_rate_of_several_is_bytes_over_elapsed_time_and_the_sum_stands_beside_it() -> None:
    """The published two readers: 16.8 GB each; the source added up their own rates to 270 MB/s."""
    found = work('operation = "read"\nstreams = 2')
    volume, slow_s, fast_s = 16.8e9, 155.5, 103.7
    rates = [volume / slow_s, volume / fast_s]
    answer: dict[str, Any] = {
        "bytes": 2 * volume, "wall_ns": int(slow_s * 1e9), "spun": {"wall_ns": 0, "cpu_ns": 0}, "start_resident": 0,
        "short_block": 0, "operations": {}, "streams": [{"bytes_per_s": rate} for rate in rates],
    }  # fmt: skip
    numbers = found.measured(answer, JobContext()).numbers
    assert numbers["rate"] == pytest.approx(216e6, rel=1e-3)
    assert numbers["stream_sum_of_own_rate"] == pytest.approx(270e6, rel=1e-3)
    assert (numbers["stream_slowest_rate"], numbers["stream_fastest_rate"]) == (rates[0], rates[1])


@pytest.mark.parametrize(
    ("rates", "fairness"), [([5, 5, 5], 100.0), ([7, 0, 0, 0], 25.0), ([1, 3], 80.0), ([0, 0], 100.0)]
)
def test_fairness_is_jains_index(rates: list[float], fairness: float) -> None:
    """Jain, Chiu, Hawe (1984): (sum of x)^2 over n times the sum of x^2."""
    assert among(rates)["stream_fairness"] == pytest.approx(fairness)


ANSWER: dict[str, Any] = {
    "spun": {"wall_ns": 200_000_000, "cpu_ns": 150_000_000},
    "around": {
        "lasted_ns": 1_200_000_000,
        "processors": {
            "count": 4, "iowait_ns": 800_000_000, "iowait_each_ns": [0, 500_000_000, 300_000_000, 0],
            "user_ns": 300_000_000, "sys_ns": 450_000_000,
        },
    },
    "devices": {"loop7": {"busy_ns": 250_000_000, "queue_ns": 3_000_000_000}},
}  # fmt: skip


def test_activity_is_a_share_of_the_timed_part_without_what_was_spun() -> None:
    found = activity(ANSWER, "loop7")
    assert found == pytest.approx(
        {"io_wait": 20.0, "io_wait_most": 50.0, "system_cpu": 0.6, "device_busy": 25.0, "device_depth": 3.0}
    )
    assert set(activity(ANSWER, None)) == {"io_wait", "io_wait_most", "system_cpu"}
    assert activity({**ANSWER, "around": {"lasted_ns": 10**9, "processors": None}}, None) == {}
    assert activity({}, "loop7") == {}


def test_activity_is_a_response_only_where_it_is_named() -> None:
    plain = study('operation = "read"')
    assert "io_wait" not in [r.name for r in plain.responses]
    named = study('operation = "read"\n[[response]]\nname = "io_wait"\nprimary = false')
    response = next(r for r in named.responses if r.name == "io_wait")
    assert (response.unit, response.scale.value, response.better.value) == ("%", "difference", "lower")
    assert next(r for r in named.responses if r.primary).name == "wall"
