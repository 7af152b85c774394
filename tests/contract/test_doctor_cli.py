"""``doctor`` and ``plan`` as a user types them, on this machine, without measuring anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from iotrial.lab.journal import Journal
from program import iotrial

SCHEMAS = Path(__file__).parents[2] / "schemas"


def schema(verb: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{verb}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def test_the_facts_as_json_keep_their_schema_and_leave_nothing(state: Path) -> None:
    done = iotrial("doctor", "--no-aa", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("doctor"))
    assert found["noise"] is None
    areas = {finding["area"] for finding in found["findings"]}
    assert {
        "privileges",
        "kernel",
        "programs",
        "power",
        "frequency",
        "clock",
        "stolen time",
        "pressure",
    } <= areas
    release = Path("/proc/sys/kernel/osrelease").read_text().strip()
    (kernel,) = [finding for finding in found["findings"] if finding["area"] == "kernel"]
    assert kernel["facts"]["release"] == release
    assert not state.exists()


def test_the_facts_as_text_fit_into_80_columns(state: Path) -> None:
    done = iotrial("doctor", "--no-aa")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert {"ok", "note", "problem"} >= {
        line.split()[0] for line in done.stdout.splitlines() if line.startswith(("ok", "note", "problem"))
    }
    assert "clock source" in done.stdout


def test_leftovers_end_the_doctor_with_status_1_and_no_measuring(state: Path) -> None:
    Journal(state / "journal").record("lab.path", {"path": str(state / "nothing")}, "absent", ["folder"])
    done = iotrial("doctor", "--json", "--time", "1s")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("doctor"))
    assert found["noise"] is None
    assert [finding["area"] for finding in found["findings"] if finding["fatal"]] == ["undo journal"]


@pytest.mark.parametrize(
    "words",
    [("--time", "soon"), ("--time", "0 s"), ("--time", "1s", "--quick"), ("--no-aa", "--quick")],
    ids=" ".join,
)
def test_wrong_requests_are_told(state: Path, words: tuple[str, ...]) -> None:
    done = iotrial("doctor", *words, "--json")
    assert done.returncode == 2
    assert json.loads(done.stderr)["error"]["code"] == "bad_request"


def test_a_plan_without_a_pilot_predicts_nothing_and_says_how(state: Path) -> None:
    done = iotrial("plan", "files/permissions", "--lab", "directory", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("plan"))
    assert found["prediction"] is None
    assert "--pilot" in iotrial("plan", "files/permissions", "--lab", "directory").stdout


@pytest.mark.parametrize(
    "words", [("files/permissions", "--pilot", "soon"), ("--pilot", "no/such-study")], ids=" ".join
)
def test_a_pilot_of_nothing_is_told(state: Path, words: tuple[str, ...]) -> None:
    done = iotrial("plan", *words, "--json")
    assert done.returncode == 2
    assert "error" in json.loads(done.stderr)
    assert not state.exists()
