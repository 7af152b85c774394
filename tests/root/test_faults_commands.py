"""Commands of a study that hang, stop themselves, go into the background, or start hundreds of processes; as
root and as nobody."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from breaking import command_study, nothing_left, processes_with, report_of
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
