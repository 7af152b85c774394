"""The report of a live trial: its windows, what of it is exact, and whether windows show that the washout was too short."""

from __future__ import annotations

import re
from html import unescape

import numpy as np
import pytest
from factorial_trials import SEED, stored
from test_live_windows import study

from iotrial.cli.verbs.live import proposal
from iotrial.design.plan import Plan
from iotrial.report.document import Document, build_document
from iotrial.report.render import html_report, markdown_report
from iotrial.report.windows import windows_of
from iotrial.stats.analyse import Spec, analyse
from iotrial.stats.model import Conclusion, ObservedBlock
from iotrial.store.model import BlockEnd, RunRecord, TrialData
from iotrial.store.records import observation_of

WASHOUT_S, COUNTED_S = 10.0, 30.0
AT_S = [float(at) for at in range(-8, 31, 2)]


def conducted(
    *,
    blocks: int = 12,
    void: int | None = None,
    drift: float = 0.0,
    guarded: tuple[str, ...] = (),
    ratio: float = 2.0,
) -> Document:
    """Return a live trial with p99 of 10 ms today and ``ratio`` times that at the level.

    ``drift``: by how much (in log) the metric at the level changes within the counted part. ``void``: a void block.
    """
    declared = study()
    plan = Plan(declared, SEED, controls=False)
    spec = Spec.from_plan(plan)
    (condition,) = plan.conditions
    rng = np.random.default_rng(3)
    observed, records, ends, clock = [], [], [], WASHOUT_S
    for index in range(blocks):
        found = []
        for run in plan.block(condition, index).runs:
            level = run.arm.treatment["varied"] == "1024"
            base = (0.010 * ratio if level else 0.010) * float(np.exp(rng.normal(0.0, 0.05)))
            course = [
                base * float(np.exp(level * drift * at / COUNTED_S + rng.normal(0.0, 0.02))) for at in AT_S
            ]
            responses = {"p99": base}
            checks = {
                "clock": {"unix_s": clock, "lasted_s": COUNTED_S},
                "window": {"switched_s": -WASHOUT_S, "at_s": AT_S, "p99": course},
            }
            records.append(
                RunRecord(
                    condition.key, index, run.slot, run.arm.name, run.arm.kind.value, run.arm.treatment, clock, None,
                    responses, checks=checks,
                )
            )  # fmt: skip
            found.append(observation_of(records[-1]))
            clock += WASHOUT_S + COUNTED_S
        rule = "metric_lost" if index == void else None
        observed.append(ObservedBlock(condition.key, index, tuple(found), void=rule))
        ends.append(BlockEnd(condition.key, index, index, False, rule))
    data = TrialData(
        stored(declared, controls=False), tuple(observed), tuple(records), tuple(ends), guarded=guarded
    )
    return build_document(data, analyse(spec, data.blocks))


def test_windows_are_in_order_of_time_with_their_washout() -> None:
    windows = windows_of(conducted(blocks=3, void=1).data)
    assert [window.began_s for window in windows] == [10.0, 50.0, 90.0, 130.0, 170.0, 210.0]
    assert all(window.switched_s == window.began_s - WASHOUT_S for window in windows)
    assert all(window.ended_s == window.began_s + COUNTED_S for window in windows)
    assert [window.void for window in windows] == [False, False, True, True, False, False]


def test_the_page_shows_every_window_and_the_contrast_of_each_block() -> None:
    page = unescape(html_report(conducted()))
    section = page[page.index('id="windows"') :]
    assert "24 windows in 12 blocks" in section
    assert re.search(r"1024: median \d\.\d+ times, above today.s in 12 of 12 blocks", section)
    assert section.count("<svg") >= 2
    for chart in re.findall(r"<svg.*?</svg>", section, flags=re.DOTALL)[:2]:
        assert ">128 (reference)<" in chart, "a key names the settings"
        assert ">1024<" in chart


