"""Reports of factorial and screening trials: headline, interactions in words, aliases, pooled means, claims."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from factorial_trials import conducted, on, screen_text
from hostile_trial import ATTACKS, STEERING
from jsonschema import Draft202012Validator
from report_fixtures import document, effect, factor, study
from rich.console import Console

from iotrial.design.plan import Plan
from iotrial.documents import plain
from iotrial.report.claims import Outcome
from iotrial.report.designs import aliases_in_lines, design_of, plan_lines
from iotrial.report.document import Document
from iotrial.report.interactions import adjust, at_levels, doubled, interaction_sentence, pair_of
from iotrial.report.jsonreport import report_json
from iotrial.report.progress import effect_lines
from iotrial.report.render import html_report, markdown_report, print_report
from iotrial.report.sentences import Tone
from iotrial.stats.model import Effect, Verdict
from iotrial.study.model import Claim, Role, Scale
from iotrial.study.reader import read_study
from values import replace

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "report.schema.json").read_text())


@pytest.fixture(scope="module")
def screen() -> Document:
    """Return a screening trial of 26 settings; f12 costs e^.2, f01 gains e^-.1."""
    return conducted(screen_text(26), lambda t: 0.2 * on(t, "f12") - 0.1 * on(t, "f01"), blocks=30, sd=0.03)


@pytest.fixture(scope="module")
def crossed() -> Document:
    """Return a trial of eight settings in 16 rows; f01 gains a tenth unless f02 is on."""
    text = screen_text(8, design='kind = "fractional"\nresolution = 4')
    both = lambda t: 0.12 * (on(t, "f01") and on(t, "f02"))  # noqa: E731
    return conducted(text, lambda t: -0.1 * on(t, "f01") + 0.05 * on(t, "f02") + both(t), blocks=30)


def test_a_screen_is_badged_by_the_settings_that_have_an_effect(screen: Document) -> None:
    made = conducted(screen_text(26), lambda t: 0.2 * on(t, "f12"), blocks=30, sd=0.03)
    assert made.summary.headline.startswith("1 of 26 settings changes the wall time")
    assert made.summary.tone is Tone.SLOWER
    assert screen.summary.tone is Tone.MIXED  # one setting gains, another costs


def of_two_sizes(*, blocks: int) -> Document:
    sizes = '[[factor]]\nname = "size"\nknob = "file.size"\nlevels = ["4 KiB", "64 KiB"]\nrole = "condition"\n\n[[workload]]'
    text = screen_text(2, design='interactions = ["all"]').replace("[[workload]]", sizes)
    return conducted(text, lambda t: -0.2 * on(t, "f01"), blocks=blocks)


@pytest.fixture(scope="module")
def pooled() -> Document:
    return of_two_sizes(blocks=30)


def printed(made: Document) -> str:
    out = io.StringIO()
    print_report(made, Console(file=out, width=80), full=True)
    return out.getvalue()


def interaction(verdict: Verdict, value: float, low: float, high: float, **changes: object) -> Effect:
    return effect(
        verdict, value, low, high, kind="interaction", factor="a:b", level="on:fast", reference="off:slow", **changes
    )  # fmt: skip


def pair_study(first: tuple[str, str] = ("off", "on"), second: tuple[str, str] = ("slow", "fast")):  # type: ignore[no-untyped-def]

    made = study(treatment=factor("a", list(first), role=Role.TREATMENT), conditions=())
    return replace(made, factors=(*made.factors, factor("b", list(second), role=Role.TREATMENT)))


def test_the_first_sentence_of_a_screen_counts_and_names_the_largest(screen: Document) -> None:
    said = screen.summary.headline
    assert said.startswith("2 of 26 settings change the wall time; most: f12 on takes 2")
    assert len(said.split()) <= 20


def test_a_screen_lists_the_largest_effects_first(screen: Document) -> None:
    names = [row.effect.factor for row in screen.primary]
    assert names[:2] == ["f12", "f01"]
    sizes = [abs(row.effect.value - 1) for row in screen.primary if row.effect.value]
    assert sizes[2:] == pytest.approx(sorted(sizes[2:], reverse=True), abs=1e-3)


def test_a_report_of_26_settings_fits_80_columns(screen: Document) -> None:
    lines = printed(screen).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(re.fullmatch(r"f12 on / off\s.*\s1\.2\d* \[.*\]\s+slower\s*", line) for line in lines)


def test_evidence_of_a_screen_is_by_level_and_marks_what_moved(screen: Document) -> None:
    rows = {row.treatment: row for row in screen.evidence if row.metric == "reads"}
    assert len(rows) == 52
    assert rows["f01 on"].moved == "up"
    assert rows["f01 on"].value == pytest.approx(200, abs=1)
    assert rows["f01 off"].value == pytest.approx(100, abs=1)
    assert [name for name, row in rows.items() if row.moved] == ["f01 on"]


@pytest.mark.slow
def test_the_page_of_a_screen_has_its_figures_and_its_rows(screen: Document) -> None:
    page = html_report(screen)
    assert len(page) < 5_000_000
    assert 'id="half-normal-0"' in page
    assert 'id="main-effects-0"' in page
    assert "The line is a guide to the eye, not a verdict." in page
    assert "f12 on (slower) and f01 on (faster) lie well above the dashed line" in page
    assert "coloured by the level of f12 (largest effect)" in page
    assert "The treatments, row by row (32)" in page
    assert '<td class="q">row32</td>' in page
    assert 'reads</td><td class="l">f01 on</td>' in page


def test_an_interaction_is_told_as_the_whole_difference_of_the_effects() -> None:
    one = interaction(Verdict.SLOWER, 1.1, 1.05, 1.2)
    assert doubled(one) == pytest.approx((1.21, 1.1025, 1.44))
    assert interaction_sentence(one, pair_study(), margin=0.03) == (
        "with b fast, the ratio of a on to off is 1.2 [1.1, 1.4] times what it is with b slow: "
        "together, a on and b fast are slower than their separate effects predict"
    )


def test_an_interaction_of_counts_is_a_difference() -> None:
    one = interaction(Verdict.HIGHER, 5.0, 4.0, 6.0, scale=Scale.DIFFERENCE, unit="1", response="reads")
    said = interaction_sentence(one, pair_study(), margin=0.03)
    assert "the difference of a on from off is 10.0 [8.0, 12.0] more than it is with b slow" in said


def test_no_interaction_is_told_with_the_margin_of_the_whole_difference() -> None:
    one = interaction(Verdict.EQUIVALENT, 1.0, 0.99, 1.01)
    said = interaction_sentence(one, pair_study(), margin=0.03)
    assert "is the same with b fast as with b slow, within 6.1 %" in said  # 1.03 squared


def test_labels_with_colons_are_split_where_the_study_says() -> None:
    made = pair_study(("x", "x:y"), ("z", "y:z"))
    one = effect(
        Verdict.SLOWER, 1.1, 1.0, 1.2, kind="interaction", factor="a:b", level="x:y:y:z", reference="x:z"
    )
    pair = pair_of(one, made)
    assert pair is not None
    assert (pair.first, pair.second) == (("a", "x:y", "x"), ("b", "y:z", "z"))
    assert pair_of(effect(Verdict.SLOWER, 1, 1, 1, factor="a:unknown", level="x:y"), made) is None


def test_cells_give_either_effect_at_both_levels_of_the_other(crossed: Document) -> None:
    row = next(r for r in crossed.interactions if r.effect.factor == "f01:f02")
    (first, second) = row.at_levels
    assert (first.at_reference, first.at_level) == pytest.approx((0.905, 1.020), abs=0.01)  # e^-.1, e^.02
    assert (second.at_reference, second.at_level) == pytest.approx((1.051, 1.185), abs=0.01)  # e^.05, e^.17
    assert first.text.startswith("f01 on / off: 0.9")


def test_aliases_are_printed_with_every_format(crossed: Document) -> None:
    row = next(r for r in crossed.interactions if r.effect.factor == "f01:f02")
    assert row.effect.aliases
    name = row.effect.aliases[0].removeprefix("-").replace(":", " × ")
    for text in (printed(crossed), markdown_report(crossed), html_report(crossed)):
        plain = " ".join(text.split()).replace("\\", "")
        assert "this design cannot distinguish it from" in plain
        assert name in plain


def test_an_alias_of_opposite_sign_is_told_so() -> None:
    made = document([interaction(Verdict.SLOWER, 1.1, 1.05, 1.2, aliases=("-c:d", "e:f"))], of=pair_study())
    assert made.effects[0].aliases == "this design cannot distinguish it from c × d reversed or e × f"


def test_interactions_and_pooled_effects_are_named_as_such_in_json(
    crossed: Document, pooled: Document
) -> None:
    for made in (crossed, pooled):
        Draft202012Validator(SCHEMA).validate(report_json(made))
    effects = report_json(pooled)["effects"]
    assert isinstance(effects, list)
    assert {one["kind"] for one in effects} == {"main", "interaction", "pooled"}
    assert all(one["condition"] == {} for one in effects if one["kind"] == "pooled")
    mixed = [one for one in report_json(crossed)["effects"] if one["aliases"]]  # type: ignore[attr-defined]
    assert mixed
    assert all(one["kind"] == "interaction" for one in mixed)


def test_pooled_effects_stand_apart_from_conditions(pooled: Document) -> None:
    lines = [line.strip() for line in printed(pooled).splitlines()]
    at = next(i for i, line in enumerate(lines) if line.startswith("Means over conditions (pooled)"))
    assert lines[at + 4].startswith("f01 on / off")
    assert not any(row.effect.kind == "pooled" for row in pooled.primary)


def test_pooled_means_that_decide_nothing_are_only_counted() -> None:
    made = of_two_sizes(blocks=10)
    assert [row.effect.conclusion.words for row in made.pooled] == ["faster", "undecided", "undecided"]
    of_means = printed(made).partition("Means over conditions (pooled)")[2]
    assert "f01 on / off" in of_means
    assert "f02 on / off" not in of_means
    assert re.search(r"and 2 more comparisons.* undecided", of_means)


def test_an_interaction_is_no_verdict_of_the_headline(pooled: Document) -> None:
    assert pooled.summary.headline.startswith("2 of 4 comparisons differ; most: f01 on takes")
    assert "×" not in pooled.summary.headline


def test_a_claim_is_never_held_against_an_interaction() -> None:

    claim = Claim("a blog", "twice as fast", "a:b", "on:fast", "off:slow", 0.5)
    made = document([interaction(Verdict.FASTER, 0.5, 0.4, 0.6)], of=replace(pair_study(), claims=(claim,)))
    assert made.claims[0].outcome is Outcome.CANNOT_SAY
    assert made.claims[0].here == "not measured"


def test_a_screen_without_any_effect_says_so() -> None:
    made = conducted(screen_text(5, design='kind = "plackett-burman"'), lambda _: 0.0, blocks=30)
    assert made.summary.headline == (
        "None of 5 settings is shown to change the wall time: 5 are equivalent within 3 %."
    )


def test_block_levels_do_not_reach_the_adjusted_means(crossed: Document) -> None:
    response = crossed.trial.header.study.responses[0]
    means = adjust(crossed.data.blocks, response)
    assert means is not None
    assert abs(float(means.means.sum())) < 1e-9
    low, high = means.level("f02", "off"), means.level("f02", "on")
    assert low is not None
    assert high is not None
    assert high - low == pytest.approx(0.05 + 0.06, abs=0.01)
    assert means.level("f02", "other") is None
    row = crossed.interactions[0]
    assert at_levels(row.effect, crossed.trial.header.study, None) == ()


def test_live_lines_name_an_interaction_by_its_factors() -> None:
    (line,) = effect_lines([interaction(Verdict.SLOWER, 1.1, 1.05, 1.2)], pair_study())
    assert line.comparison == "a × b"


def test_the_design_of_a_screen_is_printed_with_coded_rows_and_aliases() -> None:
    plan = Plan(read_study(screen_text(9), "x.toml", trusted=False), "0" * 32)
    text = design_of(plan)
    lines = list(plan_lines(plan))
    assert " ".join(" ".join(lines[:2]).split()) == (
        "design Plackett-Burman screening design: 9 factors, 12 treatments, 12 runs in a block"
    )
    assert any("9 of 9 main effects mixed with two-factor interactions" in line for line in lines)
    assert "           ---------  row01" in lines
    assert sum("row" in line and " slowed" in line for line in lines) == 6
    assert max(map(len, lines)) <= 80
    as_json = plain(text)
    assert as_json["kind"] == "plackett-burman"
    assert as_json["controls"] == "columns"
    assert len(as_json["rows"]) == 12
    assert as_json["main_effects_clear"] is False


def test_main_effects_of_resolution_four_are_told_to_be_clear(crossed: Document) -> None:
    assert crossed.design is not None
    assert crossed.design.main_effects_clear
    assert "main effects are not mixed with two-factor interactions" in list(aliases_in_lines(crossed.design))
    assert crossed.design.mixed_interactions


@pytest.mark.slow
def test_a_screen_whose_every_name_is_an_attack_steers_and_runs_nothing() -> None:

    plain = read_study(screen_text(len(ATTACKS), design='kind = "fractional"'), "x.toml", trusted=False)
    hostile = tuple(
        replace(
            one,
            name=f"{attack}:{i}",
            levels=tuple(replace(level, label=f"{attack} {level.label}") for level in one.levels),
            reference=f"{attack} off",
            default=(f"{attack} off", f"{attack} on"),
        )
        for i, (one, attack) in enumerate(zip(plain.factors, ATTACKS, strict=True))
    )
    slow = {f"{ATTACKS[0]}:0": 0.2, f"{ATTACKS[5]}:5": 0.1}

    def log_time(treatment: Mapping[str, str]) -> float:
        both = [size for name, size in slow.items() if treatment[name].endswith(" on")]
        return sum(both) + 0.2 * (len(both) == 2)

    made = conducted(replace(plain, factors=hostile), log_time, blocks=20)
    assert any(row.effect.verdict is Verdict.SLOWER for row in made.interactions)
    page, text = html_report(made), printed(made)
    for shown_text in (page, text, markdown_report(made)):
        assert not {c for c in shown_text if c in STEERING}
    assert "<script" not in page
    assert "<img" not in page
    assert "<!-- -->" not in page
    json.dumps(report_json(made), allow_nan=False)
    assert not {
        c for line in plan_lines(Plan(made.trial.header.study, "0" * 32)) for c in line if c in STEERING
    }
