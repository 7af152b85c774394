"""Names of everything as attacks, in every kind of page, in a real browser that reports each breach of the page's policy.

Needs Chromium on the PATH; skipped without.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import CHROMIUM, Browser

from values import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from fleet_stores import FLEET, add_host
from hostile_trial import ATTACKS, hostile_document
from store_examples import filled, header
from test_report_windows import conducted
from test_serve_chromium import Window

from iotrial.fleet.report.blocks import fleet_html
from iotrial.fleet.verdict import report_of
from iotrial.report.comparing import compare
from iotrial.report.comparison_blocks import comparison_html
from iotrial.report.opening import summary_of
from iotrial.report.progress import EffectLine, Progress, WindowLine, progress_path, write_progress
from iotrial.report.render import html_report
from iotrial.store import Store
from iotrial.store.model import TrialState
from iotrial.study.model import Claim, Level, Setting
from serving import served

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")]

#: printable attacks: what a study, a host or a service can be called
NAMES = (
    "<script>attacked()</script>",
    '"><img src=x onerror=attacked()>',
    "'><svg onload=attacked()>",
    "</style><script>attacked()</script>",
    "</title></svg></textarea></pre><iframe srcdoc='<script>parent.attacked()</script>'>",
    "javascript:attacked()",
    "\" onmouseover=attacked() autofocus onfocus=attacked() x=\"",
    "}*{background:url(http://127.0.0.1:9/css)}",
    "<base href=http://127.0.0.1:9/><meta http-equiv=refresh content='0;url=javascript:attacked()'>",
    "<a href=javascript:attacked()>x</a>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css><object data=http://127.0.0.1:9/x>",
    "{{ 7*7 }}{% raw %}",
    "&lt;script&gt;attacked()&#60;/script&#62;",
    "<math><mtext><script>attacked()</script></mtext></math>",
)  # fmt: skip
EVERY = " ".join(NAMES)
#: runs before anything of a page, whatever its policy is
WATCH = """
window.attacks = []; window.breaches = [];
window.attacked = () => attacks.push('called');
for (const name of ['alert', 'confirm', 'prompt']) window[name] = () => attacks.push(name);
document.addEventListener('securitypolicyviolation', e => breaches.push(`${e.violatedDirective} ${e.blockedURI}`));
"""
#: what of a page can run or load something: attributes, links out of it, elements
FOUND = r"""(() => {
  const found = [];
  for (const one of document.querySelectorAll('*')) {
    if (/^(iframe|object|embed|base|math|foreignobject|animate|set|video|audio|applet)$/i.test(one.localName))
      found.push(one.localName);
    if (one.localName == 'script' && one.type != 'application/json' && !one.textContent.includes('turning'))
      found.push(one.outerHTML.slice(0, 80));
    for (const {name, value} of one.attributes) {
      if (/^on/i.test(name)) found.push(`${one.localName} ${name}`);
      if (/^(href|src|action|formaction|xlink:href|data|srcset|poster)$/i.test(name)
          && /^[\s\x00-\x1f]*([a-z][a-z0-9+.-]*:|[\/\\]{2})/i.test(value) && !value.startsWith('data:'))
        found.push(`${one.localName} ${name}=${value}`);
      if (name == 'style' && /url\(|expression|@import/i.test(value)) found.push(`style ${value}`);
    }
  }
  return found;
})()"""
SHEETS = """[...document.styleSheets].flatMap(sheet => [...sheet.cssRules].map(rule => rule.cssText))
    .filter(text => /url\\((?!"data:|"?#)|@import/.test(text))"""
STEERING = (
    r"/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/"
)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    with Window(tmp_path_factory.mktemp("profile")) as opened:
        opened.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        opened.ask("Network.enable")
        yield opened


def harmless(window: Browser, *, labels: bool = True) -> None:
    """Check the open page: nothing ran, nothing was stopped by the policy, nothing is left that could run."""
    window.settled()
    assert window.run("window.attacks") == []
    assert window.run("window.breaches") == []
    assert window.run(FOUND) == []
    assert window.run(SHEETS) == []
    loaded = window.run("performance.getEntriesByType('resource').map(e => e.name)")
    assert not [url for url in loaded if not re.search(r"/style\.css|^data:", url)]
    assert window.run(f"{STEERING}.test(document.documentElement.outerHTML)") is False
    if labels:
        assert window.run("document.documentElement.textContent.includes('attacked()')")
    # every control that a reader may click or point to
    window.run(
        "document.querySelectorAll('summary, svg *, td, th, label').forEach(one => ['mouseover', 'focus', 'click']"
        ".forEach(kind => one.dispatchEvent(new Event(kind, {bubbles: true}))))"
    )
    assert window.run("window.attacks") == []
    # a wrong address is answered with 400 or 404, which the browser logs
    assert not [text for text in window.console if "responded with a status of 40" not in text]


def shown(window: Window, tmp_path: Path, html: str, *, policy: bool = True) -> None:
    """Open a page from a file, and check that a browser enforces its policy."""
    (sent,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', html)
    assert sent.startswith("default-src 'none'; ")
    assert "script-src 'unsafe" not in sent
    if not policy:
        html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    path = tmp_path / "page.html"
    path.write_text(html, "utf-8", "replace")
    window.visit(path.as_uri())


def test_the_watch_would_have_seen_an_attack_and_a_breach(window: Window, tmp_path: Path) -> None:
    policy = '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:">'
    (tmp_path / "x.html").write_text(
        f"<!DOCTYPE html>{policy}<body>{NAMES[1]}<a href=javascript:attacked()>x"
    )
    window.visit((tmp_path / "x.html").as_uri())
    window.until("window.breaches.length > 0")
    assert window.run(FOUND) == ["img onerror", "a href=javascript:attacked()"]
    (tmp_path / "y.html").write_text(f"<!DOCTYPE html><body>{NAMES[1]}")
    window.visit((tmp_path / "y.html").as_uri())
    window.until("window.attacks.length > 0")
    window.console.clear()


@pytest.mark.parametrize("policy", [True, pytest.param(False, marks=pytest.mark.long)])
def test_reports_of_trials_services_fleets_and_comparisons_run_nothing(
    window: Window, tmp_path: Path, *, policy: bool
) -> None:
    shown(window, tmp_path, html_report(hostile_document()), policy=policy)
    harmless(window, labels=False)
    shown(window, tmp_path, html_report(service()), policy=policy)
    harmless(window)
    with Store.open(tmp_path / "fleet.db") as store:
        for number, name in enumerate(NAMES):
            facts = {"kernel": name, "processor": name, "system": EVERY, "memory_bytes": 1 << 30}
            add_host(
                store, number, name=name, facts=facts, filesystem=name, blocks=8, ratio=0.6 + 0.02 * number
            )
        add_host(store, 80, name=EVERY, state=TrialState.FAILED, reason=EVERY, blocks=8)
    shown(window, tmp_path, fleet_html(report_of(tmp_path / "fleet.db", FLEET)[0]), policy=policy)
    harmless(window)
    stored(tmp_path / "trials.db")
    with Store.open(tmp_path / "trials.db", read_only=True) as store:
        both = compare([summary_of(store, number, share=2) for number in ("1", "2")], names={})
    shown(window, tmp_path, comparison_html(both), policy=policy)
    harmless(window)


def service() -> object:
    """Return a live trial of a service with attacks in the names of its metric, its levels and its guard."""
    made = conducted(blocks=6, void=2, guarded=(NAMES[0], NAMES[1]))
    header = made.data.trial.header
    study = header.study
    responses = tuple(
        replace(one, unit=NAMES[2], workload=NAMES[3], about=NAMES[1]) if hasattr(one, "about")
        else replace(one, unit=NAMES[2])
        for one in study.responses
    )  # fmt: skip
    of = replace(study, title=EVERY[:480], question=EVERY[:480], why=EVERY, responses=responses, text=EVERY)
    changed = replace(header, study=of, host={name: name for name in NAMES}, lab={"kind": "in-place", "places": [
        {"mounted_at": NAMES[0], "device": NAMES[1], "filesystem": NAMES[3], "path": EVERY}]})  # fmt: skip
    trial = replace(made.data.trial, header=changed, reason=EVERY)
    return replace(made, data=replace(made.data, trial=trial))


def stored(path: Path) -> None:
    """Store two trials of a study whose every text is an attack, as far as a study can hold it."""
    plain = header("0" * 32)
    levels = tuple(
        Level(name.replace(",", ";").replace("+", "-")[:64].strip(), (Setting("mount.atime", mode),))
        for name, mode in zip(NAMES[:3], ("noatime", "relatime", "strictatime"), strict=True)
    )
    factor = replace(
        plain.study.factors[0], levels=levels, reference=levels[0].label,
        default=tuple(one.label for one in levels),
    )  # fmt: skip
    claim = Claim("javascript:attacked()", EVERY[:300], factor.name, levels[1].label, levels[0].label, 0.8)
    study = replace(
        plain.study, title=EVERY[:480], question=EVERY[:480], why=EVERY, factors=(factor,), claims=(claim,),
        text=EVERY,
    )  # fmt: skip
    facts = {
        "processor": EVERY[:400],
        "kernel": NAMES[0],
        "system": NAMES[1],
        "processors": 4,
        NAMES[2]: NAMES[3],
    }
    with Store.open(path) as store:
        for number in (1, 2):
            of = replace(
                plain, id=f"{number}" * 32, study=study, host=facts, version=NAMES[4][:60],
                lab={"kind": "directory", "places": [{"path": EVERY, "filesystem": NAMES[1], "device": NAMES[5]}]},
            )  # fmt: skip
            filled(store, of)
            store.note(of.id, "host", EVERY)
        store.create_trial(replace(plain, id="3" * 32, study=study, host=facts))
        store.set_state("3" * 32, TrialState.FAILED, EVERY)


def test_pages_of_serve_run_nothing_and_keep_their_policy(
    window: Window, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("store") / "trials.db"
    stored(path)
    with Store.open(path) as store, served(path) as server:
        for page in ("/trials/1", "/trials/2", "/compare?trials=1,2"):
            assert server.settled(page).status == 200, page
        for page in (
            "/", "/trials/1", "/trials/3", "/compare?trials=1,2", "/history", "/history?study=example",
            "/?study=%3Cscript%3Eattacked()%3C/script%3E&kernel=%22%3E%3Cimg%20src=x%20onerror=attacked()%3E",
            "/compare?trials=%3Csvg%20onload=attacked()%3E", "/trials/%3Cscript%3Eattacked()%3C%2Fscript%3E",
        ):  # fmt: skip
            window.visit(server.url + page)
            harmless(window, labels=page in ("/trials/1", "/compare?trials=1,2"))
        running = store.create_trial(header("4" * 32))
        try:
            write_progress(progress_path(path), standing(running.number))
            window.visit(f"{server.url}/trials/{running.number}")
            window.until("document.body.innerText.includes('10 s of 60 s')")
            harmless(window)
        finally:
            progress_path(path).unlink(missing_ok=True)
            store.set_state(running.header.id, TrialState.INTERRUPTED, EVERY)


def standing(number: int) -> Progress:
    """Return the progress of a running trial with attacks in every text."""
    lines = tuple(
        EffectLine(
            name, name, name, NAMES[0], 0.8, 0.7, 0.9, 12, "faster", unit=name, response=name, risk=name
        )
        for name in (*NAMES, *(attack.encode("utf-8", "replace").decode() for attack in ATTACKS))
    )
    windows = tuple(WindowLine(name, 3.0, 0.1, name, void=False) for name in NAMES)
    return Progress(
        number, EVERY, 10.0, 60.0, dict.fromkeys(NAMES, 12), 1, 2, lines, EVERY, margin=0.03, upcoming=EVERY,
        windows=windows,
    )  # fmt: skip
