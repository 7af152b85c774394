"""Clients that cannot be reached, die, talk nonsense or hang: a failure of the run that names them, not of the trial."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from running import failures_of, iotrial, stored_runs, write_study

from iotrial.conduct.crowd.client import Client
from iotrial.errors import ProbeError
from iotrial.probe.binary import find_binary

pytestmark = pytest.mark.root

BETWEEN = Path(__file__).with_name("client_between.py")
STUDY = """
[study]
name = "levels"
question = "Which level is bad?"
[budget]
time = "30 s"
blocks = 2
[[factor]]
name = "level"
knob = "command.argument"
placeholder = "{level}"
levels = ["good", "bad"]
[[workload]]
name = "wait"
kind = "clients"
clients = 2
spread = 1.0
argv = ["sleep", "0.0{client}"]
environment = { WORD = "level-{level}" }
"""


def link(how: str) -> str:
    return shlex.join([sys.executable, "-S", str(BETWEEN), how, str(find_binary())])


def run(folder: Path, *words: str, text: str = STUDY, check: int | None = 0) -> str:
    study = write_study(folder, text)
    plain = ("--trust", "--lab", "directory", "--on", str(folder), "--no-controls", "--no-stop")
    done = iotrial("run", study, *plain, *words, check=check)
    return " ".join((done.stdout + done.stderr).split())


def test_a_client_that_cannot_be_reached_is_said_before_anything_is_measured(
    everybody: Path, state: Path
) -> None:
    said = run(everybody, "--client", "near=" + link("pass"), "--client", "far=false --not-there", check=1)
    assert "client far cannot be reached" in said
    assert "false --not-there" in said
    assert not (state / "trials.db").exists() or stored_runs(state) == []


def test_a_command_of_no_program_is_said_so_too(everybody: Path, state: Path) -> None:
    said = run(everybody, "--client", "far=/nowhere/ioprobe", check=1)
    assert "client far.1 cannot be reached" in said
    assert "No such file" in said


@pytest.mark.parametrize(
    ("how", "says"),
    [("die", "the link is cut"), ("garbage", r"answered \"command\""), ("lie", "before it began")],
)
def test_a_client_that_fails_in_a_run_fails_that_run_by_name_and_works_in_the_next(
    everybody: Path, state: Path, how: str, says: str
) -> None:
    run(everybody, "--client", "near=" + link("pass"), "--client", "far=" + link(how))
    runs = stored_runs(state)
    by_level = {
        level: [row["failure"] for row in runs if row["treatment"] == {"level": level}]
        for level in ("good", "bad")
    }
    assert by_level["good"] == [None] * len(by_level["good"]) != []
    assert by_level["bad"] != []
    for failure in by_level["bad"]:
        assert "client far" in failure
        assert says.replace("\\", "") in failure.replace("\\", "")
        assert "\x1b" not in failure


def test_a_command_that_fails_at_one_client_is_named_with_its_client(everybody: Path, state: Path) -> None:
    text = STUDY.replace('["sleep", "0.0{client}"]', '["test", "{client}-{level}", "!=", "2-bad"]')
    run(everybody, text=text)
    failures = failures_of(state)
    assert failures != []
    assert all(text.startswith("client c2: test ended with status 1") for text in failures)


def test_a_client_that_never_answers_is_given_up_after_its_time() -> None:
    client = Client("far", tuple(shlex.split(link("hang"))), local=False, begun=lambda _: None)
    client.start()
    try:
        with pytest.raises(ProbeError, match=r"client far.* no answer for 1 s"):
            client.call("run", {"argv": ["true"], "environment": {"WORD": "level-bad"}}, 1.0)
        assert not client.alive
    finally:
        client.close()


@pytest.mark.long
def test_a_client_that_hangs_in_a_run_fails_that_run_by_name(everybody: Path, state: Path) -> None:
    text = STUDY.replace("blocks = 2", "blocks = 1") + 'timeout = "2 s"\n'
    run(everybody, "--client", "near=" + link("pass"), "--client", "far=" + link("hang"), text=text)
    assert [
        row["failure"] is None for row in stored_runs(state) if row["treatment"] == {"level": "good"}
    ] == [True]
    [failure] = failures_of(state)
    assert "client far" in failure
    assert "no answer" in failure
