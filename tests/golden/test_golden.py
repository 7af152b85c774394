"""The catalogue's packed trials, their plans, and a store of an earlier version still give the recorded numbers."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import golden_numbers as golden
import pytest

STORES = Path(__file__).resolve().parent / "stores"


def recorded(name: str) -> object:
    return json.loads((golden.RECORDED / f"{name}.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("path", golden.packed(), ids=golden.name_of)
def test_a_packed_trial_gives_the_recorded_numbers(path: Path) -> None:
    assert golden.differences(recorded(f"report-{golden.name_of(path)}"), golden.report(path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", golden.packed(), ids=golden.name_of)
def test_a_plan_of_the_same_seed_draws_the_same_order(path: Path) -> None:
    assert (
        golden.differences(recorded(f"plan-{golden.name_of(path)}"), golden.plan("--like", str(path))) == []
    )


def test_no_interval_of_an_equivalent_effect_leaves_the_margin() -> None:
    """In the recorded numbers: that they are those of today is what the tests above are for."""
    seen = 0
    for path in golden.packed():
        report = recorded(f"report-{golden.name_of(path)}")
        assert isinstance(report, dict)
        limit = (1.0 + report["trial"]["margin"]) * (1.0 + 1e-9)
        for one in report["effects"]:
            if one["verdict"] == "equivalent" and one["scale"] == "log":
                assert 1.0 / limit <= one["low"] <= one["high"] <= limit, (path.stem, one)
                seen += 1
    assert seen > 1000


def test_a_difference_is_found_wherever_it_is() -> None:
    recorded_before = {"effects": [{"low": 1.0, "verdict": "faster", "bounds": [0.5, None]}], "gone": 1}
    now = {"effects": [{"low": 1.0 + 1e-6, "verdict": "slower", "bounds": [0.5, 0.75]}], "new": 1}
    assert sorted(golden.differences(recorded_before, now)) == [
        ".effects[0].bounds[1]: 0.75 instead of None",
        ".effects[0].low: 1.000001 instead of 1.0",
        ".effects[0].verdict: 'slower' instead of 'faster'",
        ".gone: is gone",
    ]
    assert golden.differences({"effects": [1, 2]}, {"effects": [1]}) == [".effects: 1 instead of 2"]
    effect = {"ratio": 1.1, "low": 1.0, "high": 1.2, "p_anytime": 0.5}
    assert golden.differences(effect, {**effect, "ratio": 1.1039, "p_anytime": 0.5000001}) == []
    assert golden.differences(effect, {**effect, "low": 1.0 + 1e-6}) == []  # the width is .2
    for key, other in (("ratio", 1.1041), ("low", 1.0 + 1e-5), ("high", 1.3), ("p_anytime", 0.50001)):
        assert golden.differences(effect, {**effect, key: other}) == [
            f".{key}: {other} instead of {effect[key]}"
        ]
    assert golden.evidence([{"metric": "wall", "value": 1.0}]) != golden.evidence(
        [{"metric": "wall", "value": 1.00001}]
    )
    assert golden.evidence([{"metric": "wall", "value": 1.0}]) == golden.evidence(
        [{"metric": "wall", "value": 1.0 + 1e-9}]
    )


@pytest.mark.parametrize("path", sorted(STORES.glob("*.xz")), ids=lambda path: path.stem)
def test_a_store_of_an_earlier_version_gives_the_recorded_numbers(path: Path, tmp_path: Path) -> None:
    state = tmp_path / "iotrial"
    state.mkdir()
    (state / "trials.db").write_bytes(lzma.decompress(path.read_bytes()))
    expected = recorded(f"store-{path.stem}")
    assert isinstance(expected, dict)
    for number, numbers_of_it in expected.items():
        assert golden.differences(numbers_of_it, golden.stored(number, str(tmp_path))) == []
