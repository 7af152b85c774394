"""After a power cut and a real boot: `iotrial restore` in a guest, on the disk as the cut has left it."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import systemd_guest
from systemd_guest import Guest

from iotrial.lab.target import Target
from iotrial.powercut.log import WriteLog
from iotrial.powercut.rebuild import Rebuilder
from iotrial.powercut.record import BEGUN, record
from iotrial.powercut.states import CutPoint, cut_points

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "powercut"))

import itself
import laboratory

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.alone]  # boots guests


@pytest.fixture
def target() -> Iterator[Target]:
    with laboratory.lab() as target:
        yield target


@pytest.fixture
def at() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="iotrial-cut-"))
    yield folder
    folder.rmdir()


def pending(point: CutPoint) -> int:
    """Return how many entries of the journal were acknowledged and not dropped at this point."""
    standing: set[str] = set()
    for text in point.acknowledged_before:
        word, _, number = text.partition(" ")
        if word == "entry":
            standing.add(number)
        elif word == "dropped":
            standing.discard(number)
    return len(standing)


def test_after_a_real_boot_restore_undoes_the_journal_and_the_runs_are_there(
    target: Target, at: Path, disk_folder: Path
) -> None:
    """States with something to undo, from the beginning to the end of the trials, each booted."""
    lacking = systemd_guest.missing()
    if lacking is not None:
        pytest.skip(lacking)
    made, folder, log = disk_folder / "systemd-guest", disk_folder / "booted", disk_folder / "log"
    made.mkdir()
    folder.mkdir()
    systemd_guest.build(made)
    label = ("-L", "data")
    record(target, log, "ext4", itself.SIZE, itself.Trials(4), mkfs_options=label, at=at)
    checked = 0
    with WriteLog(log) as read, Rebuilder(read, folder / "state", itself.SIZE) as rebuilder:
        points = [
            point
            for point in cut_points(read, laboratory.SEED, 400, after=read.marked(BEGUN))
            if pending(point)
        ]
        for point in points[:: len(points) // 8]:
            rebuilder.build(point)
            machine = Guest(made, folder)
            shutil.copy(folder / "state", folder / "data.img")
            try:
                machine.boot()
                machine.settle()
                machine.run(f"mkdir -p {at} && mount --bind /srv/data {at}")
                state = f"XDG_STATE_HOME={at}/state"
                found = json.loads(machine.run(f"{state} iotrial restore --json 2>/dev/null"))
                assert not [row for row in found["restored"] if row["kept"]]
                assert (
                    machine.run(f"find {at} -name 'iotrial-lab-*' -o -name '*.entry' -o -name journal.open")
                    == ""
                )
                runs = sum(text.startswith("run ") for text in point.acknowledged_before)
                store = f"sqlite3.connect('{at}/state/iotrial/trials.db')"
                query = f"import sqlite3; print({store}.execute('select count(*) from run').fetchone()[0])"
                there = int(machine.run(f'python3 -c "{query}"')) if runs else 0
                assert runs <= there <= runs + 1
                checked += 1
            finally:
                machine.close()
    shutil.rmtree(made)
    shutil.rmtree(folder)
    log.unlink()
    assert checked >= 8
