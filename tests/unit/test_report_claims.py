"""Claims checked against effects, rule by rule."""

from __future__ import annotations

import pytest
from report_fixtures import CONDITIONS, document, effect, study

from iotrial.report.claims import HeldClaim, Outcome, grouped, hold_claims, hold_value, in_brief
from iotrial.report.conditions import Conditions
from iotrial.report.evidence import EvidenceRow
from iotrial.report.interactions import Split
from iotrial.stats.model import Effect, MeanRatio, Verdict
from iotrial.study.model import Claim, Says, Scale
from values import replace

PUBLISHED = Claim("a blog", "mode 444 reads 12 % faster", "mode", "0444", "0777", 0.89)


def held(claim: Claim, *effects: Effect, valid: bool = True) -> HeldClaim:
    (one,) = hold_claims([claim], effects, Conditions(study()), margin=0.03, valid=valid)
    return one


def claimed(ratio: float | None) -> Claim:
    return Claim("", "", "mode", "0444", "0777", ratio)


@pytest.mark.parametrize(
    ("ratio", "found", "outcome"),
    [
        (0.89, effect(Verdict.EQUIVALENT, 1.001, 0.992, 1.010), Outcome.NOT_CONFIRMED),
        (1.0, effect(Verdict.EQUIVALENT, 1.001, 0.992, 1.010), Outcome.CONFIRMED),
        (1.02, effect(Verdict.EQUIVALENT, 0.999, 0.990, 1.008), Outcome.CONFIRMED),
        (0.54, effect(Verdict.FASTER, 0.53, 0.50, 0.56), Outcome.CONFIRMED),
        (0.40, effect(Verdict.FASTER, 0.53, 0.50, 0.56), Outcome.SMALLER),
        (0.89, effect(Verdict.FASTER, 0.53, 0.50, 0.56), Outcome.LARGER),
        (1.20, effect(Verdict.FASTER, 0.53, 0.50, 0.56), Outcome.CONTRADICTED),
        (1.00, effect(Verdict.FASTER, 0.53, 0.50, 0.56), Outcome.CONTRADICTED),
        (1.50, effect(Verdict.SLOWER, 1.9, 1.7, 2.1), Outcome.LARGER),
        (3.00, effect(Verdict.SLOWER, 1.9, 1.7, 2.1), Outcome.SMALLER),
        (0.89, effect(Verdict.INCONCLUSIVE, 0.95, 0.85, 1.05), Outcome.CANNOT_SAY),
        (0.89, effect(Verdict.FASTER, 0.6, None, 0.8), Outcome.CANNOT_SAY),
        (None, effect(Verdict.FASTER, 0.6, 0.5, 0.8), Outcome.CANNOT_SAY),
        (0.89, effect(Verdict.HIGHER, 5.0, 4.0, 6.0, scale=Scale.DIFFERENCE), Outcome.CANNOT_SAY),
    ],
)
def test_a_claim_stands_as_the_rules_say(ratio: float | None, found: Effect, outcome: Outcome) -> None:
    assert held(claimed(ratio), found).outcome is outcome


@pytest.mark.parametrize(
    ("ratio", "interval", "outcome"),
    [
        # ln 1.587 = 0.462, its half 0.231 = ln 1.26, its double 0.924 = ln 2.52
        (1.587, (1.04, 1.75), Outcome.COMPATIBLE),
        (1.587, (1.35, 1.71), Outcome.CONFIRMED),
        (1.587, (1.25, 1.75), Outcome.COMPATIBLE),
        (1.587, (1.27, 1.75), Outcome.CONFIRMED),
        (1.587, (1.27, 2.51), Outcome.CONFIRMED),
        (1.587, (1.27, 2.53), Outcome.COMPATIBLE),
        (1.587, (0.99, 1.75), Outcome.CANNOT_SAY),
        (1.587, (1.01, 1.50), Outcome.NOT_CONFIRMED),
        (1.587, (1.04, 1.50), Outcome.SMALLER),
        (1.587, (0.98, 1.50), Outcome.NOT_CONFIRMED),
        (1.587, (0.90, 0.99), Outcome.NOT_CONFIRMED),
        (1.587, (0.90, 0.96), Outcome.CONTRADICTED),
        (1.587, (1.60, 1.75), Outcome.LARGER),
        (1 / 1.587, (1 / 1.75, 1 / 1.04), Outcome.COMPATIBLE),
        (1 / 1.587, (1 / 1.71, 1 / 1.35), Outcome.CONFIRMED),
        (1.0, (1.001, 1.091), Outcome.CANNOT_SAY),
        (1.0, (1.04, 1.091), Outcome.CONTRADICTED),
        (1.02, (1.001, 1.091), Outcome.COMPATIBLE),
        (1.0, (0.99, 1.091), Outcome.CANNOT_SAY),
    ],
)
def test_a_published_size_is_confirmed_only_where_it_is_told_from_half_of_it_and_its_double(
    ratio: float, interval: tuple[float, float], outcome: Outcome
) -> None:
    low, high = interval
    verdict = Verdict.SLOWER if low > 1 else Verdict.FASTER if high < 1 else Verdict.INCONCLUSIVE
    found = effect(verdict, (low * high) ** 0.5, low, high, reason="budget_spent")
    assert held(claimed(ratio), found).outcome is outcome


