"""Equivalence is withheld where no run could feel the setting, and only there: simulated trials."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from factorial_trials import conducted

from iotrial.cli.finish import EXIT_NO_ANSWER, status_of
from iotrial.design.plan import Plan
from iotrial.report.document import Document, build_document
from iotrial.report.live import verdict_line
from iotrial.report.phrases import reason_in_words
from iotrial.report.progress import effect_lines
from iotrial.runner.trial import is_decided
from iotrial.stats.analyse import Spec, analyse
from iotrial.stats.model import Conclusion, Effect
from iotrial.store.model import TrialData
from iotrial.store.not_tried import without_not_tried
from values import replace

EXPIRE = ('knob = "sysctl"\nkey = "vm.dirty_expire_centisecs"', '["100", "12000"]')
COMMIT = ('knob = "mount.option"\noption = "commit"', '["commit=1", "commit=120"]')
LIMIT = ('knob = "sysctl"\nkey = "vm.dirty_ratio"', '["20", "40"]')
SWAPPINESS = ('knob = "sysctl"\nkey = "vm.swappiness"', '["10", "60"]')
HUGE_PAGES = ('knob = "memory.huge_pages"', '["never", "always"]')
PRESSURE = ('knob = "sysctl"\nkey = "vm.vfs_cache_pressure"', '["50", "100"]')
WRITES = {"device_write_bytes": 4096.0, "device_write_bytes_synced": 8192.0, "system_pages_written_back": 1.0}
NOTHING = dict.fromkeys(WRITES, 0.0)


def text(knob: str, levels: str, *, more: str = "") -> str:
    return f"""\
[study]
name = "own/felt"
question = "Does it matter?"

[budget]
time = "90 s"

[[factor]]
name = "setting"
{knob}
levels = {levels}

{more}
[[workload]]
name = "probe"
kind = "command"
argv = ["true"]
"""


@cache
def trial(factor: tuple[str, str], effect: float) -> Document:
    """Return a simulated trial of two levels with the second one's log effect."""
    first = factor[1].split('"')[1]
    return conducted(
        text(*factor), lambda levels: 0.0 if levels["setting"] == first else effect, blocks=60, sd=0.005
    )


def judged(
    factor: tuple[str, str],
    *,
    wall_s: float,
    evidence: Mapping[str, float],
    swap_bytes: int | None = None,
    effect: float = 0.0,
) -> Effect:
    """Return the effect on the wall time where every run took ``wall_s`` seconds and counted this."""
    document = trial(factor, effect)
    data = measured(document.data, wall_s=wall_s, evidence=evidence, swap_bytes=swap_bytes)
    return without_not_tried(data, document.analysis).effects[0]


def measured(
    data: TrialData, *, wall_s: float, evidence: Mapping[str, float], swap_bytes: int | None = None
) -> TrialData:
    """Return the trial as if every run had taken ``wall_s`` seconds and counted this."""
    header = replace(data.trial.header, host={} if swap_bytes is None else {"swap_bytes": swap_bytes})
    runs = tuple(replace(run, responses={"wall": wall_s}, evidence=dict(evidence)) for run in data.runs)
    return replace(data, trial=replace(data.trial, header=header), runs=runs)


def decided(text: str, *, blocks: int, wall_s: float) -> bool:
    """Return whether a trial of two factors or one, without any effect, ends after so many blocks."""
    data = conducted(text, lambda _: 0.0, blocks=blocks, sd=0.05).data
    data = measured(data, wall_s=wall_s, evidence=WRITES)
    plan = Plan(data.trial.header.study, data.trial.header.seed)
    return is_decided(plan, Spec.from_plan(plan), data)


@pytest.mark.parametrize(("factor", "name"), [(EXPIRE, "vm.dirty_expire_centisecs"), (COMMIT, "commit")])
def test_short_runs_have_not_tried_a_period(factor: tuple[str, str], name: str) -> None:
    found = judged(factor, wall_s=0.062, evidence=WRITES)
    assert found.conclusion is Conclusion.NOT_TRIED
    assert reason_in_words(str(found.reason)) == (
        f"not tried: runs of 62 ms are shorter than the 1 s of {name}; "
        f"a run must last at least 2 min to feel both levels"
    )


@pytest.mark.parametrize("factor", [EXPIRE, COMMIT])
def test_runs_longer_than_a_period_that_write_are_equivalent(factor: tuple[str, str]) -> None:
    assert judged(factor, wall_s=1.5, evidence=WRITES).conclusion.equivalent


@pytest.mark.parametrize(
    ("factor", "why"),
    [
        (EXPIRE, "not tried: no run wrote anything"),
        (COMMIT, "not tried: no run wrote anything"),
        (LIMIT, "not tried: no dirty page was written back during a run"),
    ],
)
def test_long_runs_that_write_nothing_have_not_tried_it(factor: tuple[str, str], why: str) -> None:
    found = judged(factor, wall_s=300.0, evidence=NOTHING)
    assert (found.conclusion, found.reason) == (Conclusion.NOT_TRIED, why)


