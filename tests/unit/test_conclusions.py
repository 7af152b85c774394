"""Wording of effects: never unqualified if the effect may be below the margin, never a mean that hides opposite effects."""

from __future__ import annotations

import io
import math
import re

import pytest
from compared_trials import one as trial_of
from report_fixtures import CONDITIONS, all_equivalent, controls, document, effect, study
from rich.console import Console

from iotrial.design.model import ArmKind
from iotrial.design.plan import CONTROLS_FIRST, Plan
from iotrial.library.effects import forests
from iotrial.library.trial import Trial
from iotrial.report.comparing import compare
from iotrial.report.comparison import Cell, cell_numbers, cell_verdict, gain_of
from iotrial.report.conditions import Conditions
from iotrial.report.findings import finding, span_sentence
from iotrial.report.render import html_report, markdown_report, print_report
from iotrial.report.risks import risk_note
from iotrial.report.sentences import controls_line
from iotrial.stats.analyse import agree, analyse
from iotrial.stats.model import Conclusion, Interval, Means, Observation, ObservedBlock, Span, Verdict
from iotrial.stats.spec import Spec
from iotrial.stats.verdict import judge
from iotrial.study.model import Better, Scale
from values import replace

M = 0.03
MS = math.log1p(M)


def concluded(low: float, high: float, **changes: object) -> Conclusion:
    """Return the conclusion on an interval of the log ratio, by the same two steps as in a trial."""
    found = Interval((low + high) / 2, low, high, 0.01, 20.0, 60)
    response = study().responses[0]
    judged = judge(found, response, margin=M)
    one = effect(Verdict.SLOWER, value=math.exp((low + high) / 2), low=math.exp(low), high=math.exp(high))
    return replace(one, verdict=judged.verdict, detectably=judged.detectably, margin=M, **changes).conclusion  # type: ignore[arg-type]


def test_equal_means_are_said_to_be_of_capped_runs_and_how_many_could_be_longer() -> None:
    """Of 1,497 runs none was long. Runs of which 1 in 500 takes 200 times as long look so with probability .05."""
    capped = Means(10.0, 1.0, 0.98, 1.02, 0, 0, equivalent=True)
    one = effect(
        Verdict.EQUIVALENT, 1.0, 0.98, 1.02, statistic="mean", means=capped, blocks=1497, family_alpha=0.05
    )
    assert one.conclusion is Conclusion.EQUIVALENT_CAPPED
    assert one.conclusion.equivalent
    assert one.conclusion.words == "equivalent with runs capped"
    (found,) = [line for line in document([one]).summary.details if "Means count a run" in line]
    assert (
        "at most 10 times the typical one; none took longer; stalls rarer than 1 in 500 runs would not be seen"
        in found
    )
    assert math.isclose((1.0 - 0.002) ** 1497, 0.05, abs_tol=0.001)


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (MS + 1e-6, 0.2, Conclusion.SLOWER),
        (MS - 1e-6, 0.2, Conclusion.PROBABLY_SLOWER),
        (1e-6, 0.2, Conclusion.PROBABLY_SLOWER),
        (-0.2, -MS - 1e-6, Conclusion.FASTER),
        (-0.2, -MS + 1e-6, Conclusion.PROBABLY_FASTER),
        (-MS + 1e-9, MS - 1e-9, Conclusion.EQUIVALENT),
        (1e-6, MS - 1e-9, Conclusion.EQUIVALENT_DETECTABLE),
        (-0.01, 0.2, Conclusion.UNDECIDED),
        (-0.2, 0.2, Conclusion.UNDECIDED),
    ],
)
def test_the_region_of_the_interval_gives_the_word(low: float, high: float, wanted: Conclusion) -> None:
    assert concluded(low, high) is wanted


def test_an_interval_without_an_upper_end_can_be_beyond_the_margin() -> None:
    one = effect(Verdict.SLOWER, value=1.5, low=1.2, high=2.0)
    assert replace(one, high=None).conclusion is Conclusion.SLOWER
    assert replace(one, low=1.01, high=None).conclusion is Conclusion.PROBABLY_SLOWER


def test_a_difference_has_no_margin() -> None:
    one = effect(Verdict.HIGHER, value=2.0, low=1e-9, high=4.0)
    assert replace(one, scale=Scale.DIFFERENCE, better=Better.NONE).conclusion is Conclusion.HIGHER


