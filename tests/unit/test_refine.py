"""The follow-up of a trial: which factors it takes, that its file says exactly that, and refusals."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from factorial_trials import conducted, on, screen_text
from jsonschema import Draft202012Validator

from iotrial.cli.verbs import refine as verb
from iotrial.design.plan import Plan
from iotrial.design.refine import Found
from iotrial.errors import RequestError, StudyError, UnknownName
from iotrial.report.document import Document
from iotrial.report.findings import ablation_finding, is_ablation
from iotrial.report.refinement import choice_lines, found_in, propose
from iotrial.stats.model import Verdict
from iotrial.study.model import DesignKind, Study
from iotrial.study.reader import read_study
from iotrial.study.rewriting import rewritten, same_study
from iotrial.study.select import select
from values import replace

SCHEMAS = Path(__file__).parents[2] / "schemas"

BUNDLE = """\
[study]
name = "bundle"
question = "Do all of them help?"

[[factor]]
name = "tuning"   # three at once
levels = [
  { label = "stock", set = [
    { knob = "command.argument", placeholder = "{level}", level = "-9" },
    { knob = "environment.variable", variable = "A", level = "0" },
    { knob = "environment.variable", variable = "SAME", level = "1" },
    { knob = "environment.variable", variable = "B", level = "0" } ] },
  { label = "tuned", set = [
    { knob = "command.argument", placeholder = "{level}", level = "-1" },
    { knob = "environment.variable", variable = "A", level = "1" },
    { knob = "environment.variable", variable = "SAME", level = "1" },
    { knob = "environment.variable", variable = "B", level = "1" } ] },
]

[[workload]]
name = "zip"
kind = "command"
argv = ["gzip", "-c", "{level}", "{file}"]

[[claim]]
source = "a blog"
text = "twice as fast"
level = "tuned"
ratio = 0.5
"""


def three(treatment: Mapping[str, str]) -> float:
    return 0.2 * on(treatment, "f12") - 0.1 * on(treatment, "f01") - 0.08 * on(treatment, "f03")


@pytest.fixture(scope="module")
def screen() -> Document:
    return conducted(screen_text(14), three, blocks=30)


@pytest.fixture(scope="module")
def bundle() -> Document:
    return conducted(BUNDLE, lambda t: -0.5 * (t["tuning"] == "tuned"), blocks=30)


def read(text: str) -> Study:
    return read_study(text, "follow.toml", trusted=False)


def with_text(made: Document, text: str) -> Document:
    """Return the document as if this text were stored with the trial."""
    header = replace(made.trial.header, study=replace(made.trial.header.study, text=text))
    return replace(made, data=replace(made.data, trial=replace(made.trial, header=header)))


def test_a_follow_up_varies_what_matters_and_asks_for_all_interactions(screen: Document) -> None:
    proposed, text = propose(screen, "follow-up")
    study = read(text)
    assert [name for name, _ in proposed.chosen] == ["f12", "f01", "f03"]
    assert {factor.name for factor in study.treatment_factors} == {"f01", "f03", "f12"}
    assert study.design.kind is DesignKind.FULL
    assert set(study.design.interactions) == {("f01", "f03"), ("f01", "f12"), ("f03", "f12")}
    assert study.name == "family/screen-follow-up"
    plan = Plan(select(study), "0" * 32)
    assert len(plan.treatments) == 8
    assert proposed.runs == max(len(plan.block(plan.conditions[0], i).runs) for i in (0, 1)) == 10


def test_what_does_not_vary_is_pinned_at_the_reference(screen: Document) -> None:
    study = read(propose(screen, "follow-up")[1])
    pinned = {dict(setting.options)["variable"]: setting.value for setting in study.fixed}
    assert pinned == {f"F{i:02d}": "off" for i in range(1, 15) if i not in (1, 3, 12)}


def test_the_better_level_is_pinned_where_factors_are_named(screen: Document) -> None:
    study = read(propose(screen, "follow-up", factors=["f05", "F06"])[1])
    pinned = {dict(setting.options)["variable"]: setting.value for setting in study.fixed}
    assert pinned["F01"] == "on"  # e^-.1
    assert pinned["F12"] == "off"  # e^.2
    assert [factor.name for factor in study.treatment_factors] == ["f05", "f06"]


def test_the_authors_words_stay(screen: Document) -> None:
    text = propose(screen, "follow-up", margin=0.02)[1]
    assert "# the author's own words" in text
    assert "# a question" in text
    assert text.startswith("# Written by iotrial refine from trial 7 of family/screen")
    assert tomllib.loads(text)["study"]["margin"] == 0.02


def test_a_comment_above_a_factor_goes_where_the_factor_goes() -> None:
    text = screen_text(3, design='kind = "full"')
    for number in (1, 2, 3):
        text = text.replace(
            f'[[factor]]\nname = "f0{number}"', f'# about {number}\n[[factor]]\nname = "f0{number}"'
        )
    text = text.replace('question = "', 'why = """\n# no comment\n[[factor]]\n"""\nquestion = "')
    assert text.count("# about") == 3
    study = read(text)
    kept = tuple(factor for factor in study.factors if factor.name != "f02")
    made = rewritten(text, replace(study, factors=kept), origin="x.toml")
    assert '[[factor]]\n# about 1\nname = "f01"' in made
    assert '[[factor]]\n# about 3\nname = "f03"' in made
    assert "# about 2" not in made
    assert read(made).why == study.why


