"""Replay the fuzzers' findings and seeds: every parser returns, and refuses with its own errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from parsers import PARSERS, seeds

HERE = Path(__file__).parent
CASES = sorted((HERE / "cases").glob("*/*"))
IN_RUST = {"wire", "counters", "stat", "types", "trace"}  # replayed by `cargo test`
HOSTILE_JSON = (
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"9" * 5000,
    b"1e999",
    b"NaN",
    b'"\\ud800"',
    b"\xff\xfe",
    b"",
    b"null",
    b"[]",
    b'{"schema": 1}',
    b'{"schema": true, "study": []}',
    b'{"schema": 1, "study": {"factors": {}}}',
    b'{"id": 1}',
    b'{"id": 1, "ok": []}',
    b'{"id": 1, "error": "x"}',
    b'{"id": 1, "error": {"code": [], "message": {}, "errno": "2"}}',
    b'{"id": true, "ok": {}}',
)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.parent.name not in IN_RUST], ids=lambda c: f"{c.parent.name}/{c.name}"
)
def test_a_kept_case_comes_back(case: Path) -> None:
    PARSERS[case.parent.name](case.read_bytes())


def test_every_case_belongs_to_a_parser() -> None:
    assert {case.parent.name for case in CASES} <= set(PARSERS) | IN_RUST
    assert {case.parent.name for case in CASES} >= IN_RUST


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_right_in_form_is_taken(name: str) -> None:
    for seed in seeds(name):
        PARSERS[name](seed)


@pytest.mark.parametrize("name", ["codec", "answer"])
@pytest.mark.parametrize("data", HOSTILE_JSON, ids=lambda data: data[:30].decode("latin-1"))
def test_json_that_is_nothing_is_refused(name: str, data: bytes) -> None:
    PARSERS[name](data)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join("a." * 8000 + f"a{n} = 1" for n in range(64)),
        "\n".join("a." * 700 + f"a{n} = 1" for n in range(700)),
        "\n".join('"".' * 700 + f"a{n} = 1" for n in range(450)),
        "a." * 8000 + "a = 1",
        "[" + "a." * 8000 + "a]",
        "x = " + "[" * 16000,
        "x = " + "{a=" * 5000,
        "\n".join(f"[[factor]]\nname = '{n}'" for n in range(20_000)),
        pytest.param("\n".join(f"[a{n}.b]" for n in range(60_000)), marks=pytest.mark.slow),
        "[study]\nname = 'x'\nquestion = 'x'\n" + "\n".join(f"k{n} = 1" for n in range(60_000)),
        "[[factor]]\nlevels = [" + "\n" + "\n".join(f"'{n}'," for n in range(60_000)) + "]",
        'x = """' + '""\\\n' * 100_000,
        "x = '''" + "''\n" * 200_000,
        "# " + "\n#" * 500_000,
        "x = " + "9" * 16000,
        "x = 0x" + "f" * 16000,
        "\ufeff[study]",
        "x = 1979-05-27T07:32:00" + "." + "9" * 10000,
    ],
    ids=lambda text: text[:24],
)
def test_a_study_file_that_is_made_to_take_long_does_not(text: str) -> None:
    """Each would be slow in a parser that takes time quadratic in a line, a key or a list."""
    from iotrial.errors import StudyError
    from iotrial.study.reader import read_study

    with pytest.raises(StudyError):
        read_study(text[: 1 << 20], "study.toml", trusted=False)


@pytest.mark.parametrize(
    "data",
    [
        *HOSTILE_JSON,
        pytest.param(b"a,b_s\n" + b"x,1\n" * 20_000, marks=pytest.mark.slow),
        b"a_s," * 500 + b"\n" + b"1," * 500,
        b"group,time_s\n" + b"".join(b"g%d,%d\n" % (n, n + 1) for n in range(3000)),
        b"c_gb,group,time_s\n" + b"".join(b"%d,g%d,%d\n" % (n % 50, n % 7, n + 1) for n in range(3000)),
        b"run,a_s,b_s\n" + b"".join(b"%d,%d,%d\n" % (n, n % 97 + 1, n % 89 + 1) for n in range(3000)),
        b"order,group,time_s\n" + b"".join(b"%d,%d,%d\n" % (n, n > 2000, n % 97 + 1) for n in range(4000)),
        b"group,time_s\na,1e308\na,1e308\nb,1e-308\nb,-1\n",
        b"group,time_s\na,1\na,1\na,1\nb,2\nb,2\nb,2\n",
        b'"a,b\n1,2\n',
        b"a;b_s\n" + b"'" * 90_000 + b";1\n",
        b'{"fio version": "3", "jobs": [{"jobname": [], "read": {"total_ios": 1, "bw": 1e400, "clat_ns": {"mean": -1}}}]}',
        b"------ ----------- --------- ----------------\n" * 2000,
        b"kB reclen write rewrite\n" + b"1 " * 9000 + b"\n",
        b"1.98,2.00a,m,1," + b"+" * 1500,
        b"% time seconds calls syscall\n--- --- --- ---\n1 1e999 2 x\n",
    ],
    ids=lambda data: data[:24].decode("latin-1"),
)
def test_foreign_results_that_are_nothing_or_too_much_are_refused_or_read(data: bytes) -> None:
    PARSERS["foreign"](data)


@pytest.mark.parametrize(
    "text", ["a " * 150, "a" + " 1" * 140, "a 1 %" + " of" * 80, "a 1 % of b in c where " + "d=e," * 60]
)
def test_claims_that_are_made_to_take_long_do_not(text: str) -> None:
    PARSERS["claim"](text.encode())
