"""Does the power-cut laboratory find what it should, and nothing else? And how many cut points a second does it check?

    python benchmarks/powercut/truth.py [--drawn N] [--operations N] [--filesystem NAME]

Correct work must lose nothing at any state; work with a planted mistake must be found, and so must a mount that sends no
flushes. Prints a Markdown table. As root; the default takes about an hour.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from acknowledging import NO_MISTAKES, Checking, Mistakes, Working
from laboratory import SIZES, Tally, lab, tried

from iotrial.powercut.recover import Check, Findings
from iotrial.powercut.states import Cache

WORKERS = 3
#: operations of a worker where a mistake is planted
FEW = 40
HEAD = (
    "| file system | work | log entries | acknowledged | flushes | drawn | distinct | lost | otherwise | a second |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)
MISTAKES = {
    "acknowledges before fsync": Mistakes(acknowledges_before_fsync=True),
    "no fsync of the file before its rename": Mistakes(no_fsync_of_file=True),
    "no fsync of the folder after a rename": Mistakes(no_fsync_of_folder=True),
}


def must_fail(_root: Path, acknowledged: Sequence[str]) -> Findings:
    """Report every acknowledgement as lost."""
    return Findings(lost=tuple(acknowledged))


def row(filesystem: str, what: str, tally: Tally) -> str:
    lost = tally.verdicts["lost acknowledged"]
    other = ", ".join(
        f"{word} {n}"
        for word, n in sorted(tally.verdicts.items())
        if word not in ("clean", "lost acknowledged")
    )
    cells = (
        filesystem, what, tally.entries, tally.acknowledged, tally.flushes, tally.drawn, tally.distinct, lost,
        other or "none", f"{tally.rate:.0f}",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--drawn", type=int, default=10_000, help="drawn states of correct work; 0: none")
    parser.add_argument(
        "--planted", type=int, default=500, help="drawn states of work with a mistake; 0: none"
    )
    parser.add_argument("--operations", type=int, default=450, help="operations of each of three workers")
    parser.add_argument("--fsck-every", type=int, default=100)
    parser.add_argument(
        "--sector-bytes", type=int, default=512, help="what the disk writes as a whole or not at all"
    )
    parser.add_argument("--latency-us", type=float, default=0.0)
    parser.add_argument("--filesystem", choices=sorted(SIZES), action="append")
    given = parser.parse_args()
    print(HEAD)
    few = min(given.operations, FEW)
    for filesystem in given.filesystem or sorted(SIZES):

        def cut(
            what: str, mistakes: Mistakes = NO_MISTAKES, *, drawn: int = given.planted, count: int = few, options: str = "",
            check: Check | None = None,
        ) -> None:  # fmt: skip
            with lab() as target:
                tally = tried(
                    target, filesystem, Working(WORKERS, count, mistakes), check or Checking(WORKERS, count),  # noqa: B023
                    drawn=drawn, options=options, fsck_every=given.fsck_every, latency_us=given.latency_us,
                    cache=Cache(sector_bytes=given.sector_bytes),
                )  # fmt: skip
            print(row(filesystem, what, tally), flush=True)  # noqa: B023
            for verdict, example in tally.examples.items():
                print(f"<!-- {verdict}: {example} -->", flush=True)

        if given.drawn:
            cut(f"correct, sectors of {given.sector_bytes}", drawn=given.drawn, count=given.operations)
        if not given.planted:
            continue
        for name, mistakes in MISTAKES.items():
            cut(name, mistakes)
        cut("correct; the check always fails", check=must_fail)
        if filesystem in ("ext4", "btrfs"):
            cut("correct; mounted with nobarrier", options="nobarrier")


if __name__ == "__main__":
    main()
