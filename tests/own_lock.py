"""A machine lock for tests that open whole sessions in their own process.

For the tests of one module only: other tests on the same worker need the real one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iotrial.lab.lock import MachineLock


@pytest.fixture(scope="module", autouse=True)
def a_lock_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a private lock: other tests on the same machine take the real one at the same time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MachineLock.__init__, "__defaults__", (tmp_path_factory.mktemp("lock") / "lock",))
        yield
