"""The modules of the truth suite, and what comparisons share, are tested, and used, here: they lie in the benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotrial.lab.lock import MachineLock

for folder in ("probe", "truth"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / folder))


@pytest.fixture(scope="session", autouse=True)
def a_lock_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whole sessions are opened here, beside those of other tests on the same machine, which take the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MachineLock.__init__, "__defaults__", (tmp_path_factory.mktemp("lock") / "lock",))
        yield