def test_a_report_says_what_is_exact_and_what_assumes_a_washout() -> None:
    text = markdown_report(conducted())
    assert "The test of “no effect” is exact" in text
    assert "after the washout of 10 s" in text


def test_a_guard_that_has_stopped_the_trial_is_on_the_first_screen() -> None:
    text = markdown_report(
        conducted(guarded=("p99 is 0.2 s, beyond its limit; today's settings are set again",))
    )
    assert "Stopped by the guard" in text
    assert text.index("Stopped by the guard") < text.index("The test of “no effect” is exact")


def test_an_effect_that_builds_up_within_windows_is_found() -> None:
    assert "the washout is too short" in markdown_report(conducted(blocks=24, drift=0.5))
    assert "no carry-over shown" in markdown_report(conducted(blocks=24)).lower()


def test_other_trials_have_no_windows() -> None:
    from factorial_trials import conducted as other
    from factorial_trials import screen_text

    assert 'id="windows"' not in html_report(other(screen_text(2, design='kind = "full"'), lambda _: 0.0))


@pytest.mark.parametrize("tau_s", [0.0, 4.0])
def test_a_pilot_proposes_a_washout_as_long_as_the_metric_needs(tau_s: float) -> None:
    """After each switch the metric goes to its new level with this time constant; the pilot's windows have 40 s."""
    declared = study(more="")
    plan = Plan(declared, SEED, controls=False)
    (condition,) = plan.conditions
    rng = np.random.default_rng(8)
    records, ends, blocks, clock, before = [], [], [], 0.0, 0.0
    at = [0.5 + 2.0 * place for place in range(20)]
    for index in range(16):
        before = 0.0  # today's settings between blocks
        for run in plan.block(condition, index).runs:
            goal = 0.7 if run.arm.treatment["varied"] == "1024" else 0.0
            course = [
                float(
                    np.exp(
                        goal
                        + (before - goal) * (np.exp(-t / tau_s) if tau_s else 0.0)
                        + rng.normal(0.0, 0.01)
                    )
                )
                for t in at
            ]
            checks = {"window": {"switched_s": 0.0, "at_s": at, "p99": course}}
            records.append(
                RunRecord(
                    condition.key, index, run.slot, run.arm.name, run.arm.kind.value, run.arm.treatment, clock, None,
                    {"p99": 1.0}, checks=checks,
                )
            )  # fmt: skip
            before, clock = goal, clock + 40.0
        ends.append(BlockEnd(condition.key, index, index, False))
        blocks.append(ObservedBlock(condition.key, index, ()))
    data = TrialData(stored(declared, controls=False), tuple(blocks), tuple(records), tuple(ends))
    found = proposal(data, counted_s=30.0)
    assert found is not None
    left = 0.0
    if tau_s:
        # what is left of 0.7 after it, averaged over 30 s, is a fifth of the margin of 3 % at most
        left = 0.7 * np.exp(-found.washout_s / tau_s) * tau_s / 30.0
        assert left <= 1.5 * 0.2 * np.log(1.03)
        assert found.washout_s < 8 * tau_s
    else:
        assert found.washout_s <= 4.0
    # noise of 1 % in twenty samples, and sixteen switches: an error of some per mille cannot be excluded
    assert left < found.possible_error < 0.03


@pytest.mark.parametrize(
    ("drift", "conclusion", "reason"),
    [(0.0, Conclusion.EQUIVALENT, None), (0.1, Conclusion.UNDECIDED, "still_changing")],
)
def test_what_changes_within_the_windows_is_not_called_equivalent(
    drift: float, conclusion: Conclusion, reason: str | None
) -> None:
    """The mean over the window is the same as today's; at the end it is 5 % more, beyond the margin of 3 %."""
    document = conducted(blocks=80, ratio=1.0, drift=drift)
    (effect,) = [one for one in document.analysis.effects if one.primary]
    assert (effect.conclusion, effect.reason) == (conclusion, reason)