def test_the_choice_is_told_within_80_columns(screen: Document) -> None:
    proposed, _ = propose(screen, "follow-up")
    lines = "\n".join(choice_lines(proposed)).splitlines()[2:]
    assert max(map(len, lines)) <= 80
    assert "varied   f12: changes the result" in lines
    assert any("--fold-over" in line for line in lines)


def test_many_active_factors_get_a_fraction_or_are_dropped() -> None:
    def ten(treatment: Mapping[str, str]) -> float:
        return math.fsum(0.1 * (i + 1) * on(treatment, f"f{i + 1:02d}") for i in range(10))

    proposed, text = propose(conducted(screen_text(11), ten, blocks=30), "follow-up")
    study = read(text)
    assert proposed.runs <= 66
    kept = {factor.name for factor in study.treatment_factors}
    assert {"f10", "f09", "f08"} <= kept
    dropped = [pin for pin in proposed.pinned if "no room for it" in pin.why]
    assert {pin.factor for pin in dropped} == {f"f{i:02d}" for i in range(1, 11)} - kept
    assert all(pin.label == "off" for pin in dropped)  # slower when on
    Plan(select(study), "0" * 32)  # names every interaction, and can separate them


def test_without_an_active_factor_the_largest_are_taken_and_said_to_be_no_more() -> None:
    proposed, _ = propose(conducted(screen_text(6), lambda _: 0.0, blocks=9, sd=0.2), "follow-up")
    assert len(proposed.chosen) >= 2
    assert all("interval excludes" not in why or "no interval" in why for _, why in proposed.chosen)


def test_a_screen_is_folded_over(screen: Document) -> None:
    proposed, text = propose(screen, "fold-over")
    study = read(text)
    assert study.design.fold_over
    assert study.design.kind is DesignKind.PLACKETT_BURMAN
    assert len(study.factors) == 14
    assert proposed.runs == 2 * len({run.arm for run in screen.data.runs})
    again = conducted(text, three, blocks=9)
    with pytest.raises(RequestError, match="folded over already"):
        propose(again, "fold-over")


def test_a_screen_is_taken_apart_at_its_better_levels(screen: Document) -> None:
    proposed, text = propose(screen, "ablate")
    study = read(text)
    (factor,) = study.treatment_factors
    assert [level.label for level in factor.levels] == ["all together", "none", "without f01", "without f03"]
    assert is_ablation(study)
    without = {dict(s.options)["variable"]: s.value for s in factor.level("without f01").settings}
    assert without == {"F01": "off", "F03": "on"}
    assert {pin.factor for pin in proposed.pinned} == {f"f{i:02d}" for i in range(1, 15)} - {"f01", "f03"}


def test_a_bundle_is_taken_apart_knob_by_knob(bundle: Document) -> None:
    proposed, text = propose(bundle, "ablate")
    (factor,) = read(text).treatment_factors
    values = {level.label: [s.value for s in level.settings] for level in factor.levels}
    assert values == {
        "all together": ["-1", "1", "1", "1"],
        "none": ["-9", "0", "0", "1"],
        "without level": ["-9", "1", "1", "1"],
        "without A": ["-1", "0", "1", "1"],
        "without B": ["-1", "1", "0", "1"],
    }
    assert factor.reference == "all together"
    assert not read(text).claims
    assert [name for name, _ in proposed.chosen] == ["level", "A", "B"]


def test_the_report_of_a_bundle_taken_apart_says_what_earned_the_gain(bundle: Document) -> None:
    _, text = propose(bundle, "ablate")
    slow = {"none": 0.5, "without level": 0.5}
    made = conducted(text, lambda t: slow.get(t["tuning"], 0.0), blocks=30)
    said = made.summary.headline
    assert said.startswith("1 of 3 settings contributed to the gain: without level it takes 6")
    assert "A and B make no difference of 3 %" in said
    assert "without all of them it takes 6" in said


