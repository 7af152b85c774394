"""Trials with known truth on this machine, through the real conductor: `make truth`.

    python benchmarks/truth/real.py                  run until every cell is complete (some hours)
    python benchmarks/truth/real.py --budget 40m     stop between two trials after forty minutes
    python benchmarks/truth/real.py --summary        summarise the record, in Markdown
    python benchmarks/truth/real.py --summary --write BENCHMARKS.md

Each trial is appended to the record before the next starts, so the suite can be stopped at any moment and restarted.
Seeds come from the system; every outcome counts. The machine should be otherwise idle.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from iotrial.units import parse_duration
from marked import put
from trials import programs
from trials.cells import NEIGHBOURS, cells, targets
from trials.record import DEFAULT, Busy, read


def main() -> int:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", default="24 h", help="stop between two trials after this long")
    parser.add_argument("--identical", type=int, default=200, help="trials of each cell of identical arms")
    parser.add_argument("--injected", type=int, default=50, help="trials of each cell with a slow-down")
    parser.add_argument(
        "--injected-under", nargs="+", choices=NEIGHBOURS, default=["quiet"], help="neighbours of those"
    )
    parser.add_argument(
        "--programs", type=int, default=10, help="trials of each program with a state file; they come first"
    )
    parser.add_argument("--record", type=Path, default=DEFAULT, help="where lines are appended")
    parser.add_argument(
        "--state",
        type=Path,
        default=Path(f"/var/tmp/iotrial-truth-{os.geteuid()}"),
        help="lab, journal, runs",
    )
    parser.add_argument("--summary", action="store_true", help="print what the record says, and do nothing")
    parser.add_argument("--write", type=Path, help="with --summary: a document with a place marked for it")
    arguments = parser.parse_args()
    if arguments.summary:
        from trials.summary import summary

        text = summary(*read(arguments.record))
        if lines := read(arguments.record.with_name(programs.RECORD))[0]:
            text += f"\n\n**Programs with a state file, through `iotrial try`**\n\n{programs.table(lines)}"
        if arguments.write is None:
            print(text)
        else:
            put(arguments.write, "truth", text)
        return 0
    from trials.suite import run

    budget_s = parse_duration(arguments.budget)
    began = time.monotonic()
    programs.run(arguments.programs, arguments.record.with_name(programs.RECORD), budget_s=budget_s / 2.0)
    budget_s -= time.monotonic() - began
    wanted = targets(
        cells(injected_under=arguments.injected_under),
        identical=arguments.identical,
        injected=arguments.injected,
    )
    try:
        return run(wanted, arguments.record, arguments.state, budget_s=budget_s)
    except Busy as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
