"""A program whose time depends on a state file in its folder, with a known truth: stateful.py KIND MODE.

lasting    no effect of its own, but the next three runs after b take 25 % longer
dear       b takes 15 % less time, but a run after the other mode takes 12 ms more
one-way    no effect of its own, but a run of b after one of a takes 15 ms more
stalling   b takes three times as long in one run of 14
quiet      no state and no effect
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

USUAL_S = 0.04


def main(kind: str, mode: str) -> None:
    """Sleep as long as the kind, the mode and the state say; keep the state for the next run."""
    state = Path(f"state-{kind}")
    kept = state.read_text() if state.exists() else ""
    length_s = USUAL_S
    if kind == "lasting":
        left = int(kept or "0")
        length_s *= 1.25 if left else 1.0
        kept = "3" if mode == "b" else str(max(0, left - 1))
    elif kind == "dear":
        length_s *= 0.85 if mode == "b" else 1.0
        length_s += 0.012 * (kept not in ("", mode))
        kept = mode
    elif kind == "one-way":
        length_s += 0.015 * (mode == "b" and kept == "a")
        kept = mode
    elif kind == "stalling":
        length_s *= 3.0 if mode == "b" and random.random() < 1.0 / 14.0 else 1.0
    state.write_text(kept)
    time.sleep(length_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
