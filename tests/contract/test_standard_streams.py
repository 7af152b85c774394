"""Full or closed standard streams and an ASCII locale: no traceback, and the right exit status."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

CATALOGUE = Path(__file__).parents[2] / "docs" / "catalogue"
PACKED = CATALOGUE / "files" / "permissions.iotrial"
PROGRAM = f"{shlex.quote(sys.executable)} -m iotrial"
ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
STUDY = """\
[study]
name = "words"
question = "Does the word matter – or not?"
[budget]
time = "60 s"
blocks = 3
[[factor]]
name = "word"
knob = "command.argument"
placeholder = "{word}"
levels = ["one", "two"]
[[workload]]
name = "say"
kind = "command"
cache = "as-is"
files = 2
size = "4 KiB"
argv = ["test", "-n", "{word}"]
"""


def shell(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "IOTRIAL_STORE": str(folder / "trials.db"), **environment}
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, check=False, timeout=120, cwd=folder, env=env
    )


@pytest.mark.parametrize(
    ("streams", "status", "reason"),
    [
        (">/dev/full", 1, b"No space left on device"),
        (">&-", 1, b"Bad file descriptor"),
        ("2>&-", 0, b""),
        (">&- 2>&-", 1, b""),
        ("2>/dev/full", 0, b""),
    ],
)
def test_streams_that_take_nothing_end_in_words_and_a_status(
    tmp_path: Path, streams: str, status: int, reason: bytes
) -> None:
    done = shell(f"{PROGRAM} report {PACKED} {streams}", tmp_path)
    assert done.returncode == status, done.stderr
    assert reason in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_json_error_is_still_json_where_the_document_cannot_be_written(tmp_path: Path) -> None:
    done = shell(f"{PROGRAM} list --json >/dev/full", tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stderr)["error"]["code"] == "output"


@pytest.mark.parametrize("where", [">/dev/full", ">&-", "--html /dev/full", "--json >/dev/full"])
def test_a_trial_whose_report_cannot_be_written_is_kept_and_named(tmp_path: Path, where: str) -> None:
    (tmp_path / "small.toml").write_text(STUDY, encoding="utf-8")
    done = shell(
        f"{PROGRAM} run small.toml --lab directory --on {tmp_path} --blocks 3 --no-controls {where}",
        tmp_path,
        XDG_STATE_HOME=str(tmp_path),
    )
    assert done.returncode == 1, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"trial 1 is measured and stored" in done.stderr
    kept = shell(f"{PROGRAM} report 1 --json", tmp_path, XDG_STATE_HOME=str(tmp_path))
    assert json.loads(kept.stdout)["trial"]["state"] == "done"


def test_a_locale_without_letters_gets_those_that_resemble_them(tmp_path: Path) -> None:
    """Also if the report's text was cached when it was made for a UTF-8 terminal."""
    assert shell(f"{PROGRAM} import {PACKED}", tmp_path).returncode == 0
    assert shell(f"{PROGRAM} report 1", tmp_path, PYTHONUTF8="1").returncode == 0
    for verb in ("report 1", "report 1 --markdown -", "show files/permissions"):
        done = shell(f"{PROGRAM} {verb}", tmp_path, **ASCII)
        assert done.returncode in (0, 3, 6), done.stderr
        assert b"Traceback" not in done.stderr
        assert done.stdout.isascii()
        assert len(done.stdout) > 500


def test_a_study_with_letters_runs_in_a_locale_without(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(STUDY, encoding="utf-8")
    done = shell(
        f"{PROGRAM} run small.toml --lab directory --on {tmp_path} --blocks 3 --no-controls",
        tmp_path,
        XDG_STATE_HOME=str(tmp_path),
        **ASCII,
    )
    assert done.returncode in (0, 3, 6), done.stderr
    assert done.stdout.isascii()
    assert b"Traceback" not in done.stderr


VERBS = (
    "list",
    "show files/permissions",
    "plan files/permissions --lab directory",
    "trials",
    "report 2",
    f"compare {CATALOGUE}/application/opcode-cache.iotrial {CATALOGUE}/application/opcode-cache-500ms.iotrial",
    "export 1 -",
    "knobs",
    "restore",
    "completion bash",
)


@pytest.fixture(scope="module")
def two_trials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store of two trials."""
    folder = tmp_path_factory.mktemp("two")
    for name in ("application/database-restart", "nas/copy"):
        assert shell(f"{PROGRAM} import {CATALOGUE / name}.iotrial", folder).returncode == 0
    return folder


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.split()[0])
def test_every_verb_ends_in_words_where_its_streams_take_nothing(
    two_trials: Path, tmp_path: Path, verb: str
) -> None:
    """Run all cases at once: standard output full or closed, standard error closed, and an ASCII locale."""
    cases = {
        ">/dev/full": (1, {}),
        ">&-": (1, {}),
        "2>&-": (0, {}),
        ">ascii": (0, ASCII),
    }
    running = {}
    for number, (streams, (_, environment)) in enumerate(cases.items()):
        env = {
            **os.environ,
            "IOTRIAL_STORE": str(two_trials / "trials.db"),
            "XDG_STATE_HOME": str(tmp_path / str(number)),
            **environment,
        }
        running[streams] = subprocess.Popen(
            ["sh", "-c", f"exec {PROGRAM} {verb} {streams}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=env,
        )
    for streams, process in running.items():
        out, err = process.communicate(timeout=120)
        assert process.returncode == cases[streams][0], (streams, err)
        assert b"Traceback" not in out + err
        assert b"Exception ignored" not in err
        if cases[streams][0] == 1:
            assert b"writing to standard output" in err.replace(b"\n", b" "), (streams, err)
    written = (tmp_path / "ascii").read_bytes()
    assert written
    assert verb.startswith("export") or written.isascii()
