"""Put the truth suite and the comparison helpers on the path: they live in benchmarks, but are tested and used here."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from iotrial.design.keyed import new_seed
from own_lock import a_lock_of_its_own

__all__ = ["a_lock_of_its_own"]

for folder in ("probe", "truth"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / folder))


@pytest.fixture
def rng() -> np.random.Generator:
    """Return random numbers of a new seed, which is printed."""
    seed = new_seed()
    print("seed", seed)
    return np.random.default_rng(int(seed, 16))
