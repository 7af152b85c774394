"""Commands of metrics and checkers that start processes without end: all are killed, within their time or soon after.

A cgroup lets at most 2,000 processes be, for the sake of the machine.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from breaking import Trial, eventually, nothing_left
from running import write_study
from test_checks_contained import checking
from test_durability_trial import PLANTED, WRITER
from test_live import LOW, TODAY, Service, service, voids
from test_powercut_recovery import image, target

from iotrial.errors import IotrialError
from iotrial.lab.target import Target
from iotrial.live.sources.programs import output_of
from iotrial.powercut.disk import over_image
from iotrial.powercut.recover import Recovery
from iotrial.probe.client import Probe

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone]  # thousands of processes

__all__ = ["image", "service", "target"]  # fixtures

MOST = 2000
BOMBS = {
    "2,000 that sleep, forked twice, each in a session of its own": """
import os, time
for _ in range(2000):
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(83297)
            os._exit(0)
    except OSError:
        pass
time.sleep(83297)
""",
    "each starts others as long as it runs": """
import os
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
""",
    "each ends as soon as it has started another": """
import os, time
for _ in range(50):
    if os.fork() == 0:
        os.setsid()
        while True:
            try:
                if os.fork():
                    os._exit(0)
            except OSError:
                pass
time.sleep(83297)
""",
}


SERVER = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(8)
while True:
    listener.accept()[0].close()
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """Yield a cgroup with room for ``MOST`` processes. What is left in it at the end is killed."""
    folders = (Path(f"/sys/fs/cgroup{one}") for one in ("/pids", ""))
    above = next((one for one in folders if (one / "cgroup.procs").exists()), None)
    if above is None:
        pytest.skip("no cgroup file system that limits processes")
    group = above / f"iotrial-bomb-{os.getpid()}"
    group.mkdir()
    (group / "pids.max").write_text(str(MOST))
    yield group
    (group / "pids.max").write_text("0")
    for pid in processes(group):
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: processes(group) == [], 30)
    group.rmdir()


def processes(group: Path) -> list[int]:
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]


def below(group: Path, work: Callable[[], str], within_s: float) -> str:
    """Return what a fork of this process in the cgroup returns; nothing else of the cgroup runs after it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            (group / "cgroup.procs").write_text(str(os.getpid()))
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    late = time.monotonic() + within_s
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > late:
            (group / "pids.max").write_text("0")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail(f"goes on after {within_s} s, with {len(processes(group))} processes")
        time.sleep(0.1)
    with os.fdopen(reading) as answer:
        found = answer.read()
    assert eventually(lambda: processes(group) == [], 5)
    return found


def refused(group: Path) -> int:
    """Return how often the limit has refused a process."""
    return int((group / "pids.events").read_text().split()[1])


@pytest.mark.parametrize("bomb", BOMBS)
def test_all_that_the_command_of_a_metric_starts_is_killed_at_its_time_limit(
    group: Path, tmp_path: Path, bomb: str
) -> None:
    script = tmp_path / "bomb.py"
    script.write_text(BOMBS[bomb])

    def work() -> str:
        try:
            return output_of(f"{sys.executable} {script}", within_s=2)
        except IotrialError as error:
            return error.message

    began = time.monotonic()
    assert "no answer within 2 s" in below(group, work, 60)
    print(f"{bomb}: {time.monotonic() - began:.1f} s")
    assert refused(group) > 0 or "ends as soon" in bomb


@pytest.mark.parametrize("bomb", BOMBS)
def test_all_that_a_checker_starts_is_killed_at_its_time_limit_and_the_next_state_is_checked(
    target: Target, image: Path, group: Path, tmp_path: Path, bomb: str
) -> None:
    script = tmp_path / "bomb.py"
    script.write_text(BOMBS[bomb])
    quiet = tmp_path / "quiet"
    check = checking(f"test -e {quiet} || exec {sys.executable} {script}")

    def work() -> str:
        with Recovery(disk.path, "ext4", check, limit_s=3) as recovery:
            first = recovery.recover(())
            began = time.monotonic()
            quiet.touch()
            assert recovery.recover(()).verdict == "clean"
            print(f"{bomb}: the next one took {time.monotonic() - began:.1f} s")
        return " ".join(first.corrupt)

    with over_image(target, image) as disk:
        began = time.monotonic()
        assert "did not end within 3 s" in below(group, work, 60)
        print(f"{bomb}: {time.monotonic() - began:.1f} s")


