"""Counters around a run, checked against other kernel files over the same window and against work of known
size."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from probe_client import MIB, NOBODY, READING, Lab, Probe, ProbeError, make_set

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="labs need root")

SECTOR, MILLISECOND = 512, 1_000_000
# Documentation/admin-guide/iostats.rst, from the fourth field on; None: not a counter.
DISKSTATS = (
    ("read_ios", 1), ("read_merges", 1), ("read_bytes", SECTOR), ("read_ns", MILLISECOND),
    ("write_ios", 1), ("write_merges", 1), ("write_bytes", SECTOR), ("write_ns", MILLISECOND),
    None, ("busy_ns", MILLISECOND), ("queue_ns", MILLISECOND),
    ("discard_ios", 1), ("discard_merges", 1), ("discard_bytes", SECTOR), ("discard_ns", MILLISECOND),
    ("flush_ios", 1), ("flush_ns", MILLISECOND),
)  # fmt: skip
IN_FLIGHT = 11


def diskstats(name: str) -> dict[str, int]:
    """Read /proc/diskstats once nothing is in flight: a request wakes its waiter before it is counted."""
    words = _line(name)
    until = time.monotonic() + 1
    while words[IN_FLIGHT] != "0" and time.monotonic() < until:
        time.sleep(0.001)
        words = _line(name)
    numbers = zip(DISKSTATS, map(int, words[3:]), strict=False)
    return {field[0]: number * field[1] for field, number in numbers if field is not None}


def _line(name: str) -> list[str]:
    for line in Path("/proc/diskstats").read_text().splitlines():
        words = line.split()
        if words[2] == name:
            return words
    raise AssertionError(f"no {name} in /proc/diskstats")


def window(lab: Lab, verb: str, **fields: Any) -> tuple[dict[str, int], dict[str, Any]]:
    """Run a job on an idle lab; return the change of /proc/diskstats over the same window, and the job's
    answer."""
    lab.probe("syncfs", path=str(lab.mounted))
    before = diskstats(lab.name)
    done = lab.probe(verb, devices=[lab.name], **fields)
    after = diskstats(lab.name)
    return {name: after[name] - before[name] for name in after}, done


def shell(lab: Lab, command: str) -> tuple[dict[str, int], dict[str, Any]]:
    truth, done = window(lab, "command", set="s", steps=[{"name": "x", "argv": ["sh", "-c", command]}])
    assert done["verified"], done["failures"]
    return truth, done


def of_kernel(counted: dict[str, int], truth: dict[str, int]) -> dict[str, int]:
    return {name: counted[name] for name in truth}


@pytest.fixture
def big(lab: Lab) -> Lab:
    """Return a lab with two files of 1 MiB, written back."""
    make_set(lab.probe, lab.mounted, count=2, size=MIB, content="random")
    lab.probe("syncfs", path=str(lab.mounted))
    return lab


def test_counters_of_a_run_are_those_of_diskstats_and_every_fsync_is_a_flush(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted)
    truth, done = window(lab, "files", set="s", operations=["open-write", "write-byte", "fsync", "close"])
    counted = done["devices"][lab.name]
    assert of_kernel(counted, truth) == truth
    assert counted["flush_ios"] >= 20
    assert counted["write_ios"] >= 20


def test_direct_writes_are_so_many_bytes_and_at_least_so_many_requests(big: Lab) -> None:
    truth, done = shell(
        big, "dd if=/dev/zero of={dir}/f000000 bs=64K count=16 conv=notrunc oflag=direct status=none"
    )
    counted = done["devices"][big.name]
    assert of_kernel(counted, truth) == truth
    assert counted["write_bytes"] == 16 * 65536
    assert counted["write_ios"] >= 16
    assert counted["read_bytes"] == 0
    assert done["around"]["process"]["dirtied_bytes"] == 16 * 65536
    assert done["around"]["process"]["written_bytes"] == 16 * 65536
    assert done["around"]["process"]["write_calls"] == 16


def test_direct_reads_are_so_many_bytes(big: Lab) -> None:
    truth, done = shell(big, "dd if={dir}/f000001 of=/dev/null bs=4K iflag=direct status=none")
    counted = done["devices"][big.name]
    assert of_kernel(counted, truth) == truth
    assert counted["read_bytes"] == MIB
    assert counted["read_ios"] >= 256


def test_discards_are_what_fstrim_says(big: Lab, folder: Path) -> None:
    truth, done = shell(big, f"fstrim -v {{dir}} > {folder}/said")
    counted = done["devices"][big.name]
    assert of_kernel(counted, truth) == truth
    said = re.search(r"\((\d+) bytes\)", (folder / "said").read_text())
    assert said is not None
    assert counted["discard_bytes"] == int(said[1]) > 0
    assert counted["discard_ios"] > 0


def test_neighbouring_writes_are_merged_and_counted(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted)
    each = "head -c 4096 /dev/zero > {dir}/m$i"
    truth, done = shell(lab, f"for i in $(seq 200); do {each}; done; sync -f {{dir}}")
    counted = done["devices"][lab.name]
    assert of_kernel(counted, truth) == truth
    assert counted["write_merges"] > 0
    assert counted["write_bytes"] >= 200 * 4096
    assert counted["dirtied_bytes"] >= 200 * 4096 - 64 * 4096  # per-CPU counters may hold back some


def test_reads_of_the_work_alone_are_counted_exactly(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, size=100)
    done = probe("files", set="s", operations=READING, buffer=64, replicates=3)
    own = done["around"]["process"]
    assert (own["read_calls"], own["read_bytes"]) == (3 * 20 * 2, 3 * 20 * 100)
    assert (own["write_calls"], own["written_bytes"], own["dirtied_bytes"]) == (0, 0, 0)
    done = probe("files", set="s", operations=["open-write", "write-byte", "write-byte", "close"])
    own = done["around"]["process"]
    assert (own["write_calls"], own["written_bytes"], own["read_calls"]) == (40, 40, 0)


def test_what_a_matrix_writes_and_reads_is_counted_like_any_work(probe: Probe, folder: Path) -> None:
    make_set(probe, folder)
    cell = {"file_size": 40 * 4096, "record_size": 4096}
    own = probe("matrix", set="s", tests=["write"], **cell)["around"]["process"]
    assert (own["write_calls"], own["written_bytes"], own["read_calls"]) == (40, 40 * 4096, 0)
    own = probe("matrix", set="s", tests=["random-read"], **cell)["around"]["process"]
    assert (own["read_calls"], own["read_bytes"], own["write_calls"]) == (40, 40 * 4096, 0)


def test_what_programs_read_is_counted_too(big: Lab) -> None:
    def read(count: int) -> dict[str, int]:
        argv = ["dd", "if={dir}/f000000", "of=/dev/null", "bs=4K", f"count={count}", "status=none"]
        return big.probe("command", set="s", steps=[{"name": "x", "argv": argv}])["around"]["process"]

    read(1)
    few, many = read(8), read(136)
    assert many["read_calls"] - few["read_calls"] == 128
    assert many["read_bytes"] - few["read_bytes"] == 128 * 4096
    assert many["written_bytes"] - few["written_bytes"] == 128 * 4096


def test_what_the_page_cache_had_is_what_was_not_fetched(big: Lab) -> None:
    reading: dict[str, Any] = {"set": "s", "operations": ["open", "read-to-end", "close"]}
    big.probe("evict", set="s")
    cold = big.probe("files", **reading)["around"]["process"]
    warm = big.probe("files", **reading)["around"]["process"]
    assert (cold["fetched_bytes"], cold["cache_hit_bytes"]) == (2 * MIB, 0)
    assert (warm["fetched_bytes"], warm["cache_hit_bytes"]) == (0, 2 * MIB)
    big.probe("evict", set="s", files=[1])
    half = big.probe("files", **reading)["around"]["process"]
    assert (half["fetched_bytes"], half["cache_hit_bytes"]) == (MIB, MIB)


def test_inodes_dirtied_by_reading_are_those_of_the_files_read(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted, count=50)
    found = {}
    for option in ("strictatime", "noatime"):
        lab.make_cold(option)
        lab.probe("syncfs", path=str(lab.mounted))
        done = lab.probe("files", set="s", operations=READING, devices=[lab.name])
        found[option] = done["devices"][lab.name]["inodes_dirty_more"]
    assert found["noatime"] == 0
    assert 50 <= found["strictatime"] <= 52  # the device itself is an inode too


@pytest.mark.parametrize(
    ("verb", "work", "reads"),
    [
        ("files", {"operations": READING}, 40),
        ("random", {"operations": 30}, 30),
        ("stream", {"files": [0], "operation": "read", "block_size": 4096}, 3),  # the last one: end of file
        ("command", {"steps": [{"name": "x", "argv": ["true"]}]}, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_job_of_another_user_is_counted_like_any(
    lab: Lab, verb: str, work: dict[str, Any], reads: int | None
) -> None:
    lab.mounted.chmod(0o755)
    make_set(lab.probe, lab.mounted, size=8192)
    common = {"set": "s", "devices": [lab.name]}
    root = lab.probe(verb, **common, **work)
    done = lab.probe(verb, **common, **work, user={"uid": NOBODY, "gid": NOBODY})
    assert reads in (None, done["around"]["process"]["read_calls"])
    assert set(done["around"]["system"]) == set(root["around"]["system"]) > set()
    assert "inodes_dirty_more" in root["devices"][lab.name]
    assert set(done["devices"][lab.name]) == set(root["devices"][lab.name])


def vmstat() -> dict[str, int]:
    pairs = (line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return {name: int(number) for name, number in pairs}


def test_the_whole_machine_did_at_least_the_work_and_at_most_what_vmstat_says(big: Lab) -> None:
    before = vmstat()
    _, done = shell(big, "dd if={dir}/f000001 of=/dev/null bs=64K iflag=direct status=none")
    after = vmstat()
    system = done["around"]["system"]
    assert MIB // 1024 <= system["read_kib"] <= after["pgpgin"] - before["pgpgin"]
    assert 0 <= system["faults_major"] <= after["pgmajfault"] - before["pgmajfault"]


def pressure() -> dict[str, int]:
    text = Path("/proc/pressure/io").read_text()
    return {kind: int(total) * 1000 for kind, total in re.findall(r"(some|full) .*total=(\d+)", text)}


@pytest.mark.skipif(not Path("/proc/pressure/io").exists(), reason="this kernel has no PSI")
def test_pressure_is_within_what_the_kernel_counted_over_a_wider_window(big: Lab) -> None:
    before = pressure()
    _, done = shell(
        big, "dd if=/dev/zero of={dir}/f000000 bs=4K count=256 conv=notrunc oflag=direct,sync status=none"
    )
    after = pressure()
    found = done["around"]["pressure"]["io"]
    assert 0 < found["some_ns"] <= after["some"] - before["some"]
    assert found["full_ns"] <= found["some_ns"]


@pytest.fixture
def without() -> Iterator[Probe]:
    """Yield a probe that sees neither pressure nor vmstat nor per-process I/O accounting."""
    hidden = "mount -t tmpfs none /proc/pressure; mount --bind /dev/null /proc/vmstat"
    probe = Probe(prefix=("unshare", "-m", "sh", "-c", f'{hidden}; exec "$@"', "sh"))
    yield probe
    assert probe.close() == 0


def test_what_a_kernel_does_not_count_is_left_out(without: Probe, folder: Path) -> None:
    make_set(without, folder)
    around = without("files", set="s", operations=READING)["around"]
    assert around["pressure"] is None
    assert around["system"] == {}
    assert around["energy"] is None
    assert around["process"]["read_calls"] == 40


def meter(folder: Path, zone: str, name: str, energy_uj: int) -> Path:
    path = folder / zone
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text("1000\n")
    (path / "energy_uj").write_text(f"{energy_uj}\n")
    return path / "energy_uj"


def test_energy_is_what_the_meters_went_on_by_round_their_end_too(folder: Path) -> None:
    meters = folder / "powercap"
    one = meter(meters, "intel-rapl:0", "package-0", 990)
    memory = meter(meters, "intel-rapl:0:1", "dram", 5)
    meter(meters, "intel-rapl:0:0", "core", 7)  # part of the package
    meter(meters, "intel-rapl-mmio:0", "package-0", 990)  # a duplicate of the package
    probe = Probe("--powercap", str(meters))
    command = f"echo 15 > {one}; echo 12 > {memory}"
    done = probe("command", steps=[{"name": "x", "argv": ["sh", "-c", command]}])
    assert probe.close() == 0
    assert done["around"]["energy"] == {
        "intel-rapl:0": {"name": "package-0", "uj": 25},
        "intel-rapl:0:1": {"name": "dram", "uj": 7},
    }


def test_requests_of_a_device_that_keeps_no_account_are_counted_all_the_same(big: Lab) -> None:
    """A latency is available if the kernel notes the start for another reason: a scheduler, or write-back
    throttling."""
    queue = Path(f"/sys/block/{big.name}/queue")
    before = (queue / "iostats").read_text()
    read = "dd if={dir}/f000001 of=/dev/null bs=16K iflag=direct status=none"
    step = {"name": "x", "argv": ["sh", "-c", read]}
    counts = []
    try:
        (queue / "iostats").write_text("0")
        # Sometimes a kernel skips a program for some milliseconds (docs/evidence.md).
        for _ in range(20):
            done = big.probe("command", set="s", steps=[step], devices=[big.name], account_requests=True)
            found = done["requests"][big.name]["read"]
            assert found["count"] == found["untimed"] + sum(count for _, count in found["histogram"])
            counts.append(found["count"])
            assert counts[-1] <= MIB // 16384, "more requests than were made"
            if counts[-1] == MIB // 16384:
                break
    except ProbeError as error:
        if error.code != "unsupported":
            raise
        pytest.skip(str(error))
    finally:
        (queue / "iostats").write_text(before)
    assert counts[-1] == MIB // 16384, counts


def test_latencies_of_requests_are_as_many_as_the_device_counted(big: Lab) -> None:
    write = "dd if=/dev/zero of={dir}/f000000 bs=64K count=16 conv=notrunc oflag=direct,dsync status=none"
    read = "dd if={dir}/f000001 of=/dev/null bs=16K iflag=direct status=none"
    big.probe("syncfs", path=str(big.mounted))
    step = {"name": "x", "argv": ["sh", "-c", f"{write}; {read}"]}
    kinds = ("read", "write", "flush")
    # Sometimes a kernel skips a program for some milliseconds (docs/evidence.md): callers retry, and so
    # does this test. It also retries if the machine stalled between the start of a request and the point from
    # which both measure.
    for _ in range(20):
        before = diskstats(big.name)
        try:
            done = big.probe("command", set="s", steps=[step], devices=[big.name], account_requests=True)
        except ProbeError as error:
            if error.code != "unsupported":
                raise
            pytest.skip(str(error))
        after = diskstats(big.name)
        found = done["requests"][big.name]
        short = [after[f"{kind}_ios"] - before[f"{kind}_ios"] - found[kind]["count"] for kind in kinds]
        assert min(short) >= 0, "more requests than the device had"
        # The kernel's own sum of the same times, in whole milliseconds.
        spent = {kind: after[f"{kind}_ns"] - before[f"{kind}_ns"] for kind in kinds}
        apart = {kind: abs(found[kind]["total_ns"] - spent[kind]) for kind in kinds}
        if not any(short) and all(apart[kind] <= 2 * MILLISECOND + 0.02 * spent[kind] for kind in kinds):
            break
    else:
        pytest.fail(
            f"twenty times: requests without a latency {short}, sums of times apart by {apart} ns of {spent}"
        )
    for kind in kinds:
        counted = after[f"{kind}_ios"] - before[f"{kind}_ios"]
        assert found[kind]["count"] == counted > 0
        assert sum(count for _, count in found[kind]["histogram"]) == counted
        assert found[kind]["untimed"] == 0
    assert "discard" not in found
    # A program that interrupts another is not run, and must be reported as lost; here at most one in
    # thousands.
    assert done["requests_lost"] < 10
    with pytest.raises(ProbeError, match="needs a job with devices"):
        big.probe("command", set="s", steps=[step], account_requests=True)


def test_requests_are_those_of_the_work_without_the_checks_after_it(big: Lab) -> None:
    """Written blocks are verified after the timed part: these are reads of the device, but not of the work."""
    fields = {"set": "s", "block": 16384, "operations": 64, "write_share": 1.0, "direct": True}
    big.probe("syncfs", path=str(big.mounted))
    before = diskstats(big.name)
    try:
        done = big.probe("random", devices=[big.name], account_requests=True, **fields)
    except ProbeError as error:
        if error.code != "unsupported":
            raise
        pytest.skip(str(error))
    after = diskstats(big.name)
    assert after["read_ios"] > before["read_ios"], "nothing was read back: this test shows nothing"
    found = done["requests"][big.name]
    assert "read" not in found
    assert done["devices"][big.name]["read_ios"] == 0
    assert found["write"]["count"] > 0