@pytest.mark.parametrize(
    ("says", "interval", "outcome"),
    [
        (Says.SLOWER, (1.04, 1.2), Outcome.CONFIRMED),
        (Says.SLOWER, (1.001, 1.091), Outcome.COMPATIBLE),
        (Says.FASTER, (1.001, 1.091), Outcome.NOT_CONFIRMED),
        (Says.FASTER, (1.04, 1.2), Outcome.CONTRADICTED),
        (Says.FASTER, (0.98, 1.2), Outcome.NOT_CONFIRMED),
        (Says.FASTER, (0.96, 1.2), Outcome.CANNOT_SAY),
        (Says.SAME, (1.001, 1.091), Outcome.CANNOT_SAY),
        (Says.SAME, (1.04, 1.2), Outcome.CONTRADICTED),
    ],
)
def test_a_published_direction_needs_the_whole_interval_beyond_the_margin(
    says: Says, interval: tuple[float, float], outcome: Outcome
) -> None:
    low, high = interval
    verdict = Verdict.SLOWER if low > 1 else Verdict.INCONCLUSIVE
    found = effect(verdict, (low * high) ** 0.5, low, high, reason="budget_spent")
    assert held(Claim("", "", "mode", "0444", "0777", says=says), found).outcome is outcome


@pytest.mark.parametrize(
    ("says", "found", "outcome"),
    [
        (Says.FASTER, effect(Verdict.FASTER, 0.53, 0.50, 0.56), Outcome.CONFIRMED),
        (Says.SLOWER, effect(Verdict.FASTER, 0.53, 0.50, 0.56), Outcome.CONTRADICTED),
        (Says.FASTER, effect(Verdict.SLOWER, 1.9, 1.7, 2.1), Outcome.CONTRADICTED),
        (Says.SLOWER, effect(Verdict.SLOWER, 1.9, 1.7, 2.1), Outcome.CONFIRMED),
        (Says.SAME, effect(Verdict.SLOWER, 1.9, 1.7, 2.1), Outcome.CONTRADICTED),
        (Says.SAME, effect(Verdict.EQUIVALENT, 1.001, 0.992, 1.010), Outcome.CONFIRMED),
        (Says.FASTER, effect(Verdict.EQUIVALENT, 1.001, 0.992, 1.010), Outcome.NOT_CONFIRMED),
        (Says.FASTER, effect(Verdict.INCONCLUSIVE, 0.95, 0.85, 1.05), Outcome.CANNOT_SAY),
        (Says.SAME, effect(Verdict.INCONCLUSIVE, 0.95, 0.85, 1.05), Outcome.CANNOT_SAY),
        (Says.HIGHER, effect(Verdict.HIGHER, 5.0, 4.0, 6.0, scale=Scale.DIFFERENCE), Outcome.CONFIRMED),
        (Says.LOWER, effect(Verdict.WORSE, 5.0, 4.0, 6.0, scale=Scale.DIFFERENCE), Outcome.CONTRADICTED),
        (Says.LOWER, effect(Verdict.BETTER, -5.0, -6.0, -4.0, scale=Scale.DIFFERENCE), Outcome.CONFIRMED),
        (Says.HIGHER, effect(Verdict.SLOWER, 1.9, 1.7, 2.1), Outcome.CONFIRMED),
        (Says.FASTER, effect(Verdict.WORSE, 1.9, 1.7, 2.1), Outcome.CANNOT_SAY),
    ],
)
def test_a_claim_of_a_direction_stands_as_the_verdict_does(
    says: Says, found: Effect, outcome: Outcome
) -> None:
    claim = Claim("", "", "mode", "0444", "0777", says=says)
    assert held(claim, found).outcome is outcome
    turned = Claim("", "", "mode", "0777", "0444", says=says)
    flipped = {Outcome.CONFIRMED: Outcome.CONTRADICTED, Outcome.CONTRADICTED: Outcome.CONFIRMED}
    either_way = outcome if says is Says.SAME else flipped.get(outcome, outcome)
    assert held(turned, found).outcome is either_way


