"""Time limit of accounted repetitions, with a clock that advances only during work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from accounting_fixtures import COMMAND, STUDY, Runs, Site, sites

from iotrial.runner import syscall_pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    yield from sites(tmp_path)


class Clock:
    """Clock that advances only during work."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def timed(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Runs:
    clock = Clock()
    monkeypatch.setattr(syscall_pass, "time", clock)

    def take(*_: object) -> None:
        clock.now += seconds

    return Runs(take)


def test_requests_alone_take_no_more_than_a_tenth_of_the_trial(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, runs = site(), timed(monkeypatch, 4.0)
    first, second = (condition.key for condition in here.plan.conditions)
    here.account(runs, measured_s=60.0)  # the limit is 10 %, 6 s; the two arms of a condition take 8
    assert {key for key, *_ in runs.calls} == {first}
    assert len(runs.calls) == 2, "both arms of a condition that was begun"
    assert here.notes == [
        "requests were not counted in 1 of 2 conditions: this would have taken more than a tenth of the measured time"
    ]
    assert second not in here.notes[0]


def test_commands_of_one_condition_are_accounted_however_long_they_take_and_others_only_if_that_is_short(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = site(STUDY[: STUDY.index("[[workload]]")] + COMMAND)
    runs = timed(monkeypatch, 1000.0)
    here.account(runs, measured_s=1.0)
    assert len(runs.calls) == 2, "both arms of the first condition"
    [note] = here.notes
    assert note.endswith(
        "were not counted in 1 of 2 conditions: this would have taken more than a tenth of the measured time"
    )


def test_commands_of_every_condition_are_accounted_if_that_takes_about_a_second(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, runs = site(STUDY[: STUDY.index("[[workload]]")] + COMMAND), timed(monkeypatch, 0.5)
    here.account(runs, measured_s=1.0)
    assert len(runs.calls) == 4, "the second condition begins within 1 s"
    assert here.notes == []


def test_commands_are_counted_again_only_within_a_tenth_of_the_trial(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, runs = site(STUDY[: STUDY.index("[[workload]]")] + COMMAND), timed(monkeypatch, 0.4)
    here.account(runs, measured_s=12.0)  # the limit is 10 %, 1.2 s
    assert len(runs.calls) == 4, "1.6 s after the first repetition"


def test_calls_and_requests_share_a_tenth_of_the_trial(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, runs = site(STUDY + COMMAND), timed(monkeypatch, 4.0)
    here.account(runs, measured_s=60.0)  # the limit is 10 %, 6 s; the two arms of a condition take 8
    assert len({key for key, *_ in runs.calls}) == 2, "the first condition of each kind"
    assert len(runs.calls) == 4, "both arms of each"


def test_further_repetitions_are_begun_only_within_five_seconds(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, runs = site(), timed(monkeypatch, 1.0)
    here.account(runs, measured_s=3600.0)
    assert len(runs.calls) == 8, "4 s, then 4 s more; a third time would begin after 8 s"


def test_a_short_trial_is_accounted_once(site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch) -> None:
    here, runs = site(), timed(monkeypatch, 0.2)
    here.account(runs, measured_s=1.0)
    assert len(runs.calls) == 4, "all arms of both conditions take less than a second, and more than 0.1 s"
    assert here.notes == []
