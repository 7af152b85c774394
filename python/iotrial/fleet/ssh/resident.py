"""On the host, at the other end of ssh: verifies the bundle that it runs from, then answers questions.

``python -m iotrial.fleet.ssh.resident BUNDLE TOKEN NAME``. First a line with the token, so that whatever the shell of the
host has printed before is told apart. A question is one line, ``{"n": 1, "do": "after", "text": ...}``, with a text of
``fleet.asking``; an answer is two: ``{"n": 1, "bytes": N}``, and a text of N bytes. It keeps nothing: the trial has a
keeper of its own (``fleet.keeper``), so that a link that is cut ends this process and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

GREETING = "iotrial-host"
MISMATCH = 65  # exit status: what is here is not what was sent
#: a coordinator that is there asks oftener; a link that died without a word is let go of
QUIET_S = 900.0
MOST_ASKED = 4 << 20
_LINE = re.compile(rb"([0-9a-f]{64}) ([0-7]{3}) ([^\n\0]+)")


def verify(top: Path, bundle: str) -> str:
    """What is wrong with the bundle in this folder, in words; empty where every file is as the manifest has it."""
    try:
        manifest = (top / "MANIFEST").read_bytes()
    except OSError as error:
        return f"MANIFEST: {error.strerror}"
    if hashlib.sha256(manifest).hexdigest() != bundle:
        return "MANIFEST is another one"
    listed = {}
    for line in manifest.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            return "MANIFEST has a line that is none"
        listed[os.fsdecode(found[3])] = found[1].decode()
    for parent, folders, names in os.walk(top):
        for name in (*names, *(one for one in folders if Path(parent, one).is_symlink())):
            file = Path(parent, name)
            path = os.path.relpath(file, top)
            if path == "MANIFEST":
                continue
            wanted = listed.pop(path, None)
            if wanted is None:
                return f"{path} was not sent"
            if file.is_symlink() or hashlib.sha256(file.read_bytes()).hexdigest() != wanted:
                return f"{path} has changed"
    return f"{next(iter(listed))} is missing" if listed else ""


def serve(name: str, asked: int, answers: BinaryIO) -> None:
    """Answers what comes in by the descriptor ``asked`` until it ends, or says nothing for QUIET_S seconds."""
    from iotrial.fleet.agent import Agent
    from iotrial.fleet.asking import answered

    agent = Agent(name)
    waiting = b""
    while True:
        line, newline, rest = waiting.partition(b"\n")
        if not newline:
            if len(waiting) > MOST_ASKED or not select.select([asked], [], [], QUIET_S)[0]:
                return
            piece = os.read(asked, 1 << 16)
            if not piece:
                return
            waiting += piece
            continue
        waiting = rest
        request = json.loads(line)
        try:
            text = answered(agent, request["do"], request["text"])
        except Exception as error:  # whatever it is, the one who asked is told, and the trial goes on
            told = {"code": "failed", "message": f"{type(error).__name__}: {error}", "hint": None}
            text = json.dumps({"error": told})
        body = text.encode("utf-8", "backslashreplace")
        answers.write(json.dumps({"n": request["n"], "bytes": len(body)}).encode() + b"\n" + body + b"\n")
        answers.flush()


def main() -> None:
    """The entry point on the host."""
    bundle, token, name = sys.argv[1:]
    # The top of the bundle from this very file: packages/iotrial/fleet/ssh/resident.pyc
    wrong = verify(Path(__file__).resolve().parents[4], bundle)
    if wrong:
        sys.stderr.write(f"the bundle on this host is not what was sent: {wrong}\n")
        sys.exit(MISMATCH)
    # Programs that are started below write to standard error, never between two answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.umask(0o077)
    answers.write(f"\n{GREETING} 1 {token}\n".encode())
    answers.flush()
    with suppress(BrokenPipeError):
        serve(name, 0, answers)


if __name__ == "__main__":
    main()