def test_the_sentence_sets_published_and_measured_side_by_side() -> None:
    found = effect(Verdict.EQUIVALENT, 1.001, 0.992, 1.010, condition=CONDITIONS[1])
    assert held(PUBLISHED, found).sentence == (
        "“mode 444 reads 12 % faster” (a blog): not confirmed, an effect beyond 3 % is excluded here. "
        "Published: ratio 0.89 (mode 0444 against 0777). Here (cache cold, size 10 KiB): 1.001 [0.992, 1.010]."
    )


def test_a_claim_in_the_other_direction_is_compared_with_the_inverse() -> None:
    turned = Claim("", "", "mode", "0777", "0444", 1.87)
    one = held(turned, effect(Verdict.FASTER, 0.53, 0.50, 0.56))
    assert one.outcome is Outcome.CONFIRMED
    assert one.ratio == pytest.approx(1 / 0.53)
    assert (one.low, one.high) == (pytest.approx(1 / 0.56), pytest.approx(2.0))


def test_a_claim_is_held_against_the_condition_that_it_names() -> None:
    claim = Claim("", "", "mode", "0444", "0777", 0.89, condition={"cache": "warm", "size": "4 KiB"})
    effects = [effect(Verdict.EQUIVALENT, 1.0, 0.99, 1.01, condition=condition) for condition in CONDITIONS]
    one = held(claim, *effects)
    assert one.condition is not None
    assert one.condition.text == "cache warm, size 4 KiB"


def test_a_claim_without_a_condition_is_held_against_every_one() -> None:
    effects = [effect(Verdict.EQUIVALENT, 1.0, 0.99, 1.01, condition=condition) for condition in CONDITIONS]
    found = hold_claims([PUBLISHED], effects, Conditions(study()), margin=0.03)
    assert [one.outcome for one in found] == [Outcome.NOT_CONFIRMED] * 4
    (group,) = grouped(found)
    assert group.sentence == (
        "“mode 444 reads 12 % faster” (a blog): not confirmed in all 4 conditions, an effect beyond 3 % is "
        "excluded here. Published: ratio 0.89 (mode 0444 against 0777)."
    )


def test_a_claim_that_depends_on_the_condition_says_how_often_it_stands() -> None:
    effects = [effect(Verdict.EQUIVALENT, 1.0, 0.99, 1.01, condition=one) for one in CONDITIONS[:3]]
    effects.append(effect(Verdict.FASTER, 0.9, 0.88, 0.92, condition=CONDITIONS[3]))
    (group,) = grouped(hold_claims([PUBLISHED], effects, Conditions(study()), margin=0.03))
    assert group.outcome is None
    assert "compared with 4 conditions: not confirmed in 3, confirmed in 1." in group.sentence


def test_what_was_not_measured_cannot_be_said() -> None:
    claim = Claim("", "", "mode", "0444", "0777", 0.89, condition={"cache": "frozen"})
    one = held(claim, effect(Verdict.FASTER, 0.53, 0.50, 0.56, condition=CONDITIONS[0]))
    assert one.outcome is Outcome.CANNOT_SAY
    assert one.why == "the claim is about cache frozen, which this trial did not run"
    assert (one.ratio, one.low, one.high) == (None, None, None)


def test_an_invalid_trial_confirms_nothing() -> None:
    one = held(claimed(0.54), effect(Verdict.FASTER, 0.53, 0.50, 0.56), valid=False)
    assert (one.outcome, one.why) == (Outcome.CANNOT_SAY, "the trial is invalid")
    effects = [effect(Verdict.FASTER, 0.53, 0.50, 0.56, condition=CONDITIONS[0])]
    made = document(effects, of=study(claims=[claimed(0.54)]), valid=False)
    assert made.claims[0].outcome is Outcome.CANNOT_SAY


