"""One thing at a time, kept while there is room, nothing begun while a trial runs; and a worker that ends when one begins."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from iotrial.errors import IotrialError, RequestError, StoreError
from iotrial.serve import desk as module
from iotrial.serve.desk import Desk, Unmade
from iotrial.serve.tasks import Compare, Look, Which
from iotrial.serve.workshop import Workshop

WAIT_S = 60.0


def ask(
    desk: Desk, key: str, make: object, *, wait_s: float = WAIT_S, size: int = 1, **how: object
) -> object:
    return desk.ask(key, make, size=lambda _: size, wait_s=wait_s, **how)  # type: ignore[arg-type]


def test_what_was_made_is_not_made_again() -> None:
    desk, made = Desk(lambda: False), []
    assert ask(desk, "a", lambda: made.append(1) or "x") == "x"
    assert ask(desk, "a", lambda: made.append(1) or "y") == "x"
    assert made == [1]
    assert desk.known("a") == "x"
    assert desk.known("b") is None


def test_who_asks_for_the_same_waits_for_the_same() -> None:
    desk, made, go = Desk(lambda: False), [], threading.Event()

    def slow() -> str:
        made.append(1)
        assert go.wait(WAIT_S)
        return "x"

    for _ in range(3):
        with pytest.raises(Unmade) as caught:
            ask(desk, "a", slow, wait_s=0.0)
        assert not caught.value.measuring
    go.set()
    assert ask(desk, "a", slow) == "x"
    assert made == [1]


def test_one_thing_is_done_at_a_time_and_the_urgent_before_the_rest() -> None:
    desk, order, go = Desk(lambda: False), [], threading.Event()
    with pytest.raises(Unmade):
        ask(desk, "first", lambda: go.wait(WAIT_S), wait_s=0.0)
    for key, urgent in (("look 1", False), ("look 2", False), ("report", True)):
        with pytest.raises(Unmade):
            ask(desk, key, lambda key=key: order.append(key) or key, wait_s=0.0, urgent=urgent)
    go.set()
    assert ask(desk, "look 2", lambda: None) == "look 2"
    assert order == ["report", "look 1", "look 2"]


def test_nothing_is_begun_while_a_trial_runs() -> None:
    running, made = [True], []
    desk = Desk(lambda: bool(running[0]))
    with pytest.raises(Unmade) as caught:
        ask(desk, "a", lambda: made.append(1) or 1)
    assert caught.value.measuring
    assert not made
    running[0] = False
    assert ask(desk, "a", lambda: made.append(1) or 1) == 1
    running[0] = True
    assert ask(desk, "a", lambda: made.append(1) or 1) == 1  # known


def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    desk, made, go = Desk(lambda: False), [], threading.Event()
    with pytest.raises(Unmade):
        ask(desk, "first", lambda: go.wait(WAIT_S), wait_s=0.0)
    with pytest.raises(Unmade):
        ask(desk, "late", lambda: made.append("late") or 1, wait_s=0.0, patience_s=-1.0)
    go.set()
    assert ask(desk, "last", lambda: "last", urgent=False) == "last"
    assert not made


def test_an_error_is_told_without_trying_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, tried = Desk(lambda: False), []

    def broken() -> None:
        tried.append(1)
        raise StoreError("damaged")

    for _ in range(3):
        with pytest.raises(StoreError, match="damaged"):
            ask(desk, "a", broken)
    assert tried == [1]
    monkeypatch.setattr(module, "ERROR_S", 0.0)
    with pytest.raises(StoreError):
        ask(desk, "a", broken)
    assert tried == [1, 1]
    assert ask(desk, "b", lambda: 1) == 1


def test_the_oldest_goes_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 10)
    desk = Desk(lambda: False)
    for key in "abc":
        ask(desk, key, lambda: 1, size=4)
    assert [desk.known(key) for key in "abc"] == [None, 1, 1]
    ask(desk, "huge", lambda: 1, size=100)
    assert [desk.known(key) for key in ("a", "b", "c", "huge")] == [None, None, None, 1]


@pytest.mark.slow
def test_the_worker_does_a_task_tells_an_error_and_goes_on(tmp_path: Path) -> None:
    workshop = Workshop(lambda: False, aside=False)
    try:
        with pytest.raises(RequestError, match="two or more"):
            workshop.do(Compare(()))
        first = workshop._worker
        with pytest.raises(RequestError):  # there is no such store
            workshop.do(Look(Which(tmp_path / "none.db", 1, "x"), 1))
        assert workshop._worker is first
    finally:
        workshop.close()


@pytest.mark.slow
def test_the_worker_is_ended_when_a_trial_begins(tmp_path: Path) -> None:
    running = [False]
    workshop = Workshop(lambda: running[0], aside=False)
    with pytest.raises(RequestError):
        workshop.do(Compare(()))
    worker = workshop._worker
    assert worker is not None
    worker.send_signal(signal.SIGSTOP)  # it would take for ever
    running[0] = True
    with pytest.raises(Unmade) as caught:
        workshop.do(Compare(()))
    assert caught.value.measuring
    assert worker.poll() == -signal.SIGKILL


@pytest.mark.slow
def test_a_worker_that_dies_is_an_error_and_the_next_task_has_a_new_one() -> None:
    workshop = Workshop(lambda: False, aside=False)
    try:
        with pytest.raises(RequestError):
            workshop.do(Compare(()))
        worker = workshop._worker
        assert worker is not None
        worker.kill()
        worker.wait()
        with pytest.raises(RequestError, match="two or more"):
            workshop.do(Compare(()))
        second = workshop._worker
        assert second is not None
        assert second.pid != worker.pid
        second.kill()
        with pytest.raises((IotrialError, RequestError)):
            workshop.do(Compare(()))
    finally:
        workshop.close()


def test_the_worker_is_let_go_when_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    rested = threading.Event()
    monkeypatch.setattr(module, "REST_S", 0.01)
    desk = Desk(lambda: False, rested.set)
    assert ask(desk, "a", lambda: 1) == 1
    assert rested.wait(WAIT_S)
    assert ask(desk, "b", lambda: 2) == 2