def test_a_headline_never_says_slower_of_what_may_be_below_the_margin() -> None:
    one = effect(Verdict.SLOWER, value=1.042, low=1.001, high=1.091)
    said = finding([one], Conditions(study()), margin=M)
    assert "probably slower" in said
    assert "size open" in said


def test_parts_agree_only_within_the_margin_of_their_mean() -> None:
    mean = replace(effect(Verdict.FASTER, value=0.623, low=0.55, high=0.7), kind="pooled")
    opposite = [effect(Verdict.SLOWER, value=value, low=value, high=value) for value in (0.998, 0.389)]
    alike = [effect(Verdict.SLOWER, value=value, low=value, high=value) for value in (0.61, 0.64)]
    assert not agree(mean, opposite)
    assert agree(mean, alike)


def test_parts_that_conclude_the_same_with_a_common_value_agree_whatever_their_noise() -> None:
    mean = replace(effect(Verdict.FASTER, value=0.34, low=0.28, high=0.42), kind="pooled")
    noisy = [
        effect(Verdict.FASTER, value=0.31, low=0.23, high=0.46),
        effect(Verdict.FASTER, value=0.38, low=0.25, high=0.41),
    ]
    assert agree(mean, noisy)
    undecided = effect(Verdict.INCONCLUSIVE, value=0.38, low=0.25, high=1.41)
    assert not agree(mean, [noisy[0], undecided])


def test_a_mean_that_is_undecided_anyway_stays_undecided() -> None:
    mean = replace(effect(Verdict.INCONCLUSIVE, value=0.9, low=0.5, high=1.4), kind="pooled", agree=False)
    assert mean.conclusion is Conclusion.UNDECIDED


def blocks_of(plan: Plan, ratio_of: dict[str, float], count: int = 30) -> list[ObservedBlock]:
    """Return blocks in which 0444 takes ``ratio_of`` (by cache) times as long as the reference, with a little noise."""
    found = []
    for condition in plan.conditions:
        for index in range(count):
            runs = []
            for run in plan.block(condition, index).runs:
                own = ratio_of[condition.levels["cache"]] if run.arm.treatment["mode"] == "0444" else 1.0
                if run.arm.kind is ArmKind.POSITIVE:
                    own = 1.06
                wobble = math.exp(0.002 * math.sin(7.1 * run.slot + 3.3 * index))
                runs.append(
                    Observation(
                        run.arm.name, run.arm.kind, run.arm.treatment, run.slot, 0.0, {"wall": own * wobble}
                    )
                )
            found.append(ObservedBlock(condition.key, index, tuple(runs)))
    return found


def test_a_mean_of_opposites_is_a_span_without_a_verdict() -> None:
    plan = Plan(study(), "ab" * 16)
    analysis = analyse(Spec.from_plan(plan), blocks_of(plan, {"cold": 0.998, "warm": 0.389}))
    pooled = [e for e in analysis.effects if e.kind == "pooled" and e.level == "0444"]
    assert pooled
    for one in pooled:
        assert one.agree is False
        assert one.conclusion is Conclusion.VARIES
        said = span_sentence(one, Conditions(study()))
        assert "0.389" in said
        # the noise is a sine, whose contrasts are skewed: the estimate is their median
        assert re.search(r"\b0\.99[789]\b", said)
        assert one.verdict.value not in said


def test_a_mean_of_the_same_effect_stays_one_effect() -> None:
    plan = Plan(study(), "ab" * 16)
    analysis = analyse(Spec.from_plan(plan), blocks_of(plan, {"cold": 0.7, "warm": 0.7}))
    pooled = [e for e in analysis.effects if e.kind == "pooled" and e.level == "0444"]
    assert pooled
    assert {one.conclusion for one in pooled} == {Conclusion.FASTER}


def test_stored_trials_keep_their_blocks_and_new_ones_begin_with_controls() -> None:
    old, new = Plan(study(), "ab" * 16), Plan(study(), "ab" * 16, controls_first=CONTROLS_FIRST)
    condition = old.conditions[0]
    assert [old.block(condition, index).controls for index in range(4)] == [True, False, True, False]
    assert all(new.block(condition, index).controls for index in range(CONTROLS_FIRST))
    later = range(CONTROLS_FIRST, CONTROLS_FIRST + 8)
    assert [new.block(condition, i) for i in later] == [old.block(condition, i) for i in later]
    assert Plan.stored(study(), "ab" * 16, {}).block(condition, 1) == old.block(condition, 1)
    assert Plan.stored(study(), "ab" * 16, {"controls_first": 24}).block(condition, 1).controls


