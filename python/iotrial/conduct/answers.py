"""Reads from a job's answer when the run took place and what failed."""

from __future__ import annotations

import time
from typing import Any


def clock_of(answer: dict[str, Any]) -> dict[str, object]:
    """Return the wall-clock time when the timed part began, and its duration.

    They assign a meter's readings to the run. The wall clock may be set at any time.
    """
    lasted_ns = (answer.get("around") or {}).get("lasted_ns")
    if lasted_ns is None:
        return {}
    ago_s = (time.monotonic_ns() - int(answer["started_ns"])) / 1e9
    return {"clock": {"unix_s": round(time.time() - ago_s, 4), "lasted_s": lasted_ns / 1e9}}


def failure_of(answer: dict[str, Any]) -> str | None:
    """Return a message for the first failure of a job; None if there is none."""
    failures = answer.get("failures") or []
    if not failures:
        return None
    first = failures[0]
    if first.get("timed_out"):
        how = "did not end in time"
    elif first.get("signal") is not None:
        how = f"was ended by signal {first['signal']}"
    else:
        how = f"ended with status {first.get('exit')}"
    text = str(first.get("stderr", "")).strip()
    return f"{first['argv0']} {how}" + (f": {text[-200:]}" if text else "")
