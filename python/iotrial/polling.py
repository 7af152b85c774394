"""Repeat something until it succeeds or a time limit has passed."""

from __future__ import annotations

import time
from collections.abc import Iterator


def attempts(within_s: float, every_s: float) -> Iterator[None]:
    """Yield at once, then every ``every_s`` seconds, with the last attempt just after ``within_s`` seconds.

    The caller leaves the loop when it has succeeded; what comes after the loop handles the timeout.
    """
    deadline = time.monotonic() + within_s
    yield
    while time.monotonic() <= deadline:
        time.sleep(every_s)
        yield
