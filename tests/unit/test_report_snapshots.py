"""Snapshots of the reports of a few stored trials. IOTRIAL_SNAPSHOTS=write updates them."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from compared_trials import faster, one
from fleet_stores import FLEET, add_host
from rich.console import Console

from iotrial.fleet.report.blocks import print_fleet
from iotrial.fleet.verdict import report_of
from iotrial.report.comparing import compare
from iotrial.report.comparison_blocks import comparison_report
from iotrial.report.document import Document
from iotrial.report.opening import packed_document
from iotrial.report.render import html_report, markdown_report, print_report
from iotrial.report.text import print_blocks
from iotrial.store import Store

FOLDER = Path(__file__).parent / "snapshots"
CATALOGUE = Path(__file__).parents[2] / "docs" / "catalogue"


@cache
def document() -> Document:
    return packed_document(CATALOGUE / "filesystem" / "xfs-log-size.iotrial")


def terminal(write: Callable[[Console], None]) -> str:
    out = io.StringIO()
    write(Console(file=out, width=100))
    return out.getvalue()


def without_figures(page: str) -> str:
    page = re.sub(r"<(svg|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r'href="data:[^"]*"', 'href="data:"', page)


def compared() -> str:
    trials = [one("a", faster(0.55, 0.5, 0.6), number=4), one("b", faster(0.95, 0.9, 1.0), number=5)]
    return terminal(lambda console: print_blocks(comparison_report(compare(trials)), console))


def fleet(folder: Path) -> str:
    with Store.open(folder / "trials.db") as store:
        for number in range(5):
            add_host(store, number, ratio=0.8 + 0.01 * number, blocks=12)
        add_host(store, 5, blocks=30, copy_slower=1.3, name="broken-controls")
    report, _ = report_of(folder / "trials.db", FLEET)
    return terminal(lambda console: print_fleet(report, console))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("trial.txt", lambda _: terminal(lambda console: print_report(document(), console))),
        ("trial-full.txt", lambda _: terminal(lambda console: print_report(document(), console, full=True))),
        ("trial.md", lambda _: markdown_report(document())),
        ("trial.html", lambda _: without_figures(html_report(document()))),
        ("comparison.txt", lambda _: compared()),
        ("fleet.txt", fleet),
    ],
)
def test_a_report_says_what_was_recorded(name: str, made: Callable[[Path], str], tmp_path: Path) -> None:
    text = made(tmp_path)
    if os.environ.get("IOTRIAL_SNAPSHOTS") == "write":
        (FOLDER / name).write_text(text)
    assert text == (FOLDER / name).read_text()
