"""Which levels of a trial are chosen to be kept."""

from __future__ import annotations

import math
import re

import pytest
from factorial_trials import conducted
from factorials import factor
from factorials import study as factorial
from report_fixtures import CONDITIONS, document, effect, study

from iotrial.errors import RequestError
from iotrial.knobs.declaration import Safety
from iotrial.report.document import Document
from iotrial.stats.model import Effect, Verdict
from iotrial.store.model import TrialState
from iotrial.study.model import Better, Design, DesignKind, Factor, Level, Role, Scale, Setting
from iotrial.tune.choice import choices, chosen, selected
from values import replace

FASTER = (Verdict.FASTER, 0.80, 0.75, 0.85)
SLOWER = (Verdict.SLOWER, 1.25, 1.2, 1.3)
PROBABLY = (Verdict.FASTER, 0.96, 0.93, 0.99)  # the margin is 3 %
EQUIVALENT = (Verdict.EQUIVALENT, 1.0, 0.99, 1.01)
UNDECIDED = (Verdict.INCONCLUSIVE, 0.9, 0.7, 1.2)


def level(label: str, *settings: tuple[str, str]) -> Level:
    return Level(label, tuple(Setting(knob, value) for knob, value in settings))


FACTOR = Factor(
    "mode",
    Role.TREATMENT,
    (
        level("old", ("block.scheduler", "none"), ("block.nr_requests", "64")),
        level("new", ("block.scheduler", "bfq"), ("block.nr_requests", "256")),
        level("other", ("block.scheduler", "kyber")),
    ),
    "old",
    ("old", "new", "other"),
)


def of(*effects: Effect, factor: Factor = FACTOR, **changes: object) -> Document:
    return document(effects, of=study(treatment=factor), **changes)  # type: ignore[arg-type]


def found(numbers: tuple[Verdict, float, float, float], where: int = 0, **changes: object) -> Effect:
    fields = {"level": "new", "reference": "old", "condition": CONDITIONS[where], **changes}
    return effect(*numbers, **fields)  # type: ignore[arg-type]


def test_each_setting_of_a_better_level_is_a_choice_with_the_evidence() -> None:
    first, second = choices(of(found(FASTER)))
    assert (first.knob, first.value, first.was) == ("block.scheduler", "bfq", "none")
    assert (second.knob, second.value, second.was) == ("block.nr_requests", "256", "64")
    for one in (first, second):
        assert (one.ratio, one.low, one.high) == (0.80, 0.75, 0.85)
        assert (one.factor, one.level, one.reference, one.trial) == ("mode", "new", "old", "t-0001")
        assert one.safety is Safety.TRADE_OFF
        assert one.conditions == (CONDITIONS[0],)
    assert "20 % less time" in first.evidence


@pytest.mark.parametrize("numbers", [SLOWER, PROBABLY, EQUIVALENT, UNDECIDED])
def test_nothing_less_than_a_decided_improvement_is_chosen(
    numbers: tuple[Verdict, float, float, float],
) -> None:
    what = chosen(of(found(numbers)))
    assert what.choices == ()
    assert [one.level for one in what.left_out] == ["new"]


def test_a_probable_improvement_is_chosen_where_it_is_named() -> None:
    what = chosen(of(found(PROBABLY)), named=["block.scheduler"])
    assert [one.conclusion for one in what.choices] == ["probably faster"] * 2
    assert "--only" in str(chosen(of(found(PROBABLY))).left_out[0])


def test_better_in_one_condition_and_worse_in_none_is_chosen_and_says_where_it_is_not_known() -> None:
    first, _ = choices(of(found(FASTER), found(EQUIVALENT, 1), found(UNDECIDED, 2)))
    assert first.conditions == (CONDITIONS[0],)
    assert len(first.elsewhere) == 2
    assert "undecided" in first.elsewhere[1]


@pytest.mark.parametrize("numbers", [SLOWER, (Verdict.SLOWER, 1.04, 1.01, 1.08)])
def test_worse_in_one_condition_is_not_chosen(numbers: tuple[Verdict, float, float, float]) -> None:
    what = chosen(of(found(FASTER), found(numbers, 1)))
    assert what.choices == ()
    assert "slower" in what.left_out[0].reason


def test_of_two_better_levels_the_one_with_the_larger_improvement_is_chosen() -> None:
    more = found((Verdict.FASTER, 0.5, 0.4, 0.6), level="other")
    what = chosen(of(found(FASTER), more))
    assert [one.value for one in what.choices] == ["kyber"]
    assert "less than other" in what.left_out[0].reason


def test_a_rate_is_better_where_it_is_higher() -> None:
    rate = {"unit": "1/s", "better": Better.HIGHER}
    (first, _) = choices(of(found((Verdict.FASTER, 1.5, 1.4, 1.6), **rate)))
    assert "50 % higher rate" in first.effect
    two = of(
        found((Verdict.FASTER, 1.5, 1.4, 1.6), **rate),
        found((Verdict.FASTER, 1.9, 1.8, 2.0), level="other", **rate),
    )
    assert {one.level for one in choices(two)} == {"other"}


def test_a_response_that_nobody_declared_primary_decides_nothing() -> None:
    assert choices(of(found(EQUIVALENT), found(FASTER, response="cpu", primary=False))) == ()


def test_a_difference_is_compared_on_its_own_scale() -> None:
    lower = found((Verdict.BETTER, -5.0, -6.0, -4.0), scale=Scale.DIFFERENCE, unit="bytes")
    assert [one.value for one in choices(of(lower))] == ["bfq", "256"]


def test_an_invalid_or_running_trial_gives_nothing() -> None:
    with pytest.raises(RequestError, match="invalid"):
        chosen(of(found(FASTER), valid=False))
    with pytest.raises(RequestError, match="still running"):
        chosen(of(found(FASTER), state=TrialState.RUNNING))


