"""The simulated conductor of docs/method-tables.md looks at a trial as the analysis does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from iotrial.stats.analyse import analyse_condition
from iotrial.stats.model import ObservedBlock
from iotrial.stats.spec import Spec
from iotrial.stats.verdict import CARRY_OVER, CONTROL_NOT_SEEN
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
