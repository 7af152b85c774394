"""Commands of a study that hang, stop themselves, go into the background, or start hundreds of processes; as
root and as nobody."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from breaking import Trial, command_study, eventually, nothing_left, processes_with, report_of
from running import stored_runs

pytestmark = pytest.mark.root

AS_NOBODY = str(Path(__file__).parents[1] / "as_nobody.py")
#: a name that no other program has
SLEEPER = "iod8317"

HANGS = {
    "ignores SIGTERM": 'trap "" TERM INT HUP; while :; do {sleeper} 3600; done',
    "is a group": "{sleeper} 3600 & {sleeper} 3600 & {sleeper} 3600 & wait",
    "stops itself": "{sleeper} 3600 & kill -STOP $$",
}
LEAVES = {
    "a daemon": "(setsid setsid {sleeper} 3600 &); ",
    "nohup": "nohup {sleeper} 3600 >/dev/null 2>&1 & ",
    "an open output": "{sleeper} 3600 & ",
    "a writer": "(cd {{dir}}; while :; do echo more >> grows; {sleeper} 0.001; done) & ",
}


@pytest.fixture
def everybody(everybody: Path) -> Path:
    """Add a sleeper that any user may run."""
    shutil.copy(str(shutil.which("sleep")), everybody / SLEEPER)
    (everybody / SLEEPER).chmod(0o755)
    return everybody


def run_as(
    user: str, state: Path, everybody: Path, study: str, *words: str
) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-m", "iotrial"]
    environment = dict(os.environ)
    if user == "nobody":
        start = [sys.executable, AS_NOBODY]
        home = everybody / "home"
        shutil.copy(study, everybody / "study.toml")
        study = str(everybody / "study.toml")
        environment |= {
            "XDG_STATE_HOME": str(home),
            "HOME": str(home),
            "IOTRIAL_PROBE": str(everybody / "ioprobe"),
        }
    done = subprocess.run(
        [*start, "run", study, "--trust", "--json", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def state_of_user(user: str, state: Path, everybody: Path) -> Path:
    return everybody / "home" / "iotrial" if user == "nobody" else state


@pytest.mark.parametrize(
    ("how", "user"),
    [
        ("ignores SIGTERM", "root"),
        *(
            pytest.param(how, user, marks=pytest.mark.long)
            for how, user in (
                ("ignores SIGTERM", "nobody"),
                ("is a group", "root"),
                ("is a group", "nobody"),
                ("stops itself", "root"),
                ("stops itself", "nobody"),
            )
        ),
    ],
)
def test_a_command_that_hangs_is_ended_with_all_it_started_and_counted_for_its_level(
    state: Path, tmp_path: Path, everybody: Path, user: str, how: str
) -> None:
    script = "test {word} = one || { " + HANGS[how].format(sleeper=everybody / SLEEPER) + "; }"
    study = command_study(tmp_path, ["sh", "-c", script], timeout="200 ms")
    done = run_as(user, state, everybody, study, "--lab", "directory")
    assert done.returncode in (0, 3, 6), done.stderr
    runs = stored_runs(state_of_user(user, state, everybody))
    for run in runs:
        hung = run["treatment"]["word"] == "two"
        assert (run["failure"] is not None) == hung, run["failure"]
        assert not hung or "did not end in time" in run["failure"]
    primary = [e for e in report_of(done.stdout)["effects"] if e["primary"]]
    assert {(e["verdict"], e["reason"]) for e in primary} == {("inconclusive", "failures")}
    assert processes_with(str(everybody)) == []
    nothing_left(state_of_user(user, state, everybody))


@pytest.fixture
def few_processes() -> Iterator[Path]:
    """Yield a cgroup with room for 150 processes."""
    group = next(
        (
            Path(f"/sys/fs/cgroup{one}")
            for one in ("/pids", "")
            if Path(f"/sys/fs/cgroup{one}/cgroup.procs").exists()
        ),
        None,
    )
    if group is None:
        pytest.skip("no cgroup file system that limits processes")
    group /= f"iotrial-test-{os.getpid()}"
    group.mkdir()
    (group / "pids.max").write_text("150")
    yield group
    for pid in (group / "cgroup.procs").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    assert eventually(lambda: not (group / "cgroup.procs").read_text(), 10)
    group.rmdir()


def test_a_fork_bomb_at_the_limit_of_processes_is_ended_and_counted_for_its_level(
    state: Path, tmp_path: Path, everybody: Path, few_processes: Path
) -> None:
    """The conductor and the probe are below the same limit."""
    script = f"test {{word}} = one && exit; : {everybody}; bomb() {{ bomb | bomb & bomb; }}; bomb"
    study = command_study(tmp_path, ["sh", "-c", script], timeout="2 s", blocks=2)
    trial = Trial(
        state, study, "--trust", "--json", "--lab", "directory",
        preexec_fn=lambda: (few_processes / "cgroup.procs").write_text(str(os.getpid())),
    )  # fmt: skip
    status, _, said = trial.end()
    refused = int((few_processes / "pids.events").read_text().split()[1])
    assert refused > 0, "the bomb never reached the limit"
    assert status in (0, 3, 6), said
    assert {run["treatment"]["word"] for run in stored_runs(state) if run["failure"] is not None} == {"two"}
    assert (few_processes / "cgroup.procs").read_text() == ""
    assert processes_with(str(everybody)) == []
    nothing_left(state)


@pytest.mark.parametrize(
    ("what", "user"),
    [
        ("a writer", "nobody"),
        *(
            pytest.param(what, user, marks=pytest.mark.long)
            for what, user in (
                ("a daemon", "root"),
                ("a daemon", "nobody"),
                ("a writer", "root"),
                ("nohup", "root"),
                ("nohup", "nobody"),
                ("an open output", "root"),
                ("an open output", "nobody"),
            )
        ),
    ],
)
@pytest.mark.long
def test_what_a_command_leaves_running_is_ended_before_the_next_run(
    state: Path, tmp_path: Path, everybody: Path, user: str, what: str
) -> None:
    # Each run first checks whether a process of an earlier run is still alive, and fails if so.
    script = (
        f"! pgrep -x {SLEEPER} || exit 7; : {{word}}; "
        + LEAVES[what].format(sleeper=everybody / SLEEPER)
        + "true"
    )
    if what == "a writer":
        script = script.replace("{{dir}}", "{dir}")
    study = command_study(tmp_path, ["sh", "-c", script])
    done = run_as(user, state, everybody, study, "--lab", "directory")
    assert done.returncode in (0, 3, 6), done.stderr
    runs = stored_runs(state_of_user(user, state, everybody))
    assert runs
    assert [run["failure"] for run in runs if run["failure"] is not None] == []
    assert processes_with(str(everybody)) == []
    nothing_left(state_of_user(user, state, everybody))


@pytest.mark.long
@pytest.mark.parametrize("user", [pytest.param("root", marks=pytest.mark.long), "nobody"])
def test_two_hundred_children_at_once_that_end_are_no_failure(
    state: Path, tmp_path: Path, everybody: Path, user: str
) -> None:
    script = 'i=0; while [ $i -lt 200 ]; do sh -c "exit 0" {word} & i=$((i+1)); done; wait'
    done = run_as(
        user, state, everybody, command_study(tmp_path, ["sh", "-c", script], blocks=1), "--lab", "directory"
    )
    assert done.returncode in (0, 3, 6), done.stderr
    runs = stored_runs(state_of_user(user, state, everybody))
    assert [run["failure"] for run in runs if run["failure"] is not None] == []
    assert json.loads(done.stdout)["trial"]["state"] in ("done", "invalid")
    nothing_left(state_of_user(user, state, everybody))
