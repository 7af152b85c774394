"""What common programs print: a line for each result, so that a table of patterns reads them.

A file is one or more runs of one program under its label; a result that is printed again is a repeat, in the file's order.
Summaries over the runs (a best, a mean over runs) are never taken for runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from iotrial.audits.importers.contract import MAX_ROWS, Format, Imported, ReadOptions, Source, label
from iotrial.audits.model import Observation
from iotrial.errors import RequestError
from iotrial.units import measured

_NUMBER = r"(?P<value>[0-9]+(?:\.[0-9]+)?)"
_LONGEST_LINE = 1000


@dataclass(frozen=True, slots=True)
class _Result:
    """A line with a ``value``; groups called ``unit``, ``response`` and ``minutes`` add to it, all others are conditions."""

    pattern: re.Pattern[str]
    response: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class _Program:
    """``sure``: a line only this program prints; ``results``: its lines with numbers; ``parts``: headings (conditions)."""

    title: str
    sure: re.Pattern[str]
    results: tuple[_Result, ...]
    parts: tuple[re.Pattern[str], ...] = ()


def _line(pattern: str, response: str = "", unit: str = "") -> _Result:
    return _Result(re.compile(pattern), response, unit)


_YCSB = r"\[(?P<operation>[A-Z][A-Z_-]{0,40})\], "
_PROGRAMS = (
    _Program(
        "dd",
        re.compile(r"[0-9]+ bytes (?:\(.{1,40}\) )?copied, [0-9.e+-]+ s, "),
        (_line(rf"(?P<bytes>[0-9]+) bytes (?:\(.{{1,40}}\) )?copied, {_NUMBER} s, .*", "time", "s"),),
    ),
    _Program(
        "the shell's time",
        re.compile(r"real\s+[0-9]+m[0-9]+[.,][0-9]+s"),
        (_line(r"(?P<response>real|user|sys)\s+(?P<minutes>[0-9]+)m(?P<value>[0-9]+(?:[.,][0-9]+)?)s", "", "s"),),
    ),
    _Program(
        "hdparm -t and -T",
        re.compile(r"\s*Timing (?:cached|buffered disk|O_DIRECT (?:cached|disk)) reads:.*"),
        (_line(rf"Timing (?P<test>[A-Za-z_ ]+):.*=\s*{_NUMBER} (?P<unit>[MGk]B/sec)", "rate"),),
        parts=(re.compile(r"(?P<device>/dev/\S{1,60}):"),),
    ),
    _Program(
        "sysbench",
        re.compile(r"sysbench [0-9][0-9.]*.* \(using .*\)"),
        (
            _line(rf"(?P<response>read|written), (?P<unit>MiB/s):\s+{_NUMBER}"),
            _line(rf"(?P<response>reads|writes|fsyncs)/s:\s+{_NUMBER}", "", "1/s"),
            _line(rf"events per second:\s+{_NUMBER}", "events", "1/s"),
            _line(rf"transactions:\s+[0-9]+\s+\({_NUMBER} per sec\.\)", "transactions", "1/s"),
        ),
        parts=(
            re.compile(r"(?P<name>Number of threads|Block size):? (?P<value>.{1,40})"),
            re.compile(r"Doing (?P<test>.{1,60}) test"),
        ),
    ),
    _Program(
        "pgbench",
        re.compile(r"number of transactions actually processed: .*"),
        (
            _line(rf"latency average = {_NUMBER} ms", "latency_average", "ms"),
            _line(rf"tps = {_NUMBER} \((?:without initial|excluding) connection.{{1,20}}\)", "tps", "1/s"),
        ),
        parts=(
            re.compile(r"(?P<name>scaling factor|number of clients|number of threads|query mode): (?P<value>.{1,60})"),
            re.compile(r"transaction type: (?P<script>.{1,100})"),
        ),
    ),
    _Program(
        "go test -bench",
        re.compile(r"Benchmark\S*\s+[0-9]+\s+[0-9.]+ ns/op.*"),
        (
            _line(rf"(?P<benchmark>Benchmark\S{{0,150}})\s+[0-9]+\s+{_NUMBER} ns/op.*", "time", "ns"),
            _line(rf"(?P<benchmark>Benchmark\S{{0,150}})\s+[0-9]+\s.*\s{_NUMBER} MB/s.*", "rate", "MB/s"),
        ),
    ),
    _Program(
        "YCSB",
        re.compile(r"\[OVERALL\], Throughput\(ops/sec\), .*"),
        (
            _line(rf"{_YCSB}Throughput\(ops/sec\), {_NUMBER}", "throughput", "1/s"),
            _line(rf"{_YCSB}(?P<response>[A-Za-z0-9.]{{1,40}})\((?P<unit>us|ms)\), {_NUMBER}"),
        ),
    ),
    _Program(
        "db_bench",
        re.compile(r"[a-z]\w{2,40}\s+:\s+[0-9.]+ micros/op.*"),
        (
            _line(rf"(?P<benchmark>[a-z]\w{{2,40}})\s+:\s+{_NUMBER} micros/op.*", "time", "us"),
            _line(rf"(?P<benchmark>[a-z]\w{{2,40}})\s+:.*\s{_NUMBER} MB/s.*", "rate", "MB/s"),
        ),
    ),
    _Program(
        "CrystalDiskMark or KDiskMark",
        re.compile(r".*(?:CrystalDiskMark|KDiskMark) .*"),
        (_line(rf"(?P<test>(?:SEQ|RND|Sequential|Random)\s.{{1,60}}?\S)\s*:\s+{_NUMBER} (?P<unit>[MG]B/s).*", "rate"),),
        parts=(re.compile(r"\s*\[(?P<direction>Read|Write|Mix)\].*"),),
    ),
)  # fmt: skip


#: programs whose output is no run or cannot be told apart: by which lines it is known, and what to do
_REFUSED: tuple[tuple[str, str, str], ...] = (
    (
        "fio's normal output",
        r"\S.*: \(groupid=[0-9]+, jobs=[0-9]+\): err=.*",
        "run fio with --output-format=json",
    ),
    (
        "fio's terse output",
        r"[2-5];(?:fio-[^;]*;)?[^;]*;[0-9]+;[0-9]+;(?:[^;]*;){40,}.*",
        "run fio with --output-format=json",
    ),
    (
        "a log of fio (write_bw_log, write_lat_log, write_iops_log)",
        r"[0-9]+, [0-9]+, [012], [0-9]+(?:, .*)?",
        "its lines are samples within one run, not repeats: run fio several times with --output-format=json",
    ),
    (
        "sysstat (iostat, sar, mpstat, pidstat, sadf)",
        r"Linux \S+ \(.*\)\s+[0-9/.-]+\s+_\S+_\s+\(.*CPU\).*|# hostname[;,].*",
        "its lines are samples over time, not repeats: import the result of each run of the work instead",
    ),
    (
        "vdbench",
        r"\s*Vdbench distribution:.*|.*Starting RD=.*; elapsed=.*",
        "its lines are intervals of one run: write the avg_ row of each run into a table",
    ),
    (
        "benchstat",
        r"\s*│.*(?:sec/op|B/s|B/op)\s*│.*|name\s+(?:old|time/op).*(?:new|±).*",
        "it is a summary: import what `go test -bench . -count 10` prints",
    ),
    (
        "criterion or hyperfine's text output",
        r"\S.*\s+time:\s+\[[0-9.]+ .?s [0-9.]+ .?s [0-9.]+ .?s\]|\s*Time \(mean ± σ\):.*",
        "it is a summary: import hyperfine's --export-json, or criterion's raw.csv",
    ),
    ("the output of ioping", r"--- .* ioping statistics ---", "write the average of each run into a table"),
)


def refusal(text: str) -> tuple[str, str] | None:
    """The name of a program whose output cannot be audited, and what to do instead; None if the text is of none."""
    lines = [line for line in text.split("\n", 200)[:200] if line.strip() and len(line) <= 4000]
    for title, pattern, hint in _REFUSED:
        found = [re.fullmatch(pattern, line.rstrip()) is not None for line in lines]
        # a log has nothing but samples
        if any(found) if not title.startswith("a log") else len(found) > 1 and all(found):
            return title, hint
    return None


def recognises(text: str) -> bool:
    return _program(text) is not None


def _program(text: str) -> _Program | None:
    for line in text.split("\n", MAX_ROWS)[:MAX_ROWS]:
        if len(line) <= _LONGEST_LINE:
            for program in _PROGRAMS:
                if program.sure.match(line):
                    return program
    return None


def read(source: Source, _: ReadOptions) -> Imported:
    """The results of each run. Raises RequestError if there is none."""
    program = _program(source.text)
    observations = tuple(_results(source, program)) if program else ()
    if program is None or not observations:
        titles = program.title if program else ", ".join(one.title for one in _PROGRAMS)
        raise RequestError(f"{source.name}: contains no result of {titles}")
    return Imported(observations, notes=(f"{source.name} is read as the output of {program.title}",))


def _results(source: Source, program: _Program) -> Iterator[Observation]:
    part: dict[str, str] = {}
    runs: Counter[tuple[object, ...]] = Counter()
    for line in source.text.split("\n", MAX_ROWS)[:MAX_ROWS]:
        if len(line) > _LONGEST_LINE:
            continue
        if heading := next(
            filter(None, (pattern.fullmatch(line.rstrip()) for pattern in program.parts)), None
        ):
            found = heading.groupdict()
            part.update({found["name"]: found["value"]} if "name" in found else found)
            continue
        for result in program.results:
            match = result.pattern.fullmatch(line.strip())
            if match is None:
                continue
            found = match.groupdict()
            written = found.pop("value").replace(",", ".")
            minutes = measured(found.pop("minutes", None)) or 0.0
            response, unit = found.pop("response", result.response), found.pop("unit", result.unit)
            value = measured(written)
            if value is None:
                continue
            condition = tuple((name, label(text)) for name, text in (part | found).items())
            runs[response, unit, condition] += 1
            yield Observation(
                source.stem,
                response,
                unit.replace("/sec", "/s"),
                60.0 * minutes + value,
                condition,
                run=runs[response, unit, condition],
                step=10.0 ** -len(written.partition(".")[2]),
            )


FORMAT = Format("printed", "program output", recognises, read, rank=30)
