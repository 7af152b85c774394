"""The HTML page: self-contained, safe with any label, reproducible."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser

import pytest
from report_fixtures import CONDITIONS, all_equivalent, document, effect, factor, study

from iotrial.report.document import Document
from iotrial.report.render import html_report
from iotrial.stats.model import Control, Verdict, VoidCount
from iotrial.store.model import TrialState
from iotrial.study.model import Claim, Role, Scale
from values import replace

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>$\\frac{1}{0}$ -->\u202e&amp;\x00"
CLAIM = Claim("https://blog.example/x", "12 %", "mode", "0444", "0777", 0.89, condition={"cache": "cold"})


class Page(HTMLParser):
    """Collects every tag, attribute and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for _, found, value in self.attributes if found == name]


@cache
def page_of(make: Callable[[], Document]) -> str:
    return html_report(make())


@cache
def mixed() -> Document:
    effects = [
        effect(Verdict.FASTER, 0.53, 0.50, 0.56, condition=CONDITIONS[0]),
        effect(Verdict.INCONCLUSIVE, 1.1, None, 1.6, condition=CONDITIONS[1], reason="budget_spent"),
        effect(Verdict.INCONCLUSIVE, None, None, None, condition=CONDITIONS[2], blocks=3),
        effect(Verdict.INCONCLUSIVE, 1.0, 0.9, 1.1, condition=CONDITIONS[3], failures=2, reason="failures"),
        effect(
            Verdict.SLOWER,
            1.2,
            1.1,
            1.3,
            condition=CONDITIONS[0],
            response="cpu",
            primary=False,
            discovery=True,
        ),
        effect(
            Verdict.HIGHER,
            4.0,
            None,
            8.0,
            condition=CONDITIONS[0],
            response="ios",
            unit="1",
            scale=Scale.DIFFERENCE,
        ),
    ]
    return document(
        effects,
        of=study(claims=[CLAIM]),
        void=[VoidCount("cache_not_cold", "0444", 1)],
        runs={"blocks": 30, "void": {(0, 3): "cache_not_cold"}, "failing": "0444", "gap_at": 10},
    )


@cache
def hostile() -> Document:
    of = study(
        name=HOSTILE, title=HOSTILE, question=HOSTILE,
        treatment=factor(HOSTILE, ["0777", HOSTILE], role=Role.TREATMENT),
        conditions=[factor("cache" + HOSTILE, ["cold", HOSTILE], role=Role.CONDITION)],
        claims=[Claim(HOSTILE, HOSTILE, HOSTILE, HOSTILE, "0777", 0.5, note=HOSTILE)],
    )  # fmt: skip
    of = replace(of, why=HOSTILE, text=f"# {HOSTILE}")
    condition = {"cache" + HOSTILE: HOSTILE}
    found = effect(
        Verdict.INCONCLUSIVE, 1.0, 0.9, 1.1, level=HOSTILE, factor=HOSTILE, condition=condition,
        reason=HOSTILE, detectably=HOSTILE,
    )  # fmt: skip
    control = Control("negative", condition, "wall", 1.0, 1.0, 0.9, 1.1, True, False, 4)
    return document(
        [found], of=of, control=[control], runs={"conditions": [condition], "failing": HOSTILE, "blocks": 20},
        void=[VoidCount(HOSTILE, HOSTILE, 1)],
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("made", [mixed, hostile], ids=["mixed", "hostile"])
def test_the_page_loads_nothing_and_runs_nothing(made: Callable[[], Document]) -> None:
    page = Page(page_of(made))
    assert not {"script", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    assert [tag for tag in page.tags if tag in ("img", "image")] == []
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    links = page.values("href") + page.values("src")
    assert all(link.startswith(("#", "data:")) for link in links)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert policy in page.values("content")


def test_no_style_asks_for_anything_outside() -> None:
    text = page_of(mixed)
    assert re.findall(r"url\((?!#)[^)]*\)", text) == []
    assert "@import" not in text
    assert "http://" not in text


def test_every_id_is_unique_and_every_reference_has_its_target() -> None:
    text = page_of(mixed)
    page = Page(text)
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    used = {link[1:] for link in page.values("href") if link.startswith("#")}
    used |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert used <= set(ids)


def test_hostile_labels_are_text_everywhere() -> None:
    text = page_of(hostile)
    page = Page(text)
    assert "<script" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "<script>alert(1)</script>" in page.text
    assert "\\u202e" in page.text


def test_the_verdict_is_the_heading_and_the_claim_stands_beside_it() -> None:
    text = html_report(document(all_equivalent(), of=study(claims=[CLAIM])))
    heading = re.search(r"<h1>(.*?)</h1>", text)
    assert heading is not None
    assert heading[1].startswith("Mode 0444 is as fast as 0777 in all 4 conditions")
    assert "https://blog.example/x" in text
    assert "not confirmed" in text


def test_everything_that_must_be_told_has_its_section() -> None:
    page = Page(page_of(mixed))
    wanted = {
        "effects", "runs", "distributions", "latency", "evidence", "other", "controls", "losses",
        "plan", "machine", "lab", "again", "words",
    }  # fmt: skip
    assert wanted <= set(page.values("id"))
    for fact in (
        "cache_not_cold",
        "md5sum ended with status 1",
        "--seed 00112233445566778899aabbccddeeff",
        "6.18.0",
    ):
        assert fact in page.text


def test_an_invalid_trial_shows_no_verdict_badge_beside_an_effect() -> None:
    failed = Control("negative", {"cache": "cold"}, "wall", 1.0, 1.05, 1.02, 1.08, False, True, 60)
    text = html_report(document(all_equivalent(), valid=False, control=[failed]))
    table = text[text.index(">Effects<") : text.index("Runs in order of time")]
    assert table.count("no verdict") == 4
    assert 'class="badge equivalent"' not in table


def test_a_trial_with_nothing_measured_still_has_its_page() -> None:
    made = document([], control=[], state=TrialState.FAILED, reason="mkfs failed", runs={"blocks": 0})
    text = html_report(made)
    assert "No verdict, the trial failed before a block was complete: mkfs failed." in text
    assert 'id="runs"' not in text


@pytest.mark.slow
def test_the_same_document_gives_the_same_page() -> None:
    assert html_report(mixed()) == page_of(mixed)


def test_figures_take_their_colours_from_the_style_sheet() -> None:
    text = page_of(mixed)
    figures = re.findall(r"<svg role.*?</svg>", text, flags=re.DOTALL)
    assert len(figures) > 10
    assert not [colour for figure in figures for colour in re.findall(r"(?:fill|stroke): (#\w+)", figure)]
