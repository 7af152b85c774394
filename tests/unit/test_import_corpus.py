"""The corpus of result files: read as an independent script reads them, or refused by name with what to do.

Damaged variants give an error, or numbers that the damaged file holds, with a word for every row that is left out.
"""

from __future__ import annotations

import bisect
import importlib.util
import random
import re
from pathlib import Path
from types import ModuleType

import pytest

from iotrial.audits.audit import cells_of
from iotrial.audits.importers import read
from iotrial.audits.importers.contract import ReadOptions, open_source, source_of
from iotrial.audits.model import Dataset
from iotrial.errors import IotrialError, RequestError

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
    present = {
        path.name for path in CORPUS.iterdir() if path.suffix not in (".py", ".pyc", "") and path.is_file()
    }
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


# damage

READABLE = sorted({names[0] for names, _ in CASES if len(names) == 1 and "clones" not in names[0]})
#: a value may be written in another unit of its quantity
SCALES = (1.0, 60.0, 1e3, 1e6, 1e9, 1024.0, 1024.0**2, 1024.0**3, 8.0)


def _numbers(text: str) -> set[float]:
    """Every number that is written in a text, by any reading of points, commas, spaces and touching columns."""
    found: set[float] = set()
    for match in re.finditer(  # "7",48 is 7,48
        r"(?:(?<![\w.)-])-)?[0-9.](?:[0-9.,'\u00a0\u202f]*[0-9.])?(?:[eE][+-]?[0-9]+)?",
        text + text.replace('"', ""),
    ):
        word = match[0]
        readings = {
            word,
            re.sub("[eE].*", "", word),
            word.replace(",", "."),
            re.sub("[,'\u00a0\u202f]", "", word),
        }
        readings |= {word.replace(".", "").replace(",", "."), *re.split("[.,]", word), *word.split(",")}
        if word.isdigit() and len(word) > 8:
            readings |= {word[a:b] for a in range(len(word)) for b in range(a + 1, min(len(word), a + 8) + 1)}
        for reading in readings:
            try:
                found.add(float(reading))
            except ValueError:
                continue
    return found | {float(f".{part}") for part in re.findall("(?<![0-9]),([0-9]+)", text)}


