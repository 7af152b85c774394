"""The report page in a real browser: it shows its verdict, fits a phone, follows the colour scheme, logs no
errors.

Needs Chromium on the PATH; skipped without.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from hostile_trial import hostile_document
from report_fixtures import CONDITIONS, document, effect, factor, study

from iotrial.report.render import html_report
from iotrial.stats.model import Verdict
from iotrial.study.model import Claim, Role

CHROMIUM = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--enable-logging=stderr",
)  # fmt: skip
DARK, LIGHT = 0, 1
LONG = "a-very-long-label-" * 12


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    levels = ["0777", "0666", "0444", LONG]
    of = study(
        question="Which mode is fastest?",
        treatment=factor("mode", levels, role=Role.TREATMENT),
        claims=[Claim("https://blog.example/" + "x" * 120, "12 %", "mode", "0444", "0777", 0.89)],
    )
    verdicts = {"0666": (Verdict.EQUIVALENT, 1.0, 0.99, 1.01), "0444": (Verdict.SLOWER, 1.9, 1.7, 2.1)}
    verdicts[LONG] = (Verdict.FASTER, 0.5, 0.45, 0.55)
    effects = [
        effect(*numbers, level=level, condition=condition)
        for condition in CONDITIONS
        for level, numbers in verdicts.items()
    ]
    made = document(effects, of=of, runs={"blocks": 30, "ratios": {"0444": 1.9, LONG: 0.5}})
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html_report(made))
    return path


def chromium(tmp_path: Path, url: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    profile = tmp_path / "profile"
    return subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *arguments, url.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_the_browser_shows_the_verdict_and_complains_of_nothing(page: Path, tmp_path: Path) -> None:
    shown = chromium(tmp_path, page, "--dump-dom")
    heading = re.search(r"<h1>(.*?)</h1>", shown.stdout, flags=re.DOTALL)
    assert heading is not None
    assert unescape(heading[1]).startswith("8 of 12 comparisons differ; most: mode ")
    assert "CONSOLE" not in shown.stderr


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_the_page_never_scrolls_sideways(page: Path, tmp_path: Path, width: int) -> None:
    # The page's policy allows no script. This copy drops the policy and reports its width to the frame around
    # it.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
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


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(("scheme", "page_colour"), [(LIGHT, (244, 245, 247)), (DARK, (18, 22, 28))])
def test_the_page_follows_the_colour_scheme(
    page: Path, tmp_path: Path, width: int, scheme: int, page_colour: tuple[int, int, int]
) -> None:
    from PIL import Image

    picture = tmp_path / "page.png"
    chromium(
        tmp_path,
        page,
        f"--window-size={width},900",
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--screenshot={picture}",
    )
    with Image.open(picture) as image:
        assert image.width == width
        assert image.convert("RGB").getpixel((2, 2)) == page_colour


@pytest.mark.parametrize("with_policy", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_page_of_attacks_runs_and_loads_nothing(tmp_path: Path, *, with_policy: bool) -> None:
    """Also without the content security policy: escaping alone must suffice."""
    text = html_report(hostile_document())
    if not with_policy:
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    path = tmp_path / "hostile.html"
    path.write_text(text, "utf-8")
    shown, requested = logged(tmp_path, path)
    title = re.search(r"<title>(.*?)</title>", shown.stdout, flags=re.DOTALL)
    assert title is not None
    assert unescape(title[1]).endswith(": iotrial report")
    assert "CONSOLE" not in shown.stderr
    assert not [url for url in requested if "evil" in url or "127.0.0.1" in url]
    assert not re.search(r"<(?:script|img|iframe)\b", shown.stdout)


def test_the_log_of_addresses_would_have_shown_one(tmp_path: Path) -> None:
    path = tmp_path / "loading.html"
    path.write_text("<!DOCTYPE html><title>x</title><img src=http://127.0.0.1:9/x>")
    assert "http://127.0.0.1:9/x" in logged(tmp_path, path)[1]


def logged(tmp_path: Path, page: Path) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Return the page as shown, and every URL that the browser requested (its own services' too)."""
    log = tmp_path / "net.json"
    shown = chromium(tmp_path, page, f"--log-net-log={log}", "--virtual-time-budget=3000", "--dump-dom")
    return shown, set(re.findall(r'"url":"([^"]*)"', log.read_text()))
