"""The runs of a whole trial from their rows, in little memory: a hundred thousand of them are read to be reported.

A run's evidence is a row of a table that all runs with the same names share; its histograms stay the text that they are
stored as until somebody asks. Words that come again in run after run are kept once. What is refused is what
``records.run_of`` refuses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from iotrial.errors import StoreError
from iotrial.store import records
from iotrial.store.collecting import keeping_all
from iotrial.store.columns import Tables
from iotrial.store.model import RunRecord

_Bins = dict[str, list[list[int]]]
_numbers = msgspec.json.Decoder(dict[str, float])
_labels = msgspec.json.Decoder(dict[str, str])
_indices = msgspec.json.Decoder(list[int])
_bins = msgspec.json.Decoder(_Bins)
_pairs = msgspec.json.Decoder(dict[str, list[tuple[int, int]]])
_checks = msgspec.json.Decoder(dict[str, Any])
_SHAPE = [str, int, int, str, str, str]
_FAILURE = (str, type(None))
_NONE: Mapping[str, Sequence[Sequence[int]]] = {}


class StoredHistograms(Mapping[str, Sequence[Sequence[int]]]):
    """Histograms by operation, of a text that is known to hold some."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def _read(self) -> _Bins:
        return _bins.decode(self._text)

    def __getitem__(self, operation: str) -> Sequence[Sequence[int]]:
        return self._read()[operation]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def items(self):  # type: ignore[no-untyped-def]
        """All at once: what is asked for one by one is read one by one."""
        return self._read().items()


def runs_of(rows: Iterable[records.Row]) -> tuple[RunRecord, ...]:
    """The runs in the columns of ``records.RUN_COLUMNS``, in their order. StoreError where one is damaged."""
    reader = _Reader()
    with keeping_all():
        return tuple(map(reader.run, rows))


class _Reader:
    """Reads runs one after the other."""

    def __init__(self) -> None:
        self._tables = Tables()
        self._treatments: dict[str, Mapping[str, str]] = {}
        self._words: dict[str, str] = {}

    def run(self, row: records.Row) -> RunRecord:
        try:
            return self._run(row)
        except (msgspec.DecodeError, RecursionError, ValueError, TypeError, OverflowError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"holds a damaged record: {str(error)[:200]}") from error

    def _run(self, row: records.Row) -> RunRecord:
        condition, block, slot, arm, kind, treatment, started_s, failure, *texts, files = row
        responses, evidence, histograms, checks = texts
        if [*map(type, row[:6])] != _SHAPE or not math.isfinite(started_s) or type(failure) not in _FAILURE:
            raise StoreError("holds a damaged record: a run of another shape")
        return RunRecord(
            condition=self._once(condition),
            block=block,
            slot=slot,
            arm=self._once(arm),
            kind=self._once(kind),
            treatment=self._treatment(treatment),
            started_s=started_s,
            failure=failure,
            responses=_numbers.decode(_sound(responses)),
            evidence=self._evidence(_sound(evidence)),
            histograms=_histograms(_sound(histograms)),
            checks=_checks.decode(_sound(checks)),
            files=None if files is None else tuple(_indices.decode(files)),
        )

    def _once(self, word: str) -> str:
        return self._words.setdefault(word, word)

    def _treatment(self, text: str) -> Mapping[str, str]:
        found = self._treatments.get(text)
        if found is None:
            found = self._treatments[text] = _labels.decode(_sound(text))
        return found

    def _evidence(self, text: str) -> Mapping[str, float]:
        return self._tables.row(_numbers.decode(text))


def _histograms(text: str) -> Mapping[str, Sequence[Sequence[int]]]:
    return StoredHistograms(text) if _pairs.decode(text) else _NONE


def _sound(text: str) -> str:
    """The text, unless there is half a character in it, which nothing could print."""
    if "\\" in text and "\\u" in text:  # one character is looked for ten times as fast as two
        records.object_of(text)
    return text
