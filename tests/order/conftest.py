"""These sessions have no real lab, so each test gets its own machine lock and can run alongside other tests."""

from __future__ import annotations

from own_lock import a_lock_of_its_own

__all__ = ["a_lock_of_its_own"]