def test_a_bundle_without_a_gain_is_told_so(bundle: Document) -> None:
    made = conducted(propose(bundle, "ablate")[1], lambda _: 0.0, blocks=30)
    assert "None of 3 settings is shown to contribute to the gain" in made.summary.headline
    assert "there was no gain" in made.summary.headline
    assert ablation_finding(made.analysis.effects[:1], made.conditions, margin=0.03)


def test_a_part_that_helps_here_and_harms_there_is_neither_earned_nor_left_out(bundle: Document) -> None:
    made = conducted(
        propose(bundle, "ablate")[1], lambda t: 0.5 * (t["tuning"] == "without level"), blocks=30
    )
    worse = next(e for e in made.analysis.effects if e.level == "without level" and e.primary)
    better = replace(worse, verdict=Verdict.FASTER, value=0.5, low=0.45, high=0.55)
    others = [e for e in made.analysis.effects if e.level != "without level"]
    said = ablation_finding([worse, better, *others], made.conditions, margin=0.03)
    assert said.startswith("none of 3 settings is shown to contribute to the gain everywhere")
    assert "without level, it depends: it takes 6" in said
    assert "but it takes 50 % less time [-55, -45]" in said
    assert "better left out" not in said


def test_a_single_factor_cannot_be_followed_up(bundle: Document) -> None:
    with pytest.raises(RequestError, match="varies one factor only"):
        propose(bundle, "follow-up")


def test_a_factor_without_a_bundle_cannot_be_taken_apart() -> None:
    made = conducted(screen_text(1, design='kind = "full"'), lambda _: 0.0, blocks=9)
    with pytest.raises(RequestError, match="sets more than one knob"):
        propose(made, "ablate")


def test_an_unknown_factor_is_refused_with_the_nearest(screen: Document) -> None:
    with pytest.raises(UnknownName) as refused:
        propose(screen, "follow-up", factors=["f012"])
    assert 'did you mean "f' in str(refused.value.hint)


def test_too_many_named_factors_are_refused(screen: Document) -> None:
    with pytest.raises(RequestError, match="64 runs per block"):
        propose(screen, "follow-up", factors=[f"f{i:02d}" for i in range(1, 12)])


def test_an_invalid_trial_is_nothing_to_build_on(screen: Document) -> None:
    with pytest.raises(RequestError, match="invalid"):
        propose(replace(screen, analysis=replace(screen.analysis, valid=False)), "follow-up")


def test_a_stored_text_that_is_not_what_ran_is_refused(screen: Document) -> None:
    other = screen_text(14).replace('argv = ["true"]', 'argv = ["rm", "-r", "{dir}"]')
    with pytest.raises(StudyError, match="differs from what was run"):
        propose(with_text(screen, other), "follow-up")
    with pytest.raises(StudyError, match="differs from what was run"):
        propose(with_text(screen, screen_text(14).replace('"on"]', '"of"]')), "follow-up")
    with pytest.raises(StudyError, match="no text"):
        propose(with_text(screen, ""), "follow-up")
    with pytest.raises(StudyError, match="not TOML"):
        propose(with_text(screen, "[[[["), "follow-up")


def test_hidden_characters_of_a_foreign_text_become_visible(screen: Document) -> None:
    text = propose(with_text(screen, "# \u202eevil\u200b\n" + screen_text(14)), "follow-up")[1]
    assert "\u202e" not in text
    assert "\\u202eevil\\u200b" in text


def test_a_foreign_text_stays_untrusted(screen: Document) -> None:
    shell = screen_text(14).replace('argv = ["true"]', 'argv = ["sh", "-c", "true"]')
    made = conducted(shell, three, blocks=9)
    proposed, text = propose(made, "follow-up", factors=["f01", "f03"])
    assert not proposed.study.trusted
    assert not read(text).trusted


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text + '\n[[factor]]\nname = "late"\nknob = "file.size"\nlevels = ["1 KiB"]\nrole = "condition"\n',
        lambda text: text + '\n[[fixed]]\nknob = "environment.variable"\nvariable = "Z"\nlevel = "a\\tb"\n',
        lambda text: text.replace('[budget]\ntime = "90 s"\n', "[budget]\n\ttime\t=\t'90 s'\n"),
    ],
    ids=["line ends", "a factor behind the workload", "pinned before", "tabs and quotes"],
)  # fmt: skip
def test_other_ways_to_write_a_file_come_through(change) -> None:  # type: ignore[no-untyped-def]
    made = conducted(change(screen_text(6)), three, blocks=9)
    for way in ("follow-up", "fold-over"):
        proposed, text = propose(made, way, factors=[] if way == "fold-over" else ["f01", "f03"])  # type: ignore[arg-type]
        assert same_study(read(text), proposed.study)


