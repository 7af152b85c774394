"""The program, with loop devices that stand in for disks: the look-up of serial numbers is replaced in this process alone.

First argument: FILE=SERIAL,..., by the name of the file behind a loop device.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))

from stand_in import replace_look_up

from iotrial.cli import main

if __name__ == "__main__":
    replace_look_up(dict(pair.split("=") for pair in sys.argv.pop(1).split(",")))
    main()
