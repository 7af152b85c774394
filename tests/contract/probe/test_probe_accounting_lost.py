"""Accounting of system calls when a table is full: lost events are reported, never silently missing from the
counts."""

from __future__ import annotations

import os

import pytest
from accounted import PYTHON, account
from probe_client import Probe

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

NO_SUCH_CALLS = "import ctypes; c = ctypes.CDLL(None); [c.syscall(n) for n in range(1000, 1000 + {count})]"
#: entries in the error table, one per error of a call
ERRORS = 4096


def test_errors_that_find_no_room_in_the_table_are_told_as_lost(probe: Probe) -> None:
    """Every unassigned number counts as a call of its own and fails with ENOSYS."""
    fits = account(probe, [*PYTHON, "-c", NO_SUCH_CALLS.format(count=ERRORS - 100)])
    beyond = {name: call["count"] for name, call in fits.items() if name.startswith("syscall_")}
    assert beyond == {f"syscall_{number}": 1 for number in range(1000, 1000 + ERRORS - 100)}
    others = sum(len(call["errors"]) for name, call in fits.items() if name not in beyond)
    argv = [*PYTHON, "-c", NO_SUCH_CALLS.format(count=ERRORS + 1000)]
    found = probe("command", steps=[{"name": "it", "argv": argv}], account=True)["account"]
    kept = sum(1 for name in found["calls"] if name.startswith("syscall_"))
    assert kept <= ERRORS - others
    assert found["lost"] >= ERRORS + 1000 - kept > 0
