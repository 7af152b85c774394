"""Stores that are damaged, foreign, newer, in the way or out of reach, and conductors that are killed."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from store_examples import header, run

from iotrial.errors import StoreError
from iotrial.store import Store
from iotrial.store.model import BlockEnd, RunRecord, TrialState

ID = "0123456789abcdef"
HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "python"

CONDUCTOR = """
import sys
sys.path[:0] = sys.argv[2:]
from store_examples import header, run
from iotrial.store import Store
from iotrial.store.model import BlockEnd
store = Store.open(sys.argv[1])
trial = store.create_trial(header())
for block in range(100_000):
    for slot in range(2):
        store.append_run(trial.header.id, run(block, slot))
        print(block, slot, flush=True)
    store.end_block(trial.header.id, BlockEnd("workload=w", block, block, controls=True))
    print(block, "end", flush=True)
"""


def _filled(path: Path, runs: int = 50) -> None:
    with Store.open(path) as store:
        store.create_trial(header())
        for block in range(runs):
            store.append_run(ID, run(block, 0))


@contextmanager
def _no_file_longer_than(size_bytes: int) -> Iterator[None]:
    """Make the write that would pass this length fail (Python ignores SIGXFSZ), as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _append_many(store: Store) -> None:
    for block in range(100, 200):
        store.append_run(ID, run(block, 0))


