"""The process that seeks intervals for another one (``ahead.py``), until its standard input ends."""

from __future__ import annotations

import json
import sys
from typing import BinaryIO, TextIO

import numpy as np

from iotrial.analysis.ahead import HEAD
from iotrial.analysis.eprocess import interval
from iotrial.analysis.recall import as_list


def main(asked: BinaryIO, told: TextIO) -> None:
    """A line of JSON for each series of contrasts."""
    while len(head := asked.read(HEAD.size)) == HEAD.size:
        count, alpha, margin = HEAD.unpack(head)
        values = np.frombuffer(asked.read(8 * count), dtype="<f8")
        print(json.dumps(as_list(interval(values, alpha, margin=margin))), file=told, flush=True)


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout)
