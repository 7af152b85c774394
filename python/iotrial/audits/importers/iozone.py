"""iozone: the table on its standard output, the reports of ``-R``, and the sums of its throughput mode (``-t``).

A file is one run under its label; a second table in it is another series. Tests that were not run leave blanks in
the table, so a value belongs to the column with a name that ends where it ends; versions differ in width and in order. Rates
are kB/s of 1024 bytes unless the file says otherwise (``-O``: operations per second, ``-N``: microseconds per operation).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from iotrial.audits.importers.contract import (
    MAX_ROWS,
    Format,
    Imported,
    ReadOptions,
    Source,
    label,
    no_result,
)
from iotrial.audits.model import Observation
from iotrial.errors import RequestError
from iotrial.units import measured

TESTS = (
    "write", "rewrite", "read", "reread", "random_read", "random_write", "backward_read", "record_rewrite",
    "stride_read", "fwrite", "frewrite", "fread", "freread",
)  # fmt: skip
#: tests that one option runs
_PAIRS = (
    ("write", "rewrite"), ("read", "reread"), ("random_read", "random_write"), ("fwrite", "frewrite"), ("fread", "freread"),
)  # fmt: skip
#: a value ends at most this many characters from the end of its column's name
_OFF = 3
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
    "pwrite": "pwrite",
    "re-pwrite": "re_pwrite",
    "pread": "pread",
    "re-pread": "re_pread",
    "fwrite": "fwrite",
    "re-fwrite": "frewrite",
    "fread": "fread",
    "re-fread": "freread",
}
_HEADER = re.compile(r"\s*k?B\s+reclen\s+write\s+rewrite\b[^0-9]*", re.I)
#: from this many digits on two numbers of 8 touch each other, as 3.4xx prints them
_TOUCHING, _WIDTH = 10, 8
_ROW = re.compile(r"(\s*[0-9]{1,12}\s+[0-9]{1,9})((?:\s+[0-9]{1,120})*)\s*")
_POSITIONED = re.compile(r"^[ \t]*Command line used:.* -i ?(?:9|1[0-2])\b", re.M)
#: a row of a table, or a sum, that is damaged or out of place
_LIKE = re.compile(r"(?:[0-9]{2,}\s+){4}|see throughput|Children")
_REPORT = re.compile(r'"(.{1,40}) report"\s*', re.I)
_HEADING = re.compile(r'\s*"[^"0-9][^"]*".*')
_THROUGHPUT = re.compile(
    r"\s*Children see throughput for\s+([0-9]{1,6})\s+(.{1,40}?)\s*=\s*([0-9.]{1,24})\s*(?:kB|KB)/sec\s*"
)
_SIZES = re.compile(
    r"\s*Each (?:process|thread) writes an? ([0-9]{1,15}) k?byte file in ([0-9]{1,12}) k?byte records\s*",
    re.I,
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
    unread: list[str] = []
    if _POSITIONED.search(source.text):
        raise RequestError(
            f"{source.name}: iozone prints pwrite and pread below the names of write and read",
            hint="run iozone without -i 9 to -i 12",
        )
    found = [*_tables(source.name, lines, unread), *(("", row) for row in _sums(lines))]
    if not found:
        found = [("", row) for row in _reports(source.name, lines, unread)]
    if not found:
        raise no_result(source, "iozone", unread)
    observations = (
        Observation(
            source.stem,
            test,
            unit,
            value,
            condition,
            series=series,
            step=1.0 if value == int(value) else None,
        )
        for series, (test, condition, value) in found
    )
    kept = tuple(one for one in observations if one.value > 0.0)
    if len(kept) < len(found):
        unread.append(f"{len(found) - len(kept)} values of 0: not run, or too fast for the clock")
    if "Iozone: Performance Test" in source.text and "iozone test complete" not in source.text:
        unread.append(f"{source.name}: what followed its last line (iozone ends with 'iozone test complete')")
    return Imported(kept, unread=tuple(unread))


def _unit(text: str) -> str:
    sentence = re.search(r"Output is in (.{1,60})", text)
    words = sentence[1].casefold() if sentence else ""
    if "microseconds" in words:
        return "us"
    return "1/s" if "op" in words else "KiB/s"


Row = tuple[str, tuple[tuple[str, str], ...], float]


def _tables(name: str, lines: Sequence[str], unread: list[str]) -> Iterator[tuple[str, Row]]:
    """Yield the series and the results of each row of each table; a row that does not fit its header is named."""
    columns: list[tuple[int, str]] = []
    tables = 0
    for at, line in enumerate(lines, start=1):
        if _HEADER.fullmatch(line):
            columns = _columns(line)
            tests: set[str] = set()
            tables += 1
            continue
        match = _ROW.fullmatch(line) if columns else None
        if match is None:
            columns = columns if line.strip() else []
            if columns or (_LIKE.search(line) and not _THROUGHPUT.fullmatch(line)):
                unread.append(f"{name}: line {at} ({label(line)[:60]})")
            continue
        found = _by_column(line, match.end(1), columns)
        if found is None:
            unread.append(f"{name}: line {at} (its numbers do not stand below the names of the tests)")
            continue
        file_kib, record_kib = match[1].split()
        condition = (("file_kib", file_kib), ("record_kib", record_kib))
        tests = tests or {test for test, _ in found}
        if lacking := tests - {test for test, _ in found}:
            unread.append(f"{name}: line {at} (no {', '.join(sorted(lacking))})")
        series = "" if tables == 1 else f"table {tables}"
        yield from ((series, (test, condition, value)) for test, value in found)


def _columns(header: str) -> list[tuple[int, str]]:
    """Where each test's name ends, and the test: the second line of the header has the last word of each name."""
    words = [(word.end(), word[0].casefold()) for word in re.finditer(r"\S+", header)][2:]
    names = iter(TESTS)
    found = []
    for end, word in words:
        test = next((name for name in names if name.rpartition("_")[2] == word), None)
        if test is None:
            break
        found.append((end, test))
    return found


