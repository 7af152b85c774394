"""The work of every reader of foreign input grows in proportion to the input, whatever is in it.

Time of the processor at a size and at four times that size: four times as much if the work is linear, 16 times if it is
quadratic. A test fails above eight times, measured three times. Shapes are those that a reader of this kind has most
work with, and drawn ones (seed 48).
"""

# ruff: noqa: E501 - a shape a line

from __future__ import annotations

import json
import random
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from parsers import PARSERS

import hostile_traces
from iotrial.errors import IotrialError
from iotrial.probe.binary import find_binary
from iotrial.runner import combinations
from iotrial.study.reader import read_study
from iotrial.workloads.output import documents_in

pytestmark = pytest.mark.slow

#: shorter times are those of the clock and of caches
LEAST_S = 0.004
#: sixteen times would be quadratic; between busy processors four times as much takes up to nine times as long
MOST_GROWTH = 11.0
TIMES = 4


def grows(measure: Callable[[int], float], size: int) -> float:
    """Return by how much more time four times the size takes: the least of three attempts, or the first that is small."""
    found = []
    for _ in range(3):
        first, second = measure(size), measure(TIMES * size)
        found.append(second / max(first, LEAST_S))
        if found[-1] < MOST_GROWTH:
            break
    return min(found)


def spent(call: Callable[[bytes], object], data: bytes) -> float:
    """Return the time of the processor that a call takes, in seconds."""
    began = time.process_time()
    call(data)
    return time.process_time() - began


def _rows(head: str, row: Callable[[int], str]) -> Callable[[int], str]:
    return lambda n: head + "".join(row(place) for place in range(n))


