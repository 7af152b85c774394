"""Attempts within a time limit."""

from __future__ import annotations

import pytest

from iotrial.polling import attempts


def test_without_any_time_there_is_one_attempt() -> None:
    assert len(list(attempts(0.0, every_s=5.0))) == 1


def test_attempts_begin_at_once_and_the_last_one_follows_the_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("iotrial.polling.time.monotonic", lambda: now)
    monkeypatch.setattr("iotrial.polling.time.sleep", sleep)
    assert [now for _ in attempts(1.0, every_s=0.4)] == pytest.approx([100.0, 100.4, 100.8, 101.2])
