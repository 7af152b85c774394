"""Audit findings on tables with known truth, and on published tables that were checked by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from iotrial.audits.audit import MOST_COMPARISONS, audit, choose_reference
from iotrial.audits.claims import claimed_ratio, parse_claim
from iotrial.audits.importers import read
from iotrial.audits.importers.contract import ReadOptions, open_source, source_of
from iotrial.audits.model import Audit, Dataset, Observation, Reading, Standing
from iotrial.errors import RequestError, UnknownName
from iotrial.report.audit import sentences
from iotrial.report.audit.studies import answering

TABLES = Path(__file__).parents[2] / "docs" / "audits"


def published(name: str, **options: object) -> Audit:
    file = TABLES / f"{name}.csv"
    return audit(read([open_source(file, name=file.name, label=None, alone=True)], ReadOptions(**options)))


def values(
    group: str, numbers: list[float], *, start: int | None = None, step: float | None = None
) -> list[Observation]:
    return [
        Observation(group, "time", "s", x, run=i, place=None if start is None else start + i, step=step)
        for i, x in enumerate(numbers)
    ]


def dataset(*observations: Observation, claims: tuple[str, ...] = (), **more: object) -> Dataset:
    return Dataset("x", "x", observations, claims=tuple(map(parse_claim, claims)), **more)


def test_groups_of_one_get_a_ratio_and_no_interval() -> None:
    found = published("permissions")
    assert {one.standing for one in found.comparisons} == {Standing.SINGLE}
    assert not any(one.welch.bounded or one.rank.bounded or one.shared.bounded for one in found.comparisons)
    first = found.comparisons[0]
    assert first.ratio == pytest.approx(0.003745152 / 0.004208753)


def test_all_of_a_before_all_of_b_is_told_and_weighs_on_the_verdict() -> None:
    a, b = values("a", [1.0, 1.01, 1.02, 1.01], start=0), values("b", [2.0, 2.01, 2.02, 2.01], start=4)
    found = audit(dataset(*a, *b))
    assert found.order[0].arrangement == "separate"
    assert found.comparisons[0].standing is Standing.CONFOUNDED
    mixed = [
        Observation(group, "time", "s", x, place=float(i))
        for i, (group, x) in enumerate(
            [
                ("a", 1.0),
                ("b", 2.0),
                ("b", 2.02),
                ("a", 1.02),
                ("b", 2.01),
                ("a", 1.01),
                ("a", 1.01),
                ("b", 2.01),
            ]
        )
    ]
    found = audit(dataset(*mixed))
    assert found.order[0].arrangement == "mixed"
    assert found.comparisons[0].standing is Standing.APART


def test_equal_groups_with_little_scatter_are_within_the_margin() -> None:
    found = audit(dataset(*values("a", [1.0, 1.001, 1.002]), *values("b", [1.001, 1.0, 1.002])))
    assert found.comparisons[0].standing is Standing.WITHIN


def test_the_published_access_times_recompute_from_the_warm_runs() -> None:
    found = published("atime")
    assert [check.recomputes for check in found.claims] == [True, True]
    assert {check.statistic for check in found.claims} == {"means without the first run"}
    assert [round(check.found, 2) for check in found.claims] == [46.41, 53.67]
    assert found.first_runs[0].chance == pytest.approx(2 / 1000)
    assert dict(found.first_runs[0].ratios)["strictatime"] == pytest.approx(0.416270 / 0.037194)


def test_the_swapped_base_of_the_mirror_percentages_is_named() -> None:
    found = published("filesystem-raid1")
    assert not any(check.recomputes for check in found.claims)
    assert all("own value" in (check.slip or "") for check in found.claims)
    assert [round(check.found, 1) for check in found.claims] == [25.2, 34.6, 14.2, 8.1]


def test_the_row_measured_twice_is_an_accidental_comparison_of_equals() -> None:
    found = published("filesystem-raid1")
    (repeat,) = found.repeats
    assert repeat.ratio == pytest.approx(50.6 / 66.1)
    assert (repeat.smaller, repeat.effects) == (4, 4)


def test_plain_files_measured_twice_differ_more_than_every_link() -> None:
    found = published("links")
    tee = next(
        r for r in found.repeats if r.response == "real" and r.condition.get("operation") == "tee one byte"
    )
    assert tee.ratio == pytest.approx(1.097 / 1.987)
    assert tee.smaller == tee.effects == 6


def test_the_mirrors_that_alternate_are_found_and_the_treatment_is_no_mode() -> None:
    found = published("scheduler")
    alternating = [one for one in found.modes if one.switches == 8]
    assert {one.condition["machine"] for one in alternating} == {"dualcore", "quadcore"}
    assert all(one.switches_p == pytest.approx(1 / 126) for one in alternating)
    separate = audit(dataset(*values("a", [1.0, 1.01, 1.02, 1.03]), *values("b", [2.0, 2.01, 2.02, 2.03])))
    assert separate.modes == ()


def test_declared_equals_are_held_against_each_other() -> None:
    found = audit(dataset(*values("a", [1.0]), *values("b", [1.2]), *values("c", [1.1]), same=(("a", "b"),)))
    assert found.repeats[0].ratio == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("text", "reading", "number", "decimals"),
    [
        ("noatime 53.67 %", Reading.OF, 53.67, 2),
        ("a b 12% faster than c d", Reading.FASTER, 12, 0),
        ("x +25.2 %", Reading.MORE, 25.2, 1),
        ("x 1.38 times y", Reading.TIMES, 1.38, 2),
        ("x about 50 % of y in time where a=b, c=d e", Reading.OF, 50, -1),
    ],
)
def test_claims_are_read(text: str, reading: Reading, number: float, decimals: int) -> None:
    claim = parse_claim(text)
    assert (claim.reading, claim.number, claim.decimals) == (reading, number, decimals)


@pytest.mark.parametrize("reference", ["off", "async", "thanos"])
def test_a_reference_may_begin_like_a_preposition(reference: str) -> None:
    assert parse_claim(f"on 50 % of {reference}").reference == reference
    assert parse_claim(f"on 2 times {reference}").reference == reference
    assert parse_claim(f"on 2 times as {reference}").reference == reference


@pytest.mark.parametrize(
    "text", ["", "noatime", "53 %", "a x % of b", "a 1 % where b", "a 1 %\nb", "a" * 400]
)
def test_what_is_no_claim_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        parse_claim(text)


@pytest.mark.parametrize(
    ("claim", "recomputes", "slip"),
    [
        ("b 80 % of a", True, None),
        ("b 20 % faster than a", True, None),
        ("b 25 % faster than a", False, "gain in speed"),
        ("b 20 %", False, "less than the reference"),
        ("b 80 % less than a", False, "percent of the reference"),
        ("b 1.25 times a", False, "inverted ratio"),
        ("b 33 % of a", False, None),
        ("b about 82 % of a", True, None),
    ],
)
def test_the_usual_slips_are_named(claim: str, recomputes: bool, slip: str | None) -> None:
    (check,) = audit(dataset(*values("a", [10.0]), *values("b", [8.0]), claims=(claim,))).claims
    assert check.recomputes is recomputes
    assert (slip is None and check.slip is None) or (slip is not None and slip in (check.slip or ""))


@pytest.mark.parametrize(
    ("claim", "unit", "ratio"),
    [
        ("b 20 % faster than a", "s", 0.8),
        ("b 20 % faster than a", "MB/s", 1.2),
        ("b 20 % slower than a", "s", 1.2),
        ("b 20 % slower than a", "MB/s", 0.8),
    ],
)
def test_faster_is_less_of_a_time_and_more_of_a_rate(claim: str, unit: str, ratio: float) -> None:
    assert claimed_ratio(parse_claim(claim), unit) == pytest.approx(ratio)


def test_rounding_of_the_raw_values_is_allowed_for() -> None:
    claim = ("b 64 % of a",)  # 2 / 3 s, rounded to whole seconds: anything from 1.5/3.5 to 2.5/2.5
    coarse = dataset(*values("a", [3.0], step=1.0), *values("b", [2.0], step=1.0), claims=claim)
    exact = dataset(*values("a", [3.0]), *values("b", [2.0]), claims=claim)
    assert audit(coarse).claims[0].recomputes
    assert not audit(exact).claims[0].recomputes
    assert audit(coarse).comparisons[0].rounding == pytest.approx((1.5 / 3.5, 2.5 / 2.5))


def test_two_values_of_a_group_are_too_few_however_far_apart_the_groups_are() -> None:
    found = audit(dataset(*values("a", [1.0, 1.001]), *values("b", [2.0, 2.001])))
    assert found.comparisons[0].standing is Standing.TOO_FEW


@pytest.mark.parametrize("ratio", [0.4, 2.5])
def test_the_margin_is_a_ratio_on_both_sides_of_one(ratio: float) -> None:
    a = [1.0, 1.001, 1.002]
    found = audit(dataset(*values("a", a), *values("b", [ratio * x for x in a])), margin=1.0)
    assert found.comparisons[0].standing is Standing.APART


def test_cells_of_two_values_share_their_scatter_for_the_size_of_a_trial() -> None:
    cells = {("a", "4"): [1.0, 1.1], ("b", "4"): [1.2, 1.5], ("a", "8"): [2.0, 2.6], ("b", "8"): [2.2, 2.1]}
    rows = [
        Observation(group, "time", "s", x, condition=(("threads", threads),))
        for (group, threads), both in cells.items()
        for x in both
    ]
    variance = np.mean([np.var(np.log(both), ddof=1) for both in cells.values()])
    for one in audit(dataset(*rows)).comparisons:
        # a block's ln(B/A) is a difference of two logarithms
        assert one.needs[0].block_sd == pytest.approx(np.sqrt(2 * variance))


def test_the_common_trend_makes_the_later_group_larger() -> None:
    numbers = [float(np.exp(0.01 * i)) for i in range(10)]
    found = audit(dataset(*values("a", numbers[:5], start=0), *values("b", numbers[5:], start=5)))
    assert found.order[0].drift == pytest.approx(np.exp(0.05))


@pytest.mark.parametrize("odd", [0.3, 3.5])
def test_a_value_far_from_those_of_the_other_sizes_is_an_outlier(odd: float) -> None:
    rows = [1.0, 1.1, 0.9, odd, 1.05, 0.95, 1.0]
    found = audit(
        dataset(
            *(Observation("a", "time", "s", x, condition=(("kib", str(1 << i)),)) for i, x in enumerate(rows))
        )
    )
    assert [(one.value, one.typical) for one in found.outliers] == [(odd, 1.0)]


def test_zero_has_no_ratio() -> None:
    found = audit(dataset(*values("a", [2.0]), *values("b", [0.0])))
    assert found.comparisons[0].standing is Standing.NO_RATIO


def test_more_comparisons_share_the_level_and_need_more_blocks() -> None:
    two = audit(dataset(*values("a", [1.0, 1.1, 1.2]), *values("b", [1.3, 1.2, 1.1])))
    more = audit(
        dataset(*values("a", [1.0, 1.1, 1.2]), *values("b", [1.3, 1.2, 1.1]), *values("c", [1.0, 1.2, 1.1]))
    )
    one, other = two.comparisons[0], more.comparisons[0]
    assert (one.shared.level, other.shared.level) == (0.95, pytest.approx(0.975))
    assert other.shared.high > one.shared.high
    assert other.needs[0].margin_blocks > one.needs[0].margin_blocks


def test_comparisons_beyond_the_most_are_counted() -> None:
    many = [one for i in range(MOST_COMPARISONS + 3) for one in values(f"g{i}", [1.0 + i])]
    found = audit(dataset(*many))
    assert (len(found.comparisons), found.left_out) == (MOST_COMPARISONS, 2)


def test_a_repeat_that_differs_as_much_as_a_treatment_weighs_on_its_verdict() -> None:
    groups = {
        "a": [1.0, 1.01, 1.02],
        "again": [1.5, 1.51, 1.52],
        "b": [1.4, 1.41, 1.42],
        "c": [3.0, 3.01, 3.02],
    }
    rows = [one for group, numbers in groups.items() for one in values(group, numbers)]
    found = {one.group: one for one in audit(dataset(*rows, same=(("a", "again"),))).comparisons}
    assert (found["b"].standing, found["b"].reasons) == (Standing.CONFOUNDED, ("repeat",))
    assert (found["c"].standing, found["c"].reasons) == (Standing.APART, ())


def test_odd_first_runs_are_left_out_of_a_comparison_of_its_own() -> None:
    rows = {
        group: [at * 9.0, *(at + 0.01 * i for i in range(7))] for group, at in (("a", 1), ("b", 2), ("c", 4))
    }
    found = audit(dataset(*(one for group, numbers in rows.items() for one in values(group, numbers))))
    (shortened,) = (
        one
        for one in found.comparisons
        if one.group == "c" and one.condition.get("runs") == "without the first"
    )
    assert (shortened.n, shortened.mean) == (7, pytest.approx(np.mean(rows["c"][1:])))


@pytest.mark.parametrize(
    ("groups", "reference"), [(("x", "off", "default"), "default"), (("x", "y"), "x"), (("x",), None)]
)
def test_the_reference_is_the_most_usual_baseline_else_the_first_group(
    groups: tuple[str, ...], reference: str | None
) -> None:
    assert choose_reference(groups, None) == reference


def test_an_unknown_reference_or_group_is_named() -> None:
    with pytest.raises(UnknownName, match="nope"):
        audit(dataset(*values("a", [1.0]), *values("b", [1.0]), reference="nope"))
    with pytest.raises(UnknownName, match="nope"):
        audit(dataset(*values("a", [1.0]), *values("b", [1.0]), claims=("nope 3 % of a",)))


@pytest.mark.parametrize("table", sorted(TABLES.glob("*.csv")), ids=lambda path: path.stem)
def test_every_published_table_is_audited_or_has_no_number(table: Path) -> None:
    source = open_source(table, name=table.name, label=None, alone=True)
    if table.stem == "nas-knobs":
        with pytest.raises(RequestError, match="no column of numbers"):
            read([source], ReadOptions())
        return
    found = audit(read([source], ReadOptions()))
    assert found.dataset.title
    assert found.dataset.notes


@pytest.mark.parametrize(
    ("a", "b", "standing"),
    [
        # 1.49 and 1.51 are written as 1 and 2
        ([1.0, 1.0, 1.0, 2.0, 1.0, 2.0], [2.0] * 6, Standing.COARSE),
        ([1.0] * 6, [2.0] * 6, Standing.CONSTANT),
        ([1.0] * 3, [2.0] * 3, Standing.CONSTANT),
        ([2.0] * 3, [2.0] * 3, Standing.EQUAL),
        ([0.0] * 3, [0.0] * 3, Standing.EQUAL),
    ],
)
def test_values_rounded_coarsely_are_neither_modes_nor_apart(
    a: list[float], b: list[float], standing: Standing
) -> None:
    coarse = audit(dataset(*values("a", a, step=1.0), *values("b", b, step=1.0)))
    assert coarse.modes == ()
    assert coarse.comparisons[0].standing is standing
    fine = audit(dataset(*values("a", a, step=0.001), *values("b", b, step=0.001)))
    assert fine.comparisons[0].standing is (Standing.APART if standing is Standing.COARSE else standing)


def test_equal_values_have_no_needs_and_nothing_to_compare_says_why() -> None:
    equal = audit(dataset(*values("a", [5.0] * 3, step=1.0), *values("b", [5.0] * 3, step=1.0)))
    assert equal.comparisons[0].needs == ()
    other = [
        dataclasses.replace(one, condition=(("threads", one.group),)) for one in equal.dataset.observations
    ]
    assert "they differ in threads" in sentences.summary(
        audit(dataclasses.replace(equal.dataset, observations=tuple(other)))
    )


def test_differences_beyond_the_rounding_stay_apart_and_modes_stay_modes() -> None:
    found = audit(dataset(*values("a", [10.0, 11.0] * 3, step=1.0), *values("b", [20.0, 21.0] * 3, step=1.0)))
    assert found.comparisons[0].standing is Standing.APART
    heaps = [10.1, 20.1, 10.2, 20.3, 10.1, 20.2, 10.2, 20.1]
    found = audit(dataset(*values("a", heaps, step=0.1), *values("b", heaps, step=0.1)))
    assert found.modes


def test_equal_within_the_margin_is_not_said_of_values_rounded_more_coarsely_than_it() -> None:
    a, b = [20.0] * 19 + [21.0], [20.0] * 19 + [21.0]
    found = audit(dataset(*values("a", a, step=1.0), *values("b", b, step=1.0)))
    assert found.comparisons[0].standing is Standing.COARSE
    found = audit(dataset(*values("a", a, step=0.01), *values("b", b, step=0.01)))
    assert found.comparisons[0].standing is Standing.WITHIN


def test_zero_and_negative_values_are_named_with_their_rows() -> None:
    rows = [("a", 1.0), ("a", 1.1), ("b", 0.0), ("b", -1.0), ("b", 2.0)]
    found = audit(
        dataset(*(Observation(group, "time", "s", x, row=i) for i, (group, x) in enumerate(rows, start=1)))
    )
    (one,) = found.unusable
    assert (one.group, one.values, one.zeros, one.negatives) == ("b", 3, (3,), (4,))
    without_rows = audit(dataset(*values("a", [1.0, 1.1]), *values("b", [2.0, 0.0, -1.0])))
    assert (without_rows.unusable[0].zeros, without_rows.unusable[0].negatives) == ((2,), (3,))
    (sentence,) = (text for text in sentences.findings(found) if text.startswith("Zero"))
    assert "row 3" in sentence
    assert "row 4" in sentence


def test_a_response_in_two_units_is_no_treatment_measured_twice() -> None:
    seconds = [Observation(g, "time", "s", x) for g, x in (("a", 1.0), ("b", 2.0))]
    millis = [Observation(g, "time", "ms", x) for g, x in (("a", 1000.0), ("b", 2000.0))]
    assert audit(dataset(*seconds, *millis)).repeats == ()


def test_apart_holds_only_for_independent_runs_and_says_so() -> None:
    found = audit(dataset(*values("a", [1.0, 1.01, 1.02, 1.03]), *values("b", [2.0, 2.01, 2.02, 2.03])))
    assert found.comparisons[0].standing is Standing.APART
    assert "if the runs are independent" in sentences.summary(found)


def table(content: str, name: str = "x.csv") -> Audit:
    return audit(read([source_of(content.encode(), name=name)], ReadOptions()))


@pytest.mark.parametrize(
    ("content", "study"),
    [
        ("atime,read_time_s\nnoatime,1\nstrictatime,2\n", "mount/atime"),
        ("atime,score\nnoatime,1\nstrictatime,2\n", None),  # neither time nor rate
        ("kind,read_time_s\nnoatime,1\nstrictatime,2\nother,3\n", None),  # a group not in the study
        ("load,salary\nread,1\nwrite,2\n", None),
        ("operation,rate_mb_per_s\nread,1\nwrite,2\n", None),  # labels of raid/rebuild, by coincidence
        ("threads_kind,rate_mb_per_s\n1,10\n2,20\n4,30\n", None),
        ("protocol,rate_mb_per_s\nnfs3,1\nsmb,2\n", None),  # several studies fit equally well
    ],
)
def test_a_study_is_proposed_only_where_it_fits(content: str, study: str | None) -> None:
    answer = answering(table(content))
    assert (answer.study if answer else None) == study


def ten_responses(rng: np.random.Generator) -> Dataset:
    """Return a table of ten responses of two identical groups, six independent runs each."""
    return Dataset(
        "x",
        "x",
        tuple(
            Observation(group, f"response {at}", "s", float(x))
            for at in range(10)
            for group in "ab"
            for x in np.exp(rng.normal(0.0, 0.1, 6))
        ),
    )


def test_all_responses_of_a_table_share_the_level() -> None:
    found = audit(ten_responses(np.random.default_rng(1)))
    for one in found.comparisons:
        assert (one.welch.level, one.shared.level) == (0.95, pytest.approx(0.995))  # 1 - .05 / 10


def test_single_values_take_no_part_of_the_level() -> None:
    single = [Observation(group, "other", "s", x) for group, x in (("a", 1.0), ("b", 2.0))]
    repeated = [*values("a", [1.0, 1.1, 1.2]), *values("b", [1.3, 1.2, 1.1])]
    found = {one.response: one for one in audit(dataset(*repeated, *single)).comparisons}
    assert found["time"].shared.level == 0.95
    assert found["other"].standing is Standing.SINGLE


def test_ten_identical_responses_rarely_give_any_verdict_of_a_difference() -> None:
    rng = np.random.default_rng()
    trials = 120
    wrong = sum(
        any(
            one.standing in (Standing.APART, Standing.CONFOUNDED)
            for one in audit(ten_responses(rng)).comparisons
        )
        for _ in range(trials)
    )
    # P(more than 18 of 120 | .05) < 1e-5; at .05 for each response the mean would be 1 - .95^10 = .40, 48 of 120
    assert wrong <= 18
