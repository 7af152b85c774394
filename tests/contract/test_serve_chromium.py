"""The pages of serve in a real browser: read, searched, compared, followed live; all fit a phone, none logs
errors.

Needs Chromium on the PATH; skipped without.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import CHROMIUM, Browser

from values import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from store_examples import filled, header

from iotrial.report.progress import EffectLine, Progress, progress_path, write_progress
from iotrial.store import Store
from iotrial.store.model import StoredTrial, TrialState
from serving import Served, served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")

PATIENCE_S = 60.0
LONG = "a-very-long-label-" * 12
ATTACK = (
    "<script>document.title='owned'</script><img src=http://127.0.0.1:9/x onerror=document.title='owned'>"
)
WIDEST = "[document.documentElement.scrollWidth, innerWidth].join(' ')"


class Window(Browser):
    """A browser window that visits URLs."""

    def visit(self, url: str) -> None:
        """Open a URL and wait until it is loaded."""
        self.ask("Page.navigate", url=url)
        self.arrived(url.split("#")[0])

    def arrived(self, beginning: str) -> None:
        """Wait until a page is loaded whose URL begins with ``beginning``."""
        self.until(f"location.href.startsWith({json.dumps(beginning)}) && document.readyState == 'complete'")

    def until(self, script: str) -> None:
        """Wait until the expression is true, across pages that reload themselves."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self.run(script):
                    return
            except AssertionError:  # the page was just being replaced
                pass
            assert time.monotonic() < end, script
            time.sleep(0.05)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a server with more trials than fit on a page: failed ones without a run, one with long names, one
    with attacks."""
    path = tmp_path_factory.mktemp("store") / "trials.db"
    plain = header("0" * 32)
    with Store.open(path) as store:
        for n in range(50):
            store.create_trial(replace(plain, id=f"{n:032x}"))
            store.set_state(f"{n:032x}", TrialState.FAILED, LONG)
        study = replace(plain.study, title=LONG)
        filled(
            store,
            replace(
                plain, id="a" * 32, study=study, host={"processor": LONG, "kernel": LONG, "system": LONG}
            ),
        )
        bad = replace(plain.study, name=ATTACK, title=ATTACK, question=ATTACK)
        filled(store, replace(plain, id="b" * 32, study=bad, host={"processor": ATTACK, "kernel": ATTACK}))
    with served(path) as running:
        for number in (51, 52):
            assert running.settled(f"/trials/{number}").status == 200
        assert running.settled("/compare?trials=51,52").status == 200
        yield running


@pytest.fixture(scope="module", params=[390, pytest.param(1280, marks=pytest.mark.long)])
def window(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    with Window(tmp_path_factory.mktemp("profile"), width=request.param) as opened:
        yield opened
        assert not opened.console  # no page of these tests has logged an error


def fits(window: Window) -> bool:
    needed, there = map(int, window.run(WIDEST).split())
    return needed <= there


def test_no_page_scrolls_sideways_runs_anything_or_complains(window: Window, server: Served) -> None:
    for page in (
        "/", "/?page=2", "/?study=nothing", "/trials/51", "/trials/52", "/compare", "/compare?trials=51,52",
        "/history", "/history?study=example", "/history?study=nothing",
    ):  # fmt: skip
        window.visit(server.url + page)
        assert fits(window), page
        assert window.run("document.title") != "owned"
        assert window.run("document.images.length") == 0
        assert window.run("document.querySelectorAll('main').length") == 1
        colour = window.run("getComputedStyle(document.body).backgroundColor")
        assert colour == "rgb(244, 245, 247)"  # the style sheet is loaded
    assert not window.console


def test_two_ticks_in_the_list_lead_to_their_comparison(window: Window, server: Served) -> None:
    window.visit(f"{server.url}/?state=done")
    assert window.run("document.querySelectorAll('input[type=checkbox]').length") == 2
    window.click("input[value='52']")
    window.click("input[value='51']")
    window.click("section.list button")
    window.arrived(f"{server.url}/compare?trials=52&trials=51")
    window.until("document.body.innerText.includes('2 trials compared')")
    assert fits(window)


def test_the_form_searches_and_the_links_lead_to_the_report_and_on(window: Window, server: Served) -> None:
    window.visit(server.url)
    assert window.run("document.querySelectorAll('.trials tbody tr').length") == 50
    assert "page 1 of 2" in window.run("document.body.innerText")
    window.run("document.querySelector('input[name=study]').value = 'exam'")
    window.run("document.querySelector('select[name=state]').value = 'done'")
    window.click("form.search button")
    window.arrived(f"{server.url}/?study=exam&state=done")
    assert window.run("document.querySelectorAll('.trials tbody tr').length") == 1
    window.click("td.number a")
    window.arrived(f"{server.url}/trials/51")
    assert "iotrial report" in window.run("document.title")
    window.run("[...document.querySelectorAll('.top a')].find(a => a.textContent == 'History').click()")
    window.arrived(f"{server.url}/history?study=example")
    window.until("document.querySelectorAll('svg.figure').length > 0")
    shown = (
        "[...document.querySelectorAll('svg.figure')].filter(s => s.getBoundingClientRect().width > 0).length"
    )
    assert window.run(shown) * 2 == window.run("document.querySelectorAll('svg.figure').length")
    assert fits(window)


def test_a_running_trial_moves_by_itself_and_becomes_its_report(window: Window, server: Served) -> None:
    with Store.open(server.store) as store:
        number = len(store.trials()) + 1
        running = filled_later(store, f"{number:032x}")
        file = progress_path(server.store)
        try:
            write_progress(file, standing(number, 10.0))
            window.visit(f"{server.url}/trials/{number}")
            assert "10 s of 60 s" in window.run("document.body.innerText")
            assert fits(window)
            write_progress(file, standing(number, 20.0))
            window.until("document.body.innerText.includes('20 s of 60 s')")  # it reloads itself
            assert window.run("document.querySelectorAll('svg .mark').length") == 4
        finally:
            file.unlink(missing_ok=True)
            store.set_state(running.header.id, TrialState.INTERRUPTED, "enough")
        if not window.run("innerWidth > 1000"):
            return  # test the end only once
        window.until("document.title.includes('iotrial report')")
        assert re.search("interrupted", window.run("document.body.innerText"))


def filled_later(store: Store, mark: str) -> StoredTrial:
    """Create a trial that counts as running, by this process."""
    return store.create_trial(header(mark))


def standing(number: int, elapsed_s: float) -> Progress:
    lines = (
        EffectLine(LONG, "f", LONG, "a", 0.8, 0.7, 0.9, 12, "faster"),
        EffectLine("cache warm", "f", "b", "a", 1.0, None, 1.2, 12),
    )
    return Progress(
        number, "example", elapsed_s, 60.0, {LONG: 12, "cache warm": 12}, 1, 2, lines, LONG, margin=0.03
    )
