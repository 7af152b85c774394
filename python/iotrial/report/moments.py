"""When a trial began, as people read it."""

from __future__ import annotations

from datetime import datetime

from iotrial.legible import shown
from iotrial.report.jsonreport import utc


def day_and_time(started: str) -> str:
    """ "2026-03-01 09:00" in UTC; text that is no time as it stands."""
    try:
        return datetime.fromisoformat(utc(started)).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return shown(started)[:32]
