"""A terminal during a trial, and its state after Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from select import select

import pytest

from iotrial.report.progress import read_progress

TRIAL = (
    "run",
    "files/permissions",
    "--set",
    "mode=0777,0444",
    "--lab",
    "directory",
    "--time",
    "60s",
    "--no-stop",
)


class Terminal:
    """The program in a pseudo-terminal, where Ctrl-C is handled by the terminal."""

    def __init__(self, *words: str, columns: int = 80, **variables: str) -> None:
        pid, self._end = pty.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            environment = {**os.environ, "TERM": "xterm", **variables}
            os.execve(sys.executable, [sys.executable, "-m", "iotrial", *words], environment)
        self.pid = pid
        self.resize(columns)
        self.text = ""

    def resize(self, columns: int, rows: int = 30) -> None:
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, pattern: str, *, within_s: float = 60.0) -> None:
        end = time.monotonic() + within_s
        seen = len(self.text)
        while not re.search(pattern, self.text[seen:]):
            assert time.monotonic() < end, f"no {pattern} in {self.text!r}"
            self._read(0.1)

    def press(self, key: str) -> None:
        os.write(self._end, key.encode())

    def status(self, *, within_s: float = 60.0) -> int:
        end = time.monotonic() + within_s
        while self._read(0.1):
            assert time.monotonic() < end, self.text
        os.close(self._end)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, within_s: float) -> bool:
        if not select([self._end], [], [], within_s)[0]:
            return True
        try:
            got = os.read(self._end, 65536)
        except OSError:  # the other side is closed
            return False
        self.text += got.decode(errors="replace")
        return bool(got)


def nothing_is_left(state: Path) -> None:
    assert list((state / "journal").glob("*.entry")) == []
    assert list((state / "lab").glob("*")) == []
    assert list(state.glob("*standing*")) == []


def test_ctrl_c_twice_ends_a_trial_with_a_partial_report_and_a_whole_terminal(state: Path) -> None:
    terminal = Terminal(*TRIAL)
    terminal.wait_for("next: ")
    terminal.resize(60)
    terminal.wait_for("next: ")
    following = read_progress(state / "trials.standing.json")
    assert following is not None
    assert (following.trial, following.study) == (1, "files/permissions")
    assert 30 < following.budget_s <= 60
    terminal.press("\x03")
    terminal.press("\x03")
    assert terminal.status() == 128 + signal.SIGINT
    after = terminal.text.rpartition("\x1b[J")[2]  # the table clears itself at the end
    assert "Interrupted: so far" in after
    assert "iotrial resume 1 completes it" in after
    assert "next:" not in after
    assert "\x1b[?25l" not in terminal.text
    nothing_is_left(state)


def test_ctrl_c_while_the_lab_is_made_says_so_and_leaves_nothing(state: Path) -> None:
    terminal = Terminal(*TRIAL)
    terminal.wait_for("making the lab")
    terminal.press("\x03")
    assert terminal.status() == 128 + signal.SIGINT
    assert "ended by SIGINT" in terminal.text or "Interrupted: so far" in terminal.text
    assert "Traceback" not in terminal.text
    nothing_is_left(state)


@pytest.mark.long
def test_a_terminal_that_cannot_be_drawn_on_gets_nothing_but_text(state: Path) -> None:
    terminal = Terminal(*TRIAL, TERM="dumb")
    terminal.wait_for("blocks in ")
    terminal.press("\x03")
    assert terminal.status() == 128 + signal.SIGINT
    assert "\x1b" not in terminal.text


@pytest.mark.long
def test_with_json_an_interrupted_trial_is_one_document_and_can_be_followed(state: Path) -> None:
    argv = [sys.executable, "-m", "iotrial", *TRIAL, "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        end = time.monotonic() + 60
        while read_progress(state / "trials.standing.json") is None:
            assert time.monotonic() < end
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGINT
    assert json.loads(out)["trial"]["state"] == "interrupted"
    assert err == ""
    nothing_is_left(state)
