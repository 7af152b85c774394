"""Export to CSV, Parquet and benchmark lines: every run as measured, read back by other programs."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from compared_trials import FAST, measured_trial
from hostile_trial import STEERING, hostile_document
from report_fixtures import all_equivalent, document, factor, study

from iotrial.cli import cli
from iotrial.errors import RequestError
from iotrial.report import exports
from iotrial.report.document import Document
from iotrial.report.exports.benchfmt import unit_of
from iotrial.store import Store
from iotrial.study.model import Better, Response, Role, Scale
from values import replace

ROOT = Path(__file__).parents[2]
BENCHSTAT = shutil.which("benchstat")
Verb = Callable[..., object]


def exported(of: Document, kind: str) -> bytes:
    file = io.BytesIO()
    exports.format_of(kind).write(of, file)
    return file.getvalue()


@pytest.fixture(scope="module")
def lossy() -> Document:
    """Return a trial with void blocks, failed runs and one truncated block."""
    made = document(all_equivalent(), runs={"failing": "0444", "void": {(0, 1): "cache"}, "blocks": 12})
    data = made.data
    last = data.ends[-1]
    ends = data.ends[:-1]
    blocks = tuple(b for b in data.blocks if (b.condition, b.index) != (last.condition, last.block))
    return replace(made, data=replace(data, ends=ends, blocks=blocks))


@pytest.mark.slow
def test_every_run_is_in_the_csv_as_pandas_reads_it(lossy: Document) -> None:
    pandas = pytest.importorskip("pandas")
    read = pandas.read_csv(io.BytesIO(exported(lossy, "csv")), dtype={"arm": str, "factor.mode": str})
    runs = lossy.data.runs
    assert len(read) == sum(max(1, len(run.responses)) for run in runs)
    walls = read[read.response == "wall"].set_index(["condition.cache", "condition.size", "block", "slot"])
    for run in runs:
        levels = lossy.conditions.of_key(run.condition).levels
        if run.failure is None:
            row = walls.loc[(levels["cache"], levels["size"], run.block, run.slot)]
            assert (row.value, row.arm, row.unit) == (run.responses["wall"], run.arm, "s")
            assert row["factor.mode"] == run.treatment["mode"]
            assert row.started_s == run.started_s
    failed = read[read.failure.notna()]
    assert len(failed) == sum(run.failure is not None for run in runs) > 0
    assert failed.value.isna().all()
    assert not failed.counts.any()


def test_void_and_cut_off_blocks_are_there_and_do_not_count(lossy: Document) -> None:
    pandas = pytest.importorskip("pandas")
    read = pandas.read_csv(io.BytesIO(exported(lossy, "csv")))
    void = read[read.void.notna()]
    assert set(void.void) == {"cache"}
    cut = read[~read.complete]
    assert len(cut) > 0
    assert not void.counts.any()
    assert not cut.counts.any()
    rest = read[read.void.isna() & read.complete & read.failure.isna()]
    assert rest.counts.all()


def test_parquet_holds_the_same_with_types(lossy: Document) -> None:
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO(exported(lossy, "parquet"))
    table = parquet.read_table(file)
    types = {field.name: str(field.type) for field in table.schema}
    assert types["block"] == "int64"
    assert types["value"] == "double"
    assert types["counts"] == "bool"
    assert types["factor.mode"] == "string"
    header = lossy.trial.header
    facts = json.loads(table.schema.metadata[b"iotrial.trial"])
    assert (facts["id"], facts["version"]) == (header.id, header.version)
    assert (facts["host"], facts["lab_settings"]) == (header.host, header.lab)
    frame = table.to_pandas()
    read = pandas.read_csv(io.BytesIO(exported(lossy, "csv")), dtype={"arm": str, "factor.mode": str})
    assert list(frame.columns) == list(read.columns)
    for name in frame.columns:
        both = zip(frame[name], read[name], strict=True)
        assert all(a == b or (pandas.isna(a) and pandas.isna(b)) for a, b in both), name


def test_a_crate_is_read_by_the_library_of_its_format_with_every_fact_of_the_machine(
    lossy: Document, tmp_path: Path
) -> None:
    library = pytest.importorskip("rocrate.rocrate")
    header = replace(
        lossy.trial.header,
        host={"kernel": "6.18.0", "firmware": "SeaBIOS 1.16", "probe": {"version": "0.1.0"}},
        lab={
            "kind": "in-place",
            "hardware": {"nvme0n1": {"model": "Some Disk", "firmware": "2B2Q"}},
            "used": {"lab": 0.635},
        },
    )
    made = replace(lossy, data=replace(lossy.data, trial=replace(lossy.trial, header=header)))
    file = tmp_path / "trial.crate.zip"
    file.write_bytes(exported(made, "rocrate"))
    crate = library.ROCrate(file)
    assert str(crate.version) == "1.1"
    assert {one.id for one in crate.data_entities} == {"runs.csv", "report.json", "report.html", "study.toml"}
    assert crate.root_dataset["license"].id == "#license"
    assert crate.root_dataset["identifier"] == header.id
    facts = {one["name"]: one["value"] for one in crate.get("#machine")["additionalProperty"]}
    assert facts == {
        "kernel": "6.18.0",
        "firmware": "SeaBIOS 1.16",
        "probe version": "0.1.0",
        "kind": "in-place",
        "hardware nvme0n1 model": "Some Disk",
        "hardware nvme0n1 firmware": "2B2Q",
        "used lab": "0.635",
    }
    action = crate.get("#trial")
    assert action.type == "CreateAction"
    assert (action["instrument"].id, action["instrument"]["softwareVersion"]) == ("#iotrial", header.version)
    assert action["startTime"] == "2026-03-01T09:00:00+00:00"  # it began at 10:00 in UTC+1 and took 151 s
    assert action["endTime"] == "2026-03-01T09:02:31+00:00"
    with zipfile.ZipFile(file) as parts:
        assert parts.read("runs.csv") == exported(made, "csv")
        assert parts.read("study.toml").decode() == header.study.text
        jsonschema.validate(
            json.loads(parts.read("report.json")),
            json.loads((ROOT / "schemas" / "report.schema.json").read_text()),
        )
        graph = json.loads(parts.read("ro-crate-metadata.json"))["@graph"]
    # every reference is to something that the crate describes
    ids = {one["@id"] for one in graph}
    refers = {
        part["@id"]
        for one in graph
        for value in one.values()
        for part in (value if isinstance(value, list) else [value])
        if isinstance(part, dict)
    }
    assert refers - ids == {"https://w3id.org/ro/crate/1.1"}
    assert exported(made, "rocrate") == file.read_bytes()


def test_json_is_the_report(lossy: Document) -> None:
    found = json.loads(exported(lossy, "json"))
    jsonschema.validate(found, json.loads((ROOT / "schemas" / "report.schema.json").read_text()))


def test_a_label_that_a_spreadsheet_would_compute_is_quoted_and_a_number_is_not() -> None:
    labels = ["0777", "=1+1", "+1", "-1", "@x", "\tx", "a=b"]
    of = study(treatment=factor("mode", labels, role=Role.TREATMENT))
    made = document([], of=of, runs={"blocks": 2})
    run = made.data.runs[0]
    first = replace(run, responses={"wall": -0.5}, failure=None)
    made = replace(made, data=replace(made.data, runs=(first, *made.data.runs[1:])))
    rows = list(csv.DictReader(io.StringIO(exported(made, "csv").decode(), newline="")))
    assert {row["factor.mode"] for row in rows} == {"0777", "'=1+1", "'+1", "'-1", "'@x", "'\\x09x", "a=b"}
    assert rows[0]["value"] == "-0.5"


def test_hostile_labels_steer_no_terminal_and_break_no_line() -> None:
    made = hostile_document()
    text = exported(made, "csv").decode()
    assert not (STEERING - {"\r"}) & set(text)
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert len({len(row) for row in rows}) == 1
    lines = exported(made, "benchfmt").decode()
    assert not STEERING & set(lines)
    for line in lines.splitlines():
        assert not line or re.match(
            r"[a-z]+: .|Unit \S+ better=(lower|higher)$|Benchmark\S+ 1( \S+ \S+)+$", line
        )
    pytest.importorskip("pyarrow")
    assert exported(made, "parquet").startswith(b"PAR1")


def test_names_of_benchmarks_keep_labels_apart() -> None:
    labels = ["a b", "a_b", "a/b", "x=1", "cpu-8", "50%", "5 KiB"]
    of = study(treatment=factor("mode", labels, role=Role.TREATMENT))
    made = document([], of=of, runs={"blocks": 2})
    lines = [
        line for line in exported(made, "benchfmt").decode().splitlines() if line.startswith("Benchmark")
    ]
    names = {line.split()[0] for line in lines}
    assert len(names) == len(labels) * 4  # conditions
    assert {name.rpartition("/mode=")[2] for name in names} == {
        "a_b", "a_b#01", "a%2Fb", "x%3D1", "cpu%2D8", "50%25", "5_KiB",
    }  # fmt: skip
    assert all(name.startswith("BenchmarkProbe/cache=") for name in names)


@pytest.mark.parametrize(
    ("name", "unit", "expected"),
    [
        ("wall", "s", "wall-sec/op"),
        ("p99", "ms", "p99-sec/op"),
        ("rate", "bytes/s", "rate-B/s"),
        ("out_bytes", "bytes", "out_bytes-B/op"),
        ("calls", "1", "calls/op"),
        ("rate", "pages/s", "rate-pages/s"),
        ("ns", "1", "ns_/op"),
        ("busy time", "%", "busy_time-%25/op"),
    ],
)
def test_units_are_those_that_benchstat_scales(name: str, unit: str, expected: str) -> None:
    assert unit_of(Response("w", name, unit, Scale.LOG, Better.LOWER, primary=True)) == expected


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IOTRIAL_STORE", str(tmp_path / "trials.db"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    with Store.open(tmp_path / "trials.db") as store:
        measured_trial(store, FAST, ratio=0.6, blocks=12, failing=True)
    return work


@pytest.fixture
def verb(here: Path) -> Verb:
    return lambda *words: cli.main(list(words), prog_name="iotrial", standalone_mode=False)


@pytest.mark.parametrize(
    ("kind", "name"), [(name, f"1-example{exports.format_of(name).SUFFIX}") for name in exports.names()]
)
def test_a_file_is_named_by_its_format_and_replaces_nothing(
    here: Path, verb: Verb, capsys: pytest.CaptureFixture[str], kind: str, name: str
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    verb("export", "last", "--as", kind, "--json")
    report = json.loads(capsys.readouterr().out)["exported"]
    assert (report["file"], report["as"], report["bytes"]) == (name, kind, (here / name).stat().st_size)
    (here / name).write_bytes(b"precious")
    with pytest.raises(RequestError, match="already exists"):
        verb("export", "last", "--as", kind)
    with pytest.raises(RequestError, match="already exists"):
        verb("export", "--as", kind, "--to", name)
    assert (here / name).read_bytes() == b"precious"
    verb("export", "--as", kind, "--to", name, "--force")
    assert (here / name).stat().st_size == report["bytes"]
    assert [entry.name for entry in here.iterdir()] == [name]


def test_a_packed_trial_is_exported_too_and_one_file_at_a_time(here: Path, verb: Verb) -> None:
    verb("export", "last", "--to", "x.iotrial")
    verb("export", "x.iotrial", "--as", "csv")
    verb("export", "last", "--as", "csv")
    assert (here / "example.csv").read_bytes() == (here / "1-example.csv").read_bytes()
    with pytest.raises(RequestError, match="is given twice"):
        verb("export", "last", "a.csv", "--to", "b.csv", "--as", "csv")


def test_without_pyarrow_the_command_that_installs_it_is_named_and_nothing_is_left(
    here: Path, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RequestError, match="pyarrow") as caught:
        verb("export", "last", "--as", "parquet")
    assert caught.value.hint == "pip install 'iotrial[frames]'"
    assert not list(here.iterdir())


@pytest.mark.skipif(BENCHSTAT is None, reason="no benchstat on the path")
def test_benchstat_groups_by_level_with_the_reference_first(here: Path, verb: Verb) -> None:
    assert BENCHSTAT is not None
    verb("export", "--as", "benchfmt", "--to", "x.bench")
    done = subprocess.run(
        [BENCHSTAT, "-format", "csv", "-col", "/f", "-filter", ".unit:wall-sec/op", "x.bench"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [line.split(",") for line in done.stdout.splitlines()]
    (head,) = [row for row in rows if row[1:2] == ["a"]]
    assert [cell for cell in head if cell] == ["a", "b"]
    (found,) = [row for row in rows if row[0].startswith("W")]
    numbers = [float(cell) for cell in found if re.fullmatch(r"[\d.e-]+", cell)]
    with Store.open(here.parent / "trials.db", read_only=True) as store:
        runs = [run for run in store.data(1).runs if run.kind == "treatment" and run.failure is None]
    medians = [statistics.median(r.responses["wall"] for r in runs if r.arm == arm) for arm in "ab"]
    assert numbers == pytest.approx(medians, rel=1e-6)
