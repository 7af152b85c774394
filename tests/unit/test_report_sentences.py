"""The headline of a report, for every way in which a trial can end."""

from __future__ import annotations

import pytest
from report_fixtures import CONDITIONS, all_equivalent, controls, document, effect, factor, measured, study

from iotrial.report.document import build_document
from iotrial.report.sentences import Tone
from iotrial.report.trial_blocks import _effects_lede
from iotrial.stats.model import Control, Effect, Means, Verdict, VoidCount
from iotrial.stats.voids import VOID_RULES, Void
from iotrial.store.model import TrialData, TrialState
from iotrial.study.model import Better, Response, Role, Scale, Workload
from iotrial.study.work import Work
from iotrial.workloads.fio import FioWork, Pick
from iotrial.workloads.random import RandomWork
from values import replace

ONE = CONDITIONS[0]


def headline(effects: list[Effect], **how: object) -> str:
    """Return the headline without the place of a single effect, which the next test is about."""
    return document(effects, **how).summary.headline.replace(" (cache cold, size 4 KiB)", "")  # type: ignore[arg-type]


def test_a_single_effect_of_several_conditions_says_where() -> None:
    (found,) = (effect(Verdict.FASTER, 0.53, 0.50, 0.56, condition=ONE),)
    assert document([found]).summary.headline == (
        "Mode 0444 is faster than 0777: it takes 47 % less time [-50, -44] (cache cold, size 4 KiB)."
    )


def test_all_equivalent_says_within_what() -> None:
    assert headline(all_equivalent()) == ("Mode 0444 is as fast as 0777 in all 4 conditions, within 3 %.")


def test_one_equivalent_comparison_gives_its_interval() -> None:
    assert headline([effect(Verdict.EQUIVALENT, 1.001, 0.992, 1.010, condition=ONE)]) == (
        "Mode 0444 is as fast as 0777: +0.1 % [-0.8, +1.0], within 3 %."
    )


def test_an_equivalent_but_detectable_difference_is_named() -> None:
    found = effect(Verdict.EQUIVALENT, 1.012, 1.004, 1.020, condition=ONE, detectably="slower")
    assert headline([found]) == (
        "Mode 0444 is as fast as 0777, though detectably slower: +1.2 % [+0.4, +2.0], within 3 %."
    )


def test_faster_says_how_much_less_time_in_percent() -> None:
    assert headline([effect(Verdict.FASTER, 0.53, 0.50, 0.56, condition=ONE)]) == (
        "Mode 0444 is faster than 0777: it takes 47 % less time [-50, -44]."
    )


def test_slower_says_how_much_more_time_in_percent_up_to_twice_as_much() -> None:
    assert headline([effect(Verdict.SLOWER, 1.8, 1.6, 2.0, condition=ONE)]) == (
        "Mode 0444 is slower than 0777: it takes 80 % more time [+60, +100]."
    )
    assert headline([effect(Verdict.SLOWER, 1.9, 1.7, 2.1, condition=ONE)]) == (
        "Mode 0444 is slower than 0777: it takes 1.9 times as long [1.7, 2.1]."
    )


def test_a_small_fraction_is_said_as_a_ratio() -> None:
    assert headline([effect(Verdict.FASTER, 0.08, 0.05, 0.16, condition=ONE)]) == (
        "Mode 0444 is faster than 0777: it is 12 times as fast [6, 20]."
    )


def test_a_rate_is_reached_and_not_taken() -> None:
    found = effect(
        Verdict.FASTER, 1.25, 1.20, 1.30, condition=ONE, response="rate", unit="bytes/s", better=Better.HIGHER
    )
    assert headline([found]) == ("Mode 0444 is faster than 0777: it reaches a 25 % higher rate [+20, +30].")


def test_other_responses_are_not_called_fast() -> None:
    found = effect(
        Verdict.HIGHER, 12.0, 10.0, 14.0, condition=ONE, response="read_ios", unit="1",
        scale=Scale.DIFFERENCE, better=Better.NONE,
    )  # fmt: skip
    assert headline([found]) == ("Read ios is higher under mode 0444 than under 0777: by +12.0 [10.0, 14.0].")