def damaged(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A kind of damage, and the bytes after it."""
    lines = data.split(b"\n")
    at = rng.randrange(len(data))
    line = rng.randrange(len(lines))
    kind = rng.choice(
        [
            "cut",
            "lost-byte",
            "byte",
            "digit",
            "nan",
            "twice-line",
            "lost-line",
            "swapped-lines",
            "swapped-words",
            "line-ends",
            "encoding",
            "joined",
            "garbage",
            "nul",
            "word",
        ]
    )
    match kind:
        case "cut":
            return kind, data[:at]
        case "lost-byte":
            return kind, data[:at] + data[at + 1 :]
        case "byte":
            return kind, data[:at] + bytes([rng.randrange(1, 256)]) + data[at + 1 :]
        case "digit":
            places = [match.start() for match in re.finditer(rb"[0-9]", data)]
            at = rng.choice(places)
            return kind, data[:at] + rng.choice(b"0123456789.,-eE ").to_bytes(1, "big") + data[at + 1 :]
        case "nan":
            match_ = rng.choice(list(re.finditer(rb"[0-9]+(?:\.[0-9]+)?", data)))
            word = rng.choice(
                [b"NaN", b"inf", b"", b"1e400", b"-5", b"1,2,3", b"null", b"0", b'"7"', b"1e-400", b"--"]
            )
            return kind, data[: match_.start()] + word + data[match_.end() :]
        case "twice-line":
            lines.insert(line, lines[line])
        case "lost-line":
            del lines[line]
        case "swapped-lines":
            other = rng.randrange(len(lines))
            lines[line], lines[other] = lines[other], lines[line]
        case "swapped-words":
            cells = re.split(rb"([,;|\t ]+)", lines[line])
            a, b = (2 * rng.randrange((len(cells) + 1) // 2) for _ in range(2))
            cells[a], cells[b] = cells[b], cells[a]
            lines[line] = b"".join(cells)
        case "line-ends":
            return kind, b"".join(one + rng.choice([b"\n", b"\r\n", b"\r"]) for one in lines[:-1]) + lines[-1]
        case "encoding":
            text = data.decode("latin-1")
            return kind, rng.choice(
                [
                    text.encode("utf-16"),
                    text.encode("utf-16-le"),
                    b"\xef\xbb\xbf" + data,
                    data + b"\xe4\xf6\xfc\n",
                ]
            )
        case "joined":
            return kind, data + data[: rng.randrange(len(data))]
        case "garbage":
            lines.insert(line, bytes(rng.choices(range(1, 256), k=rng.randrange(1, 60))).replace(b"\n", b""))
        case "nul":
            return kind, data[:at] + b"\0" + data[at:]
        case "word":
            words = list(re.finditer(rb"[A-Za-z_]{3,}", data)) or list(re.finditer(rb"\S+", data))
            word = rng.choice(words)
            at = rng.randrange(word.start(), word.end())
            return kind, data[:at] + rng.choice([b"", b"x", data[at : at + 1] * 2]) + data[at + 1 :]
    return kind, b"\n".join(lines)


def _read(name: str, data: bytes) -> Dataset:
    return read([source_of(data, name=name)], ReadOptions())


def _words(data: Dataset) -> set[str]:
    return {*data.notes, *data.unread}


def _check(seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice(READABLE)
    whole = (CORPUS / name).read_bytes()
    kind, data = damaged(whole, rng)
    try:
        found = _read(name, data)
    except IotrialError:
        return
    where = f"{name} {kind} (seed {seed})"
    text = data.decode("utf-16" if data[:2] == b"\xff\xfe" else "latin-1")
    written = _numbers(text)
    scaled = {number * scale for number in written for scale in SCALES}
    scaled |= {number / scale for number in written for scale in SCALES}
    minutes = (
        {60.0 * a + b for a in map(float, re.findall("([0-9]+)m", text)) for b in written}
        if "m" in text
        else set()
    )
    known = sorted(scaled | minutes)
    for one in found.observations:
        at = bisect.bisect_left(known, one.value * (1 - 1e-12) if one.value > 0 else one.value)
        assert at < len(known), f"{where}: {one}"
        assert known[at] == pytest.approx(one.value, rel=1e-9), f"{where}: {one} is not in the file"
    before = _read(name, whole)
    fewer = len(found.observations) < len(before.observations)
    if fewer and kind not in ("lost-line", "cut"):
        assert _words(found) - _words(before), f"{where}: fewer numbers without a word"
    if kind == "cut" and fewer and not data.endswith((b"\n", b"\r", b"\n\0")):
        assert _words(found) - _words(before), f"{where}: cut without a word"
    if kind in ("twice-line", "joined") and len(found.observations) > len(before.observations):
        repeats = [cell for cell in cells_of(found) if len(cell.values) > 1 or cell.series]
        assert _words(found) - _words(before) or repeats, f"{where}: more numbers without a word"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("pytest-benchmark.json", b'"data": [', b'"dta": ['),
        ("own-crystaldiskmark.txt", b"[Write]\n", b"[Write]\xe7"),
    ],
)
def test_results_that_damage_hides_are_named(name: str, old: bytes, new: bytes) -> None:
    whole = (CORPUS / name).read_bytes()
    assert old in whole
    found, before = _read(name, whole.replace(old, new, 1)), _read(name, whole)
    assert len(found.observations) < len(before.observations)
    assert _words(found) - _words(before)


@pytest.mark.parametrize("block", range(12))
def test_damaged_files_give_an_error_or_numbers_of_the_file(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        _check(seed)
