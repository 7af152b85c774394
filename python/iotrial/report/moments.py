"""When a trial began, as people read it."""

from __future__ import annotations

from datetime import UTC, datetime

from iotrial.legible import shown


def utc(started: str) -> str:
    """A time as ISO 8601 in UTC with a Z; one without a zone is taken as UTC. ValueError for other text."""
    moment = datetime.fromisoformat(started)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat().replace("+00:00", "Z")


def day_and_time(started: str) -> str:
    """ "2026-03-01 09:00" in UTC; text that is no time as it stands."""
    try:
        return datetime.fromisoformat(utc(started)).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return shown(started)[:32]