def test_no_margin_is_named_for_values_that_are_subtracted() -> None:
    counted = effect(
        Verdict.HIGHER, 12.0, 10.0, 14.0, condition=ONE, response="read_ios", unit="1",
        scale=Scale.DIFFERENCE, better=Better.NONE,
    )  # fmt: skip
    timed = effect(Verdict.FASTER, 0.5, 0.4, 0.6, condition=ONE)
    margin = "the margin is 3 %"
    every = "for differences there is no margin: every difference counts"
    for effects, told in (([counted], every), ([timed], margin), ([timed, counted], f"{margin}; {every}")):
        (measured_in,) = (
            line for line in document(effects).summary.details if line.startswith("Measured in")
        )
        assert measured_in.endswith(f"; {told}.")


def test_a_ratio_of_amounts_is_no_time() -> None:
    found = effect(
        Verdict.WORSE, 1.5, 1.4, 1.6, condition=ONE, response="faults_minor", unit="1", level="0" * 99
    )
    level = "0" * 24 + "…" + "0" * 23
    assert headline([found]) == (
        f"Faults minor is worse under mode {level} than under 0777: 50 % more [+40, +60]."
    )


def test_one_effect_in_all_conditions_gives_its_span() -> None:
    effects = [
        effect(Verdict.FASTER, value, value - 0.03, value + 0.03, condition=condition)
        for value, condition in zip((0.5, 0.6, 0.7, 0.8), CONDITIONS, strict=True)
    ]
    assert headline(effects) == ("Mode 0444 is faster than 0777 in all 4 conditions: time -50 % to -20 %.")


def test_a_mixture_counts_and_names_the_largest_effect() -> None:
    effects = [
        effect(Verdict.FASTER, 0.53, 0.50, 0.56, condition=CONDITIONS[0]),
        effect(Verdict.EQUIVALENT, 1.001, 0.992, 1.010, condition=CONDITIONS[1]),
        effect(Verdict.EQUIVALENT, 1.001, 0.992, 1.010, condition=CONDITIONS[2]),
        effect(Verdict.FASTER, 0.89, 0.85, 0.93, condition=CONDITIONS[3]),
    ]
    assert headline(effects) == ("Mode 0444 vs 0777: 2 of 4 comparisons differ; most: 47 % less time.")


OF_MEANS, OPEN_MEANS = Means(2.0, 1.0, 0.99, 1.01, equivalent=True), Means(2.0, 1.0, 0.9, 1.1)


def test_typical_runs_equivalent_and_equivalent_are_one_statement() -> None:
    found = [
        effect(Verdict.EQUIVALENT, 1.0, 0.99, 1.02, condition=CONDITIONS[0], means=OF_MEANS),
        effect(Verdict.EQUIVALENT, 1.0, 0.985, 1.01, condition=CONDITIONS[1], means=OPEN_MEANS),
    ]
    assert headline(found) == ("Mode 0444 is as fast as 0777 in typical runs in both conditions, within 3 %.")
    mixed = [effect(Verdict.FASTER, 0.53, 0.50, 0.56, condition=CONDITIONS[2]), *found]
    assert headline(mixed).startswith("Mode 0444 vs 0777: 1 of 3 comparisons differs; most: 47 % less time")


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((20.0, 1.3, 59.0), "slower than 0777; by how much is not known yet: 1.3 to 59 times as long."),
        ((33.0, 8.0, 140.0), "slower than 0777: it takes 33 times as long [8, 140]."),
        ((1.2, 1.05, 1.4), "slower than 0777: it takes 20 % more time [+5.0, +40]."),
        ((20.0, 1.3, None), "slower than 0777; by how much is not known yet: at least 1.3 times as long."),
    ],
)
def test_a_direction_without_a_size_says_so(numbers: tuple[float, float, float | None], said: str) -> None:
    assert headline([effect(Verdict.SLOWER, *numbers, condition=ONE)]) == f"Mode 0444 is {said}"


def test_several_levels_that_agree_are_said_together() -> None:
    levels = ("0666", "0555", "0444")
    of = study(
        question="Which mode is fastest?", treatment=factor("mode", ["0777", *levels], role=Role.TREATMENT)
    )
    effects = [effect(Verdict.EQUIVALENT, 1.0, 0.99, 1.02, condition=ONE, level=level) for level in levels]
    assert headline(effects, of=of) == ("Mode 0666, 0555 and 0444 are as fast as 0777, within 3 %.")


