"""Responses and facts that a program prints: ``[[workload.output]]``.

A program knows things about its own work that cannot be measured from outside: transactions per second, the
99th percentile of its requests, what a system call changed. It prints them, as JSON or in lines of text, and
a workload names them. A value that is missing or not a number fails the run.
"""

from __future__ import annotations

import difflib
import itertools
import json
import math
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from iotrial.errors import RequestError, unknown
from iotrial.patterns import MOST_CPU_S, Pattern, PatternError, TooMuchWork
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Form, Line, Name, Problem, formed, keyed
from iotrial.study.work import ResponseSpec
from iotrial.terminal import escape
from iotrial.units import measured

#: of the output of a step, and of a file that it writes
MOST_BYTES = 8 << 20
#: paths that are looked through for one that is similar
_MOST_PATHS = 1000
MOST_OUTPUTS, MOST_FACTS, LONGEST_WORD = 64, 500, 100
FOLDER = "{out}/"
#: accepted units that reports do not use, with the report's unit and the factor
_UNITS = {
    "ns": ("s", 1e-9), "us": ("s", 1e-6), "µs": ("s", 1e-6), "ms": ("s", 1e-3), "min": ("s", 60.0),
    "kB": ("bytes", 1e3), "MB": ("bytes", 1e6), "GB": ("bytes", 1e9),
    "KiB": ("bytes", 1024.0), "MiB": ("bytes", 1024.0**2), "GiB": ("bytes", 1024.0**3),
    "kB/s": ("bytes/s", 1e3), "MB/s": ("bytes/s", 1e6), "GB/s": ("bytes/s", 1e9),
    "KiB/s": ("bytes/s", 1024.0), "MiB/s": ("bytes/s", 1024.0**2), "GiB/s": ("bytes/s", 1024.0**3),
}  # fmt: skip


def _percentile(share: float) -> Callable[[Sequence[float]], float]:
    """Return a nearest-rank percentile: the smallest value that at least this share of all values does not exceed."""
    return lambda values: sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


#: how several values are combined; "only" requires exactly one, and "count" works on any values
_TAKEN: Mapping[str, Callable[[Sequence[float]], float]] = {
    "only": lambda values: values[0],
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "sum": math.fsum,
    "mean": statistics.fmean,
    "median": statistics.median,
    "p90": _percentile(0.9),
    "p99": _percentile(0.99),
    "min": min,
    "max": max,
}


def _regex(text: str) -> None:
    if not text:
        return
    try:
        groups = pattern_of(text).groups
    except PatternError as error:
        raise PatternError(f"is not a regular expression ({error})", hint=error.hint) from None
    if groups != 1:
        raise ValueError(f"expected one group, ( and ), around the value, found {groups}")


@lru_cache(maxsize=64)
def pattern_of(text: str) -> Pattern:
    """Compile the pattern of an output: ^ and $ match at the ends of lines. Raises PatternError."""
    return Pattern(text, lines=True)


def _source(text: str) -> None:
    parts = text.removeprefix(FOLDER).split("/")
    if text in ("stdout", "stderr") or (text.startswith(FOLDER) and not {"", ".", ".."} & set(parts)):
        return
    raise ValueError(f'expected "stdout", "stderr" or "{FOLDER}FILE", found "{text[:80]}"')