def test_controls_are_one_line_that_does_not_contradict_itself() -> None:
    every = controls(CONDITIONS[:2])
    blind = [replace(one, low=None, high=None, told_from_zero=False) for one in every]
    assert "too few blocks so far" in controls_line(blind, study())
    assert "passed" not in controls_line(blind, study())
    assert "nothing can be called equivalent" not in controls_line(every, study())
    half = [replace(one, told_from_zero=False) if i == 1 else one for i, one in enumerate(every)]
    assert "in 1 of 2 conditions" in controls_line(half, study())
    assert "passed" not in controls_line(half, study())
    assert controls_line(every, study()).startswith("all 4 passed; ")
    open_copy = [replace(one, low=None, high=None) if i == 2 else one for i, one in enumerate(every)]
    assert "passed" not in controls_line(open_copy, study())
    negative = [one for one in every if one.kind == "negative"]
    assert "passed" not in controls_line(negative, study())


def test_controls_have_not_passed_where_the_slowdown_was_seen_in_some_conditions_only() -> None:
    """Text, page, Markdown and library print the same line. Only controls that showed something count as passed."""
    every = controls(CONDITIONS[:2])
    half = [replace(one, told_from_zero=False) if i == 1 else one for i, one in enumerate(every)]
    made = document(all_equivalent()[:2], control=half)
    line = "none of 4 failed; the injected slowdown of 6 % was seen in 1 of 2 conditions"
    console = Console(file=io.StringIO(), width=400)
    print_report(made, console)
    assert isinstance(console.file, io.StringIO)
    trial = Trial(made.trial, lambda: made, number=1)
    for said in (console.file.getvalue(), html_report(made), markdown_report(made), str(trial)):
        assert line in " ".join(said.replace("\\", "").split())
        assert "all 4 passed" not in said
    assert html_report(made).count(">passed</") == 3
    assert html_report(made).count(">not seen yet</") == 1
    few = [replace(one, low=None, high=None) if i == 0 else one for i, one in enumerate(every)]
    assert html_report(document(all_equivalent()[:2], control=few)).count(">too few blocks</") == 1


def test_a_mean_of_opposites_has_no_gain_is_compared_with_nothing_and_judges_no_claim() -> None:
    span = Span({"cache": "warm"}, 0.389, {"cache": "cold"}, 0.998, 2)
    mean = replace(
        effect(Verdict.FASTER, value=0.623, low=0.55, high=0.7), kind="pooled", agree=False, span=span
    )
    assert gain_of(mean) is None
    assert gain_of(replace(mean, agree=True)) is not None
    cell = Cell(mean, valid=True, gain=gain_of(mean))
    assert not cell.counts
    assert cell_numbers(cell) == "0.389 to 0.998"
    assert cell_verdict(cell) == "differs by condition"
    other = replace(mean, value=1.5, low=1.4, high=1.6, verdict=Verdict.SLOWER, agree=True, span=None)
    (row,) = compare([trial_of("aa", mean), trial_of("bb", other)]).rows
    assert not row.apart
    assert not row.opposite


def test_the_picture_of_a_mean_of_opposites_has_the_span_and_no_mark() -> None:
    """The forest plot marks each estimate; a span has no mark, and its text does not give the mean."""
    span = Span({"cache": "warm"}, 0.389, {"cache": "cold"}, 0.998, 2)
    mean = replace(
        effect(Verdict.FASTER, value=0.623, low=0.55, high=0.7), kind="pooled", agree=False, span=span
    )
    (row,) = [row for row in document([mean]).effects if row.effect.kind == "pooled"]
    drawn = "".join(forests("f", [row], margin=M))
    assert "0.389 to 0.998" in drawn
    assert "0.623" not in drawn
    assert "faster" not in drawn


def test_a_level_that_is_probably_faster_and_puts_data_at_risk_is_not_called_faster() -> None:
    probable = effect(Verdict.FASTER, value=0.98, low=0.96, high=0.99)
    risks = {"mode": {"0444": "a power cut may cost data"}}
    assert risk_note([probable], risks) == ". Caution: the probably faster mode 0444 puts data at risk"
    surely = effect(Verdict.FASTER, value=0.8, low=0.7, high=0.9)
    assert risk_note([probable, surely], risks) == ". Caution: the faster mode 0444 puts data at risk"