def test_many_levels_that_disagree_are_counted_and_listed_below() -> None:
    levels = ["0666", "0555", "0444", "0400"]
    of = study(treatment=factor("mode", ["0777", *levels], role=Role.TREATMENT), question="Which mode?")
    effects = [
        effect(Verdict.EQUIVALENT, 1.0, 0.99, 1.02, condition=ONE, level=level) for level in levels[:2]
    ]
    effects.append(effect(Verdict.SLOWER, 1.9, 1.7, 2.1, condition=ONE, level="0444"))
    effects.append(effect(Verdict.FASTER, 0.9, 0.88, 0.92, condition=ONE, level="0400"))
    made = document(effects, of=of).summary
    assert made.headline == (
        "2 of 4 comparisons differ; most: mode 0444 takes 1.9 times as long as 0777 (cache cold, size 4 KiB)."
    )
    assert made.details[3] == (
        "Mode 0400 is faster than 0777: it takes 10 % less time [-12, -8.0] (cache cold, size 4 KiB)."
    )
    assert made.tone is Tone.MIXED


def test_levels_that_are_equivalent_in_all_conditions_share_a_sentence() -> None:
    levels = ["0666", "0555", "0400"]
    of = study(treatment=factor("mode", ["0777", *levels], role=Role.TREATMENT), question="Which mode?")
    effects = [
        effect(Verdict.EQUIVALENT, 1.0, 0.99, 1.02, condition=condition, level=level)
        for level in levels[:2]
        for condition in CONDITIONS[:2]
    ]
    effects += [
        effect(Verdict.FASTER, 0.9, 0.88, 0.92, condition=condition, level="0400")
        for condition in CONDITIONS[:2]
    ]
    details = document(effects, of=of).summary.details
    assert details[0].startswith("Mode 0666 and 0555 are as fast as 0777 in ")
    assert details[0].endswith("within 3 %.")
    assert details[1].startswith("Mode 0400 is faster than 0777")


def test_inconclusive_says_what_is_excluded_all_the_same() -> None:
    found = effect(Verdict.INCONCLUSIVE, 1.02, 0.93, 1.08, condition=ONE, reason="budget_spent")
    assert headline([found]).startswith(
        "Mode 0444 vs 0777: undecided. Effects from -7.0 % to +8.0 % remain possible."
    )


def test_an_undecided_headline_says_how_long_a_verdict_takes_and_how_to_go_on() -> None:
    """Half the width takes four times the blocks: for an interval twice as wide as the margin, hours and not seconds."""
    found = effect(
        Verdict.INCONCLUSIVE, 1.0, 0.93, 1.08, condition=ONE, reason="budget_spent", decided=False, blocks=40
    )
    said = headline([found])
    assert "A verdict needs about " in said
    assert "`iotrial continue 12 --time " in said
    assert len(said.split()) < 50


def unbounded(**more: object) -> Effect:
    """Return an effect after 5 blocks. At an alpha of .0125 the first interval needs 8 with copies of the reference."""
    changes = {"condition": ONE, "reason": "budget_spent", "decided": False, "blocks": 5, **more}
    return effect(Verdict.INCONCLUSIVE, 1.02, None, None, **changes)  # type: ignore[arg-type]


def test_too_few_blocks_for_an_interval_say_how_many_it_needs_and_how_long_they_take() -> None:
    """151 s for 5 blocks, so 91 s for 3 more."""
    assert headline([unbounded()]).endswith(
        ". The first interval needs 8 blocks in all, about 91 s more: `iotrial continue 12 --time 2m`."
    )


def test_of_several_comparisons_it_says_which_need_a_first_interval() -> None:
    """Of 365 blocks in 151 s each took .41 s, of 45 blocks 3.4 s. Two conditions that go on take turns."""
    assert headline([unbounded(), *all_equivalent()[1:]]).endswith(
        ". The first interval of the rest needs 8 blocks in all, about 1 s more: `iotrial continue 12 --time 1s`."
    )
    bounded = effect(
        Verdict.INCONCLUSIVE, 1.0, 0.93, 1.08, condition=CONDITIONS[1], reason="budget_spent", decided=False,
        blocks=40,
    )  # fmt: skip
    assert headline([unbounded(), bounded]).endswith(
        ". The first interval of 1 of 2 undecided comparisons needs 8 blocks in all, about 20 s more: "
        "`iotrial continue 12 --time 20s`."
    )


