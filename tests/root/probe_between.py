"""A proxy between the conductor and the real probe that injects one fault, at the n-th use of a verb.

It is started as the probe ($IOTRIAL_PROBE names a small script that runs it); the fault comes in
$IOTRIAL_TEST_FAULT.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MIB = 1 << 20


def install(folder: Path, /, **fault: Any) -> dict[str, str]:
    """Return the environment of a conductor with this fault in its probe: ``verb``, ``nth`` (default 1),
    ``does`` (one of those below), and the arguments of that."""
    from iotrial.probe.binary import find_binary

    script = folder / "ioprobe-between"
    words = shlex.join([sys.executable, "-S", __file__])
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)
    told = {"real": str(find_binary()), "nth": 1, **fault}
    return {**os.environ, "IOTRIAL_PROBE": str(script), "IOTRIAL_TEST_FAULT": json.dumps(told)}


def fill(folder: str) -> None:
    """Fill a disk, as another user might."""
    size = 1024 * MIB
    with (Path(folder) / "somebody-elses").open("ab") as file:
        while size >= 4096:
            end = os.fstat(file.fileno()).st_size
            try:
                os.posix_fallocate(file.fileno(), end, size)
            except OSError:
                size //= 2


def main() -> None:
    fault = json.loads(os.environ["IOTRIAL_TEST_FAULT"])
    child = subprocess.Popen([fault["real"], *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin
    assert child.stdout
    seen = 0
    for line in sys.stdin.buffer:
        request = json.loads(line)
        meant = request["verb"] == fault["verb"] and all(
            str(request.get(key, "")).endswith(end) for key, end in fault.get("where", {}).items()
        )
        seen += meant
        now = meant and (seen >= fault["nth"] if fault["does"] == "swallow" else seen == fault["nth"])
        does = fault["does"] if now else ""
        if does == "fill":
            fill(fault["folder"])
        if does == "swallow":
            answer = json.dumps({"id": request["id"], "ok": {}}).encode() + b"\n"
        else:
            child.stdin.write(line)
            child.stdin.flush()
            answer = child.stdout.readline()
        if does == "garbage":
            answer = b'{"ok": {}} or something like it\n'
        if does == "half":
            answer = answer[: len(answer) // 2]
        if does == "hang-up":
            os.close(1)
            time.sleep(3600)
        with contextlib.suppress(BrokenPipeError):
            os.write(1, answer)
        if does == "half":
            os._exit(0)
    child.stdin.close()
    sys.exit(child.wait())


if __name__ == "__main__":
    main()
