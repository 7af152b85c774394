"""The table of effects has the time of each level in its unit, next to the ratio."""

from __future__ import annotations

import io
from statistics import median

from factorial_trials import conducted, screen_text
from rich.console import Console

from iotrial.report.document import Document
from iotrial.report.render import markdown_report, print_report

ONE = screen_text(1, design='kind = "full"')


def _medians_ms(made: Document, factor: str) -> dict[str, float]:
    times: dict[str, list[float]] = {}
    for run in made.data.runs:
        if run.kind == "treatment":
            times.setdefault(run.treatment[factor], []).append(run.responses["wall"] * 1e3)
    return {level: median(found) for level, found in times.items()}


def test_the_screen_and_markdown_give_the_median_of_each_level() -> None:
    made = conducted(ONE, lambda treatment: -3.5 * (treatment["f01"] == "on"))
    out = io.StringIO()
    print_report(made, Console(file=out, width=120))
    for text in (out.getvalue(), markdown_report(made)):
        row = next(line for line in text.splitlines() if "on / off" in line and "faster" in line)
        cells = [cell.strip() for cell in row.replace(" ms", "").replace(" s", "").replace("|", "  ").split("  ")]
        shown = [cell.split(" ±")[0] for cell in cells if " ±" in cell]
        own = _medians_ms(made, "f01")
        scale = {level: 1.0 if own[level] < 1000.0 else 1000.0 for level in own}
        expected = [f"{own[level] / scale[level]:.3g}" for level in ("on", "off")]
        assert [f"{float(cell):.3g}" for cell in shown] == expected
    assert " times as fast" in made.summary.headline
    assert "0.0" not in made.summary.headline
