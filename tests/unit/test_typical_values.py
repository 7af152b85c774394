"""The table of effects has the time of each level in its unit, next to the ratio."""

from __future__ import annotations

import io
import re
from statistics import median

import pytest
from factorial_trials import conducted, screen_text
from rich.console import Console

from iotrial.report.render import markdown_report, print_report

ONE = screen_text(1, design='kind = "full"')


_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def test_the_screen_and_markdown_give_the_median_of_each_level() -> None:
    made = conducted(ONE, lambda treatment: -3.5 * (treatment["f01"] == "on"))
    times: dict[str, list[float]] = {"on": [], "off": []}
    for run in made.data.runs:
        if run.kind == "treatment":
            times[run.treatment["f01"]].append(run.responses["wall"])
    out = io.StringIO()
    print_report(made, Console(file=out, width=120))
    for text in (out.getvalue(), markdown_report(made)):
        row = next(
            line for line in text.splitlines() if re.search(r"on / off.*faster|everywhere.*faster", line)
        )
        shown = [float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+) (s|ms|µs) ±", row)]
        assert shown == [pytest.approx(median(times[level]), rel=0.005) for level in ("on", "off")]
    assert re.search(r"it is 3\d times as fast \[\d\d, \d\d\]", made.summary.headline)
