"""Whether a replay stands for its application: the comparison of their verdicts in a report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from report_fixtures import document, effect, factor, study

from iotrial.errors import StudyError
from iotrial.report.document import Document
from iotrial.report.evidence import EvidenceRow
from iotrial.report.fidelity import HIT_RATE, fidelities
from iotrial.report.jsonreport import report_json
from iotrial.report.text import plain_lines
from iotrial.report.trial_blocks import trial_report
from iotrial.stats.model import Effect, Verdict
from iotrial.study.model import Better, Response, Role, Scale, Study, Workload
from iotrial.study.reader import read_study
from values import replace

FASTER = (Verdict.FASTER, 0.80, 0.78, 0.82)
SLOWER = (Verdict.SLOWER, 1.20, 1.18, 1.22)
PROBABLY = (Verdict.FASTER, 0.97, 0.95, 0.99)
SAME = (Verdict.EQUIVALENT, 1.00, 0.99, 1.01)
OPEN = (Verdict.INCONCLUSIVE, 1.00, 0.80, 1.20)
Numbers = tuple[Verdict, float, float, float]


def both(levels: tuple[str, ...] = ("0444",)) -> Study:
    base = study(conditions=(), treatment=factor("mode", ["0777", *levels], role=Role.TREATMENT))
    work = base.workloads[0].work
    response = Response("app", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
    return replace(
        base,
        workloads=(
            Workload("app", "files", work),
            Workload("copy", "files", work, stands_for="app"),
        ),
        responses=(response, replace(response, workload="copy")),
    )


def of(workload: str, numbers: Numbers, level: str = "0444") -> Effect:
    return effect(*numbers, workload=workload, condition={"workload": workload}, level=level)


def made(app: Numbers, copy: Numbers, *, valid: bool = True) -> Document:
    return document([of("app", app), of("copy", copy)], of=both(), control=(), valid=valid)


def text(of: Document) -> list[str]:
    return plain_lines(trial_report(of), width=100)


@pytest.mark.parametrize(
    ("app", "copy", "agreement", "standing"),
    [
        (FASTER, FASTER, "same", "stands"),
        (SAME, SAME, "same", "stands"),
        (PROBABLY, FASTER, "same", "stands"),
        (FASTER, SLOWER, "different", "differs"),
        (PROBABLY, SLOWER, "different", "differs"),
        (FASTER, SAME, "different", "differs"),
        (SAME, PROBABLY, "open", "open"),
        (FASTER, OPEN, "open", "open"),
        (OPEN, OPEN, "open", "open"),
    ],
)
def test_verdicts_are_the_same_different_or_open(
    app: Numbers, copy: Numbers, agreement: str, standing: str
) -> None:
    (found,) = report_json(made(app, copy))["stand_ins"]
    (compared,) = found["comparisons"]
    assert (compared["agreement"], found["standing"]) == (agreement, standing)
    assert (found["application"], found["stand_in"]) == ("app", "copy")
    assert compared["application"]["value"] == app[1]


def test_a_replay_that_ranks_differently_says_so_before_the_effects() -> None:
    lines = text(made(FASTER, SLOWER))
    warning = next(place for place, line in enumerate(lines) if "copy does not stand for app" in line)
    effects = next(place for place, line in enumerate(lines) if line == "Effects")
    assert warning < effects
    assert "Does the replay stand for the application?" in lines


def test_a_replay_that_stands_has_its_section_and_no_warning() -> None:
    lines = text(made(FASTER, FASTER))
    assert not any("does not stand" in line for line in lines)
    assert any("copy stands for app, as far as was compared" in line for line in lines)


def test_an_invalid_trial_leaves_it_open() -> None:
    (found,) = report_json(made(FASTER, SLOWER, valid=False))["stand_ins"]
    assert found["standing"] == "open"


def test_levels_in_opposite_order_rank_differently_though_each_verdict_is_the_same() -> None:
    levels = ("0444", "0555")
    effects = [
        of("app", (Verdict.FASTER, 0.5, 0.48, 0.52), "0444"),
        of("app", (Verdict.FASTER, 0.8, 0.78, 0.82), "0555"),
        of("copy", (Verdict.FASTER, 0.8, 0.78, 0.82), "0444"),
        of("copy", (Verdict.FASTER, 0.5, 0.48, 0.52), "0555"),
    ]
    (found,) = report_json(document(effects, of=both(levels), control=()))["stand_ins"]
    assert [one["agreement"] for one in found["comparisons"]] == ["same", "same"]
    assert found["standing"] == "differs"
    assert "0444 and 0555" in found["ranked_differently"][0]


def test_a_rate_of_the_replay_is_held_against_a_time_of_the_application() -> None:
    rate = of("copy", (Verdict.FASTER, 1.25, 1.2, 1.3))
    rate = replace(rate, response="rate", better=Better.HIGHER)
    plain = both()
    declared = replace(
        plain, responses=(plain.responses[0], replace(plain.responses[1], name="rate", better=Better.HIGHER))
    )
    (found,) = report_json(document([of("app", FASTER), rate], of=declared, control=()))["stand_ins"]
    assert found["standing"] == "stands"


def test_the_hit_rate_is_that_of_the_bytes_asked_for() -> None:
    found = made(FASTER, FASTER)
    rows = []
    for name, hit in (("app", 75.0), ("copy", 50.0)):
        condition = next(row.condition for row in found.effects if row.condition.workload == name)
        for metric, value in (("work_cache_hit_bytes", hit), ("work_read_bytes", 100.0)):
            rows.append(
                EvidenceRow("0777", metric, "bytes", value, value, value, 9, False, True, condition=condition)
            )
    (one,) = fidelities(both(), found.effects, rows, valid=True)
    amounts = {amount.metric: (amount.application, amount.stand_in) for amount in one.found.amounts}
    assert amounts == {HIT_RATE: (0.75, 0.5), "work_read_bytes": (100.0, 100.0)}


def test_a_trial_without_stand_ins_says_nothing() -> None:
    plain = document([effect(*FASTER)])
    assert "stand_ins" not in report_json(plain)


TEXT = """
[study]
name = "x"
question = "?"
[[factor]]
name = "f"
knob = "mount.atime"
levels = ["noatime", "strictatime"]
[[workload]]
name = "app"
kind = "files"
operations = ["open", "read", "close"]
[[workload]]
name = "copy"
kind = "files"
operations = ["open", "read", "close"]
stands_for = "NAME"
"""


def test_a_workload_stands_for_another_one_of_the_study() -> None:
    found = read_study(TEXT.replace("NAME", "app"), "x.toml", trusted=True)
    assert [workload.stands_for for workload in found.workloads] == [None, "app"]


@pytest.mark.parametrize(("name", "wanted"), [("nosuch", "no workload is called"), ("copy", "for itself")])
def test_other_names_are_refused_with_their_line(name: str, wanted: str) -> None:
    with pytest.raises(StudyError) as refused:
        read_study(TEXT.replace("NAME", name), "x.toml", trusted=True)
    assert wanted in refused.value.message
    assert refused.value.line == 17


def test_the_comparison_is_plain_json() -> None:
    found: dict[str, Any] = report_json(made(FASTER, OPEN))
    json.dumps(found["stand_ins"], allow_nan=False)
