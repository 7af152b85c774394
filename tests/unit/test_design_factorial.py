"""Designs with many factors: balance, aliasing, controls as columns, whole plots."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import Counter

import numpy as np
import pydoe
import pytest
from factorials import SEED, factor, many, stored_definitive, study

from iotrial.design import constructions
from iotrial.design.interactions import alias_table
from iotrial.design.model import ArmKind, TermKind
from iotrial.design.plan import Plan
from iotrial.errors import RequestError
from iotrial.study.model import Design, DesignKind, Role
from values import replace

SCREENS = [
    Design(DesignKind.PLACKETT_BURMAN),
    Design(DesignKind.PLACKETT_BURMAN, fold_over=True),
    Design(DesignKind.FRACTIONAL, resolution=3),
    Design(DesignKind.FRACTIONAL, resolution=4),
]

# Digests of the rows as of the first stored trials. That the rows are right is shown by the other tests.
VECTORS = {
    "fractional 3 False": "52d7f4009847df42",
    "fractional 4 False": "00ce1fb3291d2480",
    "plackett-burman 4 False": "4980fa63ac9fcc88",
    "plackett-burman 4 True": "90f08559dc8cc091",
}


def signs(plan: Plan, name: str) -> np.ndarray:
    return np.array([1.0 if arm.treatment[name] == "on" else -1.0 for arm in plan.treatments])


@pytest.mark.parametrize("design", SCREENS, ids=lambda d: f"{d.kind.value}-{d.resolution}-{d.fold_over}")
@pytest.mark.parametrize("count", [2, 7, 24, 48])
def test_every_factor_is_at_each_level_in_half_of_the_rows(design: Design, count: int) -> None:
    plan = Plan(many(count, design), SEED)
    rows = len(plan.treatments)
    for name in plan.treatments[0].treatment:
        assert signs(plan, name).sum() == 0, f"{name} in {rows} rows"
    assert len({arm.name for arm in plan.treatments}) == rows


@pytest.mark.parametrize("design", SCREENS, ids=lambda d: f"{d.kind.value}-{d.resolution}-{d.fold_over}")
def test_no_main_effect_of_48_factors_or_of_a_control_is_mixed_with_another(design: Design) -> None:
    plan = Plan(many(48, design), SEED)
    names = list(plan.treatments[0].treatment)
    stretched = np.array([1.0 if arm.stretched else -1.0 for arm in plan.treatments])
    columns = np.array([*(signs(plan, name) for name in names), stretched])
    gram = columns @ columns.T
    assert np.array_equal(gram, len(plan.treatments) * np.eye(49))


def test_effects_are_unbiased_by_each_other_also_where_columns_are_not_orthogonal() -> None:
    plan = stored_definitive(many(24, Design()))
    names = list(plan.treatments[0].treatment)
    for term, weights in [*((t.factor, t.weights) for t in plan.terms), *plan.control_weights.items()]:
        response = {
            name: sum(weights.get(a.name, 0) * (a.treatment[name] == "on") for a in plan.treatments)
            for name in names
        }
        for name in names:
            assert response[name] == pytest.approx(1.0 if name == term else 0.0, abs=1e-9), (term, name)


def test_the_weights_of_every_contrast_are_symmetric_so_that_a_drawn_order_makes_its_sign_a_fair_coin() -> (
    None
):
    rest = [factor(f"c{i}") for i in range(7)]
    three = study(factor("a", "low mid high"), factor("b", "low mid high"), *rest)
    two = study(factor("a"), factor("b"), *rest)
    for plan in [stored_definitive(three, 2), *(Plan(replace(two, design=one), SEED) for one in SCREENS)]:
        for term in plan.terms:
            weights = sorted(term.weights.get(arm.name, 0.0) for arm in plan.treatments)
            assert weights == pytest.approx([-weight for weight in reversed(weights)], abs=1e-12), term.factor


def test_resolution_four_and_a_fold_over_keep_main_effects_clear_of_interactions() -> None:
    for design, clear in ((SCREENS[0], False), (SCREENS[1], True), (SCREENS[2], False), (SCREENS[3], True)):
        plan = Plan(many(12, design), SEED)
        mains = [term for term in plan.terms if term.kind is TermKind.MAIN]
        mixed = [name for name, others in alias_table(plan.study, plan.treatments, mains) if others]
        assert bool(mixed) is not clear, design


def test_the_alias_table_names_the_interaction_that_a_half_fraction_of_three_factors_hides() -> None:
    plan = Plan(many(3, Design(DesignKind.FRACTIONAL, resolution=3)), SEED, controls=False)
    assert len(plan.treatments) == 4
    mains = [term for term in plan.terms if term.kind is TermKind.MAIN]
    table = dict(alias_table(plan.study, plan.treatments, mains))
    # the row with every factor off is in the design, so the sign of the product is the opposite of the
    # factor's
    assert table == {"f00": ("-1 f01:f02",), "f01": ("-1 f00:f02",), "f02": ("-1 f00:f01",)}


def test_the_first_row_of_a_two_level_design_is_the_reference() -> None:
    for design in SCREENS:
        plan = Plan(many(9, design), SEED)
        assert set(plan.treatments[0].treatment.values()) == {"off"}
        assert plan.reference is plan.treatments[0]


def test_three_ordered_levels_are_compared_end_against_end() -> None:
    plan = stored_definitive(study(factor("a", "low mid high"), factor("b", "low mid high"), factor("c")), 2)
    assert [(t.factor, t.level, t.reference) for t in plan.terms] == [
        ("a", "high", "low"),
        ("b", "high", "low"),
        ("c", "on", "off"),
    ]
    assert {arm.treatment["a"] for arm in plan.treatments} == {"low", "mid", "high"}
    at_mid = [
        plan.terms[0].weights.get(arm.name, 0.0) for arm in plan.treatments if arm.treatment["a"] == "mid"
    ]
    assert len(at_mid) > 0
    assert sum(at_mid) == pytest.approx(0.0)


def test_interactions_of_a_two_by_two_are_half_the_difference_of_effects() -> None:
    plan = Plan(study(factor("a"), factor("b")), SEED)
    (interaction,) = [term for term in plan.terms if term.kind is TermKind.INTERACTION]
    assert (interaction.factor, interaction.level, interaction.reference) == ("a:b", "on:on", "off:off")
    assert interaction.weights == {"off+off": 0.5, "off+on": -0.5, "on+off": -0.5, "on+on": 0.5}
    assert not interaction.primary
    assert not interaction.aliases


def test_interactions_of_many_levels_are_each_against_both_references() -> None:
    plan = Plan(study(factor("a", "x y z"), factor("b", "p q r"), factor("c")), SEED)
    found = {(term.factor, term.level) for term in plan.terms if term.kind is TermKind.INTERACTION}
    assert found == {
        *(("a:b", f"{a}:{b}") for a in "yz" for b in "qr"),
        *(("a:c", f"{a}:on") for a in "yz"),
        *(("b:c", f"{b}:on") for b in "qr"),
    }


def test_in_a_fraction_interactions_that_share_a_column_are_one_term_with_aliases() -> None:
    plan = Plan(many(6, Design(DesignKind.FRACTIONAL, resolution=4)), SEED, controls=False)
    interactions = [term for term in plan.terms if term.kind is TermKind.INTERACTION]
    named = [name.removeprefix("-") for term in interactions for name in (term.factor, *term.aliases)]
    assert sorted(named) == sorted(f"f{a:02d}:f{b:02d}" for a, b in itertools.combinations(range(6), 2))
    assert any(term.aliases for term in interactions)
    for term in interactions:
        for alias in term.aliases:
            one, other = alias.removeprefix("-").split(":")
            product = signs(plan, one) * signs(plan, other) * (-1.0 if alias.startswith("-") else 1.0)
            weights = np.array([term.weights.get(arm.name, 0.0) for arm in plan.treatments])
            assert weights @ product == pytest.approx(2.0)


def test_named_interactions_share_alpha_and_are_refused_where_the_design_cannot_tell_them() -> None:
    pairs = (("f00", "f01"), ("f00", "f02"))
    full = Plan(many(3, Design(interactions=pairs)), SEED)
    assert full.primary_effects == 3 + 2
    clear = Plan(
        many(5, Design(DesignKind.FRACTIONAL, resolution=5, interactions=pairs)), SEED, controls=False
    )
    assert len(clear.treatments) == 16
    with pytest.raises(RequestError, match="cannot estimate the interaction f00:f01"):
        Plan(many(5, Design(DesignKind.PLACKETT_BURMAN, interactions=pairs)), SEED)
    third = many(3, Design(DesignKind.FRACTIONAL, resolution=3, interactions=_every_pair(3)))
    with pytest.raises(RequestError, match="cannot tell the interaction f00:f01 from the effect of f02"):
        Plan(third, SEED, controls=False)
    fourth = many(6, Design(DesignKind.FRACTIONAL, resolution=4, interactions=_every_pair(6)))
    with pytest.raises(RequestError, match="apart"):
        Plan(fourth, SEED, controls=False)


def _every_pair(count: int) -> tuple[tuple[str, str], ...]:
    return tuple((f"f{a:02d}", f"f{b:02d}") for a, b in itertools.combinations(range(count), 2))


def test_designs_that_do_not_fit_their_factors_are_refused_in_words() -> None:
    three = study(factor("a", "x y z"), factor("b"), design=Design(DesignKind.PLACKETT_BURMAN))
    with pytest.raises(RequestError, match="factors of two levels"):
        Plan(three, SEED)
    with pytest.raises(RequestError, match="no longer makes definitive") as refused:
        Plan(many(5, Design(DesignKind.DEFINITIVE)), SEED)
    assert "fold_over = true" in refused.value.hint
    stored_definitive(study(factor("a", "y x z"), factor("b"), factor("c")), 1)
    with pytest.raises(RequestError, match="three in order"):
        stored_definitive(study(factor("a", "w x y z"), factor("b"), factor("c")), 1)
    with pytest.raises(RequestError, match="the maximum is 1,024"):
        Plan(many(11, Design()), SEED)
    with pytest.raises(RequestError, match="columns"):
        Plan(many(64, Design(DesignKind.PLACKETT_BURMAN)), SEED)


def test_every_block_of_a_screen_holds_every_row_once_and_no_further_run() -> None:
    plan = Plan(many(24, Design(DesignKind.PLACKETT_BURMAN)), SEED)
    for index in range(3):
        block = plan.block(plan.conditions[0], index)
        assert sorted(run.arm.name for run in block.runs) == sorted(arm.name for arm in plan.treatments)
        assert block.controls
        assert all(run.arm.kind is ArmKind.TREATMENT for run in block.runs)
        assert sum(run.arm.stretched for run in block.runs) == len(block.runs) / 2
    assert set(plan.control_weights) == {ArmKind.NEGATIVE, ArmKind.POSITIVE}
    without = Plan(many(24, Design(DesignKind.PLACKETT_BURMAN)), SEED, controls=False)
    assert not any(arm.stretched for arm in without.treatments)
    assert not without.control_weights


class TestWholePlots:
    PLAN = Plan(study(factor("mkfs", "x y z", whole=True), factor("mode"), design=Design(repeats=4)), SEED)
    CONDITION = PLAN.conditions[0]

    def test_stretches_share_the_level_of_the_whole_plot_and_repeat_the_rest(self) -> None:
        for index in range(6):
            block = self.PLAN.block(self.CONDITION, index)
            by_stretch: dict[int | None, list[str]] = {}
            for run in block.runs:
                by_stretch.setdefault(run.plot, []).append(run.arm.treatment["mkfs"])
            assert list(by_stretch) == list(range(len(by_stretch)))
            assert all(len(set(levels)) == 1 for levels in by_stretch.values())
            counts = Counter(run.arm.name for run in block.runs)
            assert set(counts.values()) == {4}

    def test_the_copy_is_a_stretch_of_the_same_shape_in_even_blocks(self) -> None:
        runs = self.PLAN.block(self.CONDITION, 2).runs
        shapes = Counter(run.plot for run in runs)
        assert sorted(shapes.values()) == [8, 8, 8, 8]
        copies = [run for run in runs if run.arm.kind is ArmKind.NEGATIVE]
        assert len({run.plot for run in copies}) == 1
        assert {run.arm.treatment["mkfs"] for run in copies} == {"x"}
        assert not any(run.arm.kind is ArmKind.POSITIVE for run in runs)

    def test_every_stretch_holds_a_stretched_arm_in_odd_blocks(self) -> None:
        runs = self.PLAN.block(self.CONDITION, 3).runs
        positive = [run for run in runs if run.arm.kind is ArmKind.POSITIVE]
        assert Counter(run.plot for run in positive) == {0: 4, 1: 4, 2: 4}
        assert all(run.arm.stretched and run.arm.treatment["mode"] == "off" for run in positive)
        assert not any(run.arm.kind is ArmKind.NEGATIVE for run in runs)

    def test_the_order_of_stretches_and_of_the_arms_in_each_repeat_is_drawn(self) -> None:
        firsts: Counter[str] = Counter()
        orders: Counter[tuple[str, ...]] = Counter()
        for index in range(1, 1201, 2):
            runs = self.PLAN.block(self.CONDITION, index).runs
            firsts[runs[0].arm.treatment["mkfs"]] += 1
            orders[tuple(run.arm.name.split("+")[0] + run.arm.treatment["mode"] for run in runs[:3])] += 1
        # binomial, 600 draws of 1/3: six standard deviations
        assert all(abs(count - 200) < 6 * math.sqrt(600 * 2 / 9) for count in firsts.values())
        assert len(orders) == 3 * 6

    def test_the_repeats_of_a_stretch_are_drawn_independently(self) -> None:
        pairs: Counter[tuple[bool, bool]] = Counter()
        for index in range(0, 400, 2):
            first, second = self.PLAN.block(self.CONDITION, index).runs[:4:2]
            pairs[first.arm.treatment["mode"] == "off", second.arm.treatment["mode"] == "off"] += 1
        # binomial, 200 draws of 1/4: six standard deviations
        assert all(abs(pairs[a, b] - 50) < 6 * math.sqrt(200 * 3 / 16) for a in (0, 1) for b in (0, 1))

    def test_files_are_drawn_anew_in_every_repeat(self) -> None:

        work = replace(self.PLAN.study.workloads[0].work, files=2, pool=40)
        workloads = (replace(self.PLAN.study.workloads[0], work=work),)
        plan = Plan(replace(self.PLAN.study, workloads=workloads), SEED)
        runs = plan.block(plan.conditions[0], 1).runs
        together = [runs[start : start + 3] for start in range(0, len(runs), 3)]
        for some in together:
            files = [file for run in some for file in run.files or ()]
            assert len(files) == len(set(files)) == 6
        assert len({run.files for run in runs if run.arm.name == runs[0].arm.name}) > 1

    def test_terms_know_their_stratum(self) -> None:
        strata = {(term.factor, term.level): term.whole for term in self.PLAN.terms}
        assert strata == {
            ("mkfs", "y"): True,
            ("mkfs", "z"): True,
            ("mode", "on"): False,
            ("mkfs:mode", "y:on"): False,
            ("mkfs:mode", "z:on"): False,
        }

    def test_screens_are_crossed_with_whole_plots(self) -> None:
        factors = [factor("mkfs", "x y", whole=True), *(factor(f"f{i}") for i in range(9))]
        plan = Plan(study(*factors, design=Design(DesignKind.PLACKETT_BURMAN)), SEED)
        assert len(plan.treatments) == 2 * 12
        runs = plan.block(plan.conditions[0], 0).runs
        assert len(runs) == 24
        assert {run.plot for run in runs} == {0, 1}


def test_conditions_are_no_part_of_a_design() -> None:
    made = study(*(factor(f"f{i}") for i in range(6)), factor("c", "x y", Role.CONDITION), design=SCREENS[0])
    plan = Plan(made, SEED)
    assert len(plan.conditions) == 2
    assert plan.primary_effects == 2 * 6


@pytest.mark.parametrize("count", [2, 3])
def test_an_interaction_that_is_the_column_of_a_control_is_no_term_and_refused_where_it_is_named(
    count: int,
) -> None:
    design = Design(DesignKind.FRACTIONAL, resolution=3)
    plan = Plan(many(count, design), SEED)
    arms = [arm.name for arm in plan.treatments]
    controls = [np.array([w.get(name, 0.0) for name in arms]) for w in plan.control_weights.values()]
    for term in plan.terms:
        weights = np.array([term.weights.get(name, 0.0) for name in arms])
        for control in controls:
            assert abs(weights @ control) < 1e-9, term.factor
    named = Design(DesignKind.FRACTIONAL, resolution=3, interactions=(("f00", "f01"),))
    with pytest.raises(RequestError, match="from a control"):
        Plan(many(count, named), SEED)


def test_many_whole_plots_are_refused_before_they_are_multiplied() -> None:
    factors = [factor(f"w{number}", whole=True) for number in range(40)]
    with pytest.raises(RequestError, match="the maximum is 1,024"):
        Plan(study(*factors, factor("mode")), SEED)


def test_factors_that_a_design_cannot_separate_are_refused_in_words() -> None:
    with pytest.raises(RequestError, match="cannot be distinguished"):
        Plan.stored(
            many(2, Design(DesignKind.PLACKETT_BURMAN)),
            SEED,
            {"controls": False, "design_rows": ["--", "++"]},
        )


def test_a_fraction_with_more_rows_than_a_block_may_have_is_refused() -> None:
    with pytest.raises(RequestError, match=r"resolution 5 for 30 columns has more than 1,024 rows"):
        Plan(many(30, Design(DesignKind.FRACTIONAL, resolution=5)), SEED, controls=False)


@pytest.mark.parametrize("resolution", [3, 4])
def test_fractions_are_those_of_the_package_that_made_them_for_the_first_trials(resolution: int) -> None:
    for columns in range(resolution, 49):
        plan = Plan(many(columns, Design(DesignKind.FRACTIONAL, resolution=resolution)), SEED, controls=False)
        made = np.asarray(pydoe.fracfact_by_res(columns, resolution))
        made = made * -made[0]
        assert np.array_equal([signs(plan, name) for name in plan.treatments[0].treatment], made.T)


@pytest.mark.parametrize("controls", [True, False])
@pytest.mark.parametrize(
    "design",
    [*SCREENS, Design(DesignKind.FRACTIONAL, resolution=5)],
    ids=lambda d: f"{d.kind.value}-{d.resolution}-{d.fold_over}",
)
def test_a_stored_screen_is_the_same_however_designs_are_built_by_then(
    design: Design, controls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = many(7, design)
    plan = Plan(of, SEED, controls=controls)
    options = json.loads(json.dumps({**plan.options, "controls": controls}))
    for name in ("plackett_burman", "fractional"):
        monkeypatch.setattr(constructions, name, lambda *_: np.ones((8, 9)))
    again = Plan.stored(of, SEED, options)
    assert again.treatments == plan.treatments
    assert again.terms == plan.terms
    assert again.control_weights == plan.control_weights
    assert again.options == plan.options


def test_stored_rows_are_taken_and_not_made() -> None:
    of = many(3, Design(DesignKind.FRACTIONAL, resolution=3))
    rows = ["---", "+--", "-+-", "--+"]
    plan = Plan.stored(of, SEED, {"controls": False, "design_rows": rows})
    found = [
        "".join("+" if one == "on" else "-" for one in arm.treatment.values()) for arm in plan.treatments
    ]
    assert found == rows


@pytest.mark.parametrize(
    "rows", [["--", "++"], ["----", "++++"], ["--x", "+++"], ["--0", "+++"], [""], ["---"] * 1025]
)
def test_stored_rows_that_cannot_be_the_study_s_are_refused(rows: list[str]) -> None:
    of = many(3, Design(DesignKind.FRACTIONAL, resolution=3))
    with pytest.raises(RequestError, match="stored design"):
        Plan.stored(of, SEED, {"controls": False, "design_rows": rows})


def test_the_rows_of_every_design_are_those_of_trials_that_are_stored_without_them() -> None:
    """Fixed vectors: a change to the constructions must not change them unnoticed."""
    found = {}
    for design in SCREENS:
        plan = Plan(many(22, design), SEED)
        rows = "\n".join(
            "".join("+" if label == "on" else "-" for label in arm.treatment.values()) + "s" * arm.stretched
            for arm in plan.treatments
        )
        found[f"{design.kind.value} {design.resolution} {design.fold_over}"] = hashlib.sha256(
            rows.encode()
        ).hexdigest()[:16]
    assert found == VECTORS
