"""A store on a disk that is really full: acknowledged data are kept, and the store works again once there is
space."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotrial.errors import IotrialError, StoreError
from iotrial.output_files import append, output_file
from iotrial.store import Store
from iotrial.store.model import RunRecord, TrialHeader, TrialState
from iotrial.study.catalogue import find

pytestmark = pytest.mark.root

ID = "ab" * 16


@pytest.fixture
def small_disk(disk_folder: Path) -> Iterator[Path]:
    """Yield a file system of 1 MiB."""
    folder = disk_folder / "small"
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "iotrial-test", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def _header() -> TrialHeader:
    return TrialHeader(
        id=ID,
        study=find("files/permissions"),
        seed="00" * 16,
        seed_chosen=False,
        alpha=0.05,
        margin=0.03,
        started="2024-05-01T12:00:00Z",
        lab={},
        host={},
        options={},
        version="0.1.0",
    )


def _run(block: int) -> RunRecord:
    return RunRecord("c", block, 0, "a", "treatment", {}, float(block), checks={"filler": "x" * 1000})


def _append(store: Store, acknowledged: list[int]) -> None:
    for block in range(2000):
        store.append_run(ID, _run(block))
        acknowledged.append(block)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_a_full_disk_loses_nothing_that_was_acknowledged_and_the_store_goes_on(small_disk: Path) -> None:
    path = small_disk / "trials.db"
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(100 << 10))
    with Store.open(path) as store:
        store.create_trial(_header())
        acknowledged: list[int] = []
        with pytest.raises(StoreError) as caught:
            _append(store, acknowledged)
        stored = len(acknowledged)
        assert stored > 20
        assert "everything acknowledged" in (caught.value.hint or "")
        # Writes keep failing, reads keep working.
        with pytest.raises(StoreError):
            store.set_state(ID, TrialState.FAILED, "x" * 20_000)
        assert [run.block for run in store.data(ID).runs] == list(range(stored))
        ballast.unlink()
        store.append_run(ID, _run(stored))
        store.set_state(ID, TrialState.INTERRUPTED)
    with Store.open(path) as again:
        data = again.data(ID)
    assert [run.block for run in data.runs] == list(range(stored + 1))
    assert data.trial.state is TrialState.INTERRUPTED


def test_a_trial_that_finds_no_room_to_begin_says_so(small_disk: Path) -> None:
    with Store.open(small_disk / "trials.db") as store:
        ballast = small_disk / "ballast"
        with pytest.raises(OSError, match="No space"):
            _fill(ballast)
        with pytest.raises(StoreError) as caught:
            store.create_trial(_header())
        assert "acknowledged" in (caught.value.hint or "")
        ballast.unlink()
        assert store.listing() == ((), ())
        assert store.create_trial(_header()).number == 1


def test_an_export_onto_a_full_disk_leaves_no_half_file(small_disk: Path) -> None:
    kept = small_disk / "kept.iotrial"
    kept.write_bytes(b"the one before")

    def fill(path: Path, *, force: bool) -> None:
        with output_file(path, force=force) as file:
            while True:
                file.write(bytes(65536))

    for path, force in ((kept, True), (small_disk / "new.iotrial", False)):
        with pytest.raises(IotrialError, match="No space") as caught:
            fill(path, force=force)
        assert "free some space" in (caught.value.hint or "")
    with pytest.raises(IotrialError, match="No space"):
        append(small_disk / "summary.md", bytes(2 << 20))
    assert [file.name for file in small_disk.iterdir()] == ["kept.iotrial"]
    assert kept.read_bytes() == b"the one before"