def test_levels_that_did_not_run_stay_out() -> None:
    two, three_levels = ('"F02"\nlevels = ["off", "on"]', '"F02"\nlevels = ["off", "half", "on"]')
    text = screen_text(4, design='kind = "full"').replace(two, three_levels)
    made = conducted(text, three, blocks=9, sets={"f02": ["off", "on"]})
    study = read(propose(made, "follow-up", factors=["f01", "f02"])[1])
    assert study.factor("f02").default == ("off", "on")
    assert len(Plan(select(study), "0" * 32).treatments) == 4


def test_whole_plots_stay_whole_plots() -> None:
    text = screen_text(4).replace('"F02"\n', '"F02"\nplot = "whole"\n')
    made = conducted(text.replace('"plackett-burman"', '"plackett-burman"\nrepeats = 2'), three, blocks=9)
    proposed, text = propose(made, "follow-up", factors=["f01", "f02"])
    study = read(text)
    assert study.factor("f02").whole_plot
    assert study.design.repeats == 2
    assert proposed.runs == 12  # two stretches of two arms, twice, and a copy of the reference's stretch
    without = read(propose(made, "follow-up", factors=["f01", "f03"])[1])
    assert without.design.repeats == 1


def test_a_rewriting_that_does_not_say_what_is_wanted_is_refused() -> None:
    text = screen_text(2, design='kind = "full"')
    wanted = replace(
        read(text), lab=replace(read(text).lab, filesystem="xfs")
    )  # not one of the parts that are rewritten
    with pytest.raises(StudyError, match="prevents changing it reliably"):
        rewritten(text, wanted, origin="x.toml")


def test_what_was_found_takes_the_mean_over_conditions_and_knows_no_better_where_they_disagree() -> None:
    sizes = '[[factor]]\nname = "size"\nknob = "file.size"\nlevels = ["4 KiB", "64 KiB"]\nrole = "condition"\n\n[[workload]]'
    text = screen_text(2, design='kind = "full"').replace("[[workload]]", sizes)
    made = conducted(
        text,
        lambda t: (0.2 if t.get("size") == "4 KiB" else -0.1) * on(t, "f01") - 0.1 * on(t, "f02"),
        blocks=30,
    )
    first, second = found_in(made.analysis.effects, margin=0.03)
    assert isinstance(first, Found)
    assert (first.factor, first.better, first.active) == ("f01", None, True)
    assert first.estimate == pytest.approx(0.05, abs=0.01)
    assert (second.factor, second.better, second.beyond) == ("f02", True, True)


def run(monkeypatch: pytest.MonkeyPatch, made: Document, *words: str):  # type: ignore[no-untyped-def]
    monkeypatch.setattr("iotrial.cli.verbs.refine.document_at", lambda _: made)
    return CliRunner().invoke(verb.command, list(words), standalone_mode=False)


def test_the_verb_writes_a_new_file_and_never_over_one(
    screen: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run(monkeypatch, screen)  # the study is foreign, the file will be the user's own
    assert isinstance(refused.exception, RequestError)
    assert "--trust" in str(refused.exception.hint)
    assert not (tmp_path / "screen-follow-up.toml").exists()
    done = run(monkeypatch, screen, "--trust")
    assert done.exception is None
    assert "iotrial run screen-follow-up.toml --lab directory" in done.stdout
    assert read((tmp_path / "screen-follow-up.toml").read_text()).design.interactions
    again = run(monkeypatch, screen, "--trust")
    assert isinstance(again.exception, RequestError)
    assert "already exists" in str(again.exception)
    (tmp_path / "screen-follow-up.toml").write_text("old")
    assert run(monkeypatch, screen, "--trust", "--force").exception is None
    assert "interactions" in (tmp_path / "screen-follow-up.toml").read_text()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    linked = run(monkeypatch, screen, "--out", "link", "--trust")
    assert isinstance(linked.exception, RequestError)
    assert not (tmp_path / "elsewhere").exists()


def test_the_verb_writes_to_standard_output_and_as_json(
    screen: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(monkeypatch, screen, "--out", "-")
    assert read(done.stdout).name == "family/screen-follow-up"
    body = json.loads(run(monkeypatch, screen, "--out", "-", "--json", "--margin", "2%").stdout)
    Draft202012Validator(json.loads((SCHEMAS / "refine.schema.json").read_text())).validate(body)
    assert body["command"] == ["iotrial", "run", "FILE", "--lab", "directory"]
    assert [one["factor"] for one in body["varied"]] == ["f12", "f01", "f03"]
    assert read(body["text"]).margin == 0.02


@pytest.mark.parametrize(
    "words", [["--ablate", "--fold-over"], ["--fold-over", "--factors", "f01"], ["--margin", "x"]]
)
def test_options_that_do_not_fit_are_refused(
    screen: Document, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    assert isinstance(run(monkeypatch, screen, "--out", "-", *words).exception, RequestError)
