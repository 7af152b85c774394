"""A faulty link to a client: forwards the probe's protocol until work of the level ``bad`` is requested.

Run as ``python client_between.py HOW PROBE``. HOW is ``die``, ``garbage``, ``lie`` (an impossible time),
``hang`` (never answer), or ``pass``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time


def main(how: str, probe: str) -> None:
    behind = subprocess.Popen([probe], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert behind.stdin is not None
    assert behind.stdout is not None
    for line in sys.stdin.buffer:
        due = b"level-bad" in line
        if due and how == "die":
            behind.kill()
            behind.wait()
            sys.exit("the link is cut")
        if due and how == "hang":
            time.sleep(1e6)
        behind.stdin.write(line)
        behind.stdin.flush()
        answer = behind.stdout.readline()
        if due and how == "garbage":
            answer = b"\x1b[2Jwelcome to the machine\n"
        if due and how == "lie":
            report = json.loads(answer)
            report["ok"]["ended_ns"] = 1
            answer = json.dumps(report).encode() + b"\n"
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