class Output(Struct, frozen=True, kw_only=True):
    """One response, or a fact, that a program prints."""

    name: Annotated[Name, Meta(description="name of the response or fact")]
    source: Annotated[
        str,
        Meta(
            max_length=200,
            description='`"stdout"`, `"stderr"`, or a file that the program writes, `"{out}/FILE"`',
        ),
        keyed("from"),
        formed(Form("text", check=_source)),
    ] = "stdout"
    step: Annotated[Name | None, Meta(description="the step that prints it, if there are several")] = None
    json: Annotated[
        Line,
        Meta(description='path in JSON, names and numbers joined by dots: `"results.0.mean"`'),
    ] = ""
    regex: Annotated[
        str,
        Meta(
            max_length=500,
            description="instead of `json`: a regular expression in the syntax of RE2, with one group around the value",
        ),
        formed(Form("text", check=_regex)),
    ] = ""
    benchmark: Annotated[
        Line,
        Meta(
            description="instead of `json`: the name of a benchmark in what criterion, google-benchmark, pytest-benchmark, "
            "`go test -bench` or hyperfine printed or wrote; its time in seconds"
        ),
    ] = ""
    take: Annotated[
        Literal["only", "first", "last", "sum", "mean", "median", "p90", "p99", "min", "max", "count"],
        Meta(description="how several values become one; `only` allows a single one"),
    ] = "only"
    unit: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=20,
            description="unit; ms, MiB, MB/s and similar are converted to s, bytes, bytes/s",
        ),
    ] = "1"
    better: Annotated[
        Better | None,
        Meta(
            description="`lower`, `higher` or `none`; default: lower for times, higher for rates, else none"
        ),
    ] = None
    scale: Annotated[
        Scale, Meta(description="compared by ratio (`log`; values above 0) or by difference")
    ] = Scale.LOG
    fact: Annotated[
        bool,
        Meta(
            description="a word for the table of facts, not a response; a JSON object gives a fact per entry"
        ),
    ] = False

    def check(self, steps: Sequence[str]) -> None:
        """Check the output against the steps of its workload. Raises Problem."""
        given = [one for one in ("json", "regex", "benchmark") if getattr(self, one)]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise Problem(f'output "{self.name}" has one of json, regex and benchmark, found {found}')
        if self.benchmark and (self.fact or self.unit != "s" or self.scale is not Scale.LOG):
            raise Problem(
                f'output "{self.name}": the time of a benchmark is a ratio in s, and no fact',
                "benchmark",
                hint='write unit = "s", without scale',
            )
        if self.fact and self.take not in ("only", "first", "last"):
            raise Problem(f'output "{self.name}": a fact is a word, and cannot have {self.take}', "take")
        if self.step is not None and self.step not in steps:
            message, hint = unknown("step", self.step, steps, where=f'output "{self.name}"')
            raise Problem(message, "step", hint=hint)
        if self.step is None and self.file is None and len(steps) > 1:
            message = f'output "{self.name}": the step that prints it is missing'
            raise Problem(message, hint=f'add step = "{steps[-1]}"')

    @property
    def file(self) -> str | None:
        """The file in ``{out}``, or None if the value is printed."""
        return self.source.removeprefix(FOLDER) if self.source.startswith(FOLDER) else None

    @property
    def spec(self) -> ResponseSpec:
        """The response that this output defines. The injected slowdown can only be given to the times of benchmarks."""
        unit, _ = _UNITS.get(self.unit, (self.unit, 1.0))
        usual = Better.LOWER if unit == "s" else Better.HIGHER if unit.endswith("/s") else Better.NONE
        where = f"{self.json} of the JSON" if self.json else f"what {self.regex} finds"
        if self.benchmark:
            where = f"the time of {self.benchmark}"
        taken = "" if self.take == "only" else f"{self.take} of "
        text = f"{taken}{where} in {self.source}"
        return ResponseSpec(
            self.name, unit, self.scale, self.better or usual, text, stretchable=bool(self.benchmark)
        )


def fields_of(outputs: Sequence[Output]) -> dict[str, object]:
    """Return the fields of the probe's ``command`` job that make it keep what these outputs read."""
    files = sorted({output.file for output in outputs if output.file is not None})
    return {"keep_output": MOST_BYTES, "keep_files": files} if outputs else {}


