"""Conclusions of a trial at a margin: how often the unqualified word is wrong, and the blocks it takes."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from simulated.noise import Rng
from simulated.stopping import Ends, ends

MARGIN, SD, BLOCKS = 0.03, 0.03, 1000
EFFECTS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)  # in margins, on the log scale
PLAIN, PROBABLE, INSIDE, OPEN = "plain", "probably, size open", "equivalent", "undecided"
WORDS = (PLAIN, PROBABLE, INSIDE, OPEN)


def conclusions(rng: Rng, scale: float) -> str:
    """Tabulate conclusions where the product stops, whether the plain word ever comes, and the extra blocks it takes."""
    trials = max(100, int(1000 * scale))
    limit = math.log1p(MARGIN)
    series = [ends(rng, BLOCKS, aim=limit / SD, alpha=0.05) for _ in range(trials)]
    out = [
        f"**What is concluded at a margin of {MARGIN:.0%}: {trials} trials, block SD {SD:.0%}, at most {BLOCKS} blocks, "
        "alpha .05, normal noise**",
        "",
        "A look after every block; a trial stops as the product does. The last three columns go on to the last block: how "
        "often the plain word stands after any of them, and the median and 90 % of the further blocks until it does.",
        "",
        f"| true effect, margins | {' | '.join(WORDS)} | blocks | ever plain | more blocks | 90 % of them |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for effect in EFFECTS:
        found = [_trial(one.of(SD, effect * limit), limit) for one in series]
        words = Counter(word for word, _, _ in found)
        later = [first - stop for _, stop, first in found if first is not None and first > stop]
        shares = " | ".join(f"{words[word] / trials:.3f}" for word in WORDS)
        ever = sum(first is not None for _, _, first in found) / trials
        more = f"{np.median(later):.0f} | {np.quantile(later, 0.9):.0f}" if later else "– | –"
        stops = np.median([stop for _, stop, _ in found])
        out.append(f"| {effect:g} | {shares} | {stops:.0f} | {ever:.3f} | {more} |")
    return "\n".join(out)


def _trial(found: Ends, limit: float) -> tuple[str, int, int | None]:
    """Return the conclusion at the block where the product stops, that block, and the first block with the plain word."""
    low, high = found.low, found.high
    inside = found.inside(limit)
    out = (low > 0) | (high < 0)
    beyond = (low > limit) | (high < -limit)
    with np.errstate(invalid="ignore"):
        narrow = (high - low) / 2 <= np.maximum(limit, np.abs(low + high) / 8)
    stop = inside | (out & (beyond | narrow))
    n = int(np.argmax(stop)) if stop.any() else low.size - 1
    word = PLAIN if beyond[n] else INSIDE if inside[n] else PROBABLE if out[n] else OPEN
    return word, n + 1, int(np.argmax(beyond)) + 1 if beyond.any() else None
