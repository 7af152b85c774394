"""Whatever state a disk leaves journal, records and store in: what is sound is undone, the rest is named, nothing hangs.

Each state is drawn from ``SEED`` and its number. The long tier draws 10,000.
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from machine_trees import HUGE_PAGES, SWAPPINESS, THP, FakeMachine, image, tree
from store_examples import filled, header
from test_applied import arm, record_of, reverted

from disk_states import HARMLESS, spoil
from iotrial.durable import Damage
from iotrial.errors import IotrialError, RequestError, StoreError
from iotrial.lab.journal import Journal
from iotrial.lab.objects.path import LabPath
from iotrial.lab.restore import restore
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.store import Store
from iotrial.tune import watchdog
from iotrial.tune.applied import FOLDER, Records, apply, keep
from values import replace

SEED = 48
#: longer than any of them may take
LIMIT_S = 20
SHARES = {"journal": 4000, "records": 3000, "store": 3000}
assert sum(SHARES.values()) == 10_000


def drawn(what: str, few: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("states", [few, pytest.param(SHARES[what], marks=pytest.mark.long)])


@contextmanager
def in_time() -> Iterator[None]:
    """Fail instead of hanging, as on a FIFO."""

    def late(*_: object) -> None:
        raise AssertionError(f"not done after {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder in memory, where a sync takes no time."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    folder = Path(tempfile.mkdtemp(dir=parent, prefix="iotrial-states-"))
    yield folder
    shutil.rmtree(folder)


@drawn("journal", 150)
def test_entries_that_are_sound_are_undone_and_the_others_are_named(memory: Path, states: int) -> None:
    seen: Counter[str] = Counter()
    with Probe(isolate=False) as probe:
        target = Target(probe)
        for number in range(states):
            draw = random.Random(f"{SEED}/journal/{number}")
            folder = memory / str(number)
            made, foreign = folder / "made", folder / "made/iotrial-lab-ffff"
            foreign.mkdir(parents=True)
            journal = Journal(folder / "journal")
            subjects = {}
            for name in ("a0", "b0", "c0", "d0"):
                entry = LabPath().make_folder(target, journal, str(made / f"iotrial-lab-{name}"))
                subjects[journal.path(entry.number)] = made / f"iotrial-lab-{name}"
            done = spoil(list(subjects), draw)
            seen.update(done.values())
            with in_time():
                _check_journal(folder / "journal", target, subjects, done)
            assert foreign.is_dir(), (number, done)
            shutil.rmtree(folder)
    print(f"journal, seed {SEED}: {states} states, {sum(seen.values())} spoiled files {dict(seen)}")


def _check_journal(folder: Path, target: Target, subjects: dict[Path, Path], done: dict[Path, str]) -> None:
    journal = Journal(folder)  # of a process that was not there before
    restored = restore(journal, target)
    for path, context in subjects.items():
        usable = done.get(path, "sound") in (*HARMLESS, "sound")
        assert not (usable and context.exists()), (path.name, done, restored)
        if context.exists():
            damaged = journal.read()[1]
            lost = done[path] in ("removed", "not renamed")
            assert lost or any(one.path == path for one in damaged), (path.name, done, damaged)
    assert not [one for one in restored if one.kept]
    for damage in journal.read()[1]:  # what `restore --accept` does
        journal.dismiss(damage.path)
    assert not any(journal.read())


@drawn("records", 100)
def test_records_that_are_sound_are_taken_back_and_the_others_are_named(memory: Path, states: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(states):
        draw = random.Random(f"{SEED}/records/{number}")
        root = tree(memory / str(number))
        before = image(root)
        machine = FakeMachine(root)
        swap, pages = replace(SWAPPINESS, trial="aaaa0000"), replace(HUGE_PAGES, trial="bbbb0000")
        ours = functools.partial(arm, machine)
        kept = apply(Records(machine), record_of(machine, (swap,), trial="aaaa0000"), ours)
        keep(Records(machine), kept, lambda _: None)
        pending = apply(Records(machine), record_of(machine, (pages,), trial="bbbb0000"), ours)
        after = image(root)
        folder = root / FOLDER.lstrip("/")
        waiting = watchdog.Waiting(Records(machine), pending.short)
        assert not waiting.is_over()
        done = spoil([folder / f"{one.short}.json" for one in (kept, pending)], draw)
        seen.update(done.values())
        machine.now_s = pending.due_s
        with in_time():
            waiting.is_over()
            assert image(root)[THP] == before[THP], (number, done)
            assert image(root)["proc/sys/vm/swappiness"] == after["proc/sys/vm/swappiness"]
            _check_records(root, folder / f"{kept.short}.json", before, after, done)
        shutil.rmtree(root)
    print(f"records, seed {SEED}: {states} states, {sum(seen.values())} spoiled files {dict(seen)}")


def _check_records(
    root: Path, path: Path, before: dict[str, object], after: dict[str, object], done: dict[Path, str]
) -> None:
    """Take the rest back, as `iotrial revert` does; ``path``: the record of what was kept."""
    records = Records(FakeMachine(root))
    damaged: list[Damage] = records.read()[1]
    assert not [one.problems for one in reverted(FakeMachine(root)) if one.problems], done
    swappiness = "proc/sys/vm/swappiness"
    usable = done.get(path, "sound") in (*HARMLESS, "sound")
    assert image(root)[swappiness] == (before if usable else after)[swappiness], done
    if usable:
        assert image(root) == before, done
    else:
        lost = done[path] in ("removed", "not renamed")
        assert lost or any(one.path == path for one in damaged), (done, damaged)
    for damage in records.read()[1]:  # what `revert --force` does
        records.set_aside(damage)
    assert not records.read()[1]
    assert not [one for one in records.all() if one.in_force]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store whose writer was killed: a file, and a write-ahead log with trials that are not in the file yet."""
    folder, left = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("crashed")
    with Store.open(folder / "trials.db") as store:
        filled(store, header("0" * 16, controls=True), blocks=5)
    with Store.open(folder / "trials.db") as store:
        filled(store, header("1" * 16, controls=True), blocks=5)
        for file in folder.iterdir():
            shutil.copy(file, left / file.name)
    assert (left / "trials.db-wal").stat().st_size > 10_000
    return left


