"""Bad input gives a clear error that says what to do, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import SCHEDULERS, failures_of, iotrial, write_study

pytestmark = pytest.mark.root


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("files/permission",), 2, 'did you mean "files/permissions"?'),
        (("files/permissions", "--set", "mod=0444"), 2, "mode"),
        (("files/permissions", "--set", "mode=0445"), 2, "0444"),
        (("files/permissions", "--condition", "size=4KiX"), 2, "4 KiB"),
        (("files/permissions", "--time", "5 minits"), 2, "min"),
        (("files/permissions", "--margin", "much"), 2, "%"),
        (("files/permissions", "--on", "/nonexistent"), 2, "no such folder"),
        (("files/permissions", "--on", "/dev/shm"), 2, "memory"),
        (("files/permissions", "--lab", "cloud"), 2, "directory"),
        (("mount/atime", "--lab", "directory"), 2, "image"),
    ],
)
def test_bad_input_gets_a_clear_error_and_changes_nothing(
    state: Path, words: tuple[str, ...], status: int, says: str
) -> None:
    done = iotrial("run", *words, check=None)
    assert done.returncode == status, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(state.rglob("*.entry"))
    error = json.loads(iotrial("run", *words, "--json", check=None).stderr.splitlines()[-1])["error"]
    assert set(error) == {"code", "message", "hint"}


def test_no_free_space_is_told_before_anything_is_made(state: Path, disk_folder: Path) -> None:
    text = SCHEDULERS.replace('size = "64 MiB"', 'size = "9 TiB"')
    done = iotrial("run", write_study(disk_folder, text), check=None)
    assert done.returncode == 2, done.stderr
    assert "MiB free" in done.stderr
    assert "--on" in done.stderr


def test_a_level_that_this_kernel_lacks_is_told_with_what_it_has(state: Path, disk_folder: Path) -> None:
    text = SCHEDULERS.replace('"bfq"', '"elevator9"')
    done = iotrial("run", write_study(disk_folder, text), check=None)
    assert done.returncode == 2, done.stderr
    assert "elevator9" in done.stderr
    assert "mq-deadline" in done.stderr
    assert not list(state.rglob("*.entry"))


def test_a_mistake_in_toml_names_file_line_and_what_was_expected(state: Path, disk_folder: Path) -> None:
    path = write_study(disk_folder, SCHEDULERS.replace("knob =", "knop =", 1))
    done = iotrial("plan", path, check=2)
    line = SCHEDULERS.replace("knob =", "knop =", 1).splitlines().index('knop = "block.scheduler"') + 1
    assert f"mine.toml:{line}" in done.stderr
    assert '"knob"' in done.stderr


def test_a_plan_changes_nothing_and_lists_blocks_with_assignments(state: Path) -> None:
    plan = json.loads(iotrial("plan", "files/permissions", "--json", "--seed", "7").stdout)
    assert plan["seed_chosen"] is True
    assert len(plan["blocks"]) == 2 * 4
    assert any("loop device" in change for change in plan["changes"])
    runs = plan["blocks"][0]["runs"]
    assert sorted(r["slot"] for r in runs) == list(range(6))
    assert plan == json.loads(iotrial("plan", "files/permissions", "--json", "--seed", "7").stdout)
    assert not state.exists() or not list(state.rglob("*.entry"))


REACH = """
[study]
name = "reach"
question = "Can who works in the lab enter it?"
[lab]
kind = "directory"
[[factor]]
name = "arm"
knob = "environment.variable"
variable = "ARM"
levels = ["one", "two"]
[[workload]]
name = "read"
kind = "command"
files = 1
cache = "as-is"
argv = ["cat", "{file}"]
"""


def test_a_lab_that_the_user_of_its_commands_cannot_enter_is_told_before_the_first_run(
    state: Path, disk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "1000")
    study = write_study(disk_folder, REACH)
    done = iotrial("run", study, "--blocks", "2", check=1)
    assert "user 1000" in done.stderr
    assert "--on" in done.stderr
    assert not list(state.rglob("*.entry"))
    assert not list(state.rglob("iotrial-lab-*"))
    disk_folder.chmod(0o755)
    iotrial("run", study, "--blocks", "2", "--on", str(disk_folder), "--no-controls")
    assert failures_of(state) == []


def test_a_folder_needs_the_room_of_a_lab_where_commands_write(state: Path, disk_folder: Path) -> None:
    text = REACH.replace('kind = "directory"', 'kind = "directory"\nsize = "9 TiB"')
    iotrial("run", write_study(disk_folder, text), "--blocks", "1", "--no-controls", check=0)
    writing = text.replace('["cat", "{file}"]', '["cp", "{file}", "{out}/copy"]')
    done = iotrial("run", write_study(disk_folder, writing), "--blocks", "1", check=None)
    assert done.returncode == 2, done.stderr
    assert "MiB free" in done.stderr
    assert "--on" in done.stderr
    assert not list(state.rglob("iotrial-lab-*"))
