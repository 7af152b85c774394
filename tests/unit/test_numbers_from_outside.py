"""Numbers from outside, at the edge of what can be computed with: every source takes the same ones, and none fails."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iotrial.audits.audit import audit
from iotrial.audits.importers import read
from iotrial.audits.importers.contract import ReadOptions, source_of
from iotrial.errors import IotrialError, RequestError
from iotrial.live.sources import MetricLost
from iotrial.live.sources import source_of as metric_of
from iotrial.live.sources.base import Reading
from iotrial.live.sources.exposed import scrape_of, selector_of, taken
from iotrial.live.sources.followed_log import found_in, regex_of
from iotrial.live.sources.programs import number_of
from iotrial.live.sources.prometheus import mean_of_range, one_number
from iotrial.report.audit.jsonaudit import audit_json
from iotrial.study.work import work_of
from iotrial.units import measured
from iotrial.workloads.command import CommandWork
from iotrial.workloads.fio_result import evenness, picked
from iotrial.workloads.output import numbers_and_facts

GOOD = {"0": 0.0, "-0": 0.0, "-0.0": 0.0, "1": 1.0, "+.5": 0.5, "5.": 5.0, "-1e-3": -0.001, "1e100": 1e100, "1E-100": 1e-100,
        "123456789012345678901234567890": 1.2345678901234568e29, "0" * 50 + "7": 7.0}  # fmt: skip
BAD = (
    *(
        "1.7e308",
        "-1.7e308",
        "1e101",
        "1e309",
        "1e400",
        "-1e400",
        "1e-101",
        "5e-324",
        "2.2250738585072014e-308",
        "1e-400",
    ),
    *(
        "nan",
        "NaN",
        "-nan",
        "inf",
        "Infinity",
        "-inf",
        "+Inf",
        "snan",
        "1e",
        "e5",
        ".",
        "",
        "-",
        "0x10",
        "1,5",
        "1 2",
        "--1",
    ),
    *(
        "1_000",
        "1__0",
        "١٢",
        "１２",
        "²",
        "1e٢",
        "½",
        "1\u00a0",
        "\u20091",
        "1\x00",
        "9" * 400,
        "9" * 5000,
        "1" * 100_000,
    ),
)


@pytest.mark.parametrize("text", GOOD)
def test_a_number_as_programs_print_it_is_taken(text: str) -> None:
    for value in (text, text.encode(), f" {text}\n"):
        found = measured(value)
        assert found == GOOD[text]
        assert math.copysign(1.0, found) == (-1.0 if GOOD[text] < 0 else 1.0)


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_number_or_cannot_be_computed_with_is_not(text: str) -> None:
    assert measured(text) is None
    assert measured(text.encode()) is None


def test_values_of_json_follow_the_same_rules() -> None:
    for value in (0, -0.0, 1, -2.5, 10**30, 1e100):
        assert measured(value) == float(value)
    for value in (
        True,
        None,
        [],
        {},
        math.nan,
        math.inf,
        -math.inf,
        1.7e308,
        10**400,
        5e-324,
        sys.float_info.min,
        1e101,
    ):
        assert measured(value) is None


def _log(text: str) -> float:
    return found_in([b"x " + text.encode()], regex_of("x (.*)$"), "x").values[0]


def _exposed(text: str) -> float:
    return next(iter(scrape_of(f"x {text}\n".encode(), "text/plain", selector_of("x")).samples.values()))


def _output(text: str, **fields: str) -> float:
    table = {"argv": ["a"], "output": [{"name": "r", "scale": "difference", **fields}]}
    answer = {
        "steps": [{"name": "command", "printed": {"stdout": text, "stderr": "", "whole": True}}],
        "kept_files": {},
    }
    return numbers_and_facts(work_of(CommandWork, table).outputs, answer)[0]["r"]


#: each source of numbers, by how it reads a text
SOURCES: dict[str, Callable[[str], float]] = {
    "command": lambda text: number_of(text, "x"),
    "log": _log,
    "gauge": lambda text: _exposed(text.replace(" ", "")),
    "query": lambda text: one_number({"resultType": "scalar", "result": [1, text]}),
    "range": lambda text: mean_of_range({"resultType": "matrix", "result": [{"values": [[1, text]]}]}),
    "printed": lambda text: _output(f"v={text};", regex="v=([^;]*);"),
    "printed as text in JSON": lambda text: _output(json.dumps({"a": text}), json="a"),
    "printed as JSON": lambda text: _output(f'{{"a": {text}}}', json="a"),
    "fio": lambda text: picked(json.loads(f'{{"a": {text}}}'), "a"),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("text", [*GOOD, *BAD])
def test_every_source_takes_a_number_or_refuses_it_with_a_reason(source: str, text: str) -> None:
    try:
        found = SOURCES[source](text)
    except (IotrialError, ValueError) as error:
        # the rules of JSON, which this test's own json.loads applies for fio, are stricter
        refused: Exception = error
    else:
        if source in ("query", "range") and text == "NaN":
            assert math.isnan(found)
            return
        assert found == pytest.approx(float(text.replace(" ", "")))
        assert found == 0 or 1e-100 <= abs(found) <= 1e100
        return
    assert text not in GOOD or source in ("printed as JSON", "fio")
    assert isinstance(refused, IotrialError) or source == "fio"
    assert len(str(refused)) < 500


@pytest.mark.parametrize("take", ["sum", "mean", "median", "p99", "min", "max"])
def test_many_large_numbers_have_a_sum(take: str) -> None:
    lines = "".join(f"v={sign}1e100;" for sign in ("", "-") for _ in range(5000)) + "v=1e100;"
    assert math.isfinite(_output(lines, regex="v=([^;]*);", take=take))
    with pytest.raises(RequestError, match="expected a number"):
        _output("v=1.7e308;" * 3, regex="v=([^;]*);", take=take)


def test_a_window_of_large_numbers_has_a_mean(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("")
    for take in ("mean", "p99"):
        source: Any = metric_of(f"log:{path}:x (.*):{take}")
        source.start()
        source.begin()
        with path.open("a") as file:
            file.write("x 1e100\nx -1e100\n" * 1000 + "x 1e100\n")
        assert math.isfinite(source.end())
        source.begin()
        with path.open("a") as file:
            file.write("x 1.7e308\nx 1.7e308\n")
        with pytest.raises(MetricLost, match="a magnitude up to"):
            source.end()
        source.stop()


def test_a_histogram_of_large_counts_has_quantiles() -> None:
    def page(count: str, end: str) -> bytes:
        return (
            f'# TYPE d histogram\nd_bucket{{le="{end}"}} {count}\nd_bucket{{le="+Inf"}} {count}\n'
            f"d_sum {count}\nd_count {count}\n"
        ).encode()

    pages = [scrape_of(page(count, "1e99"), "text/plain", selector_of("d")) for count in ("0", "1e100")]
    readings = [Reading(float(at), one) for at, one in enumerate(pages)]
    for take in ("p50", "p99.99", "mean", "rate"):
        assert math.isfinite(taken(readings, "d", take))
    for end in ("nan", "1e400", "1_0", "x", ""):
        with pytest.raises(IotrialError):
            taken(
                [
                    Reading(1.0, pages[0]),
                    Reading(2.0, scrape_of(page("1", end), "text/plain", selector_of("d"))),
                ],
                "d",
                "p50",
            )


@pytest.mark.parametrize("form", ["csv", "hyperfine", "fio"])
@pytest.mark.parametrize(
    "number", ["1.7e308", "1e100", "1e-100", "5e-324", "NaN", "Infinity", "1e400", "9" * 400, "-0.0", "1_0"]
)
def test_an_audit_of_numbers_at_the_edge_ends_with_a_report_or_a_reason(form: str, number: str) -> None:
    hyperfine = ",".join(f'{{"command": "{group}", "times": [{number}, 1, {number}, 2]}}' for group in "xy")
    fio = ",".join(f'{{"jobname": "{group}", "read": {{"total_ios": 1, "bw": {number}}}}}' for group in "xyx")
    text = {
        "csv": "group,a\n" + "".join(f"{group},{number}\n{group},1\n{group},2\n" for group in "xy"),
        "hyperfine": f'{{"results": [{hyperfine}]}}',
        "fio": f'{{"fio version": "3", "jobs": [{fio}]}}',
    }[form]
    try:
        found = audit(read([source_of(text.encode(), name="f")], ReadOptions(), form=form))
    except IotrialError as error:
        told = error.message
    else:
        told = json.dumps(audit_json(found, None), allow_nan=False)[:400]
    assert 0 < len(told) < 500


def test_rates_of_clients_at_the_edge_are_no_rates() -> None:
    for rate in (1.7e308, math.nan, math.inf, -1.0, 5e-324, 10**400, "1", True):
        clients = [{"jobname": name, "read": {"bw_bytes": rate}} for name in "ab"]
        found = evenness({"client_stats": [*clients, {"jobname": "c", "read": {"bw_bytes": 1e100}}]})
        assert found is None or 0 <= found <= 1
