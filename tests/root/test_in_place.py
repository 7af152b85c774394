"""`iotrial try` in place: settings act on the disk and mount that hold the user's folder, and are put back;
its files stay as they are."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import iotrial, stored_runs

from as_nobody import NOBODY

pytestmark = pytest.mark.root

FILES = 400
AS_NOBODY = Path(__file__).parents[1] / "as_nobody.py"


@pytest.fixture
def mounted(disk_folder: Path) -> Iterator[Path]:
    """Yield a folder of files on an ext4 of its own, on a loop device, with settings that no default has."""
    image, folder = disk_folder / "in-place.img", disk_folder / "in place"
    image.write_bytes(b"")
    os.truncate(image, 96 << 20)
    folder.mkdir()
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop,noatime", str(image), str(folder)], check=True)
    for number in range(FILES):
        (folder / f"f{number:03d}").write_bytes(os.urandom(16384))
    os.sync()
    queue = queue_of(folder)
    queue_length = (queue / "nr_requests").read_text()
    (queue / "read_ahead_kb").write_text("764")
    (queue / "nr_requests").write_text("77")
    yield folder
    (queue / "nr_requests").write_text(queue_length)  # which a loop device keeps for its next user
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()
    image.unlink()


def queue_of(folder: Path) -> Path:
    number = folder.stat().st_dev
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/queue")


def settings(folder: Path) -> dict[str, str]:
    """Return the settings of the device and of the mount, from the kernel's own files."""
    names = ("scheduler", "read_ahead_kb", "nr_requests", "wbt_lat_usec", "max_sectors_kb")
    found = {name: (queue_of(folder) / name).read_text().strip() for name in names}
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    where = str(folder).replace(" ", "\\040")
    return {**found, "mount": next(line.split(" ")[5] for line in lines if line.split(" ")[4] == where)}


