"""Where a trial's time goes: each moment counts once, the parts add up, and old trials have no such account."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from report_fixtures import all_equivalent, document
from store_examples import filled

from iotrial.report.document import Document
from iotrial.report.jsonreport import report_json
from iotrial.report.render import html_report
from iotrial.report.text import plain_lines
from iotrial.report.trial_blocks import trial_report
from iotrial.runner.time_account import Part, TimeAccount
from iotrial.store import Store
from iotrial.store.event_records import TIME_SPENT


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_007

    def __call__(self) -> int:
        return self.now_ns

    def wait(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_time_counts_for_the_innermost_part_and_all_parts_add_up(clock: Clock) -> None:
    account = TimeAccount(clock)
    clock.wait(1)
    with account.part(Part.FILES):
        clock.wait(2)
        with account.part(Part.SETTINGS):
            clock.wait(4)
        clock.wait(8)
    clock.wait(16)
    assert account.spent_s() == {"other": 17.0, "files and file systems": 10.0, "settings written": 4.0}
    assert sum(account.spent_s().values()) == 31.0


def test_the_timed_part_of_a_run_is_taken_from_the_answer_and_the_injected_slowdown_stands_apart(
    clock: Clock,
) -> None:
    account = TimeAccount(clock)
    for answer, took in (
        ({"around": {"lasted_ns": 3_000_000_000}, "spun": {"wall_ns": 500_000_000}}, 4.0),
        ({"wall_ns": 2_000_000_000}, 2.5),
        ({"wall_ns": 9_000_000_000}, 1.0),  # a guest's clock that is fast
    ):
        with account.part(Part.START):
            clock.wait(took)
            account.worked(answer)
    spent = account.spent_s()
    assert spent == {
        "timed work": 2.5 + 2.0 + 1.0,
        "starting and ending the work": 1.0 + 0.5,
        "injected slowdown of the control": 0.5,
    }
    assert sum(spent.values()) == 7.5


def test_whatever_a_wash_in_run_does_counts_for_it_and_an_error_closes_its_part(clock: Clock) -> None:
    account = TimeAccount(clock)

    def run() -> None:
        with account.part(Part.WASH_IN, whole=True):
            with account.part(Part.START):
                clock.wait(1)
                account.worked({"wall_ns": 1_000_000_000})
            clock.wait(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    with account.part(Part.STORE):
        clock.wait(4)
    assert account.spent_s() == {"store": 4.0, "wash-in runs": 2.0}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "trials.db") as opened:
        yield opened


def test_attempts_of_a_stored_trial_are_added_and_text_of_another_shape_is_ignored(store: Store) -> None:
    of = filled(store)
    assert store.data(of.id).time_spent == {}
    store.append_time_spent(of.id, {"store": 1.5, "timed work": 1.0})
    for text in ("", "[]", '{"store": -1, "timed work": "long"}', '{"store": 1e400}', "{" * 10_000):
        store.note(of.id, TIME_SPENT, text)
    store.append_time_spent(of.id, {"timed work": 2.0})
    assert list(store.data(of.id).time_spent.items()) == [("timed work", 3.0), ("store", 1.5)]


def with_account(spent_s: dict[str, float]) -> Document:
    old = document(all_equivalent())
    return replace(old, data=replace(old.data, time_spent=spent_s))


def test_a_report_has_a_table_whose_shares_are_of_the_sum_and_an_old_trial_has_none() -> None:
    new = with_account({"timed work": 30.0, "store": 10.0})
    cells = re.sub(r"<[^>]+>|\s", " ", html_report(new).partition("Where the time went")[2]).split()
    assert " ".join(cells).startswith(
        "part seconds share timed work 30.0 75 % store 10.0 25 % all 40.0 100 %"
    )
    assert json.loads(json.dumps(report_json(new)))["trial"]["time_spent"] == {
        "timed work": 30.0,
        "store": 10.0,
    }
    full = "\n".join(plain_lines(trial_report(new), width=100))
    assert "Where the time went: timed work 75 %, store 25 %." in full
    old = with_account({})
    assert "Where the time went" not in html_report(old)
    assert "time_spent" not in report_json(old)["trial"]
