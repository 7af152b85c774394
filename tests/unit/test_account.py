"""The account of errors: which settings may be kept, and what counts as asked."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from iotrial.stats.account import LEVEL, MOST, ZETA, covered, is_covered, needed, weights


def _fits(evidence: list[float], kept: tuple[int, ...], alpha: float) -> bool:
    """Look at every set of questions, by the definition."""
    for size in range(1, len(evidence) + 1):
        for members in itertools.combinations(range(len(evidence)), size):
            own = math.fsum((rank + 1) ** -1.5 / ZETA * evidence[place] for rank, place in enumerate(members))
            if own < len(set(members) & set(kept)) / (alpha * len(kept)) * (1 - 1e-9):
                return False
    return True


def test_the_weights_sum_to_one() -> None:
    count = 10**6
    # the rest of the sum lies between two integrals
    low, high = (2.0 / math.sqrt(count + more) / ZETA for more in (1, 0))
    assert 1.0 - high <= float(weights(count).sum()) <= 1.0 - low + 1e-12


def test_covered_is_what_looking_at_every_set_says() -> None:
    rng = np.random.default_rng()
    seen = {True: 0, False: 0}
    for _ in range(300):
        count = int(rng.integers(1, 8))
        evidence = np.exp(rng.normal(3.0, 3.0, count)).tolist()
        kept = tuple(np.flatnonzero(rng.random(count) < 0.5).tolist())
        if kept:
            fits = _fits(evidence, kept, LEVEL)
            seen[fits] += 1
            assert is_covered(evidence, kept) is fits
    assert min(seen.values()) > 10


def test_needed_is_the_least_evidence_with_which_a_question_may_be_kept_as_well() -> None:
    rng = np.random.default_rng()
    for _ in range(100):
        count = int(rng.integers(1, 7))
        evidence = np.exp(rng.normal(3.0, 3.0, count)).tolist()
        kept = covered(evidence, np.flatnonzero(rng.random(count) < 0.4).tolist())
        limits = needed(evidence, kept)
        assert limits.shape == (count + 1,)
        for place in set(range(count + 1)) - kept:
            for share, enough in ((1.001, True), (0.999, False)):
                changed = [*evidence, 0.0]
                changed[place] = float(limits[place]) * share
                if limits[place] > 0.0:
                    assert _fits(changed, (*kept, place), LEVEL) is enough


def test_what_fits_e_lond_is_covered_and_the_other_way_round_beyond_many_questions() -> None:
    count = 12
    ranks = weights(count)
    for kept in ((3,), (0, 7), (2, 5, 11)):
        evidence = np.zeros(count)
        evidence[list(kept)] = 1.0001 / (LEVEL * ranks[list(kept)] * len(kept))
        assert is_covered(evidence.tolist(), kept)
    many = np.zeros(MOST + 5)
    many[10] = 1.01 / (LEVEL * weights(11)[-1])
    assert is_covered(many.tolist(), (10,))
    many[10] *= 0.98
    assert not is_covered(many.tolist(), (10,))
    assert needed(many.tolist(), ())[10] == pytest.approx(1.0 / (LEVEL * weights(11)[-1]))


def test_asking_easy_questions_and_keeping_another_gains_nothing() -> None:
    easy = [1e9] * 20
    limit = needed(easy, ())[-1]
    assert not is_covered([*easy, limit * 0.99], (20,))
    # the easy ones lower the limit only if they are kept themselves
    assert needed(easy, range(20))[-1] < limit / 15.0


def test_the_weakest_are_left_out_until_the_rest_is_covered() -> None:
    evidence = [1e6, 1.0, 1e6, 30.0]
    assert covered(evidence, range(4)) == {0, 2}
    assert covered(evidence, [1]) == frozenset()
    assert covered(evidence, []) == frozenset()
