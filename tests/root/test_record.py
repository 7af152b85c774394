"""`iotrial record`: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from breaking import eventually, processes_with
from running import iotrial

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "record.schema.json").read_text())
READ_TWICE = "import os; fd = os.open('known', os.O_RDONLY); os.read(fd, 1000); os.read(fd, 500)"
PYTHON = (sys.executable, "-I", "-S", "-c")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    (data / "known").write_bytes(b"1" * 5000)
    return data


@pytest.mark.root
def test_a_command_is_recorded_and_summed_up_on_standard_error(data: Path) -> None:
    script = f"{READ_TWICE}; print('of the command')"
    done = iotrial("record", "-o", "../app.iotrace", "--", *PYTHON, script, cwd=data)
    assert done.stdout == "of the command\n"
    first, last = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]
    # Open, two reads, the close and the end of the process.
    assert first.startswith("../app.iotrace: 5 operations of 1 thread on 1 file in ")
    assert "read 1.46 KiB, wrote 0 B" in first
    assert last == "next: `iotrial show ../app.iotrace`"
    trace = data.parent / "app.iotrace"
    assert trace.read_bytes().startswith(b"iotrace\n")
    assert trace.stat().st_mode & 0o777 == 0o600


@pytest.mark.root
def test_a_trace_belongs_to_the_user_of_sudo(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "2345")
    iotrial("record", "-o", str(tmp_path / "t"), "--", *PYTHON, READ_TWICE, cwd=data)
    found = (tmp_path / "t").stat()
    assert (found.st_uid, found.st_gid) == (1234, 2345)


@pytest.mark.root
def test_the_summary_is_valid_json(data: Path, tmp_path: Path) -> None:
    trace = tmp_path / "app.iotrace"
    done = iotrial("record", "-o", str(trace), "--json", "--", *PYTHON, READ_TWICE, cwd=data)
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    facts = found["recorded"]
    assert (facts["operations"], facts["read_bytes"], facts["under"]) == (5, 1500, str(data))


@pytest.mark.root
def test_another_folder_gets_a_hint(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    options = ("record", "-o", str(tmp_path / "t"), "--under", str(other))
    done = iotrial(*options, "--", *PYTHON, READ_TWICE, cwd=data)
    assert f"nothing was done in {other}: name the application's folder with --under" in done.stderr.replace(
        "\n    ", " "
    )


@pytest.mark.root
def test_a_failing_command_is_recorded_and_reported(data: Path, tmp_path: Path) -> None:
    options = ("record", "-o", str(tmp_path / "t"))
    done = iotrial(*options, "--", *PYTHON, f"{READ_TWICE}; os._exit(3)", cwd=data, check=1)
    assert "the command ended with status 3; what it did is recorded" in done.stderr
    assert "5 operations" in done.stderr


@pytest.mark.root
def test_lost_events_are_reported(data: Path, tmp_path: Path) -> None:
    script = f"{READ_TWICE}; [os.pread(fd, 1, 0) for _ in range(30_000)]"
    options = ("record", "-o", str(tmp_path / "t"), "--buffer", "4KiB")
    done = iotrial(*options, "--", *PYTHON, script, cwd=data)
    assert "lost, and the trace says so: record again with a larger --buffer" in done.stderr


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("by", ["pid", "command"])
def test_a_signal_ends_the_recording_cleanly(data: Path, tmp_path: Path, number: int, by: str) -> None:
    trace = tmp_path / "app.iotrace"
    script = f"{READ_TWICE}; print('ready', flush=True); import time; time.sleep(60)"
    start = [sys.executable, "-m", "iotrial", "record", "-o", str(trace)]
    command = [*PYTHON, script]
    running = None
    if by == "pid":
        running = subprocess.Popen(command, cwd=data, stdout=subprocess.PIPE)
        assert running.stdout
        assert running.stdout.readline() == b"ready\n"
        more = ["--pid", str(running.pid)]
    else:
        more = ["--", *command]
    recording = subprocess.Popen(
        [*start, *more],
        cwd=data,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert recording.stdout
    assert recording.stderr
    if by == "pid":
        while not trace.exists() or not trace.stat().st_size:
            time.sleep(0.05)
        time.sleep(0.2)
        recording.send_signal(number)
    else:
        assert recording.stdout.readline() == b"ready\n"
        if number == signal.SIGINT:  # as from a terminal: to all of them
            os.killpg(recording.pid, number)
        else:
            recording.send_signal(number)
    said = recording.stderr.read().decode()
    assert recording.wait(30) == 0, said
    assert "operation" in said
    assert "iotrial: warning" not in said
    recording.stdout.close()
    recording.stderr.close()
    if running is not None:
        assert running.poll() is None
        running.kill()
        running.wait()
        assert running.stdout
        running.stdout.close()


def killed_recording(
    data: Path, trace: Path, script: str
) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes], list[int]]:
    """Record a command until it runs; return the recording, a process that is none of it, and those of the recording."""
    foreign = subprocess.Popen(["sleep", "600"])
    recording = subprocess.Popen(
        [sys.executable, "-m", "iotrial", "record", "-o", str(trace), "--", *PYTHON, script],
        cwd=data,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert recording.stdout
    assert recording.stdout.readline() == b"ready\n"
    recording.stdout.close()
    (probe,) = children(recording.pid)
    return recording, foreign, [probe, *children(probe)]


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.alone  # `restore` names what a recording left on this machine, also to tests that run beside
@pytest.mark.root
def test_a_killed_recording_ends_its_command_and_completes_the_trace(data: Path, tmp_path: Path) -> None:
    script = f"{READ_TWICE}; print('ready', flush=True); import time; time.sleep(60)"
    recording, foreign, its = killed_recording(data, tmp_path / "t", script)
    recording.kill()
    recording.wait()
    assert eventually(lambda: not any(map(lives, its)), 5)
    assert "cut off" not in iotrial("show", str(tmp_path / "t")).stdout
    assert iotrial("restore").stdout == "Nothing to restore.\n"
    assert foreign.poll() is None
    foreign.kill()
    foreign.wait()


@pytest.mark.alone
@pytest.mark.root
@pytest.mark.parametrize("recorder_too", [False, True])
def test_what_goes_on_after_a_killed_recording_is_named_and_ended_on_request(
    data: Path, tmp_path: Path, recorder_too: bool
) -> None:
    """A command that ignores SIGTERM, with a child of its own."""
    script = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); child = os.fork(); "
        "child and print('ready', flush=True); time.sleep(60)"
    )
    recording, foreign, its = killed_recording(data, tmp_path / "t", script)
    its += children(its[-1])
    assert len(its) == 3
    for pid in [recording.pid, *its[:1]] if recorder_too else [recording.pid]:
        os.kill(pid, signal.SIGKILL)
    recording.wait()
    left = its[1:] if recorder_too else its
    assert eventually(lambda: lives(its[0]) is not recorder_too, 5)
    time.sleep(0.5)
    named = iotrial("restore", "--json", check=5)
    rows = json.loads(named.stdout)["restored"]
    assert sorted(int(row["target"].split()[1]) for row in rows) == sorted(left)
    assert {row["outcome"] for row in rows} == {"still running"}
    assert all(map(lives, left)), "nothing is ended without --end"
    iotrial("restore", "--end")
    assert not any(map(lives, left))
    assert foreign.poll() is None
    foreign.kill()
    foreign.wait()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "t"), "expected a command or --pid"),
        (("-o", "t", "--pid", "1", "--", "true"), "expected a command or --pid"),
        (("-o", "t", "--", "no-such-program"), "no-such-program: no such program"),
        (("-o", "t", "--pid", "4194303"), "no process has the number 4194303"),
        (("-o", "missing/t", "--", "true"), "there is no folder missing"),
        (("-o", ".", "--", "true"), ". is a folder"),
        (("-o", "t", "--buffer", "1 KiB", "--", "true"), "--buffer 1 KiB: expected 4 KiB to 1 GiB"),
    ],
)
def test_a_wrong_request_says_what_to_do(data: Path, words: tuple[str, ...], message: str) -> None:
    done = iotrial("record", *words, cwd=data, check=2)
    assert message in done.stderr
    assert [path.name for path in data.iterdir()] == ["known"]


@pytest.mark.root
def test_only_root_may_record(data: Path) -> None:
    script = str(Path(__file__).parents[1] / "as_nobody.py")
    done = subprocess.run(
        [sys.executable, script, "record", "-o", "/var/tmp/never.iotrace", "--", "true"],
        capture_output=True,
        text=True,
        cwd=data,
        check=False,
    )
    assert done.returncode == 2
    assert "needs root" in done.stderr
    assert not Path("/var/tmp/never.iotrace").exists()


@pytest.mark.root
@pytest.mark.parametrize(
    "leaves",
    ["setsid sleep 83295 &", "(trap '' TERM HUP; (setsid sleep 83295 >/dev/null 2>&1 &) &); sleep 0.2;"],
)
def test_what_the_command_leaves_running_ends_with_the_recording(data: Path, leaves: str) -> None:
    done = iotrial("record", "-o", "../app.iotrace", "--", "sh", "-c", f"{leaves} cat known", cwd=data)
    assert "1" * 5000 in done.stdout
    assert processes_with("83295") == []


@pytest.mark.root
def test_a_trace_follows_no_link_and_replaces_a_file_only_on_request(data: Path, tmp_path: Path) -> None:
    trace, victim = tmp_path / "t", tmp_path / "victim"
    victim.write_text("precious")
    trace.symlink_to(victim)
    record = ("record", "-o", str(trace))
    for more in ((), ("--force",)):
        done = iotrial(*record, *more, "--", *PYTHON, READ_TWICE, cwd=data, check=2)
        assert "is a link, and is not followed" in done.stderr
    assert victim.read_text() == "precious"
    trace.unlink()
    trace.write_text("precious")
    trace.chmod(0o644)
    done = iotrial(*record, "--", *PYTHON, "print('it ran')", cwd=data, check=2)
    assert "already exists" in done.stderr
    assert (trace.read_text(), done.stdout) == ("precious", "")
    iotrial(*record, "--force", "--", *PYTHON, READ_TWICE, cwd=data)
    assert trace.read_bytes().startswith(b"iotrace\n")
    assert trace.stat().st_mode & 0o7777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "t", "victim"]


@pytest.mark.root
def test_the_command_does_not_hold_the_trace(data: Path, tmp_path: Path) -> None:
    script = (
        f"{READ_TWICE}; print([one for n in os.listdir('/proc/self/fd') if os.path.exists(p := f'/proc/self/fd/{{n}}')"
        " and 'iotrace' in (one := os.readlink(p))])"
    )
    done = iotrial("record", "-o", str(tmp_path / "app.iotrace"), "--", *PYTHON, script, cwd=data)
    assert done.stdout == "[]\n"


@pytest.mark.root
def test_a_full_disk_is_named_and_what_was_recorded_before_can_be_read(data: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "iotrial-test", disk], check=True)
    try:
        script = f"{READ_TWICE}; [os.pread(fd, 1, n * 7919 % 5000) for n in range(400_000)]"
        options = ("record", "--buffer", "64MiB", "-o", str(disk / "t"))
        done = iotrial(*options, "--", *PYTHON, script, cwd=data, check=1)
        assert "No space left" in done.stderr
        assert "what was recorded until then can be read" in done.stderr
        assert [path.name for path in disk.iterdir()] == ["t"]
        assert "cut off" in iotrial("show", str(disk / "t"), cwd=data).stdout
    finally:
        subprocess.run(["umount", disk], check=True)
