"""While very many small values are made and kept, nothing is looked through for what might be given up.

Python looks through all that lives whenever enough has been added. A hundred thousand runs live as long as their trial, and
looking through them again and again finds nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keeping_all() -> Iterator[None]:
    """Cycles that are given up inside are collected some time afterwards; everything else is freed as ever."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
