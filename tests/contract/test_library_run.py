"""``iotrial.run`` runs a trial in a child process and returns it; errors there are raised here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import iotrial

STUDY = """
[study]
name = "sleeping"
question = "Does it matter how long one sleeps?"

[lab]
kind = "directory"

[[factor]]
name = "length"
knob = "command.argument"
placeholder = "{length}"
levels = ["0.001", "0.003"]

[[workload]]
name = "sleep"
kind = "command"
files = 1
size = "4 KiB"
cache = "warm"
argv = ["sleep", "{length}"]
"""


def alone(*words: Any, **where: Any) -> iotrial.Trial:
    """Run the trial; retry for 60 s while another iotrial is measuring on this machine."""
    end = time.monotonic() + 60
    while True:
        try:
            return iotrial.run(*words, **where)
        except iotrial.IotrialError as error:
            if "another iotrial is measuring" not in error.message or time.monotonic() > end:
                raise
        time.sleep(0.2)


def test_a_trial_is_run_and_given_back(state: Path, disk_folder: Path) -> None:
    study = iotrial.read_study(STUDY)
    store = state.parent / "other.db"
    trial = alone(study, "--on", str(disk_folder), "--blocks", "2", "--no-controls", store=store)
    assert (trial.state, trial.number, trial.study.name) == ("done", 1, "sleeping")
    assert len(trial.runs) == 4
    assert {run.arm for run in trial.runs} == {"0.001", "0.003"}
    assert [one.id for one in iotrial.trials(store)] == [trial.id]
    assert len(iotrial.trials()) == 0  # not in the default store
    with pytest.raises(iotrial.RequestError, match="study is that of a trial"):
        iotrial.run(trial.study)


def test_a_text_with_a_shell_needs_trust(state: Path) -> None:
    text = STUDY.replace('["sleep", "{length}"]', '["sh", "-c", "sleep 0", "{length}"]')
    with pytest.raises(iotrial.RequestError, match=r"not trusted.*starts a shell") as caught:
        iotrial.run(iotrial.read_study(text))
    assert "trusted=True" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("files/permisions",), 'no study is called "files/permisions"', "unknown_name"),
        (("files/permissions", "--lab", "moon"), "moon", "bad_request"),
        (("files/permissions", "--rehearse"), "--rehearse does not produce a trial", "bad_request"),
        (("--help",), 'expected a study, found the option "--help"', "bad_request"),
    ],
)
def test_a_wrong_request_is_one(words: tuple[str, ...], said: str, code: str, state: Path) -> None:
    with pytest.raises(iotrial.RequestError, match=said) as caught:
        iotrial.run(*words)
    assert caught.value.code == code
    assert not (state / "trials.db").exists()


def test_a_module_in_the_current_folder_takes_nobodys_place(state: Path, tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('taken over')")
    (tmp_path / "iotrial.py").write_text("raise SystemExit('taken over')")
    code = (
        "import sys; sys.path.remove('') if '' in sys.path else None\n"
        "import iotrial\n"
        "try:\n    iotrial.run('no/such')\n"
        "except iotrial.RequestError as error:\n    print(error.message)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == 'no study is called "no/such"', done.stderr


def test_an_interrupt_ends_the_trial_and_keeps_it(state: Path, disk_folder: Path) -> None:
    code = (
        "import iotrial, time\n"
        f"study = iotrial.read_study({STUDY!r})\n"
        "while True:\n"
        "    try:\n"
        f"        iotrial.run(study, '--on', {str(disk_folder)!r}, '--time', '120s', '--no-stop')\n"
        "    except KeyboardInterrupt:\n"
        "        print(iotrial.trial().state)\n"
        "        break\n"
        "    except iotrial.IotrialError as error:\n"
        "        assert 'another iotrial is measuring' in error.message\n"
        "        time.sleep(0.2)\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=dict(os.environ), text=True
    )
    end = time.monotonic() + 60
    while time.monotonic() < end and not any(len(one.runs) for one in iotrial.trials()):
        time.sleep(0.1)
    caller.send_signal(signal.SIGINT)
    out, _ = caller.communicate(timeout=60)
    assert out.strip() == "interrupted"


def test_a_command_of_ones_own_is_tried_without_a_study_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(os.urandom(1 << 20))
    words = ("-L", "count", "1,9", "--in", str(tmp_path), "--blocks", "12", "--time", "30s")
    found: iotrial.Trial | None = None
    end = time.monotonic() + 60
    while found is None:
        try:
            found = iotrial.try_(
                (), "for i in $(seq {count}); do cat data; done | wc -c", *words,
                "--response", "bytes=regex:([0-9]+)", store=tmp_path / "trials.db",
            )  # fmt: skip
        except iotrial.IotrialError as error:
            if "another iotrial is measuring" not in error.message or time.monotonic() > end:
                raise
            time.sleep(0.2)
    (effect,) = [one for one in found.effects.primary if one.response == "bytes"]
    assert effect.value == pytest.approx(9.0)
    (moved,) = [one for one in found.evidence if one.metric == "bytes" and not one.is_reference]
    assert (moved.reference_median, moved.median) == (1 << 20, 9 << 20)
    assert "1 MiB → 9 MiB" in str(found.evidence) or "→" in str(found.evidence)


def test_try_refuses_what_gives_no_trial_and_an_unknown_setting(tmp_path: Path) -> None:
    with pytest.raises(iotrial.RequestError, match="does not produce a trial"):
        iotrial.try_("mount.atime=relatime,noatime", ["cat", "x"], "--help")
    with pytest.raises(iotrial.RequestError, match="no_such"):
        iotrial.try_("no_such=1,2", ["cat", "x"], store=tmp_path / "trials.db")
