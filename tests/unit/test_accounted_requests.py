"""Requests of accounted repetitions: stored, packed with a trial, reported as evidence, in text and JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import jsonschema
import pytest
from report_fixtures import CONDITIONS, all_equivalent, document, key, measured, study, trial
from rich.console import Console
from store_examples import header, planned_runs

from iotrial.errors import StoreError
from iotrial.report.conditions import Conditions
from iotrial.report.document import Document, build_document
from iotrial.report.evidence import EvidenceRow, gather
from iotrial.report.jsonreport import report_json
from iotrial.report.metrics import unit_of, words_of
from iotrial.report.render import html_report, markdown_report, print_report
from iotrial.store import Store
from iotrial.store.accounted import REQUESTS, event_of, of_event
from iotrial.store.model import AccountedCall, AccountedRequests, TrialData, TrialState
from iotrial.store.packed import read_packed
from values import replace

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "report.schema.json").read_text())
HERE = key(CONDITIONS[0])


def requests(
    arm: str,
    kind: str,
    histogram: list[list[int]],
    *,
    repetition: int = 0,
    condition: str = HERE,
) -> AccountedRequests:
    count = sum(bar[1] for bar in histogram)
    return AccountedRequests(condition, arm, {"mode": arm}, repetition, kind, count, 7 * count, histogram)


def stored(store: Store, *repetitions: list[AccountedRequests | AccountedCall]) -> str:
    made = store.create_trial(header())
    for runs, end in planned_runs(made.header, blocks=1):
        for run in runs:
            store.append_run(made.header.id, run)
        store.end_block(made.header.id, end)
    for found in repetitions:
        store.append_accounted(made.header.id, found)
    store.set_state(made.header.id, TrialState.DONE)
    return made.header.id


READS = requests("a", "read", [[1023, 5], [2047, 1]])
WRITES = requests("b", "write", [], repetition=1)
CALL = AccountedCall(HERE, "a", {"mode": "a"}, 0, "read", 5, {"4": 2}, 9, [[15, 5]])


def test_requests_come_back_from_the_store_apart_from_calls_and_are_no_runs(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        name = stored(store, [CALL, READS], [WRITES])
        data = store.data(name)
        assert store.accounted(name) == {(HERE, "a", 0), (HERE, "b", 1)}
    assert (data.requests, data.calls) == ((READS, WRITES), (CALL,))
    (planned,) = planned_runs(header(), blocks=1)
    assert (len(data.runs), len(data.blocks)) == (len(planned[0]), 1)


def test_of_a_repetition_all_is_stored_or_nothing(tmp_path: Path) -> None:
    bad = replace(READS, count=float("nan"))
    with Store.open(tmp_path / "s.db") as store:
        name = stored(store)
        with pytest.raises(StoreError):
            store.append_accounted(name, [READS, bad])
        assert store.data(name).requests == ()


def test_the_longest_histogram_there_can_be_travels_with_a_packed_trial(tmp_path: Path) -> None:
    # 144 bars of up to 2^37 ns, with as many requests as a long run makes
    full = requests("a", "write", [[(1 << 37) - 1 - bar, 10**7 + bar] for bar in range(144)])
    file = io.BytesIO()
    with Store.open(tmp_path / "s.db") as store:
        store.pack(stored(store, [full]), file)
    file.seek(0)
    with Store.open(tmp_path / "t.db") as other:
        there = other.unpack(read_packed(file, "x"), source="x")
        assert list(other.data(there.number).requests) == [full]


@pytest.mark.parametrize(
    "change",
    [
        {"count": -1},
        {"total_ns": "5"},
        {"histogram": [[1]]},
        {"histogram": [[1, True]]},
        {"kind": 3},
        {"repetition": None},
        {"treatment": {"f": 1}},
    ],
)
def test_requests_of_another_shape_are_a_damaged_record(change: dict[str, object]) -> None:
    kind, text = event_of(READS)
    assert (kind, of_event(kind, text)) == (REQUESTS, READS)
    with pytest.raises(StoreError, match="damaged record: accounted requests"):
        of_event(*event_of(replace(READS, **change)))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="damaged"):
        of_event(REQUESTS, '{"count": 1}')
    with pytest.raises(StoreError, match="damaged"):
        of_event(REQUESTS, "[]")


def test_to_an_iotrial_that_does_not_know_them_they_are_notes_like_any(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        name = stored(store, [READS])
        assert [event.kind for event in store.events(name)] == ["requests"]
        store.note(name, "something-newer", "{}")
        assert store.data(name).requests == (READS,)


def trial_with(*found: AccountedRequests) -> TrialData:
    """Return a trial of one condition with these requests."""
    blocks, runs, ends = measured(study(), conditions=CONDITIONS[:1], blocks=2)
    return TrialData(trial(study()), blocks, runs, ends, (), found)


def rows_of(*found: AccountedRequests) -> dict[tuple[str, str], EvidenceRow]:
    rows = gather(trial_with(*found), Conditions(study()), margin=0.03)
    return {(row.metric, row.treatment): row for row in rows if row.metric.startswith("accounted")}


# 100 requests: 50 end within 100 ns, 98 within 200 ns, 99 within 300 ns, the last within 400 ns
HUNDRED = [[100, 50], [200, 48], [300, 1], [400, 1]]


def test_percentiles_are_of_all_repetitions_together_and_counts_of_each() -> None:
    rows = rows_of(
        requests("0777", "read", HUNDRED),
        requests("0777", "read", [[500, 100]], repetition=1),
        requests("0777", "read", [[500, 101]], repetition=2),
        requests("0444", "read", HUNDRED),
    )
    assert rows["accounted_requests.read", "0777"].value == 100
    assert rows["accounted_request_p50.read", "0444"].value == pytest.approx(100e-9)
    assert rows["accounted_request_p99.read", "0444"].value == pytest.approx(300e-9)
    # the 151st of 301 is among those of 500 ns
    assert rows["accounted_request_p50.read", "0777"].value == pytest.approx(500e-9)
    assert {row.unit for (metric, _), row in rows.items() if "_p" in metric} == {"s"}


def test_requests_are_never_marked_however_far_apart() -> None:
    rows = rows_of(
        *(requests("0777", "read", [[100, 50]], repetition=r) for r in range(3)),
        *(requests("0444", "read", [[100_000, 400]], repetition=r) for r in range(3)),
    )
    assert rows["accounted_requests.read", "0444"].value == 400
    assert rows["accounted_request_p50.read", "0777"].value == pytest.approx(100e-9)
    assert rows["accounted_request_p50.read", "0444"].value == pytest.approx(100e-6)
    assert {row.moved for row in rows.values()} == {None}


def test_an_arm_that_asked_the_device_for_nothing_has_a_count_and_no_latency() -> None:
    rows = rows_of(requests("0777", "read", [[100, 4]]), requests("0444", "read", []))
    assert rows["accounted_requests.read", "0444"].value == 0
    assert ("accounted_request_p50.read", "0777") in rows
    assert ("accounted_request_p50.read", "0444") not in rows


@pytest.mark.parametrize(("count", "named"), [(1, set()), (2, {"p50"}), (99, {"p50"}), (100, {"p50", "p99"})])
def test_a_percentile_is_told_where_a_request_lies_beyond_it(count: int, named: set[str]) -> None:
    rows = rows_of(requests("0777", "read", [[100, count]]))
    assert {metric[18:21] for metric, _ in rows if "request_p" in metric} == named


def test_a_kind_that_only_some_repetitions_have_counts_as_none_in_the_others() -> None:
    rows = rows_of(
        *(requests("0777", "read", [[100, 4]], repetition=r) for r in range(3)),
        requests("0777", "discard", [[100, 9]], repetition=1),
    )
    assert rows["accounted_requests.discard", "0777"].value == 0  # median of 0, 9 and 0


def test_what_a_packed_trial_calls_a_kind_or_an_arm_that_are_none_is_not_shown() -> None:
    assert rows_of(requests("0777", "<b>", [[100, 4]]), requests("0123", "read", [[100, 4]])) == {}


def test_metrics_have_words_and_units() -> None:
    assert words_of("accounted_requests.flush") == "accounted: flush requests of the device"
    assert words_of("accounted_request_p50.read") == "accounted: half of the read requests took at most"
    assert words_of("accounted_request_p99.write") == "accounted: 99 % of the write requests took at most"
    assert [unit_of(f"accounted_{name}.read") for name in ("requests", "request_p50", "request_p99")] == [
        "1",
        "s",
        "s",
    ]


def reported(*found: AccountedRequests) -> Document:
    made = document(all_equivalent())
    return build_document(replace(made.data, requests=found), made.analysis)


def printed(made: Document) -> str:
    out = io.StringIO()
    print_report(made, Console(file=out, width=80), full=True)
    return " ".join(out.getvalue().split())


BOTH = (
    requests("0777", "read", [[60_000, 300], [90_000, 100]]),
    requests("0777", "flush", [[2_000_000, 3]]),
    requests("0777", "write", [[30_000, 10]]),
    requests("0444", "read", []),
    requests("0444", "write", []),
)


def test_a_terminal_has_a_line_of_requests_where_conditions_are_few() -> None:
    text = printed(reported(*BOTH))
    assert "Requests, traced separately 0777 400 reads, 10 writes, 3 flushes; 0444 none" in text
    elsewhere = [replace(one, condition=key(condition)) for condition in CONDITIONS for one in BOTH]
    assert "Requests" not in printed(reported(*elsewhere))
    assert "Requests" not in printed(reported())
    two = [replace(one, condition=key(condition)) for condition in CONDITIONS[:2] for one in BOTH]
    assert printed(reported(*two)).count("Requests, traced separately cache cold, size") == 2


@pytest.mark.slow
def test_the_evidence_of_page_markdown_and_json_has_them() -> None:
    made = reported(*BOTH)
    page = html_report(made)
    assert "accounted: half of the read requests took at most" in page
    assert "traced and not timed" in page
    assert "traced and not timed" not in html_report(reported())
    assert "- **Requests, traced separately**: 0777 400 reads" in markdown_report(made)
    told_ = report_json(made)
    jsonschema.validate(told_, SCHEMA)
    evidence = told_["evidence"]
    assert isinstance(evidence, list)
    found = {(row["metric"], row["treatment"]): (row["value"], row["unit"]) for row in evidence}
    assert found["accounted_requests.read", "0777"] == (400, "1")
    assert found["accounted_request_p99.read", "0777"] == (pytest.approx(90e-6), "s")


def test_what_could_not_be_counted_is_said_in_every_report(tmp_path: Path) -> None:
    why = "requests were not counted: count requests by BPF: not permitted <b>"
    with Store.open(tmp_path / "s.db") as store:
        name = stored(store)
        store.note(name, "not-accounted", why)
        assert store.data(name).not_accounted == (why,)
    made = document(all_equivalent())
    told_ = build_document(replace(made.data, not_accounted=(why,)), made.analysis)
    assert f"Note {why}" in printed(told_)
    assert "not permitted &lt;b&gt;" in html_report(told_)
    assert "not permitted &lt;b&gt;" in markdown_report(told_)
    report = report_json(told_)
    jsonschema.validate(report, SCHEMA)
    assert report["diagnostics"]["not_accounted"] == [why]  # type: ignore[index]
