"""Measures two commands in blocks, a coin deciding in each which comes first; writes CSV. What `your-own-numbers` reads.

    python measure_pairs.py 40 "md5sum FILE" "sha1sum FILE" > pairs.csv

Columns: block (0, 1, ...), first (which command came first), reference_s and level_s (seconds of either, by the wall clock).
"""

from __future__ import annotations

import secrets
import shlex
import subprocess
import sys
import time


def seconds(command: str) -> float:
    """How long it takes, start of the process included."""
    began = time.perf_counter()
    subprocess.run(shlex.split(command), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    blocks, reference, level = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    seconds(reference), seconds(level)  # whatever is cached is cached for both
    print("block,first,reference_s,level_s")
    for block in range(blocks):
        level_first = secrets.randbits(1)
        took = {}
        for name in ("level", "reference") if level_first else ("reference", "level"):
            took[name] = seconds(level if name == "level" else reference)
        first = "level" if level_first else "reference"
        print(f"{block},{first},{took['reference']:.6f},{took['level']:.6f}")


if __name__ == "__main__":
    main()
