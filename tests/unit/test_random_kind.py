"""Workload kind ``random``: what is refused, what is asked of the probe, and what its answer means."""

from __future__ import annotations

import random
from typing import Any

import pytest

from iotrial.analysis.spec import stretched_response
from iotrial.conduct.works import Asked, driver
from iotrial.study.kinds import KeyProblem, kind
from iotrial.study.kinds.random import RandomKeys
from iotrial.study.model import RandomWork, Response

BLOCK = 4096


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"size": "2 KiB"}, "larger than a file"),
        ({"depth": 2}, "one operation under way at a time"),
        ({"engine": "mmap", "direct": True}, "goes through the page cache"),
        ({"engine": "io_uring", "block": "1 MiB", "depth": 2048}, "more memory than 1 GiB"),
        ({"files": 3, "pool": 2}, "too small to draw 3 from"),
    ],
)
def test_keys_that_cannot_work_together_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(KeyProblem, match=message):
        kind("random").build(RandomKeys.model_validate(keys))


def test_a_random_workload_has_times_for_what_it_does() -> None:
    def names(share: float) -> list[str]:
        specs = kind("random").responses(RandomWork(write_share=share))
        return [spec.name for spec in specs if spec.name.startswith(("read_", "write_"))]

    read, write = ([f"{way}_{p}" for p in ("p50", "p99", "p999")] for way in ("read", "write"))
    assert (names(0.0), names(0.3), names(1.0)) == (read, read + write, write)
    first, second, *_ = kind("random").responses(RandomWork())
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
    measured = driver(work).measured(work, _answer(), Asked(stretched))
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
    """Against draws of Python's own generator: pages that are reached, or blocks where each comes from the device."""
    work, size, files = RandomWork(**given), 256 * BLOCK, 2
    expected = driver(work).reads_bytes(work, size, files)
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
    assert expected > 0


def test_only_a_work_that_writes_is_said_to_write() -> None:
    assert not driver(RandomWork()).writes(RandomWork())
    assert driver(RandomWork()).writes(RandomWork(write_share=0.01))


def test_the_slow_down_is_not_looked_for_in_a_percentile() -> None:
    specs = kind("random").responses(RandomWork())

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