def contents(folder: Path) -> dict[str, str]:
    """Return what is in the folder: names with modification time and a digest."""
    return {
        str(
            path.relative_to(folder)
        ): f"{path.stat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def attempt(*words: str, check: int = 0) -> dict[str, Any]:
    done = iotrial("try", *words[: words.index("--")], "--json", *words[words.index("--") :], check=check)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_queue_settings_act_on_the_disk_that_holds_the_folder(state: Path, mounted: Path) -> None:
    before, held, modified = settings(mounted), contents(mounted), mounted.stat().st_mtime_ns
    report = attempt(
        "block.scheduler=none,mq-deadline", "block.read_ahead_kb=16,1024", "--in", str(mounted), "--cache", "cold",
        "--yes", "--blocks", "3", "--no-stop", "--", "sh", "-c", "cat f* | wc -c",
    )  # fmt: skip
    assert settings(mounted) == before
    assert contents(mounted) == held
    assert mounted.stat().st_mtime_ns == modified
    assert {one["factor"] for one in report["effects"] if one["primary"]} == {"scheduler", "read_ahead_kb"}
    runs = stored_runs(state)
    assert len(runs) >= 12
    # cold: each run read its files from the device, whatever was cached before
    assert all(run["checks"]["bytes_read"] >= FILES * 16384 * 0.9 for run in runs), [
        run["checks"] for run in runs
    ]


def test_what_a_run_sees_is_what_is_set(state: Path, mounted: Path) -> None:
    """The command itself prints the settings that it finds: facts of the kernel, by level."""
    queue = queue_of(mounted).resolve()
    script = f"cat f000 > /dev/null; grep -o '\\[.*\\]' {queue}/scheduler; cat {queue}/read_ahead_kb"
    report = attempt(
        "block.read_ahead_kb=16,1024", "--in", str(mounted), "--yes", "--blocks", "4", "--no-stop",
        "--response", "seen=regex:^([0-9]+)$", "--", "sh", "-c", script,
    )  # fmt: skip
    (effect,) = [one for one in report["effects"] if one["response"] == "seen"]
    assert effect["ratio"] == pytest.approx(64)
    assert {run["responses"]["seen"] for run in stored_runs(state)} == {16.0, 1024.0}


def test_an_access_time_mode_is_set_for_the_command_alone(state: Path, mounted: Path) -> None:
    """Each level updates access times as the kernel documents; the user's own mount is never remounted."""
    before = settings(mounted)
    script = (
        "touch -a -d '2001-01-01' f000; cat f000 > /dev/null; "
        "test $(stat -c %X f000) -gt 1000000000 && echo moved 2 || echo moved 1; "
        f"grep -c ' {str(mounted).replace(' ', '.040')} .*noatime' /proc/1/mountinfo || true"
    )
    attempt(
        "mount.atime=strictatime,noatime", "--in", str(mounted), "--blocks", "3", "--no-stop",
        "--response", "moved=regex:moved ([12])", "--", "sh", "-c", script,
    )  # fmt: skip
    assert settings(mounted) == before
    found = {(run["treatment"]["atime"], run["responses"]["moved"]) for run in stored_runs(state)}
    assert found == {("strictatime", 2.0), ("noatime", 1.0)}


def shown_commit(folder: Path) -> str:
    """Return the commit interval as ext4 shows it in its own file."""
    name = queue_of(folder).resolve().parent.name
    options = Path(f"/proc/fs/ext4/{name}/options").read_text().split()
    return next(option for option in options if option.startswith("commit="))


def test_an_option_of_the_file_system_in_use_is_set_and_put_back(state: Path, mounted: Path) -> None:
    subprocess.run(["mount", "-o", "remount,commit=17", str(mounted)], check=True)
    before, flags = shown_commit(mounted), settings(mounted)
    assert before == "commit=17"
    name = queue_of(mounted).resolve().parent.name
    attempt(
        "mount.option=default,commit=30", "--in", str(mounted), "--yes", "--blocks", "3", "--no-stop",
        "--response", "seen=regex:commit=([0-9]+)", "--", "sh", "-c", f"cat f000; cat /proc/fs/ext4/{name}/options",
    )  # fmt: skip
    assert {(run["treatment"]["option"], run["responses"]["seen"]) for run in stored_runs(state)} == {
        ("default", 17.0),
        ("commit=30", 30.0),
    }
    assert shown_commit(mounted) == before
    assert settings(mounted) == flags


TWO_OPTIONS = """
[study]
name = "two"
question = "Is each option set by its own factor?"
[lab]
kind = "in-place"
[[factor]]
name = "commit"
knob = "mount.option"
option = "commit"
levels = ["default", "commit=30"]
[[factor]]
name = "batch"
knob = "mount.option"
option = "max_batch_time"
levels = ["default", "max_batch_time=7000"]
[[workload]]
name = "show"
kind = "command"
argv = ["sh", "-c", "cat f000; cat {options}"]
[[workload.output]]
name = "commit"
regex = "commit=([0-9]+)"
[[workload.output]]
name = "batch"
regex = "max_batch_time=([0-9]+)"
"""


def test_two_options_are_set_each_by_its_own_factor(state: Path, mounted: Path, tmp_path: Path) -> None:
    study = tmp_path / "two.toml"
    shown = f"/proc/fs/ext4/{queue_of(mounted).resolve().parent.name}/options"
    study.write_text(TWO_OPTIONS.replace("{options}", shown))
    before = Path(shown).read_text()
    iotrial("run", str(study), "--trust", "--yes", "--on", str(mounted), "--blocks", "2", "--no-stop")
    assert Path(shown).read_text() == before
    for run in stored_runs(state):
        assert run["responses"]["commit"] == (30 if run["treatment"]["commit"] == "commit=30" else 5)
        assert run["responses"]["batch"] == (7000 if "7000" in run["treatment"]["batch"] else 15000)


def test_an_option_is_put_back_after_sigkill(state: Path, mounted: Path) -> None:
    before, flags = shown_commit(mounted), settings(mounted)
    argv = [
        sys.executable, "-m", "iotrial", "try", "mount.option=commit=30,commit=40", "--in", str(mounted), "--yes",
        "--no-stop", "--", "cat", "f000",
    ]  # fmt: skip
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while shown_commit(mounted) == before and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    time.sleep(0.5)  # the probe may have been in the middle of a remount
    assert shown_commit(mounted) != before
    iotrial("restore")
    assert (shown_commit(mounted), settings(mounted)) == (before, flags)


def test_a_copy_of_the_users_files_is_used_in_a_lab(state: Path, mounted: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "below").mkdir(parents=True)
    for number in range(50):
        (tmp_path / "data" / "below" / f"f{number}").write_bytes(os.urandom(8192))
    (tmp_path / "data" / "link").symlink_to("below/f0")
    held = contents(tmp_path / "data")
    attempt(
        "filesystem.type=ext4,xfs", "--copy-from", str(tmp_path / "data"), "--cache", "cold", "--blocks", "2", "--no-stop",
        "--response", "kind=json:kind", "--response", "bytes=json:bytes", "--", "sh", "-c",
        'printf \'{"kind": %d, "bytes": %d}\' 0x$(stat -f -c %t .) $(cat below/* link | wc -c)',
    )  # fmt: skip
    assert contents(tmp_path / "data") == held
    found = {(run["treatment"]["type"], run["responses"]["kind"]) for run in stored_runs(state)}
    assert found == {("ext4", float(0xEF53)), ("xfs", float(0x58465342))}  # f_type of statfs(2)
    assert {run["responses"]["bytes"] for run in stored_runs(state)} == {51 * 8192.0}
    assert all(run["checks"]["bytes_read"] >= 50 * 8192 for run in stored_runs(state))


def test_without_consent_nothing_is_changed(state: Path, mounted: Path) -> None:
    before = settings(mounted)
    done = iotrial("try", "scheduler=none,kyber", "--in", str(mounted), "--", "cat", "f000", check=2)
    assert "--yes" in done.stderr
    assert f"ext4 on /dev/{queue_of(mounted).resolve().parent.name}" in done.stderr
    assert settings(mounted) == before
    assert not (state / "trials.db").exists()


def test_a_study_that_ships_is_shown_and_asks_as_well(state: Path, mounted: Path) -> None:
    before = settings(mounted)
    words = (
        "run",
        "application/compress",
        "--lab",
        "in-place",
        "--on",
        str(mounted),
        "--condition",
        "filesystem=ext4",
    )
    done = iotrial(*words, check=2)
    assert settings(mounted) == before
    assert "in-place lab" in done.stderr or "--yes" in done.stderr


def test_a_folder_that_is_only_read_may_be_anybodys(state: Path, mounted: Path) -> None:
    theirs = mounted / "theirs"
    theirs.mkdir()
    (theirs / "data").write_bytes(bytes(8192))
    os.chown(theirs, NOBODY, NOBODY)
    attempt(
        "-L", "n", "1,2", "--in", str(theirs), "--blocks", "2", "--no-stop", "--", "head", "-c", "{n}", "data"
    )
    done = iotrial("try", "-L", "n", "1,2", "--in", str(theirs), "--", "cp", "data", "{out}/{n}", check=2)
    assert f"user {NOBODY}" in done.stderr


def test_for_a_partition_the_queue_of_its_disk_is_set(state: Path, disk_folder: Path) -> None:
    """A partition has counters of its own, and the disk has the queue."""
    image, folder = disk_folder / "parted.img", disk_folder / "parted"
    image.touch()
    os.truncate(image, 64 << 20)
    folder.mkdir()
    made = subprocess.run(["losetup", "-f", "--show", str(image)], capture_output=True, text=True, check=True)
    disk = Path(made.stdout.strip())
    part = Path(f"{disk}p1")
    subprocess.run(["addpart", str(disk), "1", "2048", "122880"], check=True)
    number = Path(f"/sys/class/block/{part.name}/dev").read_text().split(":")
    is_new = not part.exists()
    if is_new:
        os.mknod(part, 0o600 | 0o60000, os.makedev(*map(int, number)))
    try:
        subprocess.run(["mkfs.ext4", "-q", str(part)], check=True)
        subprocess.run(["mount", str(part), str(folder)], check=True)
        (folder / "data").write_bytes(os.urandom(1 << 20))
        read_ahead = Path(f"/sys/block/{disk.name}/queue/read_ahead_kb")
        before = read_ahead.read_text()
        done = iotrial(
            "try", "read_ahead_kb=16,512", "--in", str(folder), "--cache", "cold", "--yes", "--blocks", "2", "--no-stop",
            "--response", "seen=regex:^([0-9]+)$", "--", "sh", "-c", f"cat data > /dev/null; cat {read_ahead}",
        )  # fmt: skip
        assert f"ext4 on {part}" in done.stderr
        assert f"requests are queued by {disk.name}" in done.stderr
        assert {run["responses"]["seen"] for run in stored_runs(state)} == {16.0, 512.0}
        assert all(run["responses"]["device_read_bytes"] >= 1 << 20 for run in stored_runs(state))
        assert read_ahead.read_text() == before
    finally:
        subprocess.run(["umount", str(folder)], check=False)
        subprocess.run(["delpart", str(disk), "1"], check=True)
        if is_new:
            part.unlink()
        subprocess.run(["losetup", "-d", str(disk)], check=True)
        folder.rmdir()
        image.unlink()


def test_data_at_risk_is_refused_in_place(state: Path, mounted: Path) -> None:
    words = ("block.write_cache=write back,write through", "--in", str(mounted), "--yes", "--", "cat", "f000")
    done = iotrial("try", *words, check=2)
    assert "data at risk" in done.stderr
    assert "power cut" in done.stderr


def test_after_sigkill_restore_puts_everything_back(state: Path, mounted: Path) -> None:
    before = settings(mounted)
    argv = [
        sys.executable, "-m", "iotrial", "try", "block.scheduler=mq-deadline,bfq", "block.read_ahead_kb=16,1024",
        "--in", str(mounted), "--yes", "--no-stop", "--cache", "cold", "--", "sh", "-c", "cat f*",
    ]  # fmt: skip
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    changed: set[str] = set()
    deadline = time.monotonic() + 60
    while len(changed) < 3 and time.monotonic() < deadline:
        changed.add(settings(mounted)["scheduler"])
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    assert len(changed) == 3, changed  # as it was, and both levels
    iotrial("restore")
    assert settings(mounted) == before
    assert not list((state / "journal").glob("*.entry"))


def test_output_goes_to_a_folder_that_is_removed_again(state: Path, mounted: Path) -> None:
    held, modified = contents(mounted), mounted.stat().st_mtime_ns
    attempt(
        "-L", "level", "1,9", "--in", str(mounted), "--blocks", "2", "--no-stop", "--prepare", 'test ! -e "{out}/copy"',
        "--", "sh", "-c", 'gzip -{level} < f001 > "{out}/copy"',
    )  # fmt: skip
    assert contents(mounted) == held
    assert mounted.stat().st_mtime_ns == modified
    assert all(run["responses"]["out_bytes"] > 16000 for run in stored_runs(state))


def test_levels_may_write_to_the_folder_too(state: Path, mounted: Path) -> None:
    held = contents(mounted)
    attempt(
        "--in", str(mounted), "--blocks", "2", "--no-stop", "--command", 'gzip -1 < f001 > "{out}/copy"',
        "--", 'cp f001 "{out}/copy"',
    )  # fmt: skip
    sizes = {run["treatment"]["command"]: run["responses"]["out_bytes"] for run in stored_runs(state)}
    assert sizes['cp f001 "{out}/copy"'] == (mounted / "f001").stat().st_size
    assert 16000 < sizes['gzip -1 < f001 > "{out}/copy"'] < (mounted / "f001").stat().st_size + 1000
    attempt(
        "-L", "to", "{out}/a,{out}/b", "--in", str(mounted), "--blocks", "2", "--no-stop", "--", "cp", "f001", "{to}",
    )  # fmt: skip
    assert all(run["responses"]["out_files"] == 1 for run in stored_runs(state))
    assert contents(mounted) == held


def test_a_command_that_reads_nothing_there_cannot_be_made_cold(state: Path, mounted: Path) -> None:
    words = ("-L", "n", "1,2", "--in", str(mounted), "--cache", "cold", "--", "echo", "{n}")
    done = iotrial("try", *words, check=2)
    assert "uses no file" in done.stderr or "read no data" in done.stderr


def test_a_knob_of_the_disk_and_work_elsewhere_gets_no_verdict(
    state: Path, mounted: Path, disk_folder: Path
) -> None:
    large = disk_folder / "elsewhere"
    large.write_bytes(os.urandom(1 << 20))
    words = ("read_ahead_kb=16,512", "--in", str(mounted), "--yes", "--", "cat", str(large))
    done = iotrial("try", *words, check=2)
    assert "uses no file of the file system of" in done.stderr
    assert str(large) in done.stderr
    large.unlink()


def test_prepare_and_cleanup_run_around_every_run(state: Path, mounted: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    attempt(
        "env.X=1,2", "--in", str(mounted), "--blocks", "2", "--no-stop", "--no-controls",
        "--prepare", f"echo before >> {log}", "--cleanup", f"echo after >> {log}",
        "--", "sh", "-c", f"echo run >> {log}",
    )  # fmt: skip
    words = log.read_text().split()
    assert words == ["before", "run", "after"] * (len(words) // 3)
    assert len(words) // 3 > len(stored_runs(state)) == 4  # the untimed run that comes first is prepared, too


@pytest.mark.parametrize(
    ("setting", "command", "expected"),
    [
        ("process.nice=0,10", "cat data | wc -c; echo seen $(( $(nice) + 1 ))", {"0": 1.0, "10": 11.0}),
        (
            "process.io_priority=best-effort-0,best-effort-7",
            "cat data | wc -c; echo seen $(( $(ionice -p $$ | grep -o '[0-9]*$') + 1 ))",
            {"best-effort-0": 1.0, "best-effort-7": 8.0},
        ),
        (
            "process.cpu=0,1",
            "cat data | wc -c; echo seen $(( $(sed -n 's/Cpus_allowed_list:.//p' /proc/$$/status) + 1 ))",
            {"0": 1.0, "1": 2.0},
        ),
    ],
)
def test_priorities_and_affinity_need_no_root(
    everybody: Path, setting: str, command: str, expected: dict[str, float]
) -> None:
    """The command itself prints the kernel's value, plus one: a response must not be zero."""
    home = everybody / "home"
    (home / "data").write_bytes(b"1234" * 50_000)
    os.chown(home / "data", NOBODY, NOBODY)
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(home),
        "HOME": str(home),
        "IOTRIAL_PROBE": str(everybody / "ioprobe"),
    }
    argv = [
        sys.executable, str(AS_NOBODY), "try", setting, "--in", str(home), "--blocks", "3", "--no-stop", "--json",
        "--response", "seen=regex:seen ([0-9]+)", "--yes", "--", "sh", "-c", command,
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode in (0, 6), done.stderr
    (factor,) = setting.partition("=")[0].rpartition(".")[2:]
    runs = stored_runs(home / "iotrial")
    assert len(runs) >= 6
    assert {run["treatment"][factor]: run["responses"]["seen"] for run in runs} == expected
    refused = subprocess.run(
        [*argv[:3], "process.nice=0,-5", *argv[4:]],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert refused.returncode == 2
    assert "root" in refused.stderr + refused.stdout


def test_an_ordinary_user_can_try_what_is_his_to_set(everybody: Path) -> None:
    home = everybody / "home"
    (home / "data").write_bytes(b"1234" * 50_000)
    os.chown(home / "data", NOBODY, NOBODY)
    argv = [
        sys.executable, str(AS_NOBODY), "try", "-L", "level", "1,9", "--in", str(home), "--blocks", "3", "--no-stop",
        "--json", "--", "gzip", "-{level}", "-c", "data",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(home),
        "HOME": str(home),
        "IOTRIAL_PROBE": str(everybody / "ioprobe"),
    }
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode in (0, 6), done.stderr
    assert json.loads(done.stdout)["effects"]
    dropped = subprocess.run(
        [*argv[:3], "--cache", "cold-system", *argv[3:]],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert dropped.returncode == 2
    assert "cache state cold-system: needs root" in dropped.stdout + dropped.stderr
    argv[3:6] = ["vm.swappiness=10,60"]
    refused = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert refused.returncode != 0
    assert "needs root" in refused.stdout + refused.stderr


def test_a_queue_that_is_longer_than_another_scheduler_allows_comes_back(state: Path, mounted: Path) -> None:
    """With "none" a loop device holds 128 requests; the length is restored after the scheduler that allows more."""
    queue = queue_of(mounted)
    scheduler = (queue / "scheduler").read_text().split("[")[1].split("]")[0]
    (queue / "scheduler").write_text("mq-deadline")
    (queue / "nr_requests").write_text("200")
    before = settings(mounted)
    attempt(
        "block.scheduler=none,mq-deadline", "--in", str(mounted), "--yes", "--blocks", "2", "--no-stop",
        "--no-controls", "--", "cat", "f000",
    )  # fmt: skip
    assert settings(mounted) == before
    (queue / "scheduler").write_text(scheduler)
