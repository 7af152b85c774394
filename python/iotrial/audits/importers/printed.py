"""What common programs print: a line for each result, so that a table of patterns reads them.

A file is one or more runs of one program under its label; a result that is printed again is a repeat, in the file's order.
Summaries over the runs (a best, a mean over runs) are never taken for runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from iotrial.audits.importers.contract import (
    MAX_ROWS,
    Format,
    Imported,
    ReadOptions,
    Source,
    damaged,
    label,
    no_result,
)
from iotrial.audits.model import Observation
from iotrial.units import measured

_NUMBER = r"(?P<value>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
_LONGEST_LINE = 1000
#: go's units: names of responses, and their units
_GO_UNITS = {
    "ns/op": ("time", "ns"),
    "MB/s": ("rate", "MB/s"),
    "B/op": ("memory", "B"),
    "allocs/op": ("allocations", "1"),
}


@dataclass(frozen=True, slots=True)
class _Result:
    """A line with a ``value``; groups called ``unit``, ``response`` and ``minutes`` add to it, all others are conditions."""

    pattern: re.Pattern[str]
    response: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class _Program:
    """``sure``: a line only this program prints; ``like``: what a line with a result holds, even a damaged one.

    ``results``: its lines with numbers; ``parts``: headings (conditions); ``each``: responses that every run prints;
    ``every``: a line has as many results as places that are ``like`` one. ``start``: a line above the results of a run,
    where the text has any: each response comes once below it. ``interim``: a report before the end of a run.
    """

    title: str
    sure: re.Pattern[str]
    like: re.Pattern[str]
    results: tuple[_Result, ...]
    parts: tuple[re.Pattern[str], ...] = ()
    each: tuple[str, ...] = ()
    every: bool = False
    start: re.Pattern[str] | None = None
    interim: re.Pattern[str] | None = None


def _line(pattern: str, response: str = "", unit: str = "") -> _Result:
    return _Result(re.compile(pattern), response, unit)


_GO = r"(?P<benchmark>Benchmark\S{0,150})\s+[0-9]+\s+"
_YCSB = r"\[(?P<operation>[A-Z][A-Z_-]{0,40})\], "
_PROGRAMS = (
    _Program(
        "dd",
        re.compile(r"[0-9]+ bytes (?:\(.{1,40}\) )?(?:copied, [0-9.e+-]+ s|transferred in [0-9.]+ sec)"),
        re.compile(r"bytes.*transferred|copied, |[kMGT]B/s\s*$|^dd: "),
        (
            _line(rf"(?P<bytes>[0-9]+) bytes (?:\(.{{1,40}}\) )?copied, {_NUMBER} s(?:econds)?, .*", "time", "s"),
            _line(rf"(?P<bytes>[0-9]+) bytes transferred in {_NUMBER} secs? .*", "time", "s"),
        ),
        start=re.compile(r"[0-9]+\+[0-9]+ records out"),
    ),
    _Program(
        "the shell's time",
        re.compile(r"real\s+(?:[0-9]+m[0-9]+[.,][0-9]+s|[0-9]+[.,][0-9]+$)"),
        re.compile(r"^\S{1,9}\s+\S*[0-9][.,][0-9]+s?\s*$"),
        (
            _line(r"(?P<response>real|user|sys)\s+(?P<minutes>[0-9]+)m(?P<value>[0-9]+(?:[.,][0-9]+)?)s", "", "s"),
            _line(r"(?P<response>real|user|sys)\s+(?P<value>[0-9]+[.,][0-9]+)", "", "s"),
        ),
        parts=(re.compile(r"[$#%] (?:\S{1,40} ){0,2}?time (?:-p )?(?P<command>.{1,150})"),),
        each=("real", "user", "sys"),
    ),
    _Program(
        "hdparm -t and -T",
        re.compile(r"\s*Timing (?:cached|buffered disk|O_DIRECT (?:cached|disk)) reads:.*"),
        re.compile("Timing .*=|MB/sec"),
        (_line(rf"Timing (?P<test>[A-Za-z_ ]+):[^=]*=\s*{_NUMBER} (?P<unit>[MGk]B/sec)", "rate"),),
        parts=(re.compile(r"(?P<device>/dev/\S{1,60}):"),),
    ),
    _Program(
        "sysbench",
        re.compile(r"\s*sysbench (?:[0-9][0-9.]*.* \(using .*\)|0\.[0-9.]+: +multi-threaded .*)"),
        re.compile(
            r"(?:read|written), |Total operations|(?:reads|writes|fsyncs)/|/s:|events \S+ second|events per|per second"
            r"|^\s+t\w+:\s+\d+\s+\("
            r"|transactions:|MiB transferred|MiB/sec|avg:|percentile:|IOPS=|MiB/s|M[bB]/sec|Requests/sec|Total transferred"
            r"|^(?!.*stddev).*events.*[0-9]\.[0-9]{2}$"
        ),
        (
            _line(rf"avg:\s+{_NUMBER}(?:ms)?", "latency_average", "ms"),
            _line(rf"(?P<response>[0-9]+th percentile):\s+{_NUMBER}", "", "ms"),
            _line(rf"approx\.\s+95 percentile:\s+{_NUMBER}ms", "95th percentile", "ms"),
            _line(rf"Read \S+\s+Written \S+\s+Total transferred \S+\s+\({_NUMBER}Mb/sec\)", "transferred", "MiB/s"),
            _line(rf"{_NUMBER} Requests/sec executed", "requests", "1/s"),
            _line(rf"read:\s+IOPS={_NUMBER} .*", "reads", "1/s"),
            _line(rf"write:\s+IOPS={_NUMBER} .*", "writes", "1/s"),
            _line(rf"fsync:\s+IOPS={_NUMBER}", "fsyncs", "1/s"),
            _line(rf"read:\s+IOPS=\S+ {_NUMBER} MiB/s .*", "read", "MiB/s"),
            _line(rf"write:\s+IOPS=\S+ {_NUMBER} MiB/s .*", "written", "MiB/s"),
            _line(rf"Total operations: [0-9]+ \({_NUMBER} per second\)", "operations", "1/s"),
            _line(rf".* MiB transferred \({_NUMBER} MiB/sec\)", "transferred", "MiB/s"),
            _line(rf"(?P<response>read|written), (?P<unit>MiB/s):\s+{_NUMBER}"),
            _line(rf"(?P<response>reads|writes|fsyncs)/s:\s+{_NUMBER}", "", "1/s"),
            _line(rf"events per second:\s+{_NUMBER}", "events", "1/s"),
            _line(rf"transactions:\s+[0-9]+\s+\({_NUMBER} per sec\.\)", "transactions", "1/s"),
        ),
        parts=(
            re.compile(
                r"(?P<name>Number of threads|Block size|Prime numbers limit|block size|operation):? (?P<value>.{1,40})"
            ),
            re.compile(r"Doing (?P<test>.{1,60}) test"),
        ),
        each=("latency_average", "95th percentile"),
        interim=re.compile(r"\[\s*[0-9]+s\s*\] .*"),
    ),
    _Program(
        "pgbench",
        re.compile(r"number of transactions actually processed: .*"),
        re.compile("tps = |latency average = |statement latencies in"),
        (
            _line(rf"latency average = {_NUMBER} ms", "latency_average", "ms"),
            _line(rf"tps = {_NUMBER} \((?:without initial|excluding) connection.{{1,20}}\)", "tps", "1/s"),
        ),
        parts=(
            re.compile(r"(?P<name>scaling factor|number of clients|number of threads|query mode): (?P<value>.{1,60})"),
            re.compile(r"transaction type: (?P<script>.{1,100})"),
        ),
        each=("latency_average", "tps"),
        start=re.compile("number of transactions actually processed: .*"),
        interim=re.compile("progress: .*"),
    ),
    _Program(
        "go test -bench",
        re.compile(r"Benchmark\S*\s+[0-9]+\s+[0-9.]+ \S+/op.*"),
        re.compile(r"\s\S+ ?[A-Za-z%]\S*/\S+|^Benchmark\S*\s+(?!\s|[0-9]+\s)"),
        tuple(
            _line(rf"{_GO}(?:\S+ \S+\s+){{{at}}}{_NUMBER} (?P<unit>[A-Za-z%]\S{{0,40}})(?:\s+\S+ \S+)*") for at in range(8)
        ),
        parts=(re.compile(r"pkg: (?P<package>\S{1,150})"),),
        every=True,
    ),
    _Program(
        "YCSB",
        re.compile(r"\[OVERALL\], Throughput\(ops/sec\), .*"),
        re.compile(r"\((?:us|ms|ops/sec)\)|^\[[^\]]*\], (?!Operations,|Return=|>?[0-9]+,)"),
        (
            _line(rf"{_YCSB}Throughput\(ops/sec\), {_NUMBER}", "throughput", "1/s"),
            _line(rf"{_YCSB}(?P<response>[A-Za-z0-9.]{{1,40}})\((?P<unit>us|ms)\), {_NUMBER}"),
        ),
        parts=(
            re.compile(r"Command line:.* -P (?:\S*/)?(?P<workload>[^/\s]{1,60})(?: .*)?"),
            re.compile(r"Command line:.* -threads (?P<threads>[0-9]{1,6})(?: .*)?"),
        ),
    ),
    _Program(
        "db_bench",
        re.compile(r"[a-z]\w{2,40}\s+:\s+[0-9.]+ micros/op.*"),
        re.compile(r"^[^;]*?(?:\s:\s|micros/)[^;]*|;\s+[^(\s]"),
        (
            _line(rf"(?P<benchmark>[a-z]\w{{2,40}})\s+:\s+{_NUMBER} micros/op.*", "time", "us"),
            _line(rf"(?P<benchmark>[a-z]\w{{2,40}})\s+:.*\s{_NUMBER} MB/s.*", "rate", "MB/s"),
        ),
        parts=(re.compile(r"(?P<name>Keys|Values|Entries|Compression):\s+(?P<value>.{1,60})"),),
        every=True,
    ),
    _Program(
        "CrystalDiskMark or KDiskMark",
        re.compile(r".*(?:CrystalDiskMark|KDiskMark) .*"),
        re.compile(r"\(Q=|^(?!.*\(Q=).*IOPS\]"),
        (_line(rf"(?P<test>(?:SEQ|RND|Sequential|Random)\s.{{1,60}}?\S)\s*:\s+{_NUMBER} (?P<unit>[MG]B/s).*", "rate"),),
        parts=(re.compile(r"\s*\[(?P<direction>Read|Write|Mix)\].*"),),
        every=True,
    ),
)  # fmt: skip


OWN_TABLE = "write the figure of each run into a table (docs/auditing.md)"
_SAMPLES = "its lines are samples over time, not repeats: import the result of each run"
_FIO = "import what `fio --output-format=json` prints"
_GO_TEST = "import what `go test -bench . -count 10` prints"
_TIME = "time each run with bash's time or `hyperfine --export-json`"
#: programs that print no single run, or something ambiguous: by which lines it is known, and what to do
_REFUSED: tuple[tuple[str, str, str], ...] = (
    (
        "fio's normal output",
        r"\S.*: \(groupid=[0-9]+, jobs=[0-9]+\): err=.*|(?:read|write|trim) ?: (?:io=|IOPS=).*",
        _FIO,
    ),
    ("fio's terse output", r"[2-5];(?:fio-[^;]*;)?[^;]*;[0-9]+;[0-9]+;(?:[^;]*;){40,}.*", _FIO),
    (
        "a log of fio (write_bw_log, write_lat_log, write_iops_log, write_hist_log)",
        r"[0-9]+, [0-9]+, [0-3], [0-9]+(?:, .*)?|[0-9]+, [0-2], [0-9]+(?:, [0-9]+){100}.*",
        _FIO,
    ),
    ("a fio job file", r"\[global\]", _FIO),
    (
        "sysstat (iostat, sar, mpstat, pidstat, sadf)",
        r"Linux \S+ \(.*\)\s+[0-9/.-]+\s+_\S+_\s+\(.*CPU\).*|# hostname[;,].*|\{\s*\"sysstat\".*|avg-cpu:\s+%user.*"
        r"|Device\s+(?:[\w/%-]+\s+)*(?:tps|r/s)\s+[\w/%\s-]*",
        _SAMPLES,
    ),
    ("vmstat or dstat", r"procs -+memory-+.*|\"(?:pcp-)?dstat .*CSV output\".*", _SAMPLES),
    (
        "vdbench",
        r"\s*Vdbench distribution:.*|.*Starting RD=.*; elapsed=.*|\*?\s*tod\s+timestamp\s+Run\s.*",
        "write the avg_ row of each run into a table",
    ),
    (
        "benchstat",
        r"\s*│.*(?:sec/op|B/s|B/op)\s*│.*|name\s+(?:old|time/op).*(?:new|±).*",
        _GO_TEST,
    ),
    (
        "hyperfine's text output",
        r"\s*Time \((?:mean ± σ|abs ≡)\):.*",
        "it is a summary: use --export-json",
    ),
    (
        "criterion's JSON or raw.csv",
        r"\{\"mean\":\{\"confidence_interval\".*|group,function,value,throughput_num,.*",
        "make a table of raw.csv: sample_measured_value / iteration_count",
    ),
    (
        "google-benchmark's console or CSV output",
        r"Benchmark\s+Time\s+CPU\s+Iterations.*|name,iterations,real_time,cpu_time,time_unit,.*",
        "use --benchmark_format=json --benchmark_repetitions=10",
    ),
    ("hyperfine's AsciiDoc output", r"\[cols=\"<,>,>,>,>\"\]", "use --export-json"),
    (
        "pytest-benchmark's console output",
        r"-+ benchmark: [0-9]+ tests -+|Name \(time in .s\)\s+Min\s.*",
        "use --benchmark-json with --benchmark-save-data",
    ),
    ("go test -json", r"\{\"Time\":\".*\"Action\":\".*", _GO_TEST),
    ("elbencho's text output", r"OPERATION\s+RESULT TYPE\s+FIRST DONE.*", "use --csvfile"),
    ("the disk test of yabs", r"fio Disk Speed Tests.*", _FIO),
    ("kbench", r"FIO Benchmark Summary.*", _FIO),
    (
        "time (GNU, BSD, zsh or fish)",
        r".*[0-9]user\s+[0-9.]+system.*elapsed.*|\s*Command being timed: .*|\s*[0-9.]+ real\s+[0-9.]+ user\s.*"
        r"|.*\s[0-9.]+s user [0-9.]+s system .*total|Executed in\s.*",
        _TIME,
    ),
    ("perf stat", r"\s*Performance counter stats for .*", _TIME),
    ("ioping", r"--- .* ioping statistics ---|.*: request=[0-9]+ time=.*", OWN_TABLE),
    ("ApacheBench", r"This is ApacheBench.*", OWN_TABLE),
    ("dbench", r"dbench version .*|\s*Operation\s+Count\s+AvgLat\s+MaxLat", OWN_TABLE),
    ("fs_mark", r"FSUse%\s+Count\s+Size\s+Files/sec\s.*", OWN_TABLE),
    ("filebench", r"Filebench Version .*", OWN_TABLE),
    ("IOR", r"IOR-[0-9].*", OWN_TABLE),
    ("rados bench", r"Total time run:.*", OWN_TABLE),
    ("redis-benchmark's text output", r"====== .* ======", "use --csv"),
    ("stress-ng", r"stress-ng: (?:info|metrc): .*", OWN_TABLE),
    ("wrk", r"Running .* test @ .*", OWN_TABLE),
    ("a web page", r"(?i)<!doctype html.*|<(?:html|table)\b.*", OWN_TABLE),
)  # fmt: skip


def refusal(text: str) -> tuple[str, str] | None:
    """The name of a program with output that cannot be audited, and what to do instead; None if the text is of none."""
    lines = [line[:4000] for line in text.split("\n", 200)[:200] if line.strip()]
    for title, pattern, hint in _REFUSED:
        found = [re.fullmatch(pattern, line.strip()) is not None for line in lines]
        # a log has nothing but samples
        if any(found) if not title.startswith("a log") else len(found) > 1 and all(found):
            return title, hint
    if text.lstrip().startswith(("{", "[{", "[\n")):
        return "JSON of an unknown program", OWN_TABLE
    return None


def recognises(text: str) -> bool:
    return bool(_programs(text))


def others(text: str) -> str:
    """The names of programs with results in the text as well; empty if there are none."""
    return ", ".join(program.title for program in _programs(text))


def _programs(text: str) -> list[_Program]:
    """The programs that certainly printed some of the lines: `time dd ...` has two."""
    lines = [line for line in text.split("\n", MAX_ROWS)[:MAX_ROWS] if len(line) <= _LONGEST_LINE]
    return [program for program in _PROGRAMS if any(map(program.sure.match, lines))]


def read(source: Source, _: ReadOptions) -> Imported:
    """The results of each run. Raises RequestError if there is none."""
    programs = _programs(source.text)
    unread: list[str] = []
    observations: tuple[Observation, ...] = ()
    for program in programs:
        found = tuple(_results(source, program, unread))
        counts = Counter(one.response for one in found)
        if len({counts[response] for response in program.each}) > 1:
            numbers = ", ".join(f"{counts[response]} {response}" for response in program.each)
            unread.append(damaged(source.name, f"results: {numbers}"))
        commands = {value for one in found for name, value in one.condition if name == "command"}
        if len(commands) == 1:  # one that only differs between files is their group's
            found = tuple(
                replace(one, condition=tuple(pair for pair in one.condition if pair[0] != "command"))
                for one in found
            )
        observations += found
    titles = ", ".join(one.title for one in programs or _PROGRAMS)
    if not observations:
        raise no_result(source, titles)
    return Imported(observations, notes=(f"read as the output of {titles}",), unread=tuple(unread))


def _results(source: Source, program: _Program, unread: list[str]) -> Iterator[Observation]:
    part: dict[str, str] = {}
    runs: Counter[tuple[object, ...]] = Counter()
    start = program.start if program.start and program.start.search(source.text) else None
    seen: set[str] | None = None  # responses below the start of a run
    interim, ended = 0, False
    for at, line in enumerate(source.text.split("\n", MAX_ROWS)[:MAX_ROWS], start=1):
        if len(line) > _LONGEST_LINE:
            unread.append(f"{source.name}: line {at} (longer than {_LONGEST_LINE} characters)")
            continue
        if program.interim and program.interim.fullmatch(line.strip()):
            interim += 1
            continue
        if start and start.fullmatch(line.strip()):
            seen = set()
        headings = [match for pattern in program.parts if (match := pattern.fullmatch(line.strip()))]
        for heading in headings:
            named = heading.groupdict()
            if ended:  # what an earlier run did says nothing of the next
                part, ended = {}, False
            part.update({named["name"]: named["value"]} if "name" in named else named)
        matches = [(result, result.pattern.fullmatch(line.strip())) for result in program.results]
        places, results = len(program.like.findall(line)), sum(match is not None for _, match in matches)
        if places and (headings or (places > results if program.every else not results)):
            unread.append(f"{source.name}: line {at} ({label(line)[:60]})")
        for result, match in matches if not headings else ():
            if match is None:
                continue
            found = match.groupdict()
            written = found.pop("value").replace(",", ".")
            minutes = measured(found.pop("minutes", None)) or 0.0
            unit = found.pop("unit", result.unit)
            response = found.pop("response", result.response) or unit
            if "benchmark" in found:
                response, unit = _GO_UNITS.get(unit, (response, unit))
            value = measured(written)
            if value is None or (start and (seen is None or response in seen)):
                unread.append(f"{source.name}: line {at} ({label(line)[:60]})")
                continue
            seen, ended = {*(seen or ()), response}, True
            condition = tuple((name, label(text)) for name, text in (part | found).items())
            runs[response, unit, condition] += 1
            yield Observation(
                source.stem,
                response,
                unit.replace("/sec", "/s"),
                60.0 * minutes + value,
                condition,
                run=runs[response, unit, condition],
                step=10.0 ** int(Decimal(written).as_tuple().exponent),
            )
    if interim:
        unread.append(f"{source.name}: interim reports ({interim})")


FORMAT = Format("printed", "program output", recognises, read, rank=30)
