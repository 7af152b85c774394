"""The account of errors, against simulated machines on which most settings do nothing.

Bounds as in test_simulated; the method without an account must be caught by them.
"""

from __future__ import annotations

import pytest
from scipy import stats

from chance import at_most
from simulated.account import AGENTS, evidence_path, session
from simulated.noise import Rng

MACHINES = 30
TRIALS = 400


@pytest.mark.parametrize("effect", [0.0, 0.3])
def test_evidence_for_a_setting_that_is_no_better_is_seldom_large_at_any_block(
    rng: Rng, effect: float
) -> None:
    """By Ville's inequality it reaches 20 in at most 5 % of trials, whether the setting does nothing or is worse."""
    reached = sum(float(evidence_path(rng, effect).max()) >= 20.0 for _ in range(TRIALS))
    assert reached <= at_most(TRIALS, 0.05)


def test_an_agent_that_stops_early_and_renames_keeps_what_does_nothing_on_few_machines(rng: Rng) -> None:
    """No setting helps here, so the wrong share is 1 wherever something is kept."""
    agent = AGENTS["renames and retries"]

    def wrong(*, alone: bool) -> int:
        found = [session(rng, agent, 0.0, alone=alone, placebos=40, real=0) for _ in range(MACHINES)]
        return sum(bool(one.kept) for one in found)

    limit = at_most(MACHINES, 0.05)
    assert wrong(alone=False) <= limit
    assert wrong(alone=True) > limit


def test_what_helps_is_kept_among_many_that_do_nothing(rng: Rng) -> None:
    """9 of 10 is asked for; the bound is what a method that reaches it falls below once in a million."""
    found = [session(rng, AGENTS["stops early"], 1.0, placebos=40, real=5) for _ in range(6)]
    kept = sum(one.real[place] for own in found for one, place in ((own, place) for place in own.kept))
    assert kept >= int(stats.binom.ppf(1e-6, 30, 0.9))
