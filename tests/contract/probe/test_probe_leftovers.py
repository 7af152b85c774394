"""What remains after SIGKILL of the processes involved: the guard's work, and ending a session later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from probe_client import Probe, ProbeError, eventually, inner, processes_with

# A command that leaves one process in its group, and another in a session of its own.
LEAVING = ["sh", "-c", "sleep {mark} & setsid sleep {mark} & sleep {mark}"]


def leaving(mark: str) -> list[str]:
    return [word.replace("{mark}", mark) for word in LEAVING]


def conductor(mark: str) -> subprocess.Popen[str]:
    """Start a process that has started a probe, which has started a command."""
    program = f"""
import os
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from probe_client import Probe
probe = Probe(start_new_session=True, env={{**os.environ, "IOTRIAL_SESSION": {mark!r}}})
print(probe.process.pid, probe("hello")["session_started"], flush=True)
probe("command", steps=[{{"name": "sleep", "argv": {leaving(mark)!r}}}])
"""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_without_a_namespace_nothing_outlives_the_conductor_not_even_what_left_its_session() -> None:
    mark = f"4322.{os.getpid()}"
    parent = conductor(mark)
    assert parent.stdout
    guard = int(parent.stdout.readline().split()[0])
    assert eventually(lambda: len(processes_with(mark)) >= 3)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert eventually(lambda: not Path(f"/proc/{guard}").exists())
    assert processes_with(mark) == []


def test_nothing_outlives_the_working_process_below_the_guard() -> None:
    mark = f"4323.{os.getpid()}"
    probe = Probe(start_new_session=True)
    probe("hello")
    assert probe.process.stdin
    steps = [{"name": "s", "argv": ["sh", "-c", f"sleep {mark} & setsid sleep {mark}"]}]
    request = {"id": 1, "verb": "command", "steps": steps}
    probe.process.stdin.write(json.dumps(request).encode() + b"\n")
    probe.process.stdin.flush()
    assert eventually(lambda: len(processes_with(mark)) >= 2)
    os.kill(inner(probe), signal.SIGKILL)
    assert probe.process.wait(30) == 128 + signal.SIGKILL
    assert processes_with(mark) == []
    assert probe.process.stdout
    probe.process.stdin.close()
    probe.process.stdout.close()


def test_a_session_whose_guard_was_killed_too_is_known_by_its_token_and_all_of_it_ended(probe: Probe) -> None:
    mark = f"4324.{os.getpid()}"
    parent = conductor(mark)
    assert parent.stdout
    guard, started = map(int, parent.stdout.readline().split())
    assert eventually(lambda: len(processes_with(mark)) >= 3)
    parent.send_signal(signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    # without proof the process ids could belong to others by now
    assert probe("end_session", session=guard, started=started) == {"killed": 0, "left": []}
    assert probe("end_session", session=guard, started=started, token="another") == {"killed": 0, "left": []}
    left = processes_with(mark)
    assert left
    answer = probe("end_session", session=guard, started=started, token=mark)
    assert answer["left"] == []
    assert answer["killed"] >= len(left)
    assert processes_with(mark) == []


def test_a_session_of_another_leader_is_left_alone(probe: Probe) -> None:
    theirs = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        ticks = int(Path(f"/proc/{theirs.pid}/stat").read_text().rpartition(")")[2].split()[19])
        assert probe("end_session", session=theirs.pid, started=ticks - 1) == {"killed": 0, "left": []}
        assert theirs.poll() is None
        assert probe("end_session", session=theirs.pid, started=ticks)["killed"] == 1
        assert theirs.wait(10) == -signal.SIGKILL
    finally:
        theirs.kill()
        theirs.wait()


@pytest.mark.root
def test_a_probe_that_cannot_see_all_processes_refuses_to_end_a_session(isolated: Probe) -> None:
    with pytest.raises(ProbeError, match="namespace") as caught:
        isolated("end_session", session=1, started=1)
    assert caught.value.code == "unsupported"