def test_a_checker_that_is_a_fork_bomb_holds_no_trial_longer_than_its_limit(
    group: Path, state: Path, tmp_path: Path
) -> None:
    """With a limit of 8 s for all power cuts."""
    for name, text in (
        ("WRITER", WRITER),
        ("CHECKER", BOMBS["each starts others as long as it runs"]),
    ):
        (tmp_path / name).write_text(text)
    tmp_path.chmod(0o755)
    text = PLANTED.replace("WRITER", str(tmp_path / "WRITER")).replace("CHECKER", str(tmp_path / "CHECKER"))
    program = "from iotrial import cli; from iotrial.runner import durability_pass as one; one.STAGE_LIMIT_S = 8; cli.main()"
    argv = [
        sys.executable,
        "-c",
        program,
        "run",
        write_study(tmp_path, text),
        "--no-controls",
        "--json",
    ]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())) and None,
    )
    assert done.returncode == 6, done.stderr  # one block has no interval
    report = json.loads(done.stdout)
    (said,) = report["diagnostics"]["not_cut"]
    assert "all power cuts of a trial may take" in said
    assert not report.get("durability")
    assert refused(group) > 0
    assert processes(group) == []
    nothing_left(state)


@pytest.mark.parametrize("isolate", [True, False], ids=["as root", "without namespaces"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_all_that_a_command_starts_beside_a_server_is_killed_and_the_server_stays(
    group: Path, tmp_path: Path, bomb: str, isolate: bool
) -> None:
    script, address = tmp_path / "bomb.py", tmp_path / "socket"
    script.write_text(BOMBS[bomb])

    def work() -> str:
        with Probe(isolate=isolate) as probe:
            serving = [sys.executable, "-I", "-c", SERVER, str(address)]
            probe.call("server_start", name="s", argv=serving, ready={"socket": str(address)})
            before = len(processes(group))
            steps = [{"name": "bomb", "argv": [sys.executable, str(script)]}]
            done = probe.call("command", steps=steps, timeout_s=2)
            left = len(processes(group)) - before
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(address))
            probe.call("server_stop", name="s")
        return f"{left} left; {done['failures']}"

    began = time.monotonic()
    said = below(group, work, 60)
    print(f"{bomb}: {time.monotonic() - began:.1f} s")
    assert said.startswith("0 left; ")
    assert "'timed_out': True" in said


def test_a_metric_whose_command_becomes_a_fork_bomb_holds_no_trial_longer_than_its_budget(
    group: Path, state: Path, service: Service, tmp_path: Path
) -> None:
    """A window that it makes late is void."""
    script, armed = tmp_path / "bomb.py", tmp_path / "armed"
    script.write_text(BOMBS["each starts others as long as it runs"])
    command = f"command:test -e {armed} && exec {sys.executable} {script}; echo 7,every=1s,timeout=2s"
    words = service.words("--metric", command, "--blocks", "1000", "--time", "30 s", "--no-stop")
    began = time.monotonic()
    trial = Trial(
        state,
        *words,
        verb="live",
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())) and None,
    )
    trial.until(lambda: service.ahead == LOW, "a window with the other setting")
    armed.touch()
    trial.until(lambda: refused(group) > 0, "a fork bomb")
    status, _, said = trial.end()
    took_s = time.monotonic() - began
    print(f"{took_s:.1f} s of 30 s, void: {voids(state)}")
    assert status == 6, said  # as few blocks have no interval
    assert took_s < 60
    assert voids(state)
    assert service.ahead == TODAY
    assert eventually(lambda: processes(group) == [], 5)
    nothing_left(state)
