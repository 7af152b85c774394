"""An effect that may be below the margin is called "probably slower" wherever it is shown, never just
"slower".

One trial and one fleet with a level that takes 3 % more time at a margin of 3 %, shown by every verb, the
server and the library.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from compared_trials import measured_trial
from fleet_stores import add_host

import iotrial
from iotrial.cli import cli
from iotrial.report.live import PlainView, live_lines, verdict_line
from iotrial.report.opening import document_of
from iotrial.report.progress import Progress, effect_lines
from iotrial.store import Store
from serving import served

FIRST, SECOND = "aa" * 16, "bb" * 16
PLAIN = re.compile(r"(?<!probably )(?<!detectably )\bslower\b", re.IGNORECASE)
TAGS = re.compile(r"<style.*?</style>|<script.*?</script>|<svg.*?</svg>|<[^>]*>", re.DOTALL)
Verb = Callable[..., str]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("probable") / "trials.db"
    with Store.open(path) as store:
        measured_trial(store, FIRST, ratio=1.03)
        measured_trial(store, SECOND, ratio=1.03, seed=2)
        for number in range(1, 6):
            add_host(store, number, ratio=1.03, blocks=60, name=f"h{number}")
    return path


@pytest.fixture
def verb(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Verb:
    monkeypatch.setenv("IOTRIAL_STORE", str(stored))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        cli.main(list(words), prog_name="iotrial", standalone_mode=False)
        return " ".join(capsys.readouterr().out.split())

    return run


def plain(said: str) -> list[str]:
    """Return each occurrence of the unqualified word, with its context."""
    said = " ".join(said.split())
    return [said[max(0, found.start() - 60) : found.end() + 30] for found in PLAIN.finditer(said)]


def text_of(page: str) -> str:
    """Return the text of a page without its glossary of verdicts."""
    page = re.sub(r'<(section|details)[^>]*id="glossary".*?</\1>', " ", page, flags=re.DOTALL)
    return TAGS.sub(" ", page)


@pytest.mark.parametrize(
    "words",
    [
        ("report", "1"),
        ("report", "1", "--markdown", "-"),
        ("compare", "1", "2"),
        ("compare", "1", "2", "--markdown", "-"),
        ("fleet", "report"),
        ("fleet", "report", "--markdown", "-"),
    ],
)
def test_no_verb_prints_the_plain_word(verb: Verb, words: tuple[str, ...]) -> None:
    said = verb(*words)
    assert "probably slower" in said
    assert plain(said) == []


@pytest.mark.parametrize("words", [("report", "1"), ("compare", "1", "2"), ("fleet", "report")])
def test_no_page_marks_it_as_plainly_slower(verb: Verb, tmp_path: Path, words: tuple[str, ...]) -> None:
    verb(*words, "--html", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "badge probable" in page
    assert not re.search(r'class="badge (slower|faster)"', page)
    assert not re.search(r">\s*slower\s*<", page)
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert plain(TAGS.sub(" ", drawing[4:])) == []


def test_figures_as_files_say_it_in_their_numbers(verb: Verb, tmp_path: Path) -> None:
    verb("report", "1", "--figures", "drawn")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "drawn" / "effects.csv").read_text())))
    assert [row["verdict"] for row in rows] == ["probably slower"]
    index = (tmp_path / "drawn" / "index.md").read_text()
    assert "probably slower" in index
    assert plain(index.replace("a slower arm", "")) == []  # caption on how to read a figure


def test_every_document_has_the_conclusion(verb: Verb) -> None:
    (effect,) = [one for one in json.loads(verb("report", "1", "--json"))["effects"] if one["primary"]]
    assert (effect["verdict"], effect["conclusion"]) == ("slower", "probably_slower")
    (exported,) = [
        one
        for one in json.loads(verb("export", "1", "--as", "json", "--to", "-"))["effects"]
        if one["primary"]
    ]
    assert exported["conclusion"] == "probably_slower"
    rows = json.loads(verb("compare", "1", "2", "--json"))["comparisons"]
    assert {cell["conclusion"] for row in rows for cell in row["trials"].values()} == {"probably_slower"}
    (mean,) = json.loads(verb("fleet", "report", "--json"))["comparisons"]
    assert mean["conclusion"] == "probably_slower"
    assert {host["conclusion"] for host in mean["hosts"]} == {"probably_slower"}


def test_the_table_while_a_trial_runs_says_it(stored: Path) -> None:
    with Store.open(stored) as store:
        document = document_of(store, 1)
    study = document.trial.header.study
    (line, *_) = lines = effect_lines([row.effect for row in document.primary], study)
    progress = Progress(1, study.name, 1.0, 9.0, effects=lines, margin=0.03)
    assert "probably slower" in verdict_line(line)
    console = Console(file=io.StringIO(), width=120)
    PlainView(console).update(progress)
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue() + "\n".join(
        one.plain for one in live_lines(progress, width=120, height=40)
    )
    assert said.count("probably slower") == 2
    assert plain(said) == []


def test_the_library_says_it(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOTRIAL_STORE", str(stored))
    trial = iotrial.trial(1)
    (effect,) = trial.effects.primary
    assert effect.conclusion == "probably_slower"
    for one in (trial, trial.effects.primary, effect):
        for said in (repr(one), str(one), one._repr_markdown_(), TAGS.sub(" ", one._repr_html_())):
            assert plain(said) == []
    assert "probably slower" in str(trial)


def test_the_server_says_it(stored: Path) -> None:
    with served(stored) as server:
        for path in ("/", "/trials/1", "/compare?trials=1,2", "/history?study=files/permissions"):
            page = server.settled(path).text
            assert not re.search(r'class="badge (slower|faster)"', page), path
            assert not re.search(r">\s*slower\s*<", page), path
        assert "probably slower" in server.settled("/").text
