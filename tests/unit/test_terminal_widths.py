"""What the verbs print on terminals of several widths, into a pipe, without colour, and in an ASCII locale."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotrial.cli.output import folded
from iotrial.store import Store

CATALOGUE = Path(__file__).parents[2] / "docs" / "catalogue"
VERBS = {
    "help": ["--help"],
    "run help": ["run", "--help"],
    "list": ["list"],
    "list word": ["list", "mount"],
    "show": ["show", "files/permissions"],
    "show screen": ["show", "system/screen"],
    "show nosuch": ["show", "nosuch"],
    "plan": ["plan", "files/permissions", "--lab", "directory"],
    "report": ["report", str(CATALOGUE / "system" / "screen-follow-up.iotrial")],
    "report matrix": ["report", str(CATALOGUE / "matrix" / "iozone.iotrial")],
    "report full": ["report", "--full", str(CATALOGUE / "mount" / "atime.iotrial")],
    "compare": ["compare", *(str(CATALOGUE / "block" / f"scheduler{part}.iotrial") for part in ("", "-ssd"))],
    "knobs": ["knobs"],
    "knobs of studies": ["knobs", "--all"],
    "doctor": ["doctor", "--no-aa"],
}
#: variables that would decide the width, the colours or the encoding
DECIDING = {
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "LC_ALL",
    "LC_CTYPE",
    "LANG",
    "PYTHONUTF8",
    "PYTHONIOENCODING",
    "PAGER",
}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True, scope="module")
def a_store() -> Iterator[None]:
    """A store of no trials, so that a packed trial is analysed once and not for each width."""
    with Store.open() as store:
        folder = store.path.parent
    yield
    shutil.rmtree(folder)


each_verb = pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in DECIDING}
    return kept | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"} | variables


def on_terminal(words: list[str], columns: int, **variables: str) -> str:
    """Return what a terminal of this width is sent, standard error included."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    argv = [sys.executable, "-m", "iotrial", *words]
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment(**variables)
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the program has ended
                break
            shown += part
        os.close(ours)
    assert process.returncode in (0, 2, 3)
    text = shown.decode().replace("\r\n", "\n")
    assert text
    assert "Traceback" not in text
    return text


def piped(words: list[str], **variables: str) -> str:
    argv = [sys.executable, "-m", "iotrial", *words]
    done = subprocess.run(argv, capture_output=True, check=False, env=environment(**variables), timeout=60)
    assert done.returncode in (0, 2, 3)
    text = (done.stdout + done.stderr).decode()
    assert text
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize("columns", [60, 80, 120])
@each_verb
def test_no_line_is_wider_than_the_terminal(words: list[str], columns: int) -> None:
    text = on_terminal(words, columns)
    lines = COLOUR.sub("", text).split("\n")
    assert [line for line in lines if len(line) > columns] == []
    assert "\x1b" not in COLOUR.sub("", text)


@pytest.mark.parametrize("name", ["list", "show", "show screen", "plan"])
def test_a_pipe_gets_each_sentence_on_one_line(name: str) -> None:
    words = [*VERBS[name], *(["--seed", "1"] if name == "plan" else [])]
    text = piped(words)
    assert max(map(len, text.split("\n"))) > 100
    # the terminal has the same words
    assert on_terminal(words, 60).split() == text.split()


@each_verb
def test_an_ascii_locale_gets_ascii_and_no_color_means_no_escape_sequence(words: list[str]) -> None:
    text = on_terminal(words, 80, LC_ALL="C", NO_COLOR="1")
    assert text.isascii()
    assert "\x1b" not in text


@each_verb
def test_a_pipe_gets_no_escape_sequence_and_ascii_in_an_ascii_locale(words: list[str]) -> None:
    text = piped(words, LC_ALL="C")
    assert text.isascii()
    assert "\x1b" not in text


def test_an_ascii_encoding_gets_ascii_only() -> None:
    assert piped(VERBS["report"], PYTHONIOENCODING="ascii").isascii()


def test_the_options_of_run_are_in_groups() -> None:
    text = on_terminal(["run", "--help"], 80)
    headings = re.findall(r"^([A-Z][^:\n]*):$", text, re.MULTILINE)
    assert {"What is compared", "Where it runs", "How long, how sure"} <= set(headings)


def test_a_list_is_filtered_by_family_and_by_word() -> None:
    named = [line.split()[0] for line in piped(["list", "mount/"]).split("\n") if "/" in line.split(" ")[0]]
    assert named
    assert all(name.startswith("mount/") for name in named)
    assert "mount/atime" in piped(["list", "noatime"])
    assert "block/scheduler" not in piped(["list", "noatime"])


def test_an_unknown_study_gets_a_suggestion_not_the_whole_list() -> None:
    near = piped(["show", "files/permisions"])
    assert "files/permissions" in near
    far = piped(["show", "nosuch"])
    assert "iotrial list" in far
    assert max(near.count("\n"), far.count("\n")) <= 3


def test_a_long_command_goes_on_after_a_backslash_on_a_terminal_only() -> None:
    words = VERBS["report"]
    (whole,) = re.findall(r"^Run again: (.*)$", piped(words), re.MULTILINE)
    shown = COLOUR.sub("", on_terminal(words, 60))
    assert shown.replace(" \\\n   ", "").find(f"Run again: {whole}") >= 0


def test_a_command_in_a_sentence_is_not_broken_if_it_fits() -> None:
    text = "hint: to see all of them, run `iotrial list mount` on this machine"
    assert folded(text, 40, 4) == "hint: to see all of them, run\n    `iotrial list mount` on this machine"
