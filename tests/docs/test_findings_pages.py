"""docs/catalogue.md, its pages and docs/findings.md are what the packed trials in docs/catalogue give.

Making all of them takes minutes, so that test is `long`. The quick tests compare digests and names.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from msgspec.structs import replace

from generators.claims_page import OF_THE_TOOL
from iotrial.study import catalogue

ROOT = Path(__file__).parents[2]
FINDINGS = runpy.run_path(str(ROOT / "scripts" / "findings"))
FOLDER = ROOT / "docs" / "catalogue"
PACKED = sorted(FOLDER.glob("*/*.iotrial"))
MOST_LINES = 67
MOST_WORDS_WHY = 120
PICTURE = re.compile(r"!\[[^]]*\]\(([^)]+)\)")
INDEX = (ROOT / "docs" / "catalogue.md").read_text()


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.stem)
def test_a_page_was_made_from_the_trial_and_the_mechanism_beside_it(packed: Path) -> None:
    page = packed.with_suffix(".md").read_text()
    assert page.rstrip().endswith(FINDINGS["stamp"](packed)), "run `make findings`"
    assert packed.with_suffix(".why.md").exists(), "say why it came out so"
    assert packed.stat().st_size <= FINDINGS["MOST_BYTES"]


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ('title = "', 'title = "Once more: ', False),
        ('source = "', 'source = "Elsewhere, ', False),
        ("time = ", 'time = "1 min" # ', False),
        ('margin = "10 %"', 'margin = "5 %"', True),
        ("operations = ", "operations = 1", True),
        ("[study]", "[study", True),
    ],
)
def test_a_study_has_changed_if_it_would_run_something_else(old: str, new: str, changed: bool) -> None:
    study = catalogue.find("block/stalls")
    assert old in study.text
    assert FINDINGS["_changed"](replace(study, text=study.text.replace(old, new))) is changed


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.stem)
def test_a_page_fits_on_a_screen_and_says_where_the_rest_is(packed: Path) -> None:
    page = packed.with_suffix(".md").read_text()
    assert len(page.splitlines()) <= MOST_LINES
    assert f"`iotrial report {packed.relative_to(ROOT)} --full`" in page
    why = re.sub(r"\{[^{}]+\}", "0", packed.with_suffix(".why.md").read_text())  # a number to fill in
    assert len(why.split()) <= MOST_WORDS_WHY
    assert "{" not in page
    for picture in PICTURE.findall(page):
        assert (packed.parent / picture).read_bytes().startswith(b"<?xml")


def test_every_picture_is_shown_on_a_page() -> None:
    """A trial that has no samples any more leaves no curves behind."""
    pages = [packed.with_suffix(".md") for packed in PACKED]
    shown = {page.parent / picture for page in pages for picture in PICTURE.findall(page.read_text())}
    assert {*FOLDER.glob("*/*.svg")} == shown, "run `make findings`"


def test_there_is_no_page_without_a_trial() -> None:
    made = {path.with_suffix(".md") for path in PACKED}
    by_hand = (".why.md", ".missing.md")
    found = {path for path in FOLDER.glob("*/*.md") if not path.name.endswith(by_hand)}
    assert found - set((FOLDER / "audits").iterdir()) == made


@pytest.mark.parametrize("name", catalogue.names())
def test_every_study_has_its_line_in_the_index(name: str) -> None:
    rows = [
        line
        for line in INDEX.splitlines()
        if line.startswith((f"- {name}: ", f"- [{name}](catalogue/{name}.md): "))
    ]
    assert len(rows) == 1, "run `make findings`"
    assert ("](catalogue/" in rows[0]) == (FOLDER / f"{name}.iotrial").exists()


def test_every_trial_with_a_published_claim_is_linked_from_the_page_of_claims() -> None:
    text = (ROOT / "docs" / "findings.md").read_text()
    names = [f"{path.parent.name}/{path.stem}" for path in PACKED]
    claimed = {name for name in names if name in catalogue.names() and catalogue.find(name).claims}
    assert claimed >= set(OF_THE_TOOL)
    linked = set(re.findall(r"\(catalogue/([^)]+)\.md\)", text))
    assert linked >= claimed - set(OF_THE_TOOL)


@pytest.mark.long
def test_pages_and_index_are_up_to_date() -> None:
    for file, text in FINDINGS["pages"]().items():
        assert file.read_text() == text, "run `make findings`"


def test_the_page_on_bias_counts_the_trials_in_emulated_guests() -> None:
    pages = [packed.with_suffix(".md").read_text() for packed in PACKED]
    told = re.search(r"(\d+) of them in guests with an emulated processor", (ROOT / "BIAS.md").read_text())
    assert told is not None
    assert int(told[1]) == sum(
        "with an emulated processor" in page.partition("## Limits")[2] for page in pages
    )


def test_the_readme_counts_the_studies_and_those_without_a_trial() -> None:
    told = re.search(r"(\d+) studies ship,.*All but (\w+) have a trial", (ROOT / "README.md").read_text())
    assert told is not None
    tried = [f"{packed.parent.name}/{packed.stem}" for packed in PACKED]
    names = catalogue.names()
    untried = [name for name in names if not any(f"{one}-".startswith(f"{name}-") for one in tried)]
    assert (int(told[1]), told[2]) == (len(names), ["none", "one", "two", "three", "four"][len(untried)])
