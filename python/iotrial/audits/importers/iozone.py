"""iozone: the table on its standard output, the reports of ``-R``, and the sums of its throughput mode (``-t``).

A file is one run under its label. Tests that were not run leave blanks in the table, so a value is assigned
to the column that ends where it ends; the order of the columns is iozone's. Rates are kB/s of 1024 bytes
unless the file says otherwise (``-O``: operations per second, ``-N``: microseconds per operation).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from iotrial.audits.importers.contract import MAX_ROWS, Format, Imported, ReadOptions, Source, label
from iotrial.audits.model import Observation
from iotrial.errors import RequestError
from iotrial.units import measured

TESTS = (
    "write", "rewrite", "read", "reread", "random_read", "random_write", "backward_read", "record_rewrite",
    "stride_read", "fwrite", "frewrite", "fread", "freread",
)  # fmt: skip
#: where each test's value ends, counted from the end of the record size: nine characters each, ten for stride read
_ENDS = (9, 18, 27, 36, 45, 54, 63, 72, 82, 91, 100, 109, 118)
_REPORTS = {
    "writer": "write",
    "re-writer": "rewrite",
    "reader": "read",
    "re-reader": "reread",
    "random read": "random_read",
    "random write": "random_write",
    "backward read": "backward_read",
    "record rewrite": "record_rewrite",
    "stride read": "stride_read",
    "fwrite": "fwrite",
    "re-fwrite": "frewrite",
    "fread": "fread",
    "re-fread": "freread",
}
_HEADER = re.compile(r"\s*k?B\s+reclen\s+write\s+rewrite\b.*", re.I)
_ROW = re.compile(r"(\s*[0-9]{1,12}\s+[0-9]{1,9})((?:\s+[0-9]{1,12})*)\s*")
_REPORT = re.compile(r'"(.{1,40}) report"\s*', re.I)
_THROUGHPUT = re.compile(
    r"\s*Children see throughput for\s+([0-9]{1,6})\s+(.{1,40}?)\s*=\s*([0-9.]{1,24})\s*(?:kB|KB)/sec\s*"
)


def recognises(text: str) -> bool:
    head = text[: 1 << 20]
    return (
        "Iozone: Performance Test" in head
        or any(_HEADER.fullmatch(line) for line in head.split("\n") if len(line) < 300)
        or bool(re.search(r'^"(?:Writer|Reader|Random read) report"', head, re.M))
    )


def read(source: Source, _: ReadOptions) -> Imported:
    lines = [line for line in source.text.split("\n")[:MAX_ROWS] if len(line) < 20_000]
    unit = _unit(source.text)
    found = [*_table(lines), *_sums(lines)]
    if not found:
        found = list(_reports(lines))
    if not found:
        raise RequestError(f"{source.name}: contains no iozone table or report")
    observations = (
        Observation(source.stem, test, unit, value, condition, step=1.0 if value == int(value) else None)
        for test, condition, value in found
    )
    unread = ("a value of 0 is a test that was not run, or was too fast for the clock",)
    kept = tuple(one for one in observations if one.value > 0.0)
    return Imported(kept, unread=unread if len(kept) < len(found) else ())


def _unit(text: str) -> str:
    sentence = re.search(r"Output is in (.{1,60})", text)
    words = sentence[1].casefold() if sentence else ""
    if "microseconds" in words:
        return "us"
    return "1/s" if "op" in words else "KiB/s"


Row = tuple[str, tuple[tuple[str, str], ...], float]


def _table(lines: Sequence[str]) -> Iterator[Row]:
    inside = False
    for line in lines:
        if _HEADER.fullmatch(line):
            inside = True
            continue
        match = _ROW.fullmatch(line) if inside else None
        if match is None:
            inside = inside and not line.strip()
            continue
        file_kib, record_kib = match[1].split()
        condition = (("file_kib", file_kib), ("record_kib", record_kib))
        yield from ((test, condition, value) for test, value in _by_column(match[2]))


def _by_column(rest: str) -> list[tuple[str, float]]:
    words = [(word.end(), float(word[0])) for word in re.finditer(r"[0-9]+", rest)]
    if len(words) >= len(TESTS):
        return [(test, value) for test, (_, value) in zip(TESTS, words, strict=False)]
    found: dict[str, float] = {}
    for end, value in words:
        nearest = min(range(len(TESTS)), key=lambda i: abs(_ENDS[i] - end))
        found.setdefault(TESTS[nearest], value)
    return list(found.items())


def _reports(lines: Sequence[str]) -> Iterator[Row]:
    test: str | None = None
    records: list[str] = []
    for line in lines:
        if match := _REPORT.fullmatch(line):
            test, records = _REPORTS.get(match[1].casefold().strip()), []
            continue
        words = line.split()
        if test is None or not words:
            continue
        if not records:
            records = [word.strip('"') for word in words]
            continue
        for record, word in zip(records, words[1:], strict=False):
            value = measured(word)
            if value is not None:
                yield test, (("file_kib", label(words[0].strip('"'))), ("record_kib", label(record))), value


def _sums(lines: Sequence[str]) -> Iterator[Row]:
    for line in lines:
        if match := _THROUGHPUT.fullmatch(line):
            value = measured(match[3])
            if value is not None:
                yield label(match[2]).replace(" ", "_"), (("processes", match[1]),), value


FORMAT = Format("iozone", "iozone text", recognises, read, rank=20)