def test_what_is_not_known_of_a_first_interval_is_not_said() -> None:
    assert headline([unbounded(statistic="mean")]).endswith(". How long a verdict takes is not known yet.")


def test_more_blocks_decide_no_difference_of_zero() -> None:
    found = effect(
        Verdict.INCONCLUSIVE,
        2.0,
        -10.0,
        50.0,
        scale=Scale.DIFFERENCE,
        unit="ms",
        condition=ONE,
        reason="budget_spent",
    )
    for effects in ([found], [found, *all_equivalent()[1:]]):
        assert headline(effects).endswith(". More blocks decide only nonzero differences.")


def test_what_is_excluded_in_every_comparison_lies_outside_all_intervals() -> None:
    """The widest interval reaches lower than all others, another one higher."""
    found = [
        effect(Verdict.INCONCLUSIVE, 1.02, 0.915, 1.086, condition=ONE, reason="budget_spent"),
        effect(Verdict.INCONCLUSIVE, 1.05, 0.966, 1.144, condition=CONDITIONS[1], reason="budget_spent"),
    ]
    for effects in (found, found[::-1]):
        assert "Effects from -8.5 % to +14.4 % remain possible." in headline(effects)


def test_ratios_and_differences_are_excluded_each_on_its_own_scale() -> None:
    lies = {"scale": Scale.DIFFERENCE, "unit": "ms", "condition": CONDITIONS[1], "reason": "budget_spent"}
    found = [
        effect(Verdict.INCONCLUSIVE, 1.02, 0.93, 1.08, condition=ONE, reason="budget_spent"),
        effect(Verdict.INCONCLUSIVE, 2.0, -40.0, 30.0, **lies),
        effect(Verdict.INCONCLUSIVE, 2.0, -10.0, 50.0, **lies),
    ]
    assert (
        "Effects from -7.0 % to +8.0 % remain possible. Effects from -40 ms to +50 ms remain possible."
        in headline(found)
    )


@pytest.mark.parametrize(
    ("reason", "needed"),
    [
        ("failures", "A verdict needs a trial in which no run fails."),
        ("unusable_values", "A verdict needs a response that is never zero, or is compared by difference."),
    ],
)
def test_what_would_decide_an_effect_that_more_blocks_cannot(reason: str, needed: str) -> None:
    assert headline([effect(Verdict.INCONCLUSIVE, None, None, None, condition=ONE, reason=reason)]).endswith(
        f" {needed}"
    )


def test_an_effect_that_moved_says_so() -> None:
    found = effect(Verdict.INCONCLUSIVE, None, None, None, condition=ONE, reason="effect_not_constant")
    assert headline([found]) == (
        "Mode 0444 vs 0777: undecided (the effect changed while the trial ran, or many runs in a row stalled: no one number "
        "fits). No bound yet after 120 blocks."
    )


def test_an_invalid_trial_gives_no_verdict_but_likely_reasons() -> None:
    failed = Control("negative", {**ONE, "workload": "probe"}, "wall", 1.0, 1.05, 1.02, 1.08, False, True, 60)
    made = document(all_equivalent(), valid=False, control=[failed]).summary
    assert made.headline == (
        "No verdict, the trial is invalid: an identical copy of the reference differs from the original (cache cold, size "
        "4 KiB: 1.050 [1.020, 1.080])."
    )
    assert made.tone is Tone.INVALID
    assert made.details[0].startswith("No recorded cause explains this. Run the study again with a new seed")
    assert "as fast as" not in " ".join((made.headline, *made.details))


def test_a_missed_slow_down_is_the_other_way_to_be_invalid() -> None:
    failed = Control(
        "positive", {**ONE, "workload": "probe"}, "wall", 1.06, 1.01, 0.99, 1.03, False, False, 60
    )
    assert headline(all_equivalent(), valid=False, control=[failed]) == (
        "No verdict, the trial is invalid: the injected slowdown (ratio 1.060) was not measured correctly "
        "(cache cold, size 4 KiB: 1.010 [0.990, 1.030])."
    )


def test_a_trial_without_controls_says_so_in_the_verdict() -> None:
    made = document(all_equivalent()[:1], control=[], options={"controls": False}).summary
    assert made.headline == (
        "Mode 0444 is as fast as 0777 (cache cold, size 4 KiB): +0.1 % [-0.8, +1.0], within 3 % (without controls)."
    )
    assert made.details[1].startswith("The trial ran without controls: ")


