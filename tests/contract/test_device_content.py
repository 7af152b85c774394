"""What the probe finds on a disk and writes to it: random samples hit as often as the formula predicts, and
no write goes outside."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from scipy.stats import binom
from stand_in import LAB, MIB, SERIAL, StandIn, place_on, replace_look_up, run

from iotrial.errors import ProbeError
from iotrial.lab import disk_identity
from iotrial.lab.journal import Journal
from iotrial.probe.binary import find_binary
from iotrial.probe.client import Probe

pytestmark = pytest.mark.root

SIZE = 32 * MIB
BLOCKS = SIZE // 4096
BINARY = Path(find_binary())


@pytest.fixture
def disk(disk_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setattr(disk_identity, "names_of", disk_identity.names_of)
    replace_look_up({disk_folder / "disk.img": SERIAL})
    disk = StandIn(disk_folder, "disk.img", SIZE)
    yield disk
    disk.detach()
    disk.file.unlink()


@pytest.fixture
def probe() -> Iterator[Probe]:
    with Probe(isolate=True) as probe:
        yield probe


@pytest.mark.parametrize(("other_blocks", "samples"), [(82, 70), (20, 250), (410, 25)])
def test_random_samples_find_a_share_of_other_blocks_as_often_as_the_formula_says(
    other_blocks: int, samples: int, disk: StandIn, probe: Probe
) -> None:
    # probability 1 - (1 - p)^n for n samples, where p is the share of nonzero blocks
    drawn = random.Random(7).sample(range(BLOCKS), other_blocks)
    for block in drawn:
        disk.put(block * 4096 + 4095, b"\x80")
    device = probe.call("device_claim", path=disk.path)["device"]
    repeats = 200
    answers = [
        probe.call("device_check", device=device, samples=samples, edge_bytes=0)["nonzero"]
        for _ in range(repeats)
    ]
    found = [at for at in answers if at is not None]
    chance = 1 - (1 - other_blocks / BLOCKS) ** samples
    assert {at // 4096 for at in found} <= set(drawn)
    assert all(at % 4096 == 4095 for at in found)
    # a correct implementation falls outside once in a million runs
    assert binom.ppf(5e-7, repeats, chance) <= len(found) <= binom.isf(5e-7, repeats, chance)
    assert len({*found}) > 10  # samples differ from call to call and cover the disk


def test_a_disk_of_no_more_blocks_than_samples_is_read_in_full(disk: StandIn, probe: Probe) -> None:
    device = probe.call("device_claim", path=disk.path)["device"]
    look = probe.call("device_check", device=device, samples=BLOCKS, edge_bytes=0)
    assert look == {"nonzero": None, "read_bytes": SIZE, "samples": BLOCKS}
    disk.put(17 * MIB + 3, b"\1")
    assert probe.call("device_check", device=device, samples=BLOCKS, edge_bytes=0)["nonzero"] == 17 * MIB + 3


def test_both_ends_are_read_in_full(disk: StandIn, probe: Probe) -> None:
    device = probe.call("device_claim", path=disk.path)["device"]
    look = probe.call("device_check", device=device, samples=3, edge_bytes=4 * MIB)
    assert look == {"nonzero": None, "read_bytes": 8 * MIB + 3 * 4096, "samples": 3}


def test_zeros_and_marks_go_where_they_are_asked_for_and_nowhere_else(disk: StandIn, probe: Probe) -> None:
    disk.put(0, b"\xa5" * SIZE)
    device = probe.call("device_claim", path=disk.path)["device"]
    probe.call("device_zero", device=device, offset=8192, length=3 * MIB)
    probe.call("device_mark", device=device, offset=5 * MIB, text="trial 1")
    assert probe.call("device_marked", device=device, offset=5 * MIB) == {"text": "trial 1"}
    assert probe.call("device_marked", device=device, offset=6 * MIB) == {"text": None}
    probe.call("device_close", device=device)
    found = disk.bytes_at(0, SIZE)
    expected = bytearray(b"\xa5" * SIZE)
    expected[8192 : 8192 + 3 * MIB] = bytes(3 * MIB)
    expected[5 * MIB : 5 * MIB + 4096] = found[5 * MIB : 5 * MIB + 4096]
    assert found == bytes(expected)
    assert found[5 * MIB :].startswith(b"iotrial lab 1\ntrial 1\n")


@pytest.mark.parametrize(
    ("offset", "length"), [(1, 4096), (0, 4095), (SIZE, 4096), (SIZE - 4096, 8192), (1 << 63, 1 << 63)]
)
def test_a_range_that_is_not_on_the_disk_or_not_in_whole_blocks_is_refused(
    offset: int, length: int, disk: StandIn, probe: Probe
) -> None:
    device = probe.call("device_claim", path=disk.path)["device"]
    for verb in ("device_zero", "device_scan"):
        with pytest.raises(ProbeError, match="expected a range of whole blocks"):
            probe.call(verb, device=device, offset=offset, length=length)


def test_nothing_is_written_without_the_claim(disk: StandIn, probe: Probe) -> None:
    device = probe.call("device_claim", path=disk.path)["device"]
    probe.call("device_release", device=device)
    for verb, fields in (
        ("device_zero", {"offset": 0, "length": 4096}),
        ("device_mark", {"offset": 0, "text": "x"}),
        ("device_window", {"size": 4096}),
    ):
        with pytest.raises(ProbeError, match="has been released"):
            probe.call(verb, device=device, **fields)
    with pytest.raises(ProbeError, match="not claimed by this probe"):
        probe.call("device_zero", device="loop99", offset=0, length=4096)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_until_it_has_passed_a_disk_is_opened_for_reading_only(disk: StandIn, tmp_path: Path) -> None:
    disk.put(9 * MIB, b"data")
    requests = [
        '{"id":1,"verb":"device_claim","path":"%s"}' % disk.path,  # noqa: UP031
        '{"id":2,"verb":"device_check","device":"%s"}' % disk.name,  # noqa: UP031
        '{"id":3,"verb":"device_users","device":"%s"}' % disk.name,  # noqa: UP031
        '{"id":4,"verb":"device_close","device":"%s"}' % disk.name,  # noqa: UP031
    ]
    log = tmp_path / "trace"
    done = subprocess.run(
        ["strace", "-f", "-y", "-e", "trace=open,openat,openat2", "-o", str(log), str(BINARY)],
        input="\n".join(requests),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count('"ok"') == 4, done.stdout
    opened = [line for line in log.read_text().splitlines() if f"<{disk.path}" in line]
    assert len(opened) >= 3
    assert not [line for line in opened if "O_RDWR" in line or "O_WRONLY" in line]


@pytest.mark.parametrize(("filesystem", "lab"), [("ext4", LAB), ("xfs", 300 * MIB), ("btrfs", 128 * MIB)])
def test_no_byte_behind_lab_and_mark_is_written_by_any_file_system(
    filesystem: str, lab: int, disk_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # mkfs.xfs clears the last MiB of its device, whatever size it was given
    monkeypatch.setattr(disk_identity, "names_of", disk_identity.names_of)
    replace_look_up({disk_folder / "full.img": SERIAL})
    behind = 12 * MIB
    disk = StandIn(disk_folder, "full.img", lab + 4096 + behind)
    try:
        pattern = random.Random(filesystem).randbytes(behind)
        disk.put(lab + 4096, pattern)
        disk.put(0, b"\xa5" * 2 * MIB)
        with place_on(
            disk.path, Journal(tmp_path / "journal"), discard=True, filesystem=filesystem, size=lab
        ) as place:
            place.open()
            place.target.call(
                "fileset", set="s", dir=f"{place.root}/s", count=20, size=100_000, seed=1, content="random"
            )
            place.to_neutral(always=True, fresh=True)
            assert run("blkid", "-p", "-s", "TYPE", "-o", "value", disk.path).strip() == filesystem
            assert disk.bytes_at(lab + 4096, behind) == pattern
        assert disk.bytes_at(lab + 4096, behind) == pattern
        assert not disk.bytes_at(0, lab + 4096).strip(b"\0")
    finally:
        disk.detach()
        disk.file.unlink()


def test_without_privilege_no_disk_is_claimed(disk: StandIn) -> None:
    # by descriptor: nobody may not search the folders that lead to the probe
    with BINARY.open("rb") as binary:
        done = subprocess.run(
            [f"/proc/self/fd/{binary.fileno()}"],
            input=f'{{"id":1,"verb":"device_claim","path":"{disk.path}"}}',
            pass_fds=(binary.fileno(),),
            capture_output=True,
            text=True,
            check=False,
            user=65534,
            group=65534,
            extra_groups=[],
        )
    assert "claim a disk: needs root (CAP_SYS_ADMIN), but the probe runs as uid 65534" in done.stdout