@pytest.mark.parametrize(
    ("measured", "valid", "outcome", "why"),
    [
        (12.0, True, Outcome.CONFIRMED, "the same number"),
        (15.0, True, Outcome.LARGER, "3 more"),
        (10.0, True, Outcome.SMALLER, "2 fewer"),
        (12.0, False, Outcome.CANNOT_SAY, "the trial is invalid"),
    ],
)
def test_a_published_count_is_right_or_wrong(
    measured: float, valid: bool, outcome: Outcome, why: str
) -> None:
    claim = replace(claimed(None), response="calls", value=12.0, workload="probe")
    condition = Conditions(study()).of_levels(CONDITIONS[0], "probe")
    row = EvidenceRow("0444", "calls", "1", measured, measured, measured, 5, True, False, condition=condition)
    (one,) = hold_value(claim, [row], valid=valid)
    assert (one.outcome, one.why) == (outcome, why)


@pytest.mark.parametrize(
    ("ratio", "found", "outcome"),
    [
        (0.80, effect(Verdict.FASTER, 0.53, 0.50, 0.56), Outcome.CONFIRMED),  # the direction
        (0.40, effect(Verdict.FASTER, 0.53, 0.50, 0.56), Outcome.CONFIRMED),
        (1.20, effect(Verdict.FASTER, 0.53, 0.50, 0.56), Outcome.CANNOT_SAY),
        (1.00, effect(Verdict.FASTER, 0.53, 0.50, 0.56), Outcome.CANNOT_SAY),
        (0.80, effect(Verdict.EQUIVALENT, 1.001, 0.992, 1.010), Outcome.CANNOT_SAY),
        (1.00, effect(Verdict.EQUIVALENT, 1.001, 0.992, 1.010), Outcome.CONFIRMED),
    ],
)
def test_work_of_another_size_says_a_direction_and_nothing_else(
    ratio: float, found: Effect, outcome: Outcome
) -> None:
    one = held(replace(claimed(ratio), scale="1/128 of the size"), found)
    assert one.outcome is outcome
    assert "the work here is 1/128 of the size" in one.why


def test_nothing_is_contradicted_without_a_plain_word_and_means_that_agree() -> None:
    claim = replace(claimed(None), says=Says.FASTER)
    plain = effect(Verdict.SLOWER, 1.3, 1.1, 1.5)
    assert held(claim, plain).outcome is Outcome.CONTRADICTED
    unseen = held(claim, replace(plain, plain_beyond=0.2))  # the injected slowdown was not seen yet
    assert unseen.outcome is Outcome.CANNOT_SAY
    assert "not plainly" in unseen.why
    other = held(claim, replace(plain, mean_ratio=MeanRatio(0.8, 1.3, 0.01, differs=True)))
    assert other.outcome is Outcome.CANNOT_SAY
    assert "the mean runs differ the other way" in other.why


def test_the_cells_of_an_interaction_are_compared_and_not_their_average() -> None:
    average = effect(Verdict.FASTER, 0.8, 0.75, 0.85)
    cells = tuple(
        (at, replace(effect(verdict, value, low, high), kind="cell"))
        for at, verdict, value, low, high in (
            ("off", Verdict.FASTER, 0.5, 0.45, 0.55),
            ("on", Verdict.SLOWER, 1.3, 1.2, 1.4),
        )
    )
    claim = replace(claimed(None), says=Says.FASTER)
    found = hold_claims(
        [claim], [average], Conditions(study()), margin=0.03, apart=[Split(average, "cache", cells)]
    )
    assert [(one.outcome, one.ratio) for one in found] == [
        (Outcome.CONFIRMED, 0.5),
        (Outcome.CONTRADICTED, 1.3),
    ]
    assert [one.condition.text for one in found if one.condition] == ["cache off", "cache on"]


def test_claims_with_the_same_answer_share_a_text_that_says_their_sources_once() -> None:
    found = effect(Verdict.FASTER, 0.53, 0.50, 0.56)
    claims = [
        Claim("tests of a disk, 2009", "twice as fast", "mode", "0444", "0777", 0.54),
        Claim("tests of a disk, 2010", "almost twice as fast", "mode", "0444", "0777", 0.55),
        Claim("a blog", "half as fast", "mode", "0444", "0777", 2.0),
    ]
    shared, alone = in_brief(grouped(hold_claims(claims, [found], Conditions(study()), margin=0.03)))
    assert shared.startswith("2 published claims: confirmed, the interval contains the published ratio")
    assert shared.endswith(
        "tests of a disk: \u201ctwice as fast\u201d (0.54, 2009) and \u201calmost twice as fast\u201d (0.55, 2010)."
    )
    assert "0.53 [0.50, 0.56]" in shared
    assert alone.startswith("\u201chalf as fast\u201d (a blog): contradicted, ")