def numbers_and_facts(
    outputs: Sequence[Output], answer: Mapping[str, Any]
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the responses and facts in the answer to a ``command`` job, by name. Raises RequestError if one is missing."""
    numbers: dict[str, float] = {}
    facts: dict[str, str] = {}
    for output in outputs:
        try:
            values = _values(output, _text(output, answer))
            if output.fact:
                facts |= _facts(output, values)
            else:
                numbers[output.name] = _number(output, values)
        except ValueError as problem:
            message = f'output "{output.name}": {problem}'
            raise RequestError(message, hint=getattr(problem, "hint", None)) from None
    if len(facts) > MOST_FACTS:
        raise RequestError(f"{len(facts)} facts were printed, the maximum is {MOST_FACTS}")
    return numbers, facts


class _NotThere(ValueError):
    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def _text(output: Output, answer: Mapping[str, Any]) -> str:
    if output.file is not None:
        kept = answer["kept_files"][output.file]
        if kept is None:
            raise _NotThere(f"no file {escape(output.source)} was written")
        found, whole = str(kept["text"]), kept["whole"]
    else:
        step = next(step for step in answer["steps"] if output.step in (None, step["name"]))
        found, whole = str(step["printed"][output.source]), step["printed"]["whole"]
    if not whole:
        raise _NotThere(f"{output.source} holds more than {MOST_BYTES >> 20} MiB")
    return found


def _values(output: Output, text: str) -> list[Any]:
    found: list[Any]
    if output.benchmark:
        # the importers take time to load, and most commands print no benchmarks
        from iotrial.audits.benchmarks import benchmark_times

        times = benchmark_times(text)
        found = list(times.get(output.benchmark, ()))
        if not found:
            close = difflib.get_close_matches(output.benchmark, times, n=3, cutoff=0.0)
            raise _NotThere(
                f'no benchmark "{escape(output.benchmark)}" in {output.source}',
                f"similar: {escape(', '.join(close))}",
            )
    elif output.regex:
        found = list(pattern_of(output.regex).each(text))
        if not found and output.take != "count":
            sentence = escape(text.strip()[:80])
            raise _NotThere(f"nothing in {output.source} matches {output.regex}", f"it begins: {sentence}")
    else:
        documents = list(documents_in(text))
        if not documents:
            raise _NotThere(f"expected JSON in {output.source}, found {escape(repr(text[:80]))}")
        found = [value for one in documents for value in values_at(one, output.json)]
        if not found:
            raise _NotThere(f"no {output.json} in the JSON of {output.source}", near(documents, output.json))
    if output.take == "only" and len(found) > 1:
        raise _NotThere(
            f"expected one value, found {len(found)}",
            'choose one: take = "last", "sum", "median", "p99"',
        )
    return found


def _number(output: Output, values: Sequence[Any]) -> float:
    if output.take == "count":
        return _fitting(output, float(len(values)))
    numbers = []
    for value in values:
        number = measured(value)
        if number is None:
            raise _NotThere(f"expected a number, found {escape(repr(value)[:60])}")
        numbers.append(number)
    _, factor = _UNITS.get(output.unit, ("", 1.0))
    return _fitting(output, _TAKEN[output.take](numbers) * factor)


def _fitting(output: Output, found: float) -> float:
    if output.scale is Scale.LOG and found <= 0:
        raise _NotThere(f"found {found:g}, but a ratio needs numbers above 0", 'use scale = "difference"')
    return found


def _facts(output: Output, values: Sequence[Any]) -> dict[str, str]:
    value = values[-1] if output.take == "last" else values[0]
    entries = value.items() if isinstance(value, dict) else [(output.name, value)]
    return {str(name)[:LONGEST_WORD]: _word(entry) for name, entry in entries}


def _word(value: Any) -> str:
    if isinstance(value, dict | list):
        raise _NotThere("expected a word or a number, found a list or an object")
    text = value if isinstance(value, str) else json.dumps(value)
    return text.strip()[:LONGEST_WORD]


# JSON


#: the beginning of an object or a list
_OPENING = re.compile(r"""\{\s*["}]|\[\s*["{\[\]0-9tfnNI-]""")
#: characters before a document that are kept: an error of the decoder counts the lines in them
_BEFORE = 1 << 14


def documents_in(text: str) -> Iterator[Any]:
    """Yield the JSON objects and lists in a text, in order, skipping everything between them.

    Raises TooMuchWork if what is skipped takes too long: brackets that are never closed are tried one after the other.
    """
    decoder, at = json.JSONDecoder(), 0
    until_s = time.thread_time() + MOST_CPU_S
    while (start := _OPENING.search(text, at)) is not None:
        at = start.start()
        if at > _BEFORE:
            text, at = text[at:], 0
        try:
            found, at = decoder.raw_decode(text, at)
            yield found
        except (ValueError, RecursionError):
            at += 1
            if time.thread_time() > until_s:
                raise TooMuchWork(
                    f"looking for JSON takes more than {MOST_CPU_S:g} s of processor time: there are too many brackets "
                    "that begin none"
                ) from None


def values_at(node: Any, path: str) -> Iterator[Any]:
    """Yield the values at a path. Names may contain dots, so a path can match in several ways: longest first names first.

    List entries are addressed by their "jobname" or "name", or by their index from 0.
    """
    if not path:
        yield node
        return
    entries = entries_of(node)
    for name in sorted({name for name, _ in entries}, key=len, reverse=True):
        if path != name and not path.startswith(f"{name}."):
            continue
        same = [value for other, value in entries if other == name]
        if len(same) > 1:
            hint = "add group_reporting to the job file" if "jobname" in _first(node) else None
            raise RequestError(f'the JSON has {len(same)} entries called "{name}"', hint=hint)
        yield from values_at(same[0], path[len(name) + 1 :])


def near(documents: Sequence[Any], path: str) -> str | None:
    """Return a hint with the paths to numbers that are closest to a missing path."""
    every = (path for one in documents for path in _paths(one))
    known = list(dict.fromkeys(itertools.islice(every, _MOST_PATHS)))
    found = difflib.get_close_matches(path, known, n=5, cutoff=0.0)
    return f"similar: {', '.join(found)}" if found else None


def entries_of(node: Any) -> list[tuple[str, Any]]:
    """Return the entries of an object or a list, by name or index."""
    if isinstance(node, dict):
        return [(str(name), value) for name, value in node.items()]
    if not isinstance(node, list):
        return []
    if "jobname" in _first(node) or "name" in _first(node):
        named = [entry for entry in node if isinstance(entry, dict)]
        return [(str(entry.get("jobname", entry.get("name", ""))), entry) for entry in named]
    return [(str(number), entry) for number, entry in enumerate(node)]


def _first(node: Any) -> Mapping[str, Any]:
    return node[0] if isinstance(node, list) and node and isinstance(node[0], dict) else {}


def _paths(node: Any, before: str = "") -> Iterator[str]:
    for name, value in entries_of(node):
        path = f"{before}.{name[:LONGEST_WORD]}" if before else name[:LONGEST_WORD]
        if len(path) > LONGEST_WORD:
            continue
        if isinstance(value, dict | list):
            yield from _paths(value, path)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield path
