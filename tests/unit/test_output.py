"""Output of the verbs: lines longer than the terminal is wide, and the program without a verb."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

import pytest

from iotrial.cli.output import confirmed, folded
from program import iotrial

LINE = "nas/copy             How much faster is a copy inside a share where the server makes it by itself?"


def test_a_long_line_goes_on_under_its_second_column() -> None:
    assert folded(LINE, 60, 21).split("\n") == [
        "nas/copy             How much faster is a copy inside a",
        "                     share where the server makes it by",
        "                     itself?",
    ]


def test_a_column_with_no_room_left_is_not_used() -> None:
    lines = folded(LINE, 40, 21).split("\n")
    assert max(map(len, lines)) <= 40
    assert all(line.startswith("    ") and line[4] != " " for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == " ".join(LINE.split())


def test_a_line_that_fits_and_a_word_that_never_does_stay_whole() -> None:
    assert folded("short  line", 40, 7) == "short  line"
    word = "x" * 90
    assert folded(f"a {word} b", 80, 2).split() == ["a", word, "b"]


def on_a_terminal(columns: int, *words: str) -> list[str]:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns)}
    argv = [sys.executable, "-m", "iotrial", *words]
    process = subprocess.Popen(argv, stdout=theirs, stderr=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # no process has the other end open any more
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert process.wait() == 0
    return said.decode().splitlines()


def test_the_list_of_studies_is_folded_on_a_terminal_and_a_line_a_study_in_a_pipe() -> None:
    piped = iotrial("list").stdout.splitlines()
    shown = on_a_terminal(70, "list")
    assert max(map(len, piped)) > 80
    assert max(map(len, shown)) <= 70
    assert " ".join(" ".join(shown).split()) == " ".join(" ".join(piped).split())


def test_without_a_verb_the_help_is_shown_once() -> None:
    done = iotrial()
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Usage: iotrial")
    assert done.stderr.count("Usage:") == 1
    assert "Error" not in done.stderr
    assert "iotrial try" in done.stderr


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "agreed"),
    [(b"yes\n", True), (b" yes \n", True), (b"y\n", False), (b"no\n", False), (b"\n", False), (b"", False)],
)
def test_only_yes_on_a_terminal_is_consent(
    typed: bytes, agreed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", Terminal(io.BytesIO()))
    monkeypatch.setattr("sys.stdin", Terminal(io.BytesIO(typed)))
    assert confirmed("Go on?") is agreed
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed)))
    assert not confirmed("Go on?")
