"""Run the program with loop devices as stand-ins for disks: the look-up of serial numbers is replaced in this
process alone.

First argument: FILE=SERIAL,..., by the path of the file behind a loop device. Without arguments this is a
fork server like forking.py, and that argument is the first of each run.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from stand_in import replace_look_up

from forking import Order, serve
from iotrial.cli import main


def begin(_: Order | None = None) -> None:
    replace_look_up(dict(pair.split("=") for pair in sys.argv.pop(1).split(",")))


if __name__ == "__main__":
    if sys.argv[1:]:
        begin()
        main()
    else:
        serve(begin)
