"""An undo journal that is removed or damaged, and a loop device that another process has taken: everything
else is restored, and what is not is listed by number and reason, with exit status 5."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from breaking import Trial, command_study, entries, eventually, iotrial, last_trial, send, traces
from running import stored_runs

from as_nobody import NOBODY
from iotrial.lab.journal import Journal

#: changes sysctls, and takes a loop device that was just released, by its number
pytestmark = [pytest.mark.root, pytest.mark.alone]

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "restore.schema.json").read_text())
PRESSURE = Path("/proc/sys/vm/vfs_cache_pressure")
EXPIRE = Path("/proc/sys/vm/dirty_expire_centisecs")
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
FACTORS = """
[[factor]]
name = "pressure"
knob = "sysctl"
key = "vm.vfs_cache_pressure"
levels = ["60", "140"]
[[fixed]]
knob = "sysctl"
key = "vm.dirty_expire_centisecs"
level = "2500"
[[fixed]]
knob = "memory.huge_pages"
level = "never"
[[fixed]]
knob = "memory.limit"
level = "64 MiB"
"""


def study(folder: Path, *, lab: str = "image") -> str:
    """Write a study with a command without factors; only machine settings vary. Return its path."""
    path = Path(command_study(folder, ["cat", "{file}"], lab=lab, blocks=2000))
    text = path.read_text()
    factor = text[text.index("[[factor]]") : text.index("[[workload]]")]
    path.write_text(text.replace(factor, FACTORS + "\n").replace('"as-is"', '"cold"'))
    return str(path)


def machine() -> dict[str, str]:
    found = {str(path): path.read_text() for path in (PRESSURE, EXPIRE, HUGE)}
    groups = [path for path in Path("/sys/fs/cgroup").rglob("iotrial-lab-*") if path.is_dir()]
    return {**found, "groups": " ".join(map(str, groups)), "lab": str(Path("/run/iotrial").exists())}


@contextmanager
def at_work(state: Path, *words: str) -> Iterator[Trial]:
    """Yield a trial that has made some runs. Afterwards the machine is as before, whatever happened."""
    before = machine()
    trial = Trial(state, *words, "--no-stop", "--trust")
    try:
        trial.until_runs(4)
        assert machine() != before
        yield trial
        assert machine() == before
    finally:
        trial.process.kill()
        trial.process.wait()
        for path in (PRESSURE, EXPIRE):
            path.write_text(before[str(path)])
        HUGE.write_text(before[str(HUGE)].split("[")[1].split("]")[0])


def restored() -> tuple[int, list[dict[str, Any]], str]:
    done = iotrial("restore", "--json")
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, SCHEMA)
    return done.returncode, answer["restored"], done.stderr


def _removed(journal: Path) -> None:
    shutil.rmtree(journal)


def _emptied(journal: Path) -> None:
    for path in journal.iterdir():
        path.unlink()


def _garbled(journal: Path) -> None:
    for path in journal.iterdir():
        path.write_text("{")


def _given_away(journal: Path) -> None:
    for path in (journal, *journal.iterdir()):
        os.chown(path, NOBODY, NOBODY)


def _replaced(journal: Path) -> None:
    shutil.rmtree(journal)
    journal.write_text("")


@pytest.mark.parametrize("harm", [_removed, _emptied, _garbled, _given_away, _replaced])
def test_a_journal_harmed_while_a_trial_runs_is_undone_from_memory_and_is_status_5(
    state: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    with at_work(state, study(tmp_path), "--json") as trial:
        harm(state / "journal")
        send(trial, signal.SIGTERM)
        status, _, err = trial.end()
    assert status == 5, err
    error = json.loads(err.splitlines()[-1])["error"]
    assert error["code"] == "restore_incomplete"
    assert str(state / "journal") in error["message"]
    assert last_trial()["state"] == "interrupted"
    assert len(stored_runs(state)) >= 4
    if (state / "journal").is_dir():
        shutil.rmtree(state / "journal")
    assert eventually(lambda: not traces(state), 10), traces(state)


def test_of_a_trial_cut_off_a_damaged_entry_is_named_and_the_others_are_put_back(
    state: Path, tmp_path: Path
) -> None:
    with at_work(state, study(tmp_path)) as trial:
        send(trial, signal.SIGKILL)
        trial.process.wait()
        paths = {
            json.loads(path.read_text().splitlines()[0])["address"].get("path"): path
            for path in entries(state)
        }
        assert len(paths) > 5
        garbled, foreign = paths[str(PRESSURE)], paths[str(EXPIRE)]
        garbled.write_text("{")
        os.chown(foreign, NOBODY, NOBODY)
        status, rows, err = restored()
        assert status == 5, err
        kept = {row["target"]: row for row in rows if row["kept"]}
        assert set(kept) == {str(garbled), str(foreign)}
        assert all(row["problem"] for row in kept.values())
        assert entries(state) == sorted([garbled, foreign])
        refused = iotrial("run", study(tmp_path))
        assert refused.returncode == 1
        assert str(garbled) in refused.stderr or str(foreign) in refused.stderr
        assert "left 2 to undo" in iotrial("trials").stderr
        # once it belongs to its user again it is restored; the other one is dismissed after it was shown
        os.chown(foreign, 0, 0)
        assert restored()[0] == 5
        number = str(int(garbled.stem))
        done = iotrial("restore", "--accept", number)
        assert done.returncode == 0, done.stderr
        assert str(garbled) in done.stdout
        assert entries(state) == []
        PRESSURE.write_text("100")
    assert iotrial("restore").stdout == "Nothing to restore.\n"


@contextmanager
def taken_by_a_stranger(devices: list[str], folder: Path) -> Iterator[Path]:
    image = folder / "theirs.img"
    image.write_bytes(bytes(1 << 20))
    for device in devices:
        assert eventually(lambda d=device: not Path(f"/sys/block/{d}/loop").exists(), 10)  # type: ignore[misc]
        subprocess.run(["losetup", f"/dev/{device}", str(image)], check=True)
    try:
        yield image
    finally:
        for device in devices:
            subprocess.run(["losetup", "-d", f"/dev/{device}"], check=True)


def test_a_loop_device_taken_by_a_stranger_is_named_blocks_no_other_trial_and_can_be_dismissed(
    state: Path, tmp_path: Path, disk_folder: Path
) -> None:
    path = Path(study(tmp_path))
    text = path.read_text()
    path.write_text(
        text.replace('knob = "sysctl"\nkey = "vm.dirty_expire_centisecs"\nlevel = "2500"',
                     'knob = "block.read_ahead_kb"\nlevel = "64"')
    )  # fmt: skip
    with at_work(state, str(path)) as trial:
        devices = {
            json.loads(entry.read_text().splitlines()[0])["address"].get("device")
            for entry in entries(state)
            if json.loads(entry.read_text().splitlines()[0])["knob"] == "lab.loop"
        }
        send(trial, signal.SIGKILL)
        trial.process.wait()
        (device,) = devices
        queue = Path(f"/sys/block/{device}/queue")
        with taken_by_a_stranger([str(device)], disk_folder) as image:
            (queue / "read_ahead_kb").write_text("64")
            status, rows, err = restored()
            kept = {row["number"]: row for row in rows if row["kept"]}
            assert status == 5, err
            assert kept
            for row in kept.values():
                assert row["outcome"] == "left alone"
                assert str(device) in row["target"]
                assert str(image) in row["problem"]
            assert (queue / "read_ahead_kb").read_text() == "64\n"
            # an unrelated trial, on another device, starts and finishes
            other = iotrial("run", command_study(tmp_path, ["test", "-n", "{word}"], lab="image"))
            assert other.returncode in (0, 3, 6), other.stderr
            (number,) = (one for one, row in kept.items() if row["knob"] == "block.read_ahead_kb")
            before = json.loads((state / "journal" / f"{number:06d}.entry").read_text().splitlines()[0])
            unknown = iotrial("restore", "--accept", str(number), "--accept", "999")
            assert unknown.returncode == 2
            assert "999" in unknown.stderr
            assert len(entries(state)) == len(kept)
            done = iotrial("restore", "--json", "--accept", str(number))
            assert done.returncode == 0, done.stderr
            answer = json.loads(done.stdout)
            jsonschema.validate(answer, SCHEMA)
            (accepted,) = answer["accepted"]
            assert {key: accepted[key] for key in ("number", "knob", "original", "ours", "address")} == {
                key: before[key] for key in ("number", "knob", "original", "ours", "address")
            }
            assert len(entries(state)) == len(kept) - 1
        # the device is free again: the rest can be restored, or is unchanged
        assert restored()[0] == 0
        assert entries(state) == []
        # what was dismissed nobody else undoes
        Path(accepted["address"]["path"]).write_text(accepted["original"])


#: settings that can be changed a little for a moment without harm
SEVEN = (
    "vfs_cache_pressure",
    "dirty_expire_centisecs",
    "dirty_writeback_centisecs",
    "swappiness",
    "page-cluster",
    "stat_interval",
    "watermark_scale_factor",
)


@pytest.mark.parametrize("size", [0, 40])
def test_one_entry_of_seven_cut_short_by_a_power_cut_keeps_no_other_from_being_undone(
    state: Path, size: int
) -> None:
    files = [Path("/proc/sys/vm") / name for name in SEVEN]
    before = {path: path.read_text() for path in files}
    journal = Journal(state / "journal")
    try:
        for path in files:
            ours = str(int(before[path]) + 1)
            journal.record("sysctl", {"path": str(path)}, before[path].strip(), [ours])
            path.write_text(ours)
        cut = entries(state)[3]
        os.truncate(cut, size)
        status, rows, err = restored()
        assert status == 5, err
        assert "1 of 7" in err
        assert [row["target"] for row in rows if row["kept"]] == [str(cut)]
        assert {path for path in files if path.read_text() != before[path]} == {files[3]}
        assert entries(state) == [cut]
    finally:
        for path, text in before.items():
            path.write_text(text)


def test_a_journal_that_is_a_file_is_status_5_and_named(state: Path) -> None:
    state.mkdir(mode=0o700)
    (state / "journal").write_text("")
    status, rows, err = restored()
    assert status == 5, err
    assert [row["target"] for row in rows] == [str(state / "journal")]
    assert "cannot be read" in err


def test_an_undo_journal_that_nobody_may_enter_is_still_undone_by_root(state: Path) -> None:
    journal, before = Journal(state / "journal"), PRESSURE.read_text()
    try:
        ours = str(int(before) + 1)
        journal.record("sysctl", {"path": str(PRESSURE)}, before.strip(), [ours])
        PRESSURE.write_text(ours)
        (state / "journal").chmod(0)
        status, _, err = restored()
        assert status == 0, err
        assert PRESSURE.read_text() == before
        assert entries(state) == []
    finally:
        PRESSURE.write_text(before)


@pytest.mark.parametrize("remove", [_removed, _emptied])
def test_a_journal_that_was_removed_after_a_trial_was_cut_off_is_status_5_and_said_by_each_command(
    state: Path, tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    journal, before = Journal(state / "journal"), PRESSURE.read_text()
    try:
        ours = str(int(before) + 1)
        journal.record("sysctl", {"path": str(PRESSURE)}, before.strip(), [ours])
        PRESSURE.write_text(ours)
        remove(state / "journal")
        status, rows, err = restored()
        assert status == 5, err
        assert [(row["number"], row["outcome"]) for row in rows] == [(0, "removed")]
        assert "removed" in iotrial("trials").stderr
        refused = iotrial("run", study(tmp_path), "--trust")
        assert refused.returncode == 1
        assert "iotrial restore" in refused.stderr
        assert iotrial("restore", "--accept", "0").returncode == 0
        assert iotrial("restore").stdout == "Nothing to restore.\n"
    finally:
        PRESSURE.write_text(before)


def test_entries_that_cannot_be_taken_off_the_journal_are_said_to_be_put_back(
    state: Path, tmp_path: Path
) -> None:
    journal = state / "journal"
    with at_work(state, study(tmp_path), "--json") as trial:
        subprocess.run(["chattr", "+i", str(journal)], check=True)
        try:
            send(trial, signal.SIGTERM)
            status, _, err = trial.end()
        finally:
            subprocess.run(["chattr", "-i", str(journal)], check=True)
    assert status == 5, err
    assert "all of them were undone from memory" in err
    assert "not everything could be undone" not in err
    status, rows, err = restored()
    assert status == 0, err
    assert {row["outcome"] for row in rows} == {"already as before"}
