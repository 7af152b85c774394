"""The page of a comparison in a real browser: it fits a phone, and runs and loads nothing. Needs Chromium on
the PATH."""

from __future__ import annotations

import re
import sys
from html import unescape
from pathlib import Path

import pytest

from values import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from compared_trials import faster, one
from hostile_trial import hostile_document
from test_report_chromium import CHROMIUM, LONG, chromium, logged

from iotrial.report.analysed import analysed
from iotrial.report.comparing import compare
from iotrial.report.comparison_blocks import comparison_html

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")


@pytest.mark.parametrize(("width", "trials"), [(1280, 12), (360, 13)])
def test_the_page_never_scrolls_sideways(tmp_path: Path, width: int, trials: int) -> None:
    wide = [
        one(
            f"{LONG}{i}",
            faster(0.5, 0.4 + i / 50, 0.6 + i / 50, level=LONG),
            share=trials,
            machine={"kernel": f"{LONG}{i}"},
        )
        for i in range(trials)
    ]
    text = comparison_html(compare(wide))
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    tell = "parent.postMessage(innerWidth + ' ' + document.documentElement.scrollWidth, '*')"
    (tmp_path / "copy.html").write_text(text.replace("</body>", f"<script>{tell}</script></body>"))
    frame = tmp_path / "frame.html"
    frame.write_text(
        "<!DOCTYPE html><title>waiting</title><script>onmessage = e => { document.title = e.data }</script>"
        f'<iframe src="copy.html" style="border:0;width:{width}px;height:800px"></iframe>'
    )
    shown = chromium(tmp_path, frame, "--window-size=1400,900", "--virtual-time-budget=5000", "--dump-dom")
    title = re.search(r"<title>(\d+) (\d+)</title>", shown.stdout)
    assert title is not None
    assert (int(title[1]), int(title[2])) == (width, width)


def test_a_page_of_attacks_runs_and_loads_nothing_even_without_its_policy(tmp_path: Path) -> None:
    first = replace(analysed(hostile_document()), share=2)
    other = replace(first, id="other", machine={name: f"{value}!" for name, value in first.machine.items()})
    text = comparison_html(compare([first, other]))
    path = tmp_path / "hostile.html"
    path.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text), "utf-8")
    shown, requested = logged(tmp_path, path)
    title = re.search(r"<title>(.*?)</title>", shown.stdout, flags=re.DOTALL)
    assert title is not None
    assert unescape(title[1]) == "Trials compared: iotrial"
    assert "CONSOLE" not in shown.stderr
    assert not [url for url in requested if "evil" in url or "127.0.0.1" in url]
    assert not re.search(r"<(?:script|img|iframe)\b", shown.stdout)