_STUDY = '[study]\nname = "a"\nquestion = "b?"\n'
_FACTOR = '[[factor]]\nname = "f"\nknob = "block.read_ahead"\n'
_GAUGE = "x\n# TYPE x gauge\n"
#: contents by number of parts, for each parser
SHAPES: dict[str, dict[str, Callable[[int], str]]] = {
    "study": {
        "levels": _rows(_STUDY + _FACTOR, lambda n: f'[[factor.level]]\nname = "l{n}"\nvalue = "{n} KiB"\n'),
        "factors": _rows(_STUDY, lambda n: f'[[factor]]\nname = "f{n}"\nknob = "block.read_ahead"\nlevels = ["0", "4 KiB"]\n'),
        "works": _rows(_STUDY, lambda n: f'[[workload]]\nname = "w{n}"\nkind = "command"\nargv = ["a"]\n'),
        "unknown keys": _rows(_STUDY, lambda n: f"k{n}.a = 1\n"),
    },
    "locator": {"factors": _rows("", lambda n: f'[[factor]]\nname = "f{n}"\nlevels = ["0",\n"4 KiB"]\n')},
    "codec": {"keys": lambda n: "{" + ",".join(f'"k{place}":1' for place in range(n)) + "}", "nested": lambda n: '{"a":' * n},
    "fio_job": {
        "sections": _rows("", lambda n: f"[j{n}]\nfilename=f\nsize=1m\n"),
        "one section again": lambda n: "[j]\nfilename=f\n" * n,
        "files": lambda n: "[j]\nfilename=" + ":".join(f"f{place}" for place in range(n)),
        "variables": lambda n: "[j]\ndescription=" + "${A}{a}" * n,
    },
    "fio_result": {
        "jobs": lambda n: "jobs.j.x\n" + json.dumps({"jobs": [{"jobname": f"j{place}", "x": "a"} for place in range(n)]}),
        "jobs of one name": lambda n: "jobs.j.x\n" + json.dumps({"jobs": [{"jobname": "j", "x": "a"}] * n}),
        "no such path": lambda n: "z\n" + json.dumps({f"k{place}": place for place in range(n)}),
    },
    "exposed": {
        "series": _rows(_GAUGE, lambda n: f'x{{a="{n}"}} 1\n'),
        "one series again": lambda n: _GAUGE + 'x{a="1"} 1\n' * n,
        "families": _rows("x\n", lambda n: f"# TYPE x{n} gauge\nx{n} 1\n"),
        "help": lambda n: _GAUGE + "# HELP x a\n" * n,
        "buckets": lambda n: "x\n# TYPE x histogram\n" + "".join(f'x_bucket{{le="{place}"}} 1\n' for place in range(n)),
        "histograms": _rows(
            "x\n# TYPE x histogram\n", lambda n: f'x_bucket{{s="{n}",le="+Inf"}} 1\nx_count{{s="{n}"}} 1\nx_sum{{s="{n}"}} 1\n'
        ),
        "exemplars": lambda n: "x\n# TYPE x counter\n" + 'x_total 1 # {t="1"} 1\n' * n + "# EOF\n",
        "labels": lambda n: _GAUGE + "x{" + ",".join(f'a{place}="1"' for place in range(n // 3)) + "} 1\n",
        "backslashes": lambda n: _GAUGE + 'x{a="' + '\\"' * n + '"} 1\n',
        "matchers": lambda n: "x{" + 'a=~"(b|c)*",' * n + "}\nx 1\n",
    },
    "promql": {
        "series": lambda n: json.dumps({"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, "1"]}] * n}}),
        "values": lambda n: json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [{"values": [[1, "1"]] * n}]}}),
    },
    "options": {"pairs": _rows("", lambda n: f"k{n}=a\n"), "levels": lambda n: "k=" + ",".join(map(str, range(n)))},
    "log_lines": {"lines": lambda n: "took 1 ms\n" * n, "one line": lambda n: "took 1" * n},
    "mountinfo": {"options": lambda n: "36 35 98:0 / /m rw " + "master:1 " * n + "- ext4 /dev/a rw"},
    "packed": {"runs": lambda n: '{"run":{}}\n' * n},
    "journal": {"address": lambda n: '{"version":1,"address":{' + ",".join(f'"k{place}":"1"' for place in range(n)) + "}}"},
    "foreign": {
        "groups": _rows("group,value\n", lambda n: f"g{n},{n % 7}\n"),
        "groups, twice each": _rows("group,value\n", lambda n: f"g{n // 2},{n % 7 + 1}\n"),
        "values": _rows("group,value\n", lambda n: f"g{n % 2},{n * 7919 % 1009}\n"),
        "one value": lambda n: "group,value\n" + "a,1\nb,1\n" * n,
        "conditions": _rows("group,cond,value\n", lambda n: f"g{n % 2},{n // 2},{n % 7 + 1}\n"),
        "conditions of one group": _rows("group,cond,value\n", lambda n: f"g{n % 2},{n},{n % 7 + 1}\n"),
        "responses": _rows("group,response,value\n", lambda n: f"g{n % 2},r{n // 8},{n % 7 + 1}\n"),
        "columns": lambda n: "group," + ",".join(f"c{place}" for place in range(100)) + "\n" + ("a," + "1," * 99 + "2\n") * (n // 100),
        "the same": lambda n: "#: same = " + " | ".join(f"g{place}" for place in range(300)) + "\ngroup,value\n"
        + "".join(f"g{place},{place % 7 + 1}\n" for place in range(n)),
        "claims": lambda n: "#: claim = g0 5 % of g1\n" + "group,cond,value\n" + "".join(f"g{place % 2},{place // 2},1\n" for place in range(n)),
        "hyperfine": lambda n: json.dumps({"results": [{"command": "c", "times": [1]}] * n}),
        "fio": lambda n: json.dumps({"fio version": "3", "jobs": [{"jobname": f"j{place}", "read": {"total_ios": 1, "bw": 1}} for place in range(n)]}),
        "iozone": _rows("      kB  reclen    write  rewrite    read\n", lambda n: f"   {64 + n}   4   1000   2000   {n + 1}\n"),
        "iozone's reports": _rows('"Writer report"\n"4" "8"\n', lambda n: f'"{n}" {n + 1} {n + 2}\n'),
        "iozone's reports of one size": lambda n: '"Writer report"\n' + "1 1\n" * n,
        "strace": _rows(
            "% time     seconds  usecs/call     calls    errors syscall\n------ ----------- ----------- --------- --------- ------\n",
            lambda n: f" 10.00    0.00{n + 1}           1         5           c{n}\n",
        ),
    },
}  # fmt: skip
CASES = [(parser, shape) for parser, shapes in SHAPES.items() for shape in shapes]


@pytest.mark.parametrize(("parser", "shape"), CASES, ids=[" ".join(case) for case in CASES])
def test_four_times_as_many_parts_take_four_times_as_long(parser: str, shape: str) -> None:
    make = SHAPES[parser][shape]
    assert grows(lambda n: spent(PARSERS[parser], make(n).encode()), 2000) < MOST_GROWTH


#: what a drawn input begins with
HEADS = {
    "study": ("", 'name = "', "x = [", '[study]\nname = "', "[a]\nb = '''", "a = {"),
    "locator": ("", "a = [", 'a = "', "[[factor]]\nlevels = ["),
    "codec": ("", '{"a":', "["),
    "exposed": ("x\n", "x\nx{", 'x\nx{a="', "x\n# HELP x ", 'x{a=~"', "x\n# TYPE x gauge\nx "),
    "promql": ("", '{"status":"success","data":'),
    "fio_job": ("", "[a]\n", "[a]\nb=", "[global]\n["),
    "fio_result": ('a.b\n{"a":', "a\n", 'a\n{"jobs":[{"jobname":"'),
    "foreign": (
        "",
        "a,b\n",
        'a;b\n"',
        "group,value\nx,",
        '{"fio version":"","jobs":[',
        '"Writer report"\n',
        "#: claim = ",
    ),
    "packed": ("", '{"trial":'),
    "answer": ("", '{"id":1,"ok":'),
    "journal": ("", '{"version":1,"number":1,"knob":"'),
    "record": ("", "{"),
    "log_lines": ("", "took "),
    "options": ("", "a="),
    "mountinfo": ("", "36 35 98:0 /mnt1 "),
    "units": ("", "1", "1 "),
    "claim": ("", "a ", "a 1 % "),
    "kernel_counters": ("", "cpu ", "some "),
}
PIECES = (
    *('"', "'", "\\", '\\"', "{", "[", "(", "}", '{"a":', "[1,", "1", "1.", ".", "-", " ", "\t", "\n", "a", "a.", "=", ",", ";"),
    *(":", "#", "#:", "%", "0 ", "é", "<", "/", "../", '"""', "'''", "# TYPE x gauge\n", "x 1\n", 'a="1",', "took 1 ", "1 min "),
)  # fmt: skip


@pytest.mark.parametrize("parser", HEADS)
def test_drawn_inputs_of_four_times_the_size_take_four_times_as_long(parser: str) -> None:
    draw = random.Random(f"48 {parser}")
    for _ in range(25):
        head, unit = draw.choice(HEADS[parser]), "".join(draw.choices(PIECES, k=draw.randint(1, 3)))

        def measure(size: int, head: str = head, unit: str = unit) -> float:
            return spent(PARSERS[parser], (head + unit * (size // len(unit))).encode())

        assert grows(measure, 12_000) < MOST_GROWTH, (head, unit)


def test_levels_of_four_times_as_many_factors_are_checked_in_four_times_the_time() -> None:
    """Which two exclude each other. A study may have 64 factors of 256 levels."""
    levels = json.dumps([f"v{place}" for place in range(64)])
    factor = '[[factor]]\nname = "f{}"\nknob = "command.argument"\nplaceholder = "{{a{}}}"\nlevels = {}\n'

    def measure(factors: int) -> float:
        words = ["true", *(f"{{a{n}}}" for n in range(factors))]
        work = f'[[workload]]\nname = "w"\nkind = "command"\nargv = {json.dumps(words)}\n'
        rows = _rows(_STUDY, lambda n: factor.format(n, n, levels))
        study = read_study(rows(factors) + work, "big.toml", trusted=True)
        return spent(lambda _: combinations.check(study), b"")

    assert grows(measure, 4) < MOST_GROWTH


@pytest.mark.parametrize("unit", ["{", "[1]", '{"a":1}x', "[12:01] ", '"', "[" + " " * 100, "[x", '{"'])
def test_looking_for_json_grows_with_the_text(unit: str) -> None:
    def read(data: bytes) -> None:
        try:
            for _ in documents_in(data.decode()):
                pass
        except (IotrialError, ValueError):
            return

    assert grows(lambda size: spent(read, unit.encode() * (size // len(unit))), 10_000) < MOST_GROWTH


@pytest.mark.parametrize("command", ["summary", "replay", "iolog"])
@pytest.mark.parametrize("shape", hostile_traces.SHAPES)
def test_a_trace_of_four_times_the_operations_takes_four_times_as_long(
    shape: str, command: str, tmp_path: Path
) -> None:
    def measure(operations: int) -> float:
        path = tmp_path / f"{operations}.iotrace"
        if not path.exists():
            path.write_bytes(hostile_traces.content(hostile_traces.SHAPES[shape](operations)))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [str(find_binary()), "trace", command, str(path)], stdout=subprocess.DEVNULL, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode in (0, 1)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert grows(measure, 10_000) < MOST_GROWTH