def _by_column(line: str, start: int, columns: Sequence[tuple[int, str]]) -> list[tuple[str, float]] | None:
    """The numbers after ``start``, each with the test above it; None if one stands below none or below two."""
    words = [one for word in re.finditer(r"[0-9]+", line[start:]) for one in _apart(word[0], word.end())]
    if len(words) == len(columns):  # wide numbers push the others to the right
        return [(test, value) for (_, test), (_, value) in zip(columns, words, strict=True)]
    found: dict[str, float] = {}
    for end, value in words:
        distance, test = min((abs(column - start - end), test) for column, test in columns)
        if distance > _OFF or test in found:
            return None
        found[test] = value
    # a number that is missing would shift those after it below the name of another test
    return None if any((one in found) != (other in found) for one, other in _PAIRS) else list(found.items())


def _apart(digits: str, end: int) -> Iterator[tuple[int, float]]:
    """Numbers that touch, each with where it ends: all but the first fill their columns."""
    if len(digits) >= _TOUCHING:
        yield from _apart(digits[:-_WIDTH], end - _WIDTH)
        digits = digits[-_WIDTH:]
    yield end, float(digits)


def _reports(name: str, lines: Sequence[str], unread: list[str]) -> Iterator[Row]:
    test: str | None = None
    records: list[str] = []
    for at, line in enumerate(lines, start=1):
        if _HEADING.fullmatch(line):
            match = _REPORT.fullmatch(line)
            test, records = _REPORTS.get(match[1].casefold().strip()) if match else None, []
            if test is None and " report" in line:  # such as CPU utilization
                unread.append(f"{name}: line {at} and its table ({label(line)[:60]})")
            continue
        words = line.split()
        if test is None or not words:
            continue
        if not records:
            records = [word.strip('"') for word in words]
            continue
        values = [measured(word) for word in words[1:]]
        if None in values or not 0 < len(values) <= len(records):
            unread.append(f"{name}: line {at} ({label(line)[:60]})")
            continue
        for record, value in zip(records, values, strict=False):
            yield (
                test,
                (("file_kib", label(words[0].strip('"'))), ("record_kib", label(record))),
                value or 0.0,
            )


def _sums(lines: Sequence[str]) -> Iterator[Row]:
    sizes: tuple[tuple[str, str], ...] = ()
    for line in lines:
        if match := _SIZES.fullmatch(line):
            sizes = (("file_kib", match[1]), ("record_kib", match[2]))
        if match := _THROUGHPUT.fullmatch(line):
            value = measured(match[3])
            if value is not None:
                yield label(match[2]).replace(" ", "_"), (("processes", match[1]), *sizes), value


FORMAT = Format("iozone", "iozone text", recognises, read, rank=20)
