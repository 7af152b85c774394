"""Use a private machine lock: these sessions have no real lab, and run alongside other tests."""

from __future__ import annotations

from own_lock import a_lock_of_its_own

__all__ = ["a_lock_of_its_own"]
