"""The simulated conductor of docs/method-tables.md looks at a trial as the analysis does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from iotrial.stats.analyse import analyse_condition
from iotrial.stats.model import ObservedBlock
from iotrial.stats.spec import Spec
from iotrial.stats.verdict import CARRY_OVER, CONTROL_NOT_SEEN
from iotrial.study.model import Study
from simulated import carry


@pytest.mark.parametrize(
    "case", [carry.SOUND[2], carry.REPORTED[2], carry.REPORTED[7]], ids=lambda case: case.name
)
def test_every_look_of_a_simulated_trial_agrees_with_the_analysis_of_a_condition(
    case: carry.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = carry._look
    looks = []

    def compared(spec: Spec, done: list[ObservedBlock]) -> object:
        found = plain(spec, done)
        state = analyse_condition(spec, done[0].condition, done)
        (effect,) = [one for one in state.effects if one.primary]
        one, (verdict, low, high), _ = found
        assert state.carry_over == one
        if not one.held:
            assert effect.two_sided is not None
            assert (effect.two_sided[0] or 0.0) == pytest.approx(math.exp(low))
            assert (effect.two_sided[1] or math.inf) == pytest.approx(math.exp(high))
            assert effect.verdict == verdict or effect.reason in (CONTROL_NOT_SEEN, CARRY_OVER)
        looks.append(one.wash_in)
        return found

    monkeypatch.setattr(carry, "_look", compared)
    rng = np.random.default_rng(12)
    carry.conduct(case, rng, carry._normal(rng), blocks=50)
    assert len(looks) > 5


@pytest.mark.slow
@pytest.mark.parametrize("study", [carry.STUDY, carry.FOUR], ids=["two levels", "four levels"])
def test_a_switch_that_costs_in_one_direction_alone_is_rarely_taken_for_an_effect(study: Study) -> None:
    """Published wrong in .95 or more of trials when no level but the reference ran just after itself."""
    wrong = 0
    rng = np.random.default_rng(2026)
    for to in (True, False) * 6:
        case = carry.Case("one way", carry.always(carry.switch(0.3, to=to)))
        wrong += carry.conduct(case, rng, carry._normal(rng), study=study).wrong(0.0)
    assert wrong <= 3  # of 12; with .05 each, 3 or fewer in .998 of all seeds
