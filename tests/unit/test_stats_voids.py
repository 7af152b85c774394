"""Void rates compared between levels."""

from __future__ import annotations

import itertools
import math
import os

import numpy as np
import pytest

from iotrial.design.model import ArmKind
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.stats.voids import compare_void_rates, largest_log_e


def run(label: str, kind: ArmKind = ArmKind.TREATMENT) -> Observation:
    name = label if kind is ArmKind.TREATMENT else f"control:{kind.value}"
    return Observation(name, kind, {"mode": label}, 0, 0.0, {})


TWO = (run("444"), run("777"))
FOUR = (*TWO, run("444", ArmKind.NEGATIVE), run("444", ArmKind.POSITIVE))


def void(level: str, runs: tuple[Observation, ...] = TWO) -> ObservedBlock:
    return ObservedBlock("c", 0, runs, void="cache_state", void_level=level)


def test_the_bet_is_the_product_of_the_definition() -> None:
    stakes = (0.1, 0.3, 0.6, 0.9)
    means = [
        np.mean([np.prod([1 + s if hit else 1 - s for hit in hits]) for s in stakes])
        for hits in ((1,), (1, 0), (1, 0, 1))
    ]
    assert largest_log_e([(True, 0.5), (False, 0.5), (True, 0.5)]) == pytest.approx(math.log(max(means)))


def test_a_block_in_which_all_runs_or_none_are_at_the_level_says_nothing_of_it() -> None:
    telling = [(True, 0.5), (True, 0.25)]
    silent = [(False, 0.0), (True, 1.0)]
    assert largest_log_e([telling[0], *silent, telling[1]]) == pytest.approx(largest_log_e(telling))


def test_with_equal_chances_the_bet_has_mean_one() -> None:
    total = 0.0
    for levels in itertools.product(("444", "777"), repeat=8):
        stakes = (0.1, 0.3, 0.6, 0.9)
        total += float(np.mean([np.prod([1 + s if x == "777" else 1 - s for x in levels]) for s in stakes]))
    assert total / 2**8 == pytest.approx(1.0)


def test_a_rule_that_hits_one_level_only_makes_the_trial_invalid() -> None:
    notes, reasons = compare_void_rates([void("777")] * 20)
    assert notes == []
    assert reasons == ["20 of 20 void blocks are due to 777: the void rule does not treat the levels equally"]


def test_a_conspicuous_share_is_noted_before_it_is_proof() -> None:
    notes, reasons = compare_void_rates([void("777")] * 9)
    assert reasons == []
    assert notes == ["9 of 9 void blocks are due to 777, more than its share"]
    assert compare_void_rates([void("777")] * 3) == ([], [])


def test_the_level_of_the_controls_is_shared_over_the_levels_compared() -> None:
    def value(hits: int) -> float:
        return sum((1 + stake) ** hits for stake in (0.1, 0.3, 0.6, 0.9)) / 4

    # two levels share an alpha of 1 in 1000
    assert 1000 < value(13) < 2000 < value(14)
    assert compare_void_rates([void("777")] * 13)[1] == []
    assert len(compare_void_rates([void("777")] * 14)[1]) == 1


def test_control_arms_run_at_the_reference_and_are_no_surplus_of_it() -> None:
    # three of four runs are at 444, so three quarters of the voids are its share
    blocks = [void(level, FOUR) for level in ("444", "444", "444", "777") * 20]
    assert compare_void_rates(blocks) == ([], [])


def test_the_level_of_several_factors_is_their_labels_joined() -> None:
    runs = tuple(
        Observation(kind_name, kind, {"mode": mode, "link": "none"}, 0, 0.0, {})
        for kind_name, kind, mode in (
            ("444+none", ArmKind.TREATMENT, "444"),
            ("777+none", ArmKind.TREATMENT, "777"),
            ("control:negative", ArmKind.NEGATIVE, "444"),
        )
    )
    sound = [void(level, runs) for level in ("444+none", "444+none", "777+none") * 20]
    assert compare_void_rates(sound) == ([], [])
    _, reasons = compare_void_rates([void("777+none", runs)] * 20)
    assert len(reasons) == 1


def test_a_level_of_one_factor_of_many_is_found_though_no_combination_of_levels_stands_out() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    rng = np.random.default_rng(seed)
    labels = list(itertools.product(("444", "777"), ("none", "hard"), ("a", "b"), ("c", "d")))
    runs = tuple(
        Observation("+".join(one), ArmKind.TREATMENT, dict(zip("mlxy", one, strict=True)), 0, 0.0, {})
        for one in labels
    )
    sevens = ["+".join(one) for one in labels if one[0] == "777"]
    _, reasons = compare_void_rates([void(level, runs) for level in rng.choice(sevens, size=40).tolist()])
    assert any("due to m 777" in reason for reason in reasons)
    every = ["+".join(one) for one in labels]
    sound = [void(level, runs) for level in rng.choice(every, size=40).tolist()]
    assert compare_void_rates(sound)[1] == []


def test_voids_without_a_level_say_nothing_about_levels() -> None:
    blocks = [ObservedBlock("c", 0, TWO, void="foreign_io")] * 50
    assert compare_void_rates(blocks) == ([], [])


def test_equal_chances_hardly_ever_make_a_trial_invalid() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    rng = np.random.default_rng(seed)
    invalid = 0
    for _ in range(300):
        blocks = [void(level) for level in rng.choice(["444", "777"], size=80).tolist()]
        invalid += bool(compare_void_rates(blocks)[1])
    assert invalid <= 4  # more than 4 of 300 at .001 has probability 2e-5
