"""A trial measured here, packed, run again from its file into another store, and compared with that."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from running import iotrial, run_json, stored_runs, write_study

pytestmark = [pytest.mark.root, pytest.mark.long]

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "compare.schema.json").read_text())
READING = """
[study]
name = "reading"
question = "Is reading with a small buffer slower?"
margin = "4 %"
[lab]
kind = "directory"
[budget]
time = "20 s"
blocks = 4
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0644", "0444"]
[[workload]]
name = "read"
kind = "files"
operations = ["open", "read-to-end", "close"]
files = 4
size = "4 KiB"
cache = "warm"
"""


def test_a_rerun_has_the_plan_of_the_original_and_is_compared_with_it(
    state: Path, disk_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = run_json(
        write_study(disk_folder, READING),
        "--on",
        str(disk_folder),
        "--alpha",
        "0.1",
        "--no-stop",
        "--blocks",
        "3",
    )
    file = tmp_path / "original.iotrial"
    iotrial("export", "last", "--to", str(file))
    first = stored_runs(state)
    monkeypatch.setenv("IOTRIAL_STORE", str(tmp_path / "elsewhere.db"))
    again = json.loads(iotrial("run", "--like", str(file), "--on", str(disk_folder), "--json").stdout)
    for fact in ("seed", "margin", "alpha", "lab", "question", "study"):
        assert again["trial"][fact] == original["trial"][fact]
    assert again["trial"]["alpha"] == 0.1
    for option in ("blocks", "time_s", "no_stop", "controls"):
        assert again["trial"]["options"][option] == original["trial"]["options"][option]
    exported = iotrial("export", "last", "--as", "csv", "--to", "-").stdout.splitlines()
    names = exported[0].split(",")
    wanted = [names.index(name) for name in ("block", "slot", "arm", "kind")]
    rows = dict.fromkeys(tuple(line.split(",")[i] for i in wanted) for line in exported[1:])
    assert list(rows) == [(str(r["block"]), str(r["slot"]), r["arm"], r["kind"]) for r in first]

    found = json.loads(iotrial("compare", str(file), "last", "--json").stdout)
    jsonschema.validate(found, SCHEMA)
    assert [trial["name"] for trial in found["trials"]] == ["original.iotrial", "trial 1"]
    assert [trial["analysed_at"] for trial in found["trials"]] == [0.05, 0.05]
    (row,) = [row for row in found["comparisons"] if row["kind"] == "main"]
    assert (row["level"], row["reference"]) == ("0444", "0644")
    assert None not in row["trials"].values()
    assert all(None not in level["medians"].values() for level in found["levels"])
    groups = {one["group"] for one in found["differences"]}
    assert not groups & {"work", "trial", "machine"}