RISKY = Factor(
    "barrier",
    Role.TREATMENT,
    (level("old", ("mount.option", "default")), level("new", ("mount.option", "nobarrier"))),
    "old",
    ("old", "new"),
)


def test_what_puts_data_at_risk_has_to_be_named() -> None:
    what = chosen(of(found(FASTER, factor="barrier"), factor=RISKY))
    kept = selected(what, ())
    assert kept.choices == ()
    assert "data at risk" in kept.left_out[0].reason
    assert [one.value for one in selected(what, ("mount.option",)).choices] == ["nobarrier"]


def test_what_is_not_judged_has_to_be_named_too() -> None:
    levels = (level("old", ("kernel.version", "6.1")), level("new", ("kernel.version", "6.12")))
    factor = Factor("x", Role.TREATMENT, levels, "old", ("old", "new"))
    assert selected(chosen(of(found(FASTER, factor="x"), factor=factor)), ()).choices == ()


@pytest.mark.parametrize("name", ["block.scheduler", "scheduler", "mode"])
def test_a_name_chooses_its_settings(name: str) -> None:
    kept = selected(chosen(of(found(FASTER))), (name,))
    assert [one.knob for one in kept.choices] == ["block.scheduler", "block.nr_requests"][
        : 2 if name == "mode" else 1
    ]


def test_a_name_that_fits_nothing_is_an_error_with_the_reason() -> None:
    with pytest.raises(RequestError, match=r"--only block\.read_ahead_kb") as caught:
        selected(chosen(of(found(FASTER))), ("block.read_ahead_kb",))
    assert "block.scheduler" in str(caught.value.hint)
    with pytest.raises(RequestError) as caught:
        selected(chosen(of(found(SLOWER))), ("mode",))
    assert "slower" in str(caught.value.hint)


def test_of_a_confirmed_winner_only_what_is_shown_to_contribute_is_applied_unless_it_is_named() -> None:
    """Without the queue size the time is perhaps .9, perhaps 1.5 of the whole; without the scheduler 1.2 to 1.4."""
    levels = (
        level("today", ("block.scheduler", "none"), ("block.nr_requests", "64")),
        level("all together", ("block.scheduler", "bfq"), ("block.nr_requests", "256")),
        level("without block.scheduler", ("block.scheduler", "none"), ("block.nr_requests", "256")),
        level("without block.nr_requests", ("block.scheduler", "bfq"), ("block.nr_requests", "64")),
    )
    mode = Factor("mode", Role.TREATMENT, levels, "today", tuple(one.label for one in levels))
    whole = effect(Verdict.FASTER, 0.5, 0.4, 0.6, level="all together", reference="today")
    lacking = {"reference": "all together"}
    effects = [
        whole,
        effect(Verdict.SLOWER, 1.3, 1.2, 1.4, level="without block.scheduler", **lacking),
        effect(Verdict.INCONCLUSIVE, 1.2, 0.9, 1.5, level="without block.nr_requests", **lacking),
    ]
    of = replace(study(treatment=mode, conditions=()), design=Design(kind=DesignKind.CONFIRM))
    made = document(effects, of=of)
    plain = selected(chosen(made), [])
    assert [(one.knob, one.value) for one in plain.choices] == [("block.scheduler", "bfq")]
    (one,) = plain.choices
    assert (one.low, one.high) == pytest.approx((0.4 * 0.9, 0.6 * 1.5))
    assert "without block.scheduler bfq: +30 %" in one.evidence
    assert any("not among what is recommended" in left.reason for left in plain.left_out)
    for name in ("block.nr_requests", "nr_requests"):
        named = selected(chosen(made, named=[name]), [name])
        assert [(one.knob, one.value, one.low) for one in named.choices] == [
            ("block.nr_requests", "256", 0.4)
        ]


def crossed(times: dict[tuple[str, str], float]) -> dict[str, str]:
    """Return what is applied of a 2 x 2 trial with these times by (age, interval): the evidence by factor."""
    declared = factorial(factor("age"), factor("interval"))
    made = conducted(declared, lambda t: math.log(times[t["age"], t["interval"]]))
    return {one.factor: one.effect for one in choices(made)}


def test_a_setting_is_applied_by_the_cell_that_will_be_in_force() -> None:
    """Age is much faster with interval on, which is slower and so not applied: its evidence is the cell with interval off."""
    found = crossed({("off", "off"): 1.0, ("on", "off"): 0.8, ("off", "on"): 4.0, ("on", "on"): 1.2})
    assert list(found) == ["age"]
    assert re.fullmatch(r"it takes (19|20|21) % less time \[.*\] with interval off", found["age"])


def test_settings_that_are_better_only_together_are_applied_together() -> None:
    found = crossed({("off", "off"): 1.0, ("on", "off"): 1.0, ("off", "on"): 1.0, ("on", "on"): 0.5})
    assert set(found) == {"age", "interval"}
    assert "with interval on" in found["age"]


def test_a_setting_that_is_better_only_where_the_other_is_not_applied_is_left_out() -> None:
    """Age is faster only with interval on, and interval is slower without age: today's settings stay."""
    times = {("off", "off"): 1.0, ("on", "off"): 1.0, ("off", "on"): 3.0, ("on", "on"): 1.5}
    assert crossed(times) == {}


def test_of_two_settings_that_do_the_same_one_is_applied() -> None:
    found = crossed({("off", "off"): 1.0, ("on", "off"): 0.5, ("off", "on"): 0.4, ("on", "on"): 0.4})
    assert list(found) == ["interval"]
    assert "with age off" in found["interval"]