@pytest.mark.parametrize(
    "evidence",
    [
        WRITES,
        {},  # not known
        {**NOTHING, "work_elsewhere_bytes": 4096.0, "work_written_bytes": 4096.0},
    ],
)
def test_a_limit_of_dirty_pages_is_tried_by_runs_that_write_or_may_have(
    evidence: Mapping[str, float],
) -> None:
    assert judged(LIMIT, wall_s=0.062, evidence=evidence).conclusion.equivalent


@pytest.mark.parametrize(("swap_bytes", "tried"), [(0, False), (1 << 30, True), (None, True)])
def test_swappiness_is_not_tried_without_swap(swap_bytes: int | None, tried: bool) -> None:
    found = judged(SWAPPINESS, wall_s=300.0, evidence=WRITES, swap_bytes=swap_bytes)
    assert found.conclusion.equivalent is tried
    assert found.reason == (None if tried else "not tried: this machine has no swap")


class Counted(dict[str, float]):
    """Responses that count how often one is read."""

    reads = 0

    def get(self, *words: Any) -> Any:
        Counted.reads += 1
        return super().get(*words)


def test_runs_are_read_once_however_many_responses_they_have() -> None:
    document = trial(EXPIRE, 0.0)
    runs = tuple(replace(run, responses=Counted({"wall": 1.5})) for run in document.data.runs)
    data: TrialData = replace(document.data, runs=runs)
    (effect,) = document.analysis.effects[:1]
    many = replace(document.analysis, effects=(effect,) * 40)
    for analysis in (document.analysis, many):
        Counted.reads = 0
        found = without_not_tried(data, analysis).effects
        assert {one.conclusion for one in found[:1]} == {effect.conclusion}
        # the time of each run, and at most what it wrote by three counters
        assert 0 < Counted.reads <= 4 * len(runs)


def test_a_direction_that_was_shown_stays() -> None:
    found = judged(EXPIRE, wall_s=0.062, evidence=NOTHING, effect=0.3)
    assert (found.verdict.value, found.reason) == ("slower", None)


def test_a_setting_without_a_need_is_judged_as_before() -> None:
    assert judged(PRESSURE, wall_s=0.062, evidence=NOTHING, swap_bytes=0).conclusion.equivalent


def test_a_trial_ends_early_if_no_run_can_feel_its_only_setting() -> None:
    assert [decided(text(*EXPIRE), blocks=n, wall_s=0.062) for n in (4, 5)] == [False, True]
    assert not decided(text(*EXPIRE), blocks=5, wall_s=1.5)


def test_a_setting_that_cannot_be_tried_does_not_end_the_trial_of_another() -> None:
    other = (
        '[[factor]]\nname = "f01"\nknob = "environment.variable"\nvariable = "F"\nlevels = ["off", "on"]\n'
    )
    assert not decided(text(*EXPIRE, more=other), blocks=5, wall_s=0.062)


def test_the_live_line_says_that_a_setting_was_not_tried() -> None:
    effect = judged(EXPIRE, wall_s=0.062, evidence=WRITES)
    (line,) = effect_lines([effect], trial(EXPIRE, 0.0).data.trial.header.study)
    assert line.word == "not tried"
    assert "setting 12000 / 100 not tried: runs of 62 ms are shorter" in verdict_line(line)


@pytest.mark.parametrize(
    ("evidence", "wall_s", "tried"),
    [
        ({"system_huge_pages_faulted": 0.0}, 1.0, False),
        ({"system_huge_pages_faulted": 3.0}, 1.0, True),
        ({"system_huge_pages_faulted": 0.0}, 60.0, True),  # khugepaged may have collapsed pages
        ({}, 1.0, True),
    ],
)
def test_huge_pages_are_not_tried_by_a_process_that_gets_none(
    evidence: Mapping[str, float], wall_s: float, tried: bool
) -> None:
    found = judged(HUGE_PAGES, wall_s=wall_s, evidence=evidence)
    assert found.conclusion.equivalent is tried
    assert found.reason == (None if tried else "not tried: no run got a huge page")


@pytest.mark.parametrize("factors", [1, 2])
def test_the_answer_is_not_tried_with_how_long_a_run_must_be_and_not_undecided(factors: int) -> None:
    second = '[[factor]]\nname = "other"\nknob = "sysctl"\nkey = "vm.dirty_writeback_centisecs"\nlevels = ["100", "12000"]\n'
    data = conducted(
        text(*EXPIRE, more=second if factors == 2 else ""), lambda _: 0.0, blocks=60, sd=0.005
    ).data
    data = measured(data, wall_s=0.062, evidence=WRITES)
    spec = Spec.from_plan(Plan(data.trial.header.study, data.trial.header.seed))
    made = build_document(data, without_not_tried(data, analyse(spec, data.blocks)))
    said = made.summary.headline
    assert "not tried: runs of 62 ms are shorter" in said
    assert "a run must last at least 2 min" in said
    assert "undecided" not in said.lower()
    assert "remain possible" not in said
    assert status_of(made, ()) == EXIT_NO_ANSWER
