"""System calls of accounted repetitions: stored, packed with a trial, shown as evidence, checked against claims."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from report_fixtures import CONDITIONS, measured, study, trial
from store_examples import header, planned_runs

from iotrial.errors import ProbeError, StoreError, StudyError
from iotrial.report.claims import Outcome, hold_value
from iotrial.report.conditions import Conditions
from iotrial.report.evidence import EvidenceRow, gather
from iotrial.store import Store
from iotrial.store.accounted import CALL, event_of, of_event
from iotrial.store.model import AccountedCall, RunRecord, TrialData, TrialState
from iotrial.store.packed import read_packed
from iotrial.study.model import Claim
from iotrial.study.reader import read_study
from iotrial.study.work import calls_of
from values import replace


def call(arm: str, name: str, count: int, *, repetition: int = 0, **more: object) -> AccountedCall:
    fields = {"errors": {}, "total_ns": 1000 * count, "histogram": [[1023, count]], **more}
    return AccountedCall("workload=w", arm, {"f": arm}, repetition, name, count, **fields)  # type: ignore[arg-type]


def stored(store: Store, calls: list[AccountedCall]) -> str:
    made = store.create_trial(header())
    for runs, end in planned_runs(made.header, blocks=1):
        for run in runs:
            store.append_run(made.header.id, run)
        store.end_block(made.header.id, end)
    store.append_accounted(made.header.id, calls)
    store.set_state(made.header.id, TrialState.DONE)
    return made.header.id


def test_calls_come_back_from_the_store_and_are_no_runs(tmp_path: Path) -> None:
    calls = [call("a", "read", 5, errors={"4": 2}), call("b", "write", 7, repetition=1)]
    with Store.open(tmp_path / "s.db") as store:
        data = store.data(stored(store, calls))
    assert list(data.calls) == calls
    (planned,) = planned_runs(header(), blocks=1)
    assert (len(data.runs), len(data.blocks)) == (len(planned[0]), 1)


def test_calls_travel_with_a_packed_trial(tmp_path: Path) -> None:
    calls = [call("a", "read", 5, errors={"4": 2})]
    file = io.BytesIO()
    with Store.open(tmp_path / "s.db") as store:
        store.pack(stored(store, calls), file)
    file.seek(0)
    with Store.open(tmp_path / "t.db") as other:
        there = other.unpack(read_packed(file, "x"), source="x")
        assert list(other.data(there.number).calls) == calls


@pytest.mark.parametrize(
    "change",
    [
        {"count": -1},
        {"count": "5"},
        {"errors": []},
        {"histogram": [[1]]},
        {"name": 3},
        {"treatment": {"f": 1}},
    ],
)
def test_a_call_of_another_shape_is_a_damaged_record(change: dict[str, object]) -> None:
    kind, text = event_of(call("a", "read", 5))
    assert kind == CALL
    assert of_event(kind, text) == call("a", "read", 5)
    with pytest.raises(StoreError, match="damaged"):
        of_event(*event_of(replace(call("a", "read", 5), **change)))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="damaged"):
        of_event(CALL, '{"count": 1}')


def rows_of(calls: list[AccountedCall]) -> dict[tuple[str, str], EvidenceRow]:
    blocks, _, ends = measured(study(), conditions=CONDITIONS[:1], blocks=1)
    key = blocks[0].condition
    runs = tuple(
        RunRecord(key, 0, slot, arm, "treatment", {"mode": arm}, 0.0)
        for slot, arm in enumerate(["0777", "0444"])
    )
    own = tuple(replace(one, condition=key, treatment={"mode": one.arm}) for one in calls)
    data = TrialData(trial(study()), blocks, runs, ends, own)
    return {(r.metric, r.treatment): r for r in gather(data, Conditions(study()), margin=0.03)}


def test_the_evidence_shows_what_differs_and_what_took_longest() -> None:
    same = [
        call(arm, name, 10, total_ns=ns)
        for arm in ("0777", "0444")
        for name, ns in [("a", 1), ("b", 10), ("c", 100), ("d", 1000), ("e", 10_000), ("f", 100_000)]
    ]
    differs = [call("0777", "chmod", 1, total_ns=0), call("0444", "chmod", 3, total_ns=0, errors={"1": 2})]
    rows = rows_of([*same, *differs])
    shown = {metric.partition(".")[2] for metric, _ in rows}
    assert shown == {"all", "b", "c", "d", "e", "f", "chmod"}
    assert (rows["accounted_calls.all", "0777"].value, rows["accounted_calls.all", "0444"].value) == (61, 63)
    assert rows["accounted_calls.chmod", "0444"].moved == "up"
    assert rows["accounted_errors.chmod", "0444"].value == 2
    assert rows["accounted_errors.chmod", "0777"].value == 0
    assert rows["accounted_calls.f", "0444"].moved is None
    assert (rows["accounted_time.f", "0444"].value, rows["accounted_time.f", "0444"].unit) == (1e-4, "s")
    assert ("accounted_errors.f", "0444") not in rows


def test_times_of_calls_are_shown_and_never_marked_where_counts_and_errors_are() -> None:
    rows = rows_of(
        [
            call(arm, "read", count, repetition=repetition, total_ns=ns + repetition, errors={"4": count})
            for arm, count, ns in [("0777", 10, 1_000_000), ("0444", 20, 9_000_000)]
            for repetition in range(3)
        ]
    )
    assert rows["accounted_time.read", "0777"].value == pytest.approx(1_000_001e-9)
    assert rows["accounted_time.read", "0444"].value == pytest.approx(9_000_001e-9)
    assert {key: found.moved for key, found in rows.items() if found.moved} == {
        ("accounted_calls.all", "0444"): "up",
        ("accounted_calls.read", "0444"): "up",
        ("accounted_errors.read", "0444"): "up",
    }


def test_a_call_that_an_arm_never_makes_counts_as_none() -> None:
    rows = rows_of([call("0777", "read", 4), call("0444", "write", 4)])
    assert rows["accounted_calls.read", "0444"].value == 0
    assert rows["accounted_calls.read", "0444"].moved == "down"


def test_an_account_of_which_something_was_lost_is_refused() -> None:
    whole = {"lost": 0, "calls": {"read": {"count": 3}}}
    assert calls_of({"account": whole}) == {"read": {"count": 3}}
    with pytest.raises(ProbeError, match="expected all events, but 2 events were lost"):
        calls_of({"account": {**whole, "lost": 2}})
    with pytest.raises(ProbeError, match="expected counts for"):
        calls_of({"account": None})


def row(value: float, *, low: float | None = None) -> EvidenceRow:
    condition = Conditions(study()).of_key(
        measured(study(), conditions=CONDITIONS[:1], blocks=1)[0][0].condition
    )
    return EvidenceRow(
        "0444",
        "calls.read",
        "1",
        value,
        low if low is not None else value,
        value,
        12,
        True,
        False,
        condition=condition,
    )


@pytest.mark.parametrize(
    ("value", "outcome", "words"),
    [
        (2002, Outcome.CONFIRMED, "the same number"),
        (2005, Outcome.LARGER, "3 more"),
        (2001, Outcome.SMALLER, "1 fewer"),
    ],
)
def test_a_published_count_is_right_or_off_by_so_many(value: float, outcome: Outcome, words: str) -> None:
    here = row(value)
    claim = Claim(
        "s", "t", "mode", "0444", "0777", workload=here.condition.workload, response="calls.read", value=2002
    )
    (held,) = hold_value(claim, [here], valid=True)
    assert (held.outcome, held.why) == (outcome, words)
    assert held.published == "2,002 calls.read (mode 0444)"
    assert held.here == f"{value:,} in 12 runs"
    assert hold_value(claim, [here], valid=False)[0].outcome is Outcome.CANNOT_SAY
    assert hold_value(claim, [], valid=True)[0].outcome is Outcome.CANNOT_SAY


CALLS = """
[study]
name = "x"
question = "?"
account = false
[[factor]]
name = "atime"
knob = "mount.atime"
levels = ["a", "b"]
[[workload]]
name = "w"
kind = "calls"
calls = ["read", "read", "open"]
argv = ["cat", "{file}"]
"""


def test_calls_that_are_named_are_responses_and_the_first_one_is_primary() -> None:
    found = read_study(CALLS, "x.toml", trusted=True)
    assert [r.name for r in found.responses][:4] == ["calls.read", "calls.open", "calls", "errors"]
    assert [r.name for r in found.responses if r.primary] == ["calls.read"]
    assert {r.unit for r in found.responses} == {"1", "bytes"}
    assert found.account is False
    with pytest.raises(StudyError, match="system call's name"):
        read_study(CALLS.replace('"open"', '"op en"'), "x.toml", trusted=True)


def test_a_claim_of_a_value_says_of_what() -> None:
    claim = '[[claim]]\nsource = "s"\ntext = "t"\nlevel = "b"\nvalue = 7\n'
    with pytest.raises(StudyError, match="workload and response"):
        read_study(CALLS + claim, "x.toml", trusted=True)
    whole = claim + 'workload = "w"\nresponse = "calls.read"\n'
    assert read_study(CALLS + whole, "x.toml", trusted=True).claims[0].value == 7
