"""Whole trials of commands that write: each run into an empty folder, owned by the user that runs the
command."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import failures_of, iotrial, run_json, stored_runs, write_study

pytestmark = pytest.mark.root

COPY = """
[study]
name = "copy"
question = "?"
account = false
[lab]
size = "32 MiB"
[budget]
blocks = 2
[[factor]]
name = "way"
knob = "command.argument"
placeholder = "{way}"
levels = ["always", "never"]
[[workload]]
name = "copy"
kind = "command"
files = 3
pool = 3
size = "20 KiB"
cwd = "{out}"
[[workload.step]]
name = "begin"
argv = ["mkdir", "copies"]
[[workload.step]]
name = "copy"
argv = ["cp", "--sparse={way}", "-t", "{out}/copies", "{files}"]
[[workload.step]]
name = "end"
argv = ["sync", "-f", "{out}"]
"""


@pytest.mark.parametrize("lab", ["image", "directory"])
def test_every_run_writes_to_an_empty_folder_and_what_it_wrote_is_counted(
    state: Path, disk_folder: Path, lab: str
) -> None:
    # mkdir(1) fails if the folder of an earlier run still exists
    report = run_json(write_study(state.parent, COPY), "--lab", lab, "--on", str(disk_folder), "--no-stop")
    assert failures_of(state) == []
    assert report["void"] == []
    runs = stored_runs(state)
    assert len(runs) >= 4, "two arms, twice"
    for run in runs:
        assert run["responses"]["out_files"] == 3
        assert run["responses"]["out_bytes"] == 3 * 20 * 1024
        if lab == "image":
            assert run["responses"]["device_write_bytes"] >= 3 * 20 * 1024
            assert run["responses"]["device_write_bytes_synced"] >= run["responses"]["device_write_bytes"]


def test_whoever_does_the_work_may_write_there(state: Path) -> None:
    text = COPY.replace("command.argument", "process.user").replace('placeholder = "{way}"\n', "")
    text = text.replace('["always", "never"]', '["root", "unprivileged"]').replace("{way}", "never")
    run_json(write_study(state.parent, text), "--no-stop", "--trust")
    assert failures_of(state) == []


def test_a_placeholder_of_the_program_s_own_is_no_factor_s(state: Path) -> None:
    for old, new, message in (
        ("{way}", "{out}", "is set by iotrial"),
        ("files = 3", "files = 3\nreplicates = 2", "empty at the start of a run"),
    ):
        refused = iotrial("plan", write_study(state.parent, COPY.replace(old, new)), check=2)
        assert message in refused.stderr


MADE = """
[study]
name = "made"
question = "?"
account = false
[lab]
size = "32 MiB"
[budget]
blocks = 2
[[factor]]
name = "atime"
knob = "mount.atime"
levels = ["relatime", "noatime"]
[[workload]]
name = "files"
kind = "files"
files = 50
directories = 3
content = "words"
order = "by-phase"
operations = ["create", "write-all", "close", "getdents", "open", "sendfile", "close", "unlink"]
"""


def test_files_that_a_run_makes_are_there_while_it_lasts_and_no_longer(state: Path) -> None:
    report = run_json(write_study(state.parent, MADE), "--no-stop")
    assert failures_of(state) == []
    assert report["void"] == []
    for run in stored_runs(state):
        assert {"create_time", "write_all_time", "getdents_time", "sendfile_time", "unlink_time"} <= {
            *run["responses"],
            *run["evidence"],
        }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"mount.atime"\nlevels = ["relatime", "noatime"]',
            '"file.mode"\nlevels = ["0444", "0777"]',
            "nothing to act on",
        ),
        ('order = "by-phase"', 'order = "by-phase"\ncache = "warm"', "they cannot be warm"),
        ('"close", "unlink"]', '"close"]', "the next run would find them"),
        ('content = "words"', 'content = "c"\nsize = "1000 B"', "end inside a function"),
        (
            '"mount.atime"\nlevels = ["relatime", "noatime"]',
            '"file.size"\nlevels = ["1 KiB", "1000 B"]\nrole = "condition"',
            None,
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_changed(
    state: Path, old: str, new: str, message: str | None
) -> None:
    text = MADE.replace(old, new)
    if message is None:  # the same from a knob
        text, message = text.replace('"words"', '"c"') + TREATED, "C sources of 1,000 bytes"
    refused = iotrial("plan", write_study(state.parent, text), check=2)
    assert message in refused.stderr


TREATED = """
[[factor]]
name = "atime-too"
knob = "mount.atime"
levels = ["relatime", "noatime"]
"""
