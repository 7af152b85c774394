"""Which signals interrupt the current operation, and which are only noted."""

from __future__ import annotations

import os
import signal

import pytest

from iotrial.runner.signals import Held, Stopped, StopSignals


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_outside_of_a_wait_a_signal_is_only_noted() -> None:
    with StopSignals() as signals:
        with signals.interruptible():
            press()
            assert signals.pending == signal.SIGINT
        with pytest.raises(Stopped) as stopped:
            signals.check()
    assert stopped.value.number == signal.SIGINT


def test_in_a_wait_of_interruptible_work_it_stops_at_once() -> None:
    with StopSignals() as signals, signals.interruptible(), signals.waiting(), pytest.raises(Stopped):
        press()


def test_a_wait_of_what_must_be_finished_goes_on() -> None:
    with StopSignals() as signals, signals.waiting():
        press()
        assert signals.pending == signal.SIGINT


def test_one_that_came_before_the_wait_stops_it_once_so_that_putting_back_may_wait() -> None:
    with StopSignals() as signals, signals.interruptible():
        press()
        with pytest.raises(Stopped), signals.waiting():
            pytest.fail("it waits")
        with signals.waiting():
            assert signals.pending == signal.SIGINT


def test_no_work_is_begun_after_it() -> None:
    with StopSignals() as signals:
        press()
        with pytest.raises(Stopped), signals.interruptible():
            pytest.fail("it was begun")


def test_handlers_are_put_back_and_the_first_of_two_counts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopSignals() as signals:
        press()
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.pending == signal.SIGINT
    assert signal.getsignal(signal.SIGINT) is before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.pending is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_report_that_is_written_waits_for_the_first() -> None:
    with Held() as held:
        press()
        assert held.pending == signal.SIGINT
