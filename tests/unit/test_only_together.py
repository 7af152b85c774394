"""Two settings that act only together: the summary states the interaction, not the two means averaged over it."""

from __future__ import annotations

import io
import math
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from factorial_trials import conducted
from factorials import SEED, factor, study
from rich.console import Console

import iotrial
import program
from iotrial.cli.finish import EXIT_FAIL_IF, status_of
from iotrial.design.model import Condition
from iotrial.design.plan import Plan
from iotrial.report.analysed import analysed
from iotrial.report.comparing import compare
from iotrial.report.comparison import Agreement, primary
from iotrial.report.document import Document
from iotrial.report.interactions import OnlyTogether, adjust, only_together, together_sentence
from iotrial.report.jsonreport import report_json
from iotrial.report.render import print_report
from iotrial.report.sentences import Tone
from iotrial.stats.analyse import analyse, cell_effects
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.stats.spec import Spec
from values import replace

TWO_BY_TWO = study(factor("age"), factor("interval"))


def found(time: Callable[[Mapping[str, str]], float], count: int = 40) -> tuple[OnlyTogether, ...]:
    """Return what the rule finds in a simulated trial where a treatment takes ``time``."""
    draw = random.Random(5)
    plan = Plan(TWO_BY_TWO, SEED, controls=False)
    condition = plan.conditions[0]
    blocks = blocks_of(plan, condition, lambda t: time(t) * math.exp(draw.gauss(0, 0.01)), count)
    means = adjust(blocks, TWO_BY_TWO.responses[0])
    assert means is not None
    analysis = analyse(Spec.from_plan(plan), blocks)
    return only_together(analysis.effects, TWO_BY_TWO, {(condition.key, "wall"): means})


def blocks_of(
    plan: Plan, condition: Condition, time: Callable[[Mapping[str, str]], float], count: int
) -> list[ObservedBlock]:
    return [
        ObservedBlock(
            condition.key,
            index,
            tuple(
                Observation(
                    run.arm.name,
                    run.arm.kind,
                    run.arm.treatment,
                    run.slot,
                    0.0,
                    {"wall": time(run.arm.treatment)},
                )
                for run in plan.block(condition, index).runs
            ),
        )
        for index in range(count)
    ]


def print_lines(made: Document) -> list[str]:
    out = io.StringIO()
    print_report(made, Console(file=out, width=120))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("age", "interval"), [("on", "on"), ("on", "off"), ("off", "on"), ("off", "off")])
def test_the_one_cell_that_differs_is_named_with_its_size(age: str, interval: str) -> None:
    (one,) = found(lambda t: 2.0 if (t["age"], t["interval"]) == (age, interval) else 1.0)
    assert {one.first, one.second} == {("age", age), ("interval", interval)}
    assert one.value == pytest.approx(2.0, rel=0.02)
    assert one.low is not None
    assert one.high is not None
    assert one.low < 2.0 < one.high
    assert {main.factor for main in one.mains} == {"age", "interval"}
    assert together_sentence(one, "").startswith("only together: ")


def test_two_effects_that_multiply_are_two_effects() -> None:
    assert not found(lambda t: (1.5 if t["age"] == "on" else 1.0) * (1.3 if t["interval"] == "on" else 1.0))


def test_a_setting_that_also_works_alone_is_no_effect_only_together() -> None:
    times = {("off", "off"): 1.0, ("on", "off"): 1.5, ("off", "on"): 1.0, ("on", "on"): 3.0}
    assert not found(lambda t: times[t["age"], t["interval"]])


@pytest.mark.slow
def test_settings_that_act_only_together_are_not_counted_as_equivalent() -> None:
    """In the stored trial age and interval write 1 MiB more together, and are equivalent in the other workload's time."""
    stored = Path(__file__).parents[2] / "docs" / "catalogue" / "filesystem" / "writeback.iotrial"
    done = program.iotrial("report", str(stored))
    said = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert "Only together: interval 0.1 s with age 1 s" in said
    headline, _, details = said.partition(" comparison ")
    assert "equivalent" not in headline
    assert "Equivalent within" not in details


def test_cells_are_the_answer_where_another_setting_changes_the_effect() -> None:
    """SQLite: without waiting for the disk inserts take .78 of the time in one journal mode and .029 in the other."""
    times = {("off", "off"): 1.0, ("on", "off"): 0.8, ("off", "on"): 0.9, ("on", "on"): 0.026}
    made = conducted(TWO_BY_TWO, lambda t: math.log(times[t["age"], t["interval"]]))
    headline = made.summary.headline
    said = r"3[45] times as fast with interval on to 1\.2[3-7] times as fast with interval off"
    assert re.search(said, headline), headline
    assert "6." not in headline  # the average over both, about 6.6 times
    assert made.summary.tone is Tone.MIXED
    lines = print_lines(made)
    assert any(re.search(r"with interval on .* 0\.029 ?", line) for line in lines), lines


