"""The corpus of result files: read as an independent script reads them, or refused by name with what to do.

Damaged variants give an error, or numbers that the damaged file holds, with a word for every row that is left out.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from iotrial.audits.audit import cells_of
from iotrial.audits.importers import read
from iotrial.audits.importers.contract import ReadOptions, open_source
from iotrial.errors import RequestError

CORPUS = Path(__file__).parents[1] / "data" / "audit" / "corpus"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("corpus_expected", CORPUS / "expected.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = list(_script().cases())
#: files that are not read: the name in the message, and what the hint says
REFUSED = {
    "fio-3.33-normal.txt": ("fio's normal output", "--output-format=json"),
    "fio-3.42-normal.txt": ("fio's normal output", "--output-format=json"),
    "fio-3.33-terse5.txt": ("fio's terse output", "--output-format=json"),
    "fio-3.33-bw.log": ("log of fio", "--output-format=json"),
    "fio-3.33-lat.log": ("log of fio", "--output-format=json"),
    "fio-3.33-full.json": ("No space left on device", ""),
    "own-job.fio": ("fio job file", "--output-format=json"),
    "iozone-3.487-pwrite.txt": ("iozone", "-i 9"),
    "ioping.txt": ("ioping", "table"),
    "iostat.txt": ("iostat", "each run"),
    "iostat.json": ("iostat", "each run"),
    "mpstat.txt": ("mpstat", "each run"),
    "sar.txt": ("sar", "each run"),
    "sadf-d.csv": ("sadf", "each run"),
    "sadf.json": ("sadf", "each run"),
    "go.jsonl": ("go test -json", "go test -bench"),
    "hyperfine.txt": ("hyperfine's text output", "--export-json"),
    "hyperfine-two.adoc": ("hyperfine's AsciiDoc", "--export-json"),
    "pytest-benchmark.txt": ("pytest-benchmark's console output", "--benchmark-json"),
    "time-gnu.txt": ("time (GNU", "hyperfine --export-json"),
    "own-vdbench.txt": ("vdbench", "avg_"),
    "own-kbench.txt": ("kbench", "--output-format=json"),
    "own-elbencho.txt": ("elbencho", "--csvfile"),
    "own-benchstat.txt": ("benchstat", "go test -bench"),
    "own-criterion.txt": ("criterion", "raw.csv"),
    "own-criterion-raw.csv": ("criterion", "iteration_count"),
    "own-google-benchmark.csv": ("google-benchmark", "--benchmark_format=json"),
    "own-wrk.txt": ("wrk", "table"),
    "own-dbench.txt": ("dbench", "table"),
    "own-page.html": ("web page", "table"),
    "own-unknown.json": ("JSON of an unknown program", "table"),
    "own-no-header.csv": ("holds numbers", "--columns"),
    "own-ambiguous.csv": ("decimal mark or thousands separator", "--decimal"),
    "own-broken.csv": ("row 1 has 3 cells", "decimal"),
}


def test_every_file_of_the_corpus_has_an_expected_value_or_a_refusal() -> None:
    read_files = {name for names, _ in CASES for name in names}
    present = {path.name for path in CORPUS.iterdir() if path.suffix not in (".py", ".pyc", "") and path.is_file()}
    assert present - {"README.md"} == read_files | set(REFUSED)
    assert len(present) >= 100


@pytest.mark.parametrize(("names", "expected"), CASES, ids=[" ".join(names)[:60] for names, _ in CASES])
def test_files_are_read_as_the_independent_script_reads_them(
    names: tuple[str, ...], expected: list[tuple[str, str, str, tuple[float, ...]]]
) -> None:
    sources = [open_source(CORPUS / name, name=name, label=None, alone=len(names) == 1) for name in names]
    cells = cells_of(read(sources, ReadOptions()))
    found = sorted((cell.group, cell.response, cell.unit, cell.values) for cell in cells)
    assert [cell[:3] for cell in found] == [cell[:3] for cell in sorted(expected)]
    for (*_, values), (*_, wanted) in zip(found, sorted(expected), strict=True):
        assert values == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("name", REFUSED)
def test_other_files_are_refused_by_name_with_what_to_do(name: str) -> None:
    with pytest.raises(RequestError) as refused:
        read([open_source(CORPUS / name, name=name, label=None, alone=True)], ReadOptions())
    who, what = REFUSED[name]
    assert who in str(refused.value)
    assert what in str(refused.value.hint or "")
