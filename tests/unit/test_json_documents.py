"""With --json each verb prints one document that matches its published schema, also for errors. Exit statuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import program
from iotrial.study.catalogue import names

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "schemas"
PACKED = ROOT / "docs" / "catalogue" / "nas" / "copy.iotrial"


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    return found


def document(name: str, *words: str, cwd: Path | None = None) -> dict[str, Any]:
    """Return a verb's document. It must be on standard output, with nothing on standard error."""
    done = program.iotrial(name, *words, "--json", cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(found, schema(name))
    return found


def refused(*words: str, status: int = 2) -> dict[str, Any]:
    """Return the error of a verb. It must be one document on standard error, with nothing on standard output."""
    done = program.iotrial(*words, "--json")
    assert (done.returncode, done.stdout) == (status, "")
    found: dict[str, Any] = json.loads(done.stderr)
    jsonschema.validate(found, schema("error"))
    return dict(found["error"])


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.name)
def test_every_schema_is_one(path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))


@pytest.mark.slow
def test_studies_and_what_one_asks(state: Path) -> None:
    assert [one["name"] for one in document("list")["studies"]] == list(names())
    shown = document("show", "files/permissions")
    assert shown["study"]["name"] == "files/permissions"
    assert (
        shown["shape"]["conditions_in_full"] == 3 * 4 * 2 * 3 * 2 * 2
    )  # workloads, and the levels of each condition
    assert "operations" in document("show", "--workload", "files")["workload"]


def test_a_packed_trial_goes_in_and_out_and_is_listed(state: Path, tmp_path: Path) -> None:
    assert document("trials") == {"schema": 1, "trials": [], "damaged": []}
    shutil.copy(PACKED, tmp_path / "one.iotrial")
    taken = document("import", "one.iotrial", cwd=tmp_path)["imported"]
    (listed,) = document("trials")["trials"]
    assert (listed["number"], listed["id"], listed["study"]) == (1, taken["id"], "nas/copy")
    given = document("export", "1", "two.iotrial", cwd=tmp_path)["exported"]
    assert given["bytes"] == (tmp_path / "two.iotrial").stat().st_size
    assert given["id"] == taken["id"]


def test_knobs_and_what_is_to_be_restored(state: Path) -> None:
    found = {knob["name"]: knob for knob in document("knobs")["knobs"]}
    assert "0444" in found["file.mode"]["levels"] or found["file.mode"]["range"]
    assert document("restore") == {"schema": 1, "restored": []}


def test_the_script_of_a_shell(state: Path) -> None:
    assert document("completion", "fish")["shell"] == "fish"


@pytest.mark.long
def test_a_server_tells_its_address_in_one_document(state: Path) -> None:
    argv = [sys.executable, "-m", "iotrial", "serve", "--port", "0", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        output = server.stdout.readline()
        server.terminate()
    found = json.loads(output)
    jsonschema.validate(found, schema("serve"))
    assert str(found["serve"]["port"]) in found["serve"]["address"]


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (["show", "files/permission"], "unknown_name", "files/permissions"),
        (["run"], "bad_request", "iotrial list"),
        (["run", "files/permissions", "--set", "mode=9"], "unknown_name", "0444"),
        (["run", "files/permissions", "--set", "mode"], "bad_request", "--set size="),
        (["run", "missing.toml"], "bad_study", "iotrial list"),
        (["run", "files/permissions", "--on", "/nowhere/at/all"], "bad_request", "name an existing folder"),
        (["report"], "bad_request", "iotrial run files/permissions"),
        (["report", "--frobnicate"], "bad_request", "iotrial report --help"),
        (["frobnicate"], "bad_request", "iotrial --help"),
        (["import", str(ROOT / "README.md")], "bad_packed_trial", "iotrial export"),
        (["completion", "ksh"], "bad_request", "iotrial completion --help"),
        (["audit", str(ROOT / "README.md")], "bad_request", "--value COLUMN"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_request_has_status_2_and_says_where_to_look(
    words: list[str], code: str, hint: str, state: Path
) -> None:
    error = refused(*words)
    assert error["code"] == code
    assert hint in (error["hint"] or "")


@pytest.mark.parametrize(
    "words", [["run", "files/permissions", "--time", "soon"], ["resume", "--time", "soon"]], ids=" ".join
)
def test_an_option_that_cannot_be_read_is_named(words: list[str], state: Path) -> None:
    assert refused(*words)["message"].startswith("--time: expected a duration")


def test_a_folder_in_the_place_of_a_file_is_refused(state: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    error = refused("report", str(PACKED), "--markdown", str(tmp_path / "folder"))
    assert error["code"] == "bad_request"
    assert (tmp_path / "folder").is_dir()


def test_a_file_that_cannot_be_written_has_status_1(state: Path) -> None:
    error = refused("report", str(PACKED), "--markdown", "/dev/full", status=1)
    assert error["code"] == "store"


def test_a_verdict_that_was_asked_for_has_status_4_and_any_other_0(state: Path) -> None:
    done = program.iotrial("report", str(PACKED), "--fail-if", "inconclusive", "--json")
    verdicts = {
        effect["verdict"]
        for effect in json.loads(done.stdout)["effects"]
        if effect["primary"] and effect["kind"] == "main"
    }
    assert done.returncode == (4 if "inconclusive" in verdicts else 0)
    assert program.iotrial("report", str(PACKED), "--json").returncode == 0
