"""Jobs of serve: one at a time in a worker, shared by requests, not during a trial; the worker ends when a trial starts."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iotrial.errors import IotrialError, RequestError, StoreError, UnknownName
from iotrial.web import jobs as module
from iotrial.web.jobs import Jobs, NotReady

WAIT_S = 60.0


def count(file: Path) -> int:
    with file.open("a") as out:
        out.write("x")
    return file.stat().st_size


def damaged() -> None:
    raise StoreError("damaged", hint="restore it")


def unknown() -> None:
    raise UnknownName("trial", "7", ["1"])


def broken() -> None:
    raise ZeroDivisionError("of <b>")


@pytest.fixture
def running() -> list[bool]:
    """Return a mutable flag: [True] while a trial is running."""
    return [False]


@pytest.fixture
def jobs(running: list[bool]) -> Iterator[Jobs]:
    made = Jobs(lambda: running[0], background=False)
    yield made
    made.close()
    until(lambda: not multiprocessing.active_children())


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def test_a_job_is_done_once_for_all_who_want_it_and_again_where_it_is_not_kept(
    jobs: Jobs, tmp_path: Path
) -> None:
    file = tmp_path / "count"
    assert [jobs.result("a", count, file, wait_s=WAIT_S) for _ in range(3)] == [1, 1, 1]
    assert [jobs.result("b", count, file, wait_s=WAIT_S, keep=False) for _ in range(2)] == [2, 3]


def test_who_does_not_wait_finds_the_result_later(jobs: Jobs, tmp_path: Path) -> None:
    with pytest.raises(NotReady) as caught:
        jobs.result("a", count, tmp_path / "count", wait_s=0.0)
    assert not caught.value.measuring
    assert jobs.result("a", count, tmp_path / "count", wait_s=WAIT_S) == 1


def test_nothing_begins_beside_a_trial_and_what_is_known_is_still_there(
    jobs: Jobs, running: list[bool], tmp_path: Path
) -> None:
    running[0] = True
    with pytest.raises(NotReady) as caught:
        jobs.result("a", count, tmp_path / "count", wait_s=WAIT_S)
    assert caught.value.measuring
    running[0] = False
    assert jobs.result("a", count, tmp_path / "count", wait_s=WAIT_S) == 1
    running[0] = True
    assert jobs.result("a", count, tmp_path / "count", wait_s=WAIT_S) == 1


def test_the_worker_is_killed_when_a_trial_begins(
    jobs: Jobs, running: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    with pytest.raises(NotReady):
        jobs.result("a", time.sleep, 10 * WAIT_S, wait_s=0.0)
    (worker,) = multiprocessing.active_children()
    running[0] = True
    with pytest.raises(NotReady) as caught:
        jobs.result("a", time.sleep, 10 * WAIT_S, wait_s=WAIT_S)
    assert caught.value.measuring
    until(lambda: not worker.is_alive())
    running[0] = False
    assert jobs.result("a", os.getpid, wait_s=WAIT_S) != worker.pid  # begun again, without the old error


def test_errors_come_with_their_words_and_are_tried_again(jobs: Jobs) -> None:
    for _ in range(2):
        with pytest.raises(StoreError, match="damaged") as caught:
            jobs.result("a", damaged, wait_s=WAIT_S)
        assert caught.value.hint == "restore it"
    with pytest.raises(RequestError, match='no trial is called "7"'):
        jobs.result("a", unknown, wait_s=WAIT_S)
    with pytest.raises(IotrialError, match="internal error: ZeroDivisionError: of <b>"):
        jobs.result("a", broken, wait_s=WAIT_S)


def test_a_worker_that_dies_is_an_error_and_the_next_job_has_another(jobs: Jobs) -> None:
    first = jobs.result("a", os.getpid, wait_s=WAIT_S)
    with pytest.raises(IotrialError, match="killed"):
        jobs.result("b", os._exit, 1, wait_s=WAIT_S)
    assert jobs.result("c", os.getpid, wait_s=WAIT_S) not in (first, os.getpid())


def test_a_job_that_takes_too_long_is_killed(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    monkeypatch.setattr(module, "LONGEST_S", 0.2)
    with pytest.raises(IotrialError, match="killed"):
        jobs.result("a", time.sleep, 10 * WAIT_S, wait_s=WAIT_S)


def test_there_are_only_so_many_jobs(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_JOBS", 2)
    file = tmp_path / "count"
    assert [jobs.result(key, count, file, wait_s=WAIT_S) for key in "abcb"] == [1, 2, 3, 2]
    assert jobs.result("a", count, file, wait_s=WAIT_S) == 4  # it had been evicted
    for key in "xy":
        with pytest.raises(NotReady):
            jobs.result(key, time.sleep, 10 * WAIT_S, wait_s=0.0)
    with pytest.raises(NotReady) as caught:
        jobs.result("z", count, file, wait_s=WAIT_S)
    assert not caught.value.measuring


def test_the_worker_ends_when_there_is_nothing_to_do(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    monkeypatch.setattr(module, "IDLE_S", 0.05)
    first = jobs.result("a", os.getpid, wait_s=WAIT_S)
    until(lambda: not multiprocessing.active_children())
    assert jobs.result("b", os.getpid, wait_s=WAIT_S) != first
