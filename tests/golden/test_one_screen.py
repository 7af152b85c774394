"""Reports of packed trials fit one screen, 40 lines of 100 columns, and read as recorded; --full takes at most 200 of 80.

A change of wording is seen as a difference of the recorded screens: IOTRIAL_SNAPSHOTS=write rewrites them. Numbers are left
to ``golden_numbers``: their last digit depends on the processor.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import golden_numbers as golden
import pytest
from rich.console import Console

from iotrial.knobs.declaration import Safety
from iotrial.report.blocks import View
from iotrial.report.document import Document
from iotrial.report.opening import packed_document
from iotrial.report.render import print_report

SCREENS = Path(__file__).resolve().parent / "screens"
LINES, COLUMNS = 40, 100
#: trials that need more lines, each with the reason
LARGER = {
    "filesystem-durability": "three settings put data at risk, two lose them, and none of these alarms may be left out"
}
#: of 80 columns, with --full
MOST_LINES = 200
#: trials that need more of these, each with the reason
LONGER = {"application-git": "36 comparisons, and their means over two states of the cache"}


def printed(document: Document, *, full: bool, columns: int = COLUMNS) -> str:
    out = io.StringIO()
    print_report(document, Console(file=out, width=columns), full=full)
    return out.getvalue()


def wording(text: str) -> list[str]:
    """Return the words of a screen, with every number as 0. Rules are as wide as numbers, so they are left out."""
    return re.sub(r"\d[\d.,]*", "0", text.replace("─", "")).split()


def blocks_named(text: str) -> tuple[str, str]:
    """Return the fewest and the most blocks that a report names: "Measured in 18 to 23 blocks a comparison"."""
    found = re.search(r"Measured in ([\d,]+)(?: to ([\d,]+))? blocks?", text)
    return ("0", "0") if found is None else (found[1], found[2] or found[1])


def screen_lines(text: str) -> int:
    """Count lines as a terminal shows them: a line longer than the screen is wide takes several."""
    return sum(max(1, -(-len(line) // COLUMNS)) for line in text.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("path", golden.packed(), ids=golden.name_of)
def test_a_trial_fits_one_screen_and_hides_no_alarm(path: Path) -> None:
    document = packed_document(path)
    short, full = (printed(document, full=full) for full in (False, True))
    assert screen_lines(short) <= LINES or golden.name_of(path) in LARGER
    recorded = SCREENS / f"{golden.name_of(path)}.txt"
    if os.environ.get("IOTRIAL_SNAPSHOTS") == "write":
        recorded.write_text(short)
    assert wording(short) == wording(recorded.read_text())
    said, every = " ".join(short.split()), " ".join(full.split())
    lines = len(printed(document, full=True, columns=80).splitlines())
    assert lines <= MOST_LINES or golden.name_of(path) in LONGER
    assert said.startswith(document.summary.headline)
    assert "measured on another machine" in said
    for safety, line in document.safety:
        if safety in (Safety.DATA_AT_RISK, Safety.NOT_JUDGED):
            assert line in said
    assert document.summary.headline in every
    for note in document.summary.notes:
        assert note.text in every or not note.view & View.FULL
    least, most = (int(number.replace(",", "")) for number in blocks_named(every))
    for row in document.primary:
        assert row.effect.blocks == 0 or least <= row.effect.blocks <= most
    if document.data.runs and any(block.void for block in document.data.ends):
        assert "void and left out" in said
    assert document.rerun in short
