"""Intervals kept beside a store: the same report from them as without, and nothing believed that cannot be."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from iotrial.analysis import eprocess, recall
from iotrial.analysis.model import Interval
from iotrial.report import kept_intervals
from iotrial.report.beside import beside
from iotrial.report.html import html_report
from iotrial.report.jsonreport import report_json
from iotrial.report.opening import document_of
from iotrial.store import Store
from iotrial.store.packed import open_packed, read_packed

PACKED = Path(__file__).parents[2] / "docs" / "catalogue" / "application" / "compress.iotrial"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A trial that was really measured; every interval counts as one of a long trial."""
    monkeypatch.setattr(recall, "WORTH_KEEPING", 1)
    monkeypatch.setattr(kept_intervals, "WORTH_KEEPING", 1)
    with open_packed(PACKED) as file, Store.open(tmp_path / "trials.db") as writer:
        writer.unpack(read_packed(file, "it"), source="it")
    with Store.open(tmp_path / "trials.db", read_only=True) as store:
        yield store


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the series whose hull was searched for."""
    lengths: list[int] = []
    real = eprocess.hull

    def counted(contrasts: np.ndarray, threshold: float, *, aim: float = 0.0) -> tuple[float, float] | None:
        lengths.append(contrasts.size)
        return real(contrasts, threshold, aim=aim)

    monkeypatch.setattr(eprocess, "hull", counted)
    return lengths


def report(store: Store) -> str:
    return json.dumps(report_json(document_of(store, "last")))


def test_a_second_report_is_the_same_byte_for_byte_and_searches_nothing(
    store: Store, searched: list[int]
) -> None:
    first = document_of(store, "last")
    assert searched
    searched.clear()
    again = document_of(store, "last")
    assert searched == []
    assert json.dumps(report_json(again)) == json.dumps(report_json(first))
    assert html_report(again) == html_report(first)


def test_other_contrasts_another_level_or_another_version_are_searched_anew(
    store: Store, searched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    report(store)
    searched.clear()
    monkeypatch.setattr(kept_intervals, "by", lambda: "another version")
    report(store)
    assert searched
    kept: dict[bytes, Interval] = {}

    class InMemory:
        def get(self, key: bytes) -> Interval | None:
            return kept.get(key)

        def put(self, key: bytes, found: Interval) -> None:
            kept[key] = found

    values = np.random.default_rng(0).normal(0.2, 1.0, 40)
    moved = values.copy()
    moved[17] = np.nextafter(moved[17], 9.0)
    with recall.recalling(InMemory()):
        for contrasts, alpha in ((values, 0.05), (moved, 0.05), (values, 0.01), (values[::-1], 0.05)):
            eprocess.interval(contrasts, alpha)
        eprocess.interval(values, 0.05, margin=0.03)
    assert len(kept) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "[0.0, 2.0, 1.0, 0.5, 1.0, 40, false, false, null, null]",
        *(
            pytest.param(text, marks=pytest.mark.long)
            for text in (
                "",
                "[]",
                '{"low": 1}',
                "[0.0, -1.0, 1.0, 7.0, 1.0, 40, false, false, null, null]",
                "[NaN, -1.0, 1.0, 0.5, 1.0, 40, false, false, null, null]",
                '["0", -1.0, 1.0, 0.5, 1.0, 40, false, false, null, null]',
                "[0.0, -1.0, 1.0, 0.5, 1.0, 1, false, false, null, null]",
            )
        ),
    ],
)
def test_what_is_damaged_is_searched_anew_and_put_right(store: Store, searched: list[int], text: str) -> None:
    before = report(store)
    with sqlite3.connect(beside(store.path)) as connection:
        connection.execute("UPDATE interval SET text = ?", (text,))
    connection.close()
    searched.clear()
    assert report(store) == before
    assert searched
    searched.clear()
    assert report(store) == before
    assert not searched


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        b"SQLite format 3\0" + bytes(4000),
        *(pytest.param(content, marks=pytest.mark.long) for content in (b"", b"no database")),
    ],
)
def test_a_file_that_is_no_cache_and_a_place_that_takes_none_do_no_harm(
    store: Store, searched: list[int], content: bytes
) -> None:
    before = report(store)
    beside(store.path).write_bytes(content)
    searched.clear()
    assert report(store) == before
    assert searched
    beside(store.path).unlink()
    beside(store.path).mkdir()
    assert report(store) == before


def test_a_short_trial_makes_no_file(tmp_path: Path) -> None:
    with open_packed(PACKED) as file, Store.open(tmp_path / "trials.db") as store:
        store.unpack(read_packed(file, "it"), source="it")
        assert len(store.data("last").ends) < recall.WORTH_KEEPING
        document_of(store, "last")
    assert not beside(tmp_path / "trials.db").exists()
