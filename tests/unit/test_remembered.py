"""What a trial says, without its runs: the same from the cache as from the store, and never from another analysis."""

from __future__ import annotations

import sqlite3
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from store_examples import filled

from iotrial.report import remembered
from iotrial.report.analysed import Analysed, from_json, to_json
from iotrial.report.opening import document_of
from iotrial.report.remembered import Remembered, beside
from iotrial.store import Store
from iotrial.store.packed import open_packed, read_packed

PACKED = Path(__file__).parents[2] / "docs" / "catalogue" / "application" / "compress.iotrial"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a trial that was really measured."""
    path = tmp_path_factory.mktemp("store") / "trials.db"
    with open_packed(PACKED) as file, Store.open(path) as store:
        store.unpack(read_packed(file, "it"), source="it")
    return path


@pytest.fixture
def store(real: Path) -> Iterator[Store]:
    beside(real).unlink(missing_ok=True)
    with Store.open(real, read_only=True) as store:
        yield store


def of(store: Store, *, share: int = 1) -> Analysed:
    with Remembered(store) as trials:
        return trials.of("last", share=share)


@pytest.mark.slow
def test_effects_are_those_of_the_report_and_medians_those_of_the_runs(store: Store) -> None:
    document = document_of(store, 1)
    found = of(store)
    assert [effect for effect in found.effects if effect.primary] == [row.effect for row in document.primary]
    assert found.headline == document.summary.headline
    assert (found.runs, found.blocks) == (len(document.data.runs), len(document.data.ends))
    assert found.levels
    sound = {(b.condition, b.index) for b in document.data.blocks if b.void is None}
    for level in found.levels:
        values = [
            run.responses[level.response]
            for run in document.data.runs
            if (run.condition, run.block) in sound
            and (run.arm, run.failure) == (level.arm, None)
            and document.conditions.of_key(run.condition).workload == level.workload
            and document.conditions.of_key(run.condition).levels == level.condition
        ]
        assert level.runs == len(values)
        assert level.median == pytest.approx(statistics.median(values), rel=1e-12)


def test_what_is_remembered_is_what_was_analysed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = of(store)
    with monkeypatch.context() as patch:
        patch.delattr(remembered, "document_of")
        assert of(store) == first
    assert beside(store.path).stat().st_mode & 0o777 == 0o600
    assert from_json(to_json(first)) == first


def test_what_is_known_is_told_without_an_analysis(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = store.find(1)
    state = remembered.state_mark(trial.state, trial.duration_s)
    with Remembered(store) as trials:
        assert trials.known(trial.header.id, state) is None
        assert trials.headline(trial.header.id, state) is None
        said = trials.of(1)
        monkeypatch.delattr(remembered, "document_of")
        assert trials.known(trial.header.id, state) == said
        assert trials.headline(trial.header.id, state) == (said.headline, said.tone)
        assert trials.known(trial.header.id, state, share=2) is None
        assert trials.known(trial.header.id, "running 1.0") is None
        assert trials.headline("another", state) is None


@pytest.mark.slow
def test_a_share_of_the_level_gives_wider_intervals(store: Store) -> None:
    whole, half = of(store), of(store, share=2)
    pairs = list(zip(whole.effects, half.effects, strict=True))
    assert all(other.family_alpha == one.family_alpha / 2 for one, other in pairs)
    known = [(one, other) for one, other in pairs if one.low is not None and other.low is not None]
    assert known
    for one, other in known:
        assert other.low <= one.low <= one.high <= other.high  # type: ignore[operator]
    assert any(other.low < one.low for one, other in known)  # type: ignore[operator]


def test_what_another_analysis_has_said_is_not_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    of(store)
    monkeypatch.setattr(remembered, "_by", lambda: "another")
    monkeypatch.delattr(remembered, "document_of")
    with pytest.raises(NameError):
        of(store)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "{}", '{"effects": [], "levels": []}', "[1]", '{"effects": 3}'])
def test_a_damaged_cache_is_made_anew(store: Store, real: Path, text: str) -> None:
    first = of(store)
    connection = sqlite3.connect(beside(real))
    connection.execute("UPDATE analysed SET text = ?", (text,))
    connection.commit()
    connection.close()
    assert of(store) == first


def test_a_file_that_is_no_cache_is_left_alone(store: Store, real: Path) -> None:
    beside(real).write_text("the user's own\n" * 100)
    assert of(store).number == 1
    assert beside(real).read_text().startswith("the user's own")


def test_a_running_trial_is_looked_at_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path / "trials.db") as store:
        filled(store)
        found = store.find(1)
        monkeypatch.setattr(store, "find", lambda _: replace(found, state=type(found.state).RUNNING))
        with Remembered(store) as trials:
            trials.of(1)
    connection = sqlite3.connect(beside(tmp_path / "trials.db"))
    assert connection.execute("SELECT count(*) FROM analysed").fetchone() == (0,)
    connection.close()