def test_each_cell_has_an_interval_which_json_and_the_exit_status_use() -> None:
    """Age on is faster with interval on and slower without; on average over both it is faster."""
    times = {("off", "off"): 1.0, ("on", "off"): 1.25, ("off", "on"): 1.0, ("on", "on"): 0.5}
    made = conducted(TWO_BY_TWO, lambda t: math.log(times[t["age"], t["interval"]]))
    rows = [one for one in report_json(made)["effects"] if one["factor"] == "age"]
    average = next(one for one in rows if one["kind"] == "main" and not one["condition"])
    cells = {one["condition"]["interval"]: one for one in rows if one["kind"] == "cell"}
    assert average["conclusion"] == "varies"
    for at, ratio in (("on", 0.5), ("off", 1.25)):
        assert cells[at]["low"] < ratio < cells[at]["high"]
        assert cells[at]["low"] / ratio > 0.9
    assert (cells["on"]["conclusion"], cells["off"]["conclusion"]) == ("faster", "slower")
    assert status_of(made, ("slower",)) == EXIT_FAIL_IF


def test_cells_of_noise_exclude_no_effect_hardly_ever() -> None:
    """All 4 cells of a 2 x 2 trial share .05: of 60 trials without any effect at most 9 may exclude 1 (P < .001)."""
    plan = Plan(TWO_BY_TWO, SEED, controls=False)
    spec, condition = Spec.from_plan(plan), plan.conditions[0]
    draw, wrong = random.Random(), 0
    for _ in range(60):
        blocks = blocks_of(plan, condition, lambda _: math.exp(draw.gauss(0, 0.1)), 20)
        analysis = analyse(spec, blocks)
        mains = [one for one in analysis.effects if one.kind == "main" and one.primary]
        cells = [
            cell
            for main in mains
            for cell in cell_effects(
                spec, analysis, blocks, main, "interval" if main.factor == "age" else "age", ("off", "on")
            )
        ]
        assert len(cells) == spec.cells == 4
        wrong += any(
            one.low is not None and one.high is not None and not one.low <= 1.0 <= one.high for one in cells
        )
    assert wrong <= 9


def test_an_average_stays_the_answer_where_the_cells_agree() -> None:
    made = conducted(TWO_BY_TWO, lambda t: -1.0 * (t["age"] == "on") + 0.5 * (t["interval"] == "on"))
    assert not any(row.cells for row in made.effects)
    assert "Age on is faster than off: -63 %" in made.summary.headline


def test_library_comparison_and_history_have_the_cells_and_no_verdict_of_the_average() -> None:
    """The same two trials for all three: age on halves the time with interval on, and costs a quarter without."""
    times = {("off", "off"): 1.0, ("on", "off"): 1.25, ("off", "on"): 1.0, ("on", "on"): 0.5}
    made = conducted(TWO_BY_TWO, lambda t: math.log(times[t["age"], t["interval"]]))
    trial = iotrial.Trial(made.trial, lambda: made, number=None)
    of_age = [one for one in trial.effects if one.factor == "age" and one.primary]
    assert {one.conclusion.value for one in of_age if one.kind == "main"} == {"varies"}
    cells = {one.condition["interval"]: one.conclusion.value for one in of_age if one.kind == "cell"}
    assert cells == {"on": "faster", "off": "slower"}
    spec = Spec.from_plan(Plan(TWO_BY_TWO, SEED, controls=True))
    halved = analyse(replace(spec, alpha=spec.alpha / 2), made.data.blocks)
    summaries = [replace(analysed(made, halved, share=2), id=name) for name in ("a", "b")]
    comparison = compare(summaries)
    assert {row.like.kind for row in primary(comparison)} == {"cell"}
    assert {row.shared_words for row in primary(comparison) if row.like.factor == "age"} == {
        "faster",
        "slower",
    }
    for row in (row for row in comparison.rows if row.like.kind == "main"):
        assert row.agreement is Agreement.OPEN
    first = summaries[0].effects[0]  # what the history of the study shows at first
    assert (first.kind, first.condition) == ("cell", {"interval": "off"})
    wide = next(one for one in made.effects if one.effect.factor == "age" and one.cells).cells[0].effect
    assert first.low is not None
    assert wide.low is not None
    assert first.low <= wide.low  # at half of alpha
