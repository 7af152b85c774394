"""``iotrial compare`` and Markdown for CI: input, refusals, output and exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from compared_trials import FAST, SLOW, measured_trial

from iotrial.cli import cli
from iotrial.errors import RequestError
from iotrial.store import Store

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "compare.schema.json").read_text())
Verb = Callable[..., object]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compared") / "trials.db"
    with Store.open(path) as store:
        measured_trial(store, FAST, ratio=0.6)
        measured_trial(store, SLOW, ratio=1.3, seed=2)
        with (path.parent / "slow.iotrial").open("wb") as file:
            store.pack(SLOW, file)
    return path


@pytest.fixture
def verb(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    monkeypatch.setenv("IOTRIAL_STORE", str(stored))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)
    return lambda *words: cli.main(list(words), prog_name="iotrial", standalone_mode=False)


def test_stored_trials_are_laid_side_by_side(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    assert verb("compare", "1", "2") == 0
    text = capsys.readouterr().out
    assert text.startswith("The effect differs between the 2 trials")
    assert "A  trial 1" in text
    verb("compare", "1", "2", "--json")
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    (row,) = [row for row in found["comparisons"] if row["kind"] == "main"]
    assert row["trials"]["A"]["verdict"] == "faster"
    assert row["trials"]["B"]["verdict"] == "slower"
    assert row["opposite"]


def test_a_packed_trial_is_called_by_its_file(
    verb: Verb, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = str(stored.parent / "slow.iotrial")
    verb("compare", packed, FAST, "--json")
    first = json.loads(capsys.readouterr().out)
    verb("compare", SLOW, FAST, "--json")
    assert json.loads(capsys.readouterr().out)["comparisons"] == first["comparisons"]
    assert (first["trials"][0]["name"], first["trials"][0]["number"]) == ("slow.iotrial", None)


def test_without_a_store_packed_trials_are_compared(
    verb: Verb, stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTRIAL_STORE", str(tmp_path / "none.db"))
    packed = str(stored.parent / "slow.iotrial")
    with pytest.raises(RequestError, match="no trials yet"):
        verb("compare", packed, "last")
    with pytest.raises(RequestError, match="is given twice"):
        verb("compare", packed, packed)
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["1"], "two or more trials"),
        (["1", "1"], "is given twice"),
        (["last", "2"], "is given twice"),
        ([SLOW[:12], "2"], "is given twice"),
        (["1", "{packed}", "2"], "named twice"),
        (["1", "7"], "7"),
        (["1", "nowhere.iotrial"], "nowhere.iotrial"),
        (["1", "2", "--json", "--markdown", "-"], "--markdown and --json exclude each other"),
    ],
)
def test_what_cannot_be_compared_is_refused(verb: Verb, stored: Path, words: list[str], wrong: str) -> None:
    given = [word.format(packed=stored.parent / "slow.iotrial") for word in words]
    with pytest.raises(RequestError, match=wrong):
        verb("compare", *given)


def test_fail_if_differs_is_status_4_only_then(verb: Verb) -> None:
    assert verb("compare", "1", "2", "--fail-if", "differs") == 4


@pytest.mark.slow
def test_page_and_markdown_are_written(
    verb: Verb, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verb("compare", "1", "2", "--html", "c.html", "--markdown", "c.md")
    assert "c.html" in capsys.readouterr().out
    page = (tmp_path / "c.html").read_text()
    assert page.count("<svg role=") >= 2
    markdown = (tmp_path / "c.md").read_text()
    assert markdown.startswith("### Trials compared\n\n**The effect differs")
    verb("compare", "1", "2", "--markdown", "-")
    assert capsys.readouterr().out == markdown


def test_the_summary_of_a_job_is_added_to_and_another_file_replaced_on_request(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary, other = tmp_path / "summary.md", tmp_path / "other.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for file, more in ((summary, ()), (other, ("--force",))):
        file.write_text("before\n")
        verb("report", "1", "--markdown", str(file), *more)
    assert summary.read_text() == "before\n" + other.read_text()
    assert other.read_text().startswith("### ")
    capsys.readouterr()
    verb("report", "1", "--markdown", "-")
    assert capsys.readouterr().out == other.read_text()
    with pytest.raises(RequestError, match="--markdown and --json exclude each other"):
        verb("report", "1", "--markdown", "-", "--json")


def test_a_run_refuses_two_documents_on_standard_output_before_it_begins(verb: Verb) -> None:
    with pytest.raises(RequestError, match="--markdown and --json exclude each other"):
        verb("run", "files/permissions", "--markdown", "-", "--json")


@pytest.mark.parametrize(("trial", "status"), [(FAST, 0), (SLOW, 4)])
def test_fail_if_slower_is_the_status_of_a_report(verb: Verb, trial: str, status: int) -> None:
    assert verb("report", trial, "--markdown", "r.md", "--fail-if", "slower") == status


def test_a_packed_trial_is_not_continued_and_what_to_do_is_said(verb: Verb) -> None:
    with pytest.raises(RequestError, match="is a packed trial") as refused:
        verb("continue", "slow.iotrial", "--time", "5m")
    assert "iotrial run --like slow.iotrial" in str(refused.value.hint)
