"""The page of published claims: one row per question, numbers in percent, each source once."""

from __future__ import annotations

import re

import pytest
from report_fixtures import effect, study

from generators.claims_page import Judged, claims_page, merged
from iotrial.report.claims import hold_claims, unjudged
from iotrial.report.conditions import Conditions
from iotrial.stats.model import Effect, Verdict
from iotrial.study.model import Claim, Says

FASTER = effect(Verdict.FASTER, 0.53, 0.50, 0.56)
DISK = "the claim is about a rotating disk, and this trial ran on a simulated disk"


def claim(text: str, source: str = "a blog") -> Claim:
    return Claim(source, text, "mode", "0444", "0777", says=Says.FASTER)


def judged(name: str, found: Effect, one: Claim) -> Judged:
    (held,) = hold_claims([one], [found], Conditions(study()), margin=0.03)
    return Judged(name, study(), held)


def cannot(name: str, question: str, one: Claim, why: str) -> Judged:
    return Judged(name, study(question=question), unjudged(one, (why,)), "virtual disk")


def page(found: list[Judged]) -> str:
    return claims_page(found, {one.study: f"answer of {one.study}" for one in found})


def lines_with(page: str, text: str) -> list[str]:
    return [line for line in page.splitlines() if text in line]


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["one"], "one"),
        (["disk a is fast", "disk b is fast"], "disk a and b is fast"),
        (["disk a is fast", "disk a is fast"], "disk a is fast"),
        (["read 4 KiB", "read 8 KiB", "read 1 MiB"], "read 4 KiB, 8 KiB and 1 MiB"),
        (["cold", "cold, on one disk"], "cold, on one disk"),
        (["work a, not run", "work b, not run"], "work a and b, not run"),
        (["at 25 % of it", "at 50 % of it"], "at 25 % and 50 % of it"),
        (["begins x, y and ends", "begins z and ends"], "begins x, y; z and ends"),
    ],
)
def test_similar_texts_are_written_as_one(texts: list[str], wanted: str) -> None:
    assert merged(texts) == wanted


def test_a_judged_claim_has_its_size_in_percent_and_a_link_to_its_trial() -> None:
    text = page([judged("files/a", FASTER, claim("mode 0444 is faster"))])
    (row,) = lines_with(text, "mode 0444 takes 47 %")
    assert r"mode 0444 takes 47 % less time than 0777 \[-50, -44\]" in row
    assert "(catalogue/files/a.md)" in row
    assert text.splitlines()[2].endswith("1 confirmed.")


def test_a_large_effect_is_a_multiple_and_not_a_percentage() -> None:
    slower = effect(Verdict.SLOWER, 5.0, 2.4, 8.5)
    text = page([judged("files/a", slower, Claim("", "slow", "mode", "0444", "0777", says=Says.SLOWER))])
    assert r"mode 0444 takes 5.0 times as long as 0777 \[2.4, 8.5\]" in text


def test_each_question_has_a_row_with_what_was_published_what_was_found_where_and_the_outcomes() -> None:
    found = [
        cannot("raid/a", "Is raid faster?", claim("reads at 100 MB/s"), DISK),
        cannot("raid/a", "Is raid faster?", claim("writes at 50 MB/s"), DISK),
        judged("raid/c", FASTER, claim("it is")),
    ]
    text = page(found)
    (row,) = lines_with(text, "[Is raid faster?](catalogue/raid/a.md)")
    published = "reads at 100 MB/s, and 1 more (1)"
    link = "[Is raid faster?](catalogue/raid/a.md)"
    assert row == f"| {link} | {published} | answer of raid/a | virtual disk | 2 cannot say |"
    assert "1 confirmed, 2 cannot say." in text


def test_a_row_quotes_the_claim_that_was_judged() -> None:
    found = [
        cannot("raid/a", "Q?", claim("reads at 9"), DISK),
        judged("raid/a", FASTER, claim("mode 0444 is faster")),
        cannot("raid/a", "Q?", claim("needs no fan"), DISK),
    ]
    assert "| mode 0444 is faster, and 2 more (1) |" in page(found)


def test_a_claim_of_two_trials_counts_once_as_the_one_that_could_judge_it() -> None:
    one = claim("mode 0444 is faster")
    found = [cannot("raid/a", "Q?", one, DISK), judged("raid/b", FASTER, one)]
    assert page(found).splitlines()[2].endswith("1 confirmed.")
    assert page(found[::-1]).splitlines()[2].endswith("1 confirmed.")


def test_a_study_of_the_tool_itself_is_no_published_question() -> None:
    text = page(
        [judged("block/model", FASTER, claim("it is")), judged("raid/b", FASTER, claim("so is this"))]
    )
    assert "block/model" not in text
    assert text.splitlines()[2].startswith("1 published claim")


def test_every_source_has_one_number_and_similar_sources_of_a_study_share_it() -> None:
    sources = ["dd on two disks, first partition", "dd on two disks, second partition", "a rule of thumb"]
    found = [cannot("raid/a", "Q?", claim(f"claim {n}", s), DISK) for n, s in enumerate(sources)]
    text = page(found)
    assert "(1, 2)" in text
    listed = re.findall(r"^\d+\. .*$", text, re.MULTILINE)
    assert listed == ["1. dd on two disks, first and second partition", "2. a rule of thumb"]