@drawn("store", 100)
def test_a_store_in_any_state_gives_only_what_was_stored_or_an_error(
    memory: Path, crashed: Path, states: int
) -> None:
    seen: Counter[str] = Counter()
    truth = _everything(crashed / "trials.db", memory / "truth")
    assert len(truth) == 2
    outcomes: Counter[str] = Counter()
    for number in range(states):
        draw = random.Random(f"{SEED}/store/{number}")
        folder = memory / str(number)
        shutil.copytree(crashed, folder)
        done = spoil(sorted(folder.iterdir()), draw)
        seen.update(done.values())
        with in_time():
            outcomes[_check_store(folder / "trials.db", truth, (number, done))] += 1
        shutil.rmtree(folder)
    print(
        f"store, seed {SEED}: {states} states, {sum(seen.values())} spoiled files {dict(seen)}; {dict(outcomes)}"
    )


def _everything(path: Path, copy: Path) -> dict[str, list[object]]:
    shutil.copytree(path.parent, copy)
    with Store.open(copy / path.name, read_only=True) as store:
        return {one.header.id: list(store.data(one.number).runs) for one in store.listing()[0]}


def _check_store(path: Path, truth: dict[str, list[object]], case: object) -> str:
    """Read and write a store; return what became of it. Raises AssertionError, or what a verb does not expect."""
    outcome = "read"
    try:
        with Store.open(path, read_only=True) as store:
            for trial in store.listing()[0]:
                with suppress(IotrialError):
                    runs = list(store.data(trial.number).runs)
                    assert runs == truth[trial.header.id][: len(runs)], case
    except (StoreError, RequestError):
        outcome = "refused by a reader"
    try:
        with Store.open(path) as store:
            filled(store, header("2" * 16, controls=True), blocks=1)
            written = len(store.listing()[0])
        with Store.open(path, read_only=True) as store:
            assert len(store.listing()[0]) == written, case
    except (StoreError, RequestError):
        return outcome if outcome != "read" else "read, refused by a writer"
    except sqlite3.Error as error:
        raise AssertionError(f"{case}: {error!r}") from error
    return "read and written"