def test_an_interrupted_trial_speaks_of_so_far_and_gives_no_answer() -> None:
    made = document(all_equivalent()[:1], state=TrialState.INTERRUPTED, reason="SIGINT").summary
    assert made.headline == (
        "Interrupted: so far, mode 0444 is as fast as 0777 (cache cold, size 4 KiB): +0.1 % [-0.8, +1.0], within 3 %."
    )
    assert "The trial was interrupted (SIGINT); iotrial resume 12 completes it." in made.details


def test_a_trial_without_a_complete_block_has_no_verdict() -> None:
    nothing = effect(Verdict.INCONCLUSIVE, None, None, None, condition=ONE, blocks=0, reason="no_blocks")
    assert headline([nothing]) == "No verdict: no block was complete."
    assert headline([nothing], state=TrialState.FAILED, reason="mkfs failed") == (
        "No verdict, the trial failed before a block was complete: mkfs failed."
    )
    assert headline([], state=TrialState.INTERRUPTED) == (
        "No verdict yet: the trial stopped before a block was complete."
    )


def test_failures_and_voids_are_told_beside_the_verdict() -> None:
    found = effect(Verdict.INCONCLUSIVE, 1.0, 0.9, 1.1, condition=ONE, failures=3, reason="failures")
    details = document([found], void=[VoidCount("cache_not_cold", "0444", 2)]).summary.details
    assert (
        "Runs failed: mode 0444 against 0777 (3). A comparison with failures is at best undecided." in details
    )
    assert "2 blocks were void and left out, whatever the result." in details
    assert "Void: cache_not_cold." in details  # of an older iotrial


@pytest.mark.parametrize("rule", list(Void))
def test_each_rule_for_void_blocks_says_what_happened_and_what_to_change(rule: Void) -> None:
    details = document(
        [effect(Verdict.FASTER, 0.8, 0.7, 0.9)], void=[VoidCount(rule.value, "0444", 2)]
    ).summary.details
    told = " ".join(details)
    words = VOID_RULES[rule]
    for clause in (words.what, words.change[1:]):
        assert len(clause) > 10
        assert clause in told
    assert rule.value not in told


def test_a_slow_down_that_is_not_visible_yet_is_told() -> None:
    unseen = Control("positive", {**ONE, "workload": "probe"}, "wall", 1.06, 1.04, 0.9, 1.2, True, False, 6)
    details = document(all_equivalent(), control=[unseen]).summary.details
    assert (
        "Controls: none failed; the injected slowdown of 6 % has not been seen yet, so nothing can be called equivalent, "
        "nor plainly faster or slower by less." in details
    )


def test_exploratory_effects_do_not_speak_in_the_headline() -> None:
    other = replace(effect(Verdict.SLOWER, 1.9, 1.7, 2.1, condition=ONE), primary=False, response="cpu")
    assert headline([*all_equivalent()[:1], other]).startswith("Mode 0444 is as fast as 0777: +0.1 %")


def test_a_reader_of_open_arrivals_is_told_from_where_latency_counts() -> None:
    def details(work: RandomWork, *more: Workload) -> str:
        of = replace(study(), workloads=(Workload("probe", "random", work), *more))
        return " ".join(document(all_equivalent(), of=of).summary.details)

    told = (
        "Open arrivals, 2,500 per second: latency counts from the intended start of each operation, "
        "which stalls do not move"
    )
    assert f"{told}." in details(RandomWork(rate=2500.0))
    other = Workload("other", "random", RandomWork())
    assert f"{told} (workload probe)." in details(RandomWork(rate=2500.0), other)
    assert "Open arrivals" not in details(RandomWork(), other)
    both = details(RandomWork(rate=2500.0), Workload("second", "random", RandomWork(rate=2500.0)))
    assert both.count("Open arrivals") == 1
    assert f"{told} (workloads probe and second)." in both


