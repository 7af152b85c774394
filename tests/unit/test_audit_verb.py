"""``iotrial audit`` end to end: text, JSON by its schema, Markdown, hostile labels, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import program
from iotrial.audits.audit import audit
from iotrial.audits.importers import read
from iotrial.audits.importers.contract import ReadOptions, open_source, source_of
from iotrial.report.audit.blocks import audit_markdown, audit_text
from iotrial.report.audit.jsonaudit import audit_json
from iotrial.report.audit.studies import answering

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "docs" / "audits"
VALIDATOR = Draft202012Validator(json.loads((ROOT / "schemas" / "audit.schema.json").read_text()))
HOSTILE = '#: title = \x1b[31mred <b>\u202e\n#: note = [x](http://y) |\x07\nkind,time_s\n"\x1b]0;x\x07|`a`",1\n"<script>",2\n'


def iotrial(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    if not stdin:
        return program.iotrial(*words, timeout=60)
    return subprocess.run(
        [sys.executable, "-m", "iotrial", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        input=stdin,
    )


@pytest.mark.parametrize(
    "name",
    [str(path.relative_to(ROOT)) for path in sorted(TABLES.glob("*.csv")) if path.stem != "nas-knobs"]
    + [f"tests/data/audit/{name}" for name in ("hyperfine.json", "fio-1.json", "strace-w.txt", "bonnie.csv")],
)
def test_every_audit_fits_the_schema_and_can_be_written(name: str) -> None:
    found = audit(read([open_source(ROOT / name, name=name, label=None, alone=True)], ReadOptions()))
    answer = answering(found)
    VALIDATOR.validate(json.loads(json.dumps(audit_json(found, answer), allow_nan=False)))
    assert audit_text(found, answer)
    assert audit_markdown(found, answer)


def test_labels_cannot_steer_the_terminal_or_make_markup() -> None:
    found = audit(read([source_of(HOSTILE.encode(), name="x\x1b[2J")], ReadOptions()))
    for line in audit_text(found, None).splitlines():
        assert line.isprintable()
    markdown = audit_markdown(found, None)
    assert "<script>" not in markdown
    assert "[x](" not in markdown
    assert "\x1b" not in markdown


@pytest.mark.slow
def test_the_verb_speaks_of_the_study_that_would_answer() -> None:
    done = iotrial("audit", str(TABLES / "permissions.csv"))
    assert done.returncode == 0, done.stderr
    assert "One value per group" in done.stdout
    assert "iotrial run files/permissions" in done.stdout
    assert "gain in speed" in done.stdout


@pytest.mark.slow
def test_json_from_standard_input_with_options() -> None:
    done = iotrial(
        "audit",
        "-",
        "--json",
        "--claim",
        "b 50 % of a",
        "--margin",
        "5 %",
        "--alpha",
        "0.01",
        stdin="kind,time_s\na,2\nb,1\n",
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    VALIDATOR.validate(document)
    assert document["claims"][0]["recomputes"] is True
    assert document["audit"]["margin"] == 0.05


def test_files_of_one_run_are_labelled(tmp_path: Path) -> None:
    real = (ROOT / "tests" / "data" / "audit" / "strace-plain.txt").read_text()
    for name in ("a-1", "a-2", "b-1", "b-2"):
        (tmp_path / f"{name}.txt").write_text(real)
    done = iotrial("audit", *(str(tmp_path / f"{n}.txt") for n in ("a-1", "a-2", "b-1", "b-2")), "--json")
    assert json.loads(done.stdout)["audit"]["groups"] == ["a", "b"]
    done = iotrial("audit", f"x={tmp_path / 'a-1.txt'}", f"y={tmp_path / 'b-1.txt'}", "--json")
    assert json.loads(done.stdout)["audit"]["groups"] == ["x", "y"]


def test_markdown_is_written_where_asked(tmp_path: Path) -> None:
    target = tmp_path / "audit.md"
    done = iotrial("audit", str(TABLES / "mkfs.csv"), "--markdown", str(target))
    assert done.returncode == 0
    assert target.read_text().startswith("## How long does mkfs take")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("audit", "/nowhere.csv"), "No such file"),
        (("audit", str(TABLES)), "directory"),
        (("audit", str(TABLES / "nas-knobs.csv")), "no column of numbers"),
        (("audit", str(TABLES / "mkfs.csv"), "--format", "fio"), "no result of fio"),
        (("audit", str(TABLES / "mkfs.csv"), "--group", "nope"), "nope"),
        (("audit", str(TABLES / "mkfs.csv"), "--reference", "nope"), "nope"),
        (("audit", str(TABLES / "mkfs.csv"), "--claim", "nonsense"), "claim"),
        (("audit", str(TABLES / "mkfs.csv"), "--margin", "300 %"), "margin"),
        (("audit", str(TABLES / "mkfs.csv"), "--response", "nope"), "nope"),
    ],
)
def test_a_wrong_request_is_status_2_and_says_what(words: tuple[str, ...], said: str) -> None:
    done = iotrial(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
