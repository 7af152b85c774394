"""An account of errors over many questions: which settings may be kept, so that few of those kept do nothing.

A question is "is this level no better than its reference?", asked when its trial begins. Its evidence is an e-value E:
while the answer is yes, the mean of E is at most 1 at whatever moment one stops, given everything before the question was
asked. Questions are numbered 1, 2, ... in the order in which they were asked; each may depend on all earlier answers.
With weights g_1 >= g_2 >= ... that sum to at most 1, a set of questions S has the evidence

    E(S) = sum over the members of S of g_r E,    where r is the member's rank in S: 1 for the one asked first, and so on.

A set K of kept settings is *covered* if every set S of questions has

    E(S) >= (number of members of K in S) / (alpha * number of members of K).

Theorem. Of a covered set, an expected share of at most alpha is no better than its reference, whoever chose the
questions, the moment, and which covered set to keep.

Proof. Let N be the questions whose true answer is yes. The rank of a question in N is known when it is asked, and from
then on the mean of its E is at most 1; so the mean of E(N) is at most the sum of the weights, which is at most 1. The
wrong share of *any* covered K is (members of K in N) / (members of K) <= alpha E(N), by the condition for S = N. Its mean
is at most alpha.

It counts what is kept, not what could be: somebody who asks easy questions to lower the limit, and then keeps something
else, gains nothing. Keeping more that has evidence lowers the limit for the next one.

Sources: e-LOND (Xu and Ramdas, "Online multiple testing with e-values", AISTATS 2024, arXiv 2311.06412), which this
contains: a K whose members all have E >= 1 / (alpha g_i |K|), i their numbers, is covered, since no rank is larger than
the number; the same at any later look, online e-BH (Fischer, Xu and Ramdas, arXiv 2407.20683); closure (Xu et al., arXiv
2504.11759) and its online form (Xu, Fischer and Ramdas, arXiv 2603.24792). That every subset of what could be rejected
must be covered itself is the simultaneity of closure over the sets that it admits; to count what is kept is our use of
it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from iotrial.stats.betting import Floats

#: the largest expected share, among the kept settings that are covered, of those that do nothing
LEVEL = 0.05
#: g_i = i ** -POWER / ZETA. A smaller power asks more of the first questions, and less of the hundredth.
POWER, ZETA = 1.5, 2.6123753486854883
#: questions up to which all sets are looked at, in a time that grows with their number squared
MOST = 2_000


def weights(count: int) -> Floats:
    """Return the weights g of the first ``count`` ranks."""
    found: Floats = np.arange(1, count + 1, dtype=np.float64) ** -POWER / ZETA
    return found


def is_covered(evidence: Sequence[float], kept: Collection[int], alpha: float = LEVEL) -> bool:
    """Return whether the kept questions, by their places in ``evidence``, are covered.

    ``evidence``: the e-value of each question in the order in which they were asked. Beyond ``MOST`` questions only
    e-LOND's condition is looked at, which is enough and not needed.
    """
    if not kept:
        return True
    values, shares = _laid_out(evidence, kept, alpha, len(kept))
    ranks = weights(values.size)
    if values.size > MOST:
        return all(values[place] * ranks[place] >= shares[place] for place in kept)
    return bool(_after(values, shares, ranks)[0][0] >= 0.0)


def covered(evidence: Sequence[float], kept: Collection[int], alpha: float = LEVEL) -> frozenset[int]:
    """Return a covered subset of the kept questions: without the weakest ones, as few as needed."""
    ranks = weights(len(evidence))
    left = sorted(set(kept), key=lambda place: (-evidence[place] * ranks[place], place))
    while left and not is_covered(evidence, left, alpha):
        left.pop()
    return frozenset(left)


def needed(evidence: Sequence[float], kept: Collection[int], alpha: float = LEVEL) -> Floats:
    """Return the least e-value with which each question could be kept besides a covered set ``kept``.

    The last number, one more than there are questions, is that of a question which is asked next. Those of ``kept`` are
    what they would need besides the others. Of shape (questions + 1,).
    """
    count, more = len(evidence) + 1, len(kept) + 1
    ranks = weights(count)
    if count > MOST:
        return 1.0 / (alpha * more * ranks)
    found = np.empty(count)
    for inside, size in ((True, len(kept)), (False, more)):
        places = [place for place in range(count) if (place in kept) is inside]
        if places:
            values, shares = _laid_out([*evidence, 0.0], kept, alpha, size)
            before, after = _before(values, shares, ranks), _after(values, shares, ranks)
            for place in places:
                lacking = 1.0 / (alpha * size) - before[place, : place + 1] - after[place + 1, 1 : place + 2]
                found[place] = max(float((lacking / ranks[: place + 1]).max()), 0.0)
    return found


def _laid_out(
    evidence: Sequence[float], kept: Collection[int], alpha: float, size: int
) -> tuple[Floats, Floats]:
    """Return the e-values, and what each question adds to the right side of the condition if ``size`` settings are kept."""
    values = np.asarray(evidence, dtype=np.float64)
    shares = np.zeros(values.size)
    shares[list(kept)] = 1.0 / (alpha * size)
    return values, shares


def _after(values: Floats, shares: Floats, ranks: Floats) -> Floats:
    """Return the least of E(S) less what it must be, over the parts of S from each place on (rows), by the members before
    it."""
    count = values.size
    found = np.zeros((count + 1, count + 2))
    for place in range(count - 1, -1, -1):
        later = found[place + 1]
        own = ranks[: place + 1] * values[place] - shares[place] + later[1 : place + 2]
        found[place, : place + 1] = np.minimum(later[: place + 1], own)
    return found


def _before(values: Floats, shares: Floats, ranks: Floats) -> Floats:
    """Return the same over the parts of S before each place (rows), by how many members these parts have."""
    count = values.size
    found = np.full((count + 1, count + 1), np.inf)
    found[0, 0] = 0.0
    for place in range(count):
        found[place + 1] = found[place]
        own = found[place, : place + 1] + ranks[: place + 1] * values[place] - shares[place]
        found[place + 1, 1 : place + 2] = np.minimum(found[place, 1 : place + 2], own)
    return found