def test_a_machine_that_does_not_keep_up_with_open_arrivals_is_told_of() -> None:
    def details(reached: float) -> str:
        work = RandomWork(rate=2000.0)
        of = replace(study(), workloads=(Workload("probe", "random", work),))
        blocks, runs, ends = measured(of, conditions=CONDITIONS[:1], blocks=6)
        rates = {"0777": 1999.0, "0444": reached}
        runs = tuple(replace(run, responses={"rate": rates.get(run.arm, 1.0)}) for run in runs)
        made = document(all_equivalent()[:1], of=of)
        return " ".join(
            build_document(TrialData(made.trial, blocks, runs, ends), made.analysis).summary.details
        )

    assert (
        "The machine did not keep up with the requested rate in 1 of 2 cases: under 0444 (cache cold, size 4 KiB) "
        "the rate was" in details(1500.0)
    )
    assert "keep up" not in details(1990.0)


def test_a_ratio_below_one_is_less_time_or_a_lower_rate() -> None:
    rate = {"response": "rate", "unit": "B/s", "better": Better.HIGHER}
    slower = [replace(found, **rate) for found in all_equivalent()]
    assert "the response at the reference: below 1 is less time. Intervals" in _effects_lede(
        document(all_equivalent())
    )
    assert "the response at the reference: below 1 is a lower rate. Intervals" in _effects_lede(
        document(slower)
    )
    assert "below 1 is less time or a lower rate." in _effects_lede(
        document([all_equivalent()[0], slower[1]])
    )


def test_failed_runs_are_two_words_of_the_headline() -> None:
    """A note says which runs failed, and what follows from it."""
    failed = effect(Verdict.INCONCLUSIVE, 0.5, 0.4, 0.6, failures=3, reason="failures")
    made = document([failed])
    assert "undecided (runs failed)" in made.summary.headline
    assert any("A comparison with failures is at best undecided" in note.text for note in made.summary.notes)


def test_a_percentile_that_is_compared_is_named_and_a_whole_time_is_not() -> None:
    of = study()
    tail = replace(of.responses[0], name="read_p99", stretchable=False)
    of = replace(of, responses=(tail, *of.responses[1:]))
    effects = [replace(found, response="read_p99") for found in all_equivalent()]
    assert "The response compared is read p99." in document(effects, of=of).summary.details
    whole = document(all_equivalent()).summary.details
    assert not any(text.startswith("The response compared") for text in whole)


def test_what_no_slow_down_can_be_put_into_is_called_by_the_kind_of_its_work() -> None:
    def on_control(kind: str, work: Work, name: str) -> str:
        of = study()
        told = Response("probe", name, "s", Scale.LOG, Better.LOWER, primary=True, stretchable=False)
        wall = replace(of.responses[0], primary=False)
        of = replace(of, workloads=(Workload("probe", kind, work),), responses=(told, wall))
        positive = [c for c in controls() if c.kind == "positive"][:1]
        (sentence,) = (
            text
            for text in document(all_equivalent(), of=of, control=positive).summary.details
            if "no slowdown can be injected into" in text
        )
        return sentence

    assert "into percentiles of single operations (read_p99)" in on_control(
        "random", RandomWork(), "read_p99"
    )
    pick = Pick(
        path="jobs.j.read.lat_ns.mean",
        name="lat",
        unit="s",
        factor=1e-9,
        scale=Scale.LOG,
        better=Better.LOWER,
    )
    job = FioWork(job="[j]", picks=(pick,))
    assert "into what the program reports (lat)" in on_control("fio", job, "lat")


def test_effects_in_times_are_given_from_the_smallest_to_the_largest() -> None:
    found = [
        effect(Verdict.FASTER, 1 / 12, 1 / 20, 1 / 8, condition=CONDITIONS[0]),
        effect(Verdict.FASTER, 1 / 1.5, 1 / 1.8, 1 / 1.3, condition=CONDITIONS[1]),
    ]
    assert headline(found).endswith("in both conditions: 1.5 to 12 times as fast.")


def test_what_is_true_of_several_works_is_said_once() -> None:
    of = study()
    names = ("read", "write")
    tails = tuple(
        Response(name, "read_p99", "s", Scale.LOG, Better.LOWER, primary=True, stretchable=False)
        for name in names
    )
    works = tuple(Workload(name, "random", RandomWork()) for name in names)
    of = replace(of, workloads=works, responses=tails)
    (first, *_) = [c for c in controls() if c.kind == "positive"]
    positive = [replace(first, condition={**first.condition, "workload": name}) for name in names]
    said = " ".join(document(all_equivalent(), of=of, control=positive).summary.details)
    assert said.count("no slowdown can be injected into") == 1
    assert "The positive control of workloads read and write is of wall" in said
