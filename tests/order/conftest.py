"""Sessions without a lab of their own, beside other tests."""

from __future__ import annotations

from own_lock import a_lock_of_its_own

__all__ = ["a_lock_of_its_own"]