@pytest.mark.parametrize("seed", range(4))
def test_every_acknowledged_run_survives_the_killing_of_its_conductor(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "trials.db"
    command = [sys.executable, "-c", CONDUCTOR, str(path), str(PACKAGE), str(HERE), str(HERE.parent)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged = [child.stdout.readline()]
    time.sleep(random.Random(seed).uniform(0.05, 0.4))
    child.send_signal(signal.SIGKILL)
    acknowledged += child.stdout.read().splitlines(keepends=True)
    child.wait()
    lines = [line.split() for line in acknowledged if line.endswith("\n")]
    runs = [(int(block), int(what)) for block, what in lines if what != "end"]
    ends = [int(block) for block, what in lines if what == "end"]
    assert runs
    with Store.open(path) as store:
        data = store.data("last")
        assert data.trial.state is TrialState.INTERRUPTED
        stored = [(record.block, record.slot) for record in data.runs]
        # Beyond the acknowledged runs there may be one more: the one in progress when the signal arrived.
        assert stored[: len(runs)] == runs
        assert len(stored) <= len(runs) + 1
        assert [end.block for end in data.ends][: len(ends)] == ends
        assert all(record == run(record.block, record.slot) for record in data.runs)
        # The next attempt continues where this one ended.
        store.set_state(ID, TrialState.RUNNING, "resumed")
        block, slot = stored[-1]
        if slot == 0:
            store.append_run(ID, run(block, 1))
            store.end_block(ID, BlockEnd("workload=w", block, block, controls=True))
            assert store.data("last").blocks[-1].gap


def test_a_log_that_was_left_behind_is_read_without_writing(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    store = Store.open(path)
    store.create_trial(header())
    store.append_run(ID, run())
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob("trials.db*"):
        shutil.copy(file, copy)
    store.close()
    assert (copy / "trials.db-wal").stat().st_size > 0
    with Store.open(copy / "trials.db", read_only=True) as reader:
        assert reader.data("last").runs == (run(),)


def test_a_log_that_was_cut_off_loses_the_last_run_at_most(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    store = Store.open(path)
    store.create_trial(header())
    for block in range(10):
        store.append_run(ID, run(block, 0))
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob("trials.db*"):
        shutil.copy(file, copy)
    store.close()
    wal = copy / "trials.db-wal"
    os.truncate(wal, wal.stat().st_size - 100)
    (copy / "trials.db-shm").unlink()
    with Store.open(copy / "trials.db") as reader:
        assert [record.block for record in reader.data("last").runs] == list(range(9))


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    path.write_text("this is a diary, and it is long enough to be one\n" * 100)
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreError, match="not a database") as caught:
            Store.open(path, read_only=read_only)
        assert "IOTRIAL_STORE" in (caught.value.hint or "")
    assert path.read_bytes() == before


def test_another_program_s_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a store of trials"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_newer_store_is_read_with_a_warning_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    _filled(path)
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.execute("ALTER TABLE run ADD COLUMN temperature REAL")
    newer.commit()
    newer.close()
    before = path.read_bytes()
    with Store.open(path, read_only=True) as store:
        assert [trial.number for trial in store.trials()] == [1]
        assert len(store.data(1).runs) == 50
        assert "schema 99, this one knows 2" in store.warnings[0]
        assert "read-only; unknown records are not shown" in store.warnings[0]
    with pytest.raises(StoreError, match="schema 99") as caught:
        Store.open(path)
    assert "update iotrial" in (caught.value.hint or "")
    assert path.read_bytes() == before


@pytest.mark.parametrize("offset", [4096 * n + 8 for n in (1, 3, 8, 20)])
def test_damage_inside_is_a_store_error_with_advice_or_harmless(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "trials.db"
    _filled(path, runs=500)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(os.urandom(4000))
    try:
        with Store.open(path) as store:
            store.data("last")
            store.append_run(ID, run(9999, 0))
    except StoreError as error:
        assert error.hint is None or "recover" in error.hint  # noqa: PT017  the only error there may be


def test_a_database_that_was_cut_off_is_a_store_error_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    _filled(path, runs=500)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StoreError, match="malformed") as caught, Store.open(path) as store:
        store.data("last")
    assert "recover" in (caught.value.hint or "")


def test_a_missing_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state" / "trials.db"
    Store.open(path).close()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_missing_store_is_empty_to_a_reader_and_stays_missing(tmp_path: Path) -> None:
    with Store.open(tmp_path / "none" / "trials.db", read_only=True) as store:
        assert store.trials() == ()
    assert not (tmp_path / "none").exists()


def test_a_folder_and_a_path_through_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        Store.open(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"Not a directory|File exists"):
        Store.open(tmp_path / "file" / "trials.db")


def _as_another(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code as an unprivileged user, because permissions do not restrict root."""
    prologue = (
        "import os, sys; sys.path[:0] = sys.argv[1:3]\n"
        "import iotrial.store.loading, iotrial.study.codec, iotrial.errors, iotrial.workloads.files\n"
        "from iotrial.store import Store\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    )
    command = [sys.executable, "-c", prologue + code, str(PACKAGE), str(HERE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """Return a folder that other users can reach."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            if folder == Path("/tmp"):
                break
            folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path


def test_a_read_only_folder_can_be_read_and_says_so_to_a_writer(open_folder: Path) -> None:
    folder = open_folder / "shelf"
    path = folder / "trials.db"
    _filled(path)
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        read = _as_another("print(len(Store.open(sys.argv[3], read_only=True).data('last').runs))", str(path))
        write = _as_another(
            "try: Store.open(sys.argv[3])\nexcept iotrial.errors.StoreError as e: print(e.message, '|', e.hint)",
            str(path),
        )
        make = _as_another(
            "try: Store.open(sys.argv[3])\nexcept iotrial.errors.StoreError as e: print(e.message, '|', e.hint)",
            str(folder / "new" / "trials.db"),
        )
    finally:
        folder.chmod(0o755)
    assert read.stdout == "50\n", read.stderr
    for refused in (write, make):
        assert "Permission denied" in refused.stdout, refused.stderr
        assert "IOTRIAL_STORE" in refused.stdout


def test_a_store_that_is_being_written_by_another_is_reported_as_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iotrial.store.connection._WAIT_S", 0.01)
    path = tmp_path / "trials.db"
    _filled(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Store.open(path) as store, pytest.raises(StoreError, match="locked") as caught:
        store.append_run(ID, run(77, 0))
    assert "another process" in (caught.value.hint or "")
    other.execute("ROLLBACK")
    other.close()


def test_a_full_disk_is_reported_and_costs_nothing_that_was_stored(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    _filled(path)
    with Store.open(path) as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full") as caught:
            _append_many(store)
        assert "free some space" in (caught.value.hint or "")
        assert len(store.data("last").runs) >= 50


def test_two_processes_may_make_the_same_store_at_once(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    code = "import sys; sys.path[:0] = sys.argv[2:3]\nfrom iotrial.store import Store\nStore.open(sys.argv[1]).close()"
    command = [sys.executable, "-c", code, str(path), str(PACKAGE)]
    children = [subprocess.Popen(command) for _ in range(8)]
    assert [child.wait() for child in children] == [0] * 8
    Store.open(path).close()


def test_a_store_whose_writes_fail_from_any_length_on_keeps_what_it_has_acknowledged(tmp_path: Path) -> None:
    """The limit falls into each write: of the file, of its log, and of the log's move into the file when it is closed."""
    reasons: set[str | None] = set()
    counts = []
    for limit in range(0, 200_000, 2048):
        path = tmp_path / str(limit) / "trials.db"
        trials, reason = 0, None
        runs: list[RunRecord] = []
        with _no_file_longer_than(limit):
            try:
                with Store.open(path) as store:
                    store.create_trial(header())
                    trials = 1
                    for block in range(10):
                        store.append_run(ID, run(block, 0))
                        runs.append(run(block, 0))
            except StoreError as error:
                reason = error.message
        reasons.add(reason and reason.partition(": ")[2])
        counts.append(len(runs))
        with Store.open(path) as store:  # there is room again
            found = store.listing()[0]
            assert len(found) == trials
            if trials:
                assert store.data(ID).runs == tuple(runs)
            else:
                store.create_trial(header())
            store.append_run(ID, run(10, 0))
            assert store.data(ID).runs == (*runs, run(10, 0))
    assert set(counts) >= {
        0,
        5,
        6,
        7,
        8,
        9,
        10,
    }  # the first runs fit into the 32 KiB that the log's index needs
    assert reasons == {None, "disk I/O error"}
