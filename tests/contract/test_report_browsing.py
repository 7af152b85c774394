"""The report page in use: data saved by a click, surfaces that rotate, print. In real Chromium, through
DevTools.

Needs Chromium on the PATH; skipped without.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import re
import sys
import time
from pathlib import Path

import pytest
from browsing import CHROMIUM, Browser

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from matrix_trials import KIB, conducted, text
from report_fixtures import CONDITIONS, all_equivalent, document

from iotrial.report.html import script_hash
from iotrial.report.render import html_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")

#: JavaScript: the markup of each SVG in the first group of surfaces
DRAWN = "[...document.querySelectorAll('.three')[0].querySelectorAll('svg')].map(svg => svg.innerHTML)"
#: JavaScript: the displayed colour of the first square's edge
INK = "getComputedStyle(document.querySelector('.three path[fill-opacity=\"0.28\"]')).stroke"


def took(treatment: str, test: str, file: int, record: int) -> float:
    return file / (1024 * KIB) * (4 / record) ** 0.25 * (1.5 if treatment == "data=journal" else 1.0)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with one condition and so many runs that their data are compressed."""
    made = document(
        all_equivalent()[:1], runs={"conditions": CONDITIONS[:1], "blocks": 600, "histograms": False}
    )
    path = tmp_path_factory.mktemp("plain") / "a report.html"
    path.write_text(html_report(made))
    return path


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = conducted(
        text(
            files='["64 KiB", "256 KiB"]', records='["4 KiB", "64 KiB"]', primary="write", tests='["write", "read"]'
        ),
        took,
        blocks=8,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("matrix") / "report.html"
    path.write_text(html_report(made))
    return path


def test_a_click_saves_the_data_under_their_name(plain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    with Browser(tmp_path / "profile") as browser:
        browser.open(plain)
        browser.ask("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        for name in (
            "files-permissions-12-effects.csv",
            "files-permissions-12-runs-cache-cold-size-4-KiB.csv.gz",
        ):
            browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
            browser.click(f"a[download='{name}']")
            end = time.monotonic() + 30
            while not (folder / name).exists():
                assert time.monotonic() < end, [path.name for path in folder.iterdir()]
                time.sleep(0.05)
        assert browser.run("location.href") == plain.as_uri(), "the page is still there"
        assert browser.console == []
    rows = list(
        csv.reader(io.StringIO((folder / "files-permissions-12-effects.csv").read_text(), newline=""))
    )
    assert rows[1][5:8] == ["1.001", "0.992", "1.01"]
    lines = gzip.decompress((folder / "files-permissions-12-runs-cache-cold-size-4-KiB.csv.gz").read_bytes())
    assert lines.count(b"\r\n") == 1 + 1800


def test_surfaces_turn_by_mouse_and_keys_and_turn_back(matrix: Path, tmp_path: Path) -> None:
    with Browser(tmp_path / "profile") as browser:
        browser.open(matrix)
        still = browser.run(DRAWN)
        assert len(still) == 3
        x, y = browser.middle(".three")
        seen = browser.picture()
        browser.mouse("mousePressed", x, y)
        browser.mouse("mouseMoved", x + 80, y + 15)
        browser.mouse("mouseReleased", x + 80, y + 15)
        browser.settled()
        dragged = browser.run(DRAWN)
        assert all(one != other for one, other in zip(still, dragged, strict=True)), "all three turn together"
        assert browser.picture() != seen
        browser.mouse("mouseMoved", x, y)
        browser.settled()
        assert browser.run(DRAWN) == dragged, "a mouse that is let go turns nothing"
        for kind, right in (("touchStart", 0), ("touchMove", 30), ("touchMove", 60), ("touchEnd", None)):
            at = [] if right is None else [{"x": x + right, "y": y}]
            browser.ask("Input.dispatchTouchEvent", type=kind, touchPoints=at)
        browser.settled()
        assert browser.run(DRAWN) != dragged, "a finger turns as well"
        browser.key("Home")
        browser.settled()
        first = browser.run(DRAWN)
        for name in ("ArrowLeft", "ArrowUp"):
            browser.key(name)
            browser.settled()
            assert browser.run(DRAWN) != first
        for name in ("ArrowRight", "ArrowDown"):
            browser.key(name)
            browser.settled()
        assert points(browser.run(DRAWN)[0]) == pytest.approx(points(first[0]), abs=0.02)
        for _ in range(40):
            browser.key("ArrowUp")
        browser.settled()
        inside = browser.run(
            "[...document.querySelectorAll('.three svg text')].map(t => { const b = t.getBBox(); return b.y })"
        )
        assert min(inside) > -2, "nothing leaves its picture at the top, however steep the view"
        assert browser.console == []


def points(drawn: str) -> list[float]:
    """Return every number in every path."""
    return [float(n) for path in re.findall(r' d="([^"]*)"', drawn) for n in re.findall(r"-?[\d.]+", path)]


def test_the_first_turned_picture_is_the_still_one(matrix: Path, tmp_path: Path) -> None:
    """Compare the corners of the squares of the still picture with those that the script draws from the
    same angle."""
    corners = "[...document.querySelector('.three svg').querySelectorAll('path')].map(path => path.getAttribute('d'))"
    with Browser(tmp_path / "profile") as browser:
        browser.open(matrix)
        still = [
            n
            for path in browser.run(corners)
            if "z" in path.lower() and path.count("L") == 3
            for n in points(f' d="{path}"')
        ]
        browser.middle(".three")
        browser.run("document.querySelector('.three').focus({preventScroll: true})")
        browser.key("Home")
        browser.settled()
        turned = [
            n
            for path in browser.run(corners)
            if "z" in path.lower() and path.count("L") == 3
            for n in points(f' d="{path}"')
        ]
    assert len(still) == len(turned) == 8 * (1 + 2), "the floor, and one square twice"
    assert turned == pytest.approx(still, abs=0.6)


#: JavaScript: of each chart that is shown, the scale at which it is shown, and the box of each text with its words
TEXTS = """[...document.querySelectorAll('figure svg')].filter(svg => svg.getBoundingClientRect().width > 0).map(svg =>
    [svg.getBoundingClientRect().width / svg.viewBox.baseVal.width, svg.viewBox.baseVal.width, svg.viewBox.baseVal.height,
     [...svg.querySelectorAll('text')].map(text => { const box = text.getBBox();
        return [parseFloat(getComputedStyle(text).fontSize), box.x, box.y, box.width, box.height, text.textContent]; })])"""


@pytest.mark.parametrize("width", [1280, 390])
def test_all_text_of_charts_has_11_to_14_pixels_stays_inside_and_apart(
    plain: Path, matrix: Path, tmp_path: Path, width: int
) -> None:
    with Browser(tmp_path / "profile", width=width) as browser:
        for page in (plain, matrix):
            browser.open(page)
            browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
            charts = browser.run(TEXTS)
            assert len(charts) >= 3
            for scale, wide, high, texts in charts:
                for size, x, y, w, h, words in texts:
                    assert 11 <= size * scale <= 14, words
                    assert x >= -1, words
                    assert x + w <= wide + 1, words
                    assert y + 2 >= -2, words
                    assert y + h <= high + 3, words
                for n, (_, x, y, w, h, words) in enumerate(texts):
                    for _, x2, y2, w2, h2, other in texts[:n]:  # heights of boxes hold the line's leading
                        across = min(x + w, x2 + w2) - max(x, x2) > 1
                        down = min(y + h, y2 + h2) - max(y, y2) > 3
                        assert not (across and down), (words, other)


@pytest.mark.parametrize("dark", [False, True])
def test_what_turns_follows_light_and_dark(matrix: Path, tmp_path: Path, *, dark: bool) -> None:
    with Browser(tmp_path / "profile", dark=dark, width=390) as browser:
        browser.open(matrix)
        browser.run("document.querySelector('.three').focus()")
        browser.key("ArrowLeft")
        browser.settled()
        arm_0 = "rgb(195, 204, 216)" if dark else "rgb(60, 70, 86)"  # from the style sheet
        assert browser.run(INK) == arm_0
        assert browser.run("document.documentElement.scrollWidth") == 390
        assert browser.console == []


def test_no_other_script_runs_beside_the_one_that_turns(matrix: Path, tmp_path: Path) -> None:
    page = matrix.read_text()
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert f"script-src '{script_hash(script)}'" in page
    assert script.count("\n") < 150
    evil = "<script>document.title='owned'</script><p onclick=\"document.title='owned'\" id=evil>x</p>"
    path = tmp_path / "evil.html"
    path.write_text(page.replace("<main>", f"<main>{evil}"))
    with Browser(tmp_path / "profile") as browser:
        browser.open(path)
        browser.click("#evil")
        browser.settled()
        assert browser.run("document.title") != "owned"
        assert any("Content Security Policy" in line for line in browser.console)
        assert browser.run("document.querySelectorAll('.turning').length") == 1


def test_a_page_without_surfaces_has_no_script(plain: Path) -> None:
    page = plain.read_text()
    assert "<script" not in page
    assert "script-src" not in page


def test_paper_has_what_is_folded_and_figures_ask_not_to_be_broken(matrix: Path, tmp_path: Path) -> None:
    with Browser(tmp_path / "profile") as browser:
        browser.open(matrix)
        browser.ask("Emulation.setEmulatedMedia", media="print")
        closed = "[...document.querySelectorAll('details:not([open])')]"
        assert browser.run(f"{closed}.length") > 0
        unseen = f"{closed}.filter(d => d.lastElementChild.getBoundingClientRect().height === 0).length"
        assert browser.run(unseen) == 0
        broken = "filter(figure => getComputedStyle(figure).breakInside !== 'avoid').length"
        assert browser.run(f"[...document.querySelectorAll('figure')].{broken}") == 0
        assert browser.run("getComputedStyle(document.querySelector('.data')).display") == "none"
        paper = base64.b64decode(browser.ask("Page.printToPDF")["data"])
    assert paper.startswith(b"%PDF")
