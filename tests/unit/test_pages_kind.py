"""Workloads of kind pages: what a study file may say, where requests may go, and what reports make of the answers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from iotrial.analysis.model import Observation, ObservedBlock
from iotrial.conduct import optional
from iotrial.conduct.resolve import resolve
from iotrial.design.model import ArmKind
from iotrial.errors import MissingTool, RequestError, StudyError
from iotrial.report.conditions import Conditions
from iotrial.report.pages import pages_of, sentences, unlike_of
from iotrial.report.run_figures import extremes, page_figures
from iotrial.report.series import arms_of
from iotrial.store.model import RunRecord, StoredTrial, TrialData, TrialHeader, TrialState
from iotrial.study import catalogue
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.model import Study
from iotrial.study.reader import load, read_study
from iotrial.study.trust import demands
from iotrial.workloads.pages import AddressProblem, PagesWork, address, with_servers
from values import replace

STUDY = """
[study]
name = "site"
question = "Which?"
[[factor]]
name = "server"
knob = "work.option"
option = "server"
levels = ["old", "new"]
[[workload]]
name = "pages"
kind = "pages"
pages = ["/", "/a/{9..11}?x=1"]
"""


def read(more: str = "", *, trusted: bool = False, text: str = STUDY) -> Study:
    return read_study(text + more, "mine.toml", trusted=trusted)


def work_of(study: Study) -> PagesWork:
    work = study.workloads[0].work
    assert isinstance(work, PagesWork)
    return work


def test_a_range_stands_for_its_pages_and_count_for_the_first_of_them() -> None:
    work = work_of(read())
    assert work.listed() == ("/", "/a/9?x=1", "/a/10?x=1", "/a/11?x=1")
    assert replace(work, count=2).listed() == ("/", "/a/9?x=1")


def test_a_study_with_pages_is_stored_without_loss() -> None:
    study = read('servers = { old = "http://127.0.0.1:1" }\nignore = ["a*b"]\ndelay = "50 ms"\n')
    assert study_from_json(study_to_json(study)).workloads == study.workloads


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('host = "a b"', "a name of a site"),
        ('ignore = ["plain"]', r"texts with \* between them"),
        ('servers = { old = "https://127.0.0.1" }', "https is not spoken"),
        ('servers = { old = "http://example.org" }', "an IP address or localhost"),
        ('servers = { old = "http://127.0.0.1/x" }', "paths belong to the pages"),
        ("clients = 0", "clients"),
        ("clients = 256\nreplicates = 99999", "10,000,000 are the most"),
        ('make = ["php"]', "that the study starts"),
        ('serve = ["php", "-S"]', "where to listen"),
        (
            'serve = ["php", "{address}"]\nservers = { old = "http://127.0.0.1" }',
            "or it asks one that is there",
        ),
        ('browser = true\nhost = "www.test"', "the address itself"),
    ],
)
def test_what_cannot_work_is_refused_with_its_line(more: str, message: str) -> None:
    with pytest.raises(StudyError, match=message) as caught:
        read(more)
    assert caught.value.line


@pytest.mark.parametrize(
    "pages", ['"a"', '"/a b"', '"/{5..1}"', '"/{1..2}/{1..2}"', '"/{1..99999}"', '"/a\\r\\nX:"', ""]
)
def test_pages_are_paths(pages: str) -> None:
    with pytest.raises(StudyError):
        read(text=STUDY.replace('"/", "/a/{9..11}?x=1"', pages))


@pytest.mark.parametrize(
    ("url", "wire", "own"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080", True),
        ("http://localhost/", "127.0.0.1:80", True),
        ("http://[::1]:81", "[::1]:81", True),
        ("http://192.0.2.7:80", "192.0.2.7:80", False),
        ("http://0.0.0.0:80", "0.0.0.0:80", False),
    ],
)
def test_an_address_says_whether_it_is_this_machines(url: str, wire: str, own: bool) -> None:
    found = address(url)
    assert (found.wire, found.own) == (wire, own)


NO_ADDRESSES = (
    "127.0.0.1:80 http:// http://user@127.0.0.1 http://127.0.0.1:99999 ftp://127.0.0.1 http://127.0.0.1?x"
)


@pytest.mark.parametrize("url", ["", *NO_ADDRESSES.split()])
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(AddressProblem):
        address(url)


def test_a_server_without_an_address_is_refused_and_the_command_line_gives_one() -> None:
    study = read('servers = { old = "http://127.0.0.1:1" }')
    with pytest.raises(RequestError, match='server "new" has no address'):
        resolve(study, root=False)
    study = with_servers(study, {"new": "http://127.0.0.1:2", "old": "http://127.0.0.1:3"}, trust=False)
    assert dict(work_of(study).servers) == {"old": "http://127.0.0.1:3", "new": "http://127.0.0.1:2"}
    resolve(study, root=False)
    with pytest.raises(RequestError, match='asks no server "other"') as caught:
        with_servers(study, {"other": "http://127.0.0.1:2"}, trust=False)
    assert caught.value.hint == "it asks new, old"


def test_another_machine_needs_trust_whoever_names_it() -> None:
    study = read('servers = { old = "http://192.0.2.7:80", new = "http://127.0.0.1:1" }')
    assert demands(study) == (
        'workload "pages" asks server "old", which is not on this machine (http://192.0.2.7:80)',
    )
    with pytest.raises(RequestError, match="not trusted"):
        resolve(study, root=False)
    shipped = replace(read('servers = { new = "http://127.0.0.1:1" }'), trusted=True)
    with pytest.raises(RequestError, match="is not on this machine") as caught:
        with_servers(shipped, {"old": "http://192.0.2.7:80"}, trust=False)
    assert "--trust" in str(caught.value.hint)
    with_servers(shipped, {"old": "http://192.0.2.7:80"}, trust=True)


def test_a_server_that_is_a_shell_or_a_text_for_an_interpreter_needs_trust(tmp_path: Path) -> None:
    assert demands(read('serve = ["nginx", "-p", "{site}", "{port}"]\n')) == ()
    assert "starts a shell (sh)" in demands(read('serve = ["sh", "-c", "x {port}"]\n'))[0]
    (tmp_path / "site.php").write_text("<?php\n")
    (tmp_path / "mine.toml").write_text(
        STUDY + 'serve = ["php", "-S", "{address}"]\nmake = ["php"]\nmake_file = "site.php"\n'
    )
    study = load(tmp_path / "mine.toml")
    assert work_of(study).make_input == "<?php\n"
    assert "has php run a text of the study" in demands(study)[0]
    assert "make_input" in study.text  # what is stored stands alone
    assert "make_file" not in study.text


def test_where_the_browser_is_missing_its_workload_is_left_out_with_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = catalogue.find("application/opcode-cache")
    monkeypatch.setattr(optional.shutil, "which", lambda *_, **__: None)
    kept, notes = optional.without_missing(study)
    assert [w.name for w in kept.workloads] == ["one-client"]
    assert {r.workload for r in kept.responses} == {"one-client"}
    assert all(claim.workload == "one-client" for claim in kept.claims)
    assert notes == ["workload browsers is left out: chromium is not installed (apt-get install chromium)"]
    alone = replace(study, workloads=study.workloads[1:])
    assert optional.without_missing(alone) == (alone, [])
    assert MissingTool  # and then refused by its name, as any program is


# what reports make of it

OLD = [100_000_000, 200_000_000, 400_000_000, 50_000_000]
RATIOS = [0.5, 0.25, 1.0, 2.0]


def trial(bodies: dict[str, list[str]], *, varied: tuple[int, ...] = ()) -> TrialData:
    """Three blocks in which everything is slower from block to block, so that only pairs tell the ratio."""
    study = read('servers = { old = "http://127.0.0.1:1", new = "http://127.0.0.1:2" }')
    runs, blocks = [], []
    for block, drift in enumerate((1, 3, 9)):
        seen = []
        for slot, arm in enumerate(("old", "new")):
            ratios = [1.0] * 4 if arm == "old" else RATIOS
            times = [drift * round(ns * ratio) for ns, ratio in zip(OLD, ratios, strict=True)]
            told = {"response_ns": times, "body": bodies[arm], "varied": list(varied) if arm == "old" else []}
            kind, treatment = ArmKind.TREATMENT, {"server": arm}
            total = {"response_time": sum(times) / 1e9}
            run = RunRecord("workload=pages", block, slot, arm, kind.value, treatment, 1.0, responses=total)
            runs.append(replace(run, checks={"pages": told}))
            seen.append(Observation(arm, kind, treatment, slot, 1.0, total))
        blocks.append(ObservedBlock("workload=pages", block, tuple(seen)))
    header = TrialHeader(
        "0" * 32, study, "0" * 32, False, 0.05, 0.03, "2026-01-01T00:00:00+00:00", {}, {}, {}, "0"
    )
    return TrialData(StoredTrial(1, header, TrialState.DONE, 1.0), tuple(blocks), tuple(runs), ())


SAME = {"old": list("abcd"), "new": list("abcd")}


def test_pages_are_compared_within_blocks_and_sorted_by_what_they_gain() -> None:
    data = trial(SAME)
    (panel,) = pages_of(data, Conditions(data.trial.header.study))
    assert (panel.reference, panel.level, panel.blocks) == ("old", "new", 3)
    assert [page.page for page in panel.pages] == ["/a/9?x=1", "/", "/a/10?x=1", "/a/11?x=1"]
    assert all(math.isclose(p.ratio, r) for p, r in zip(panel.pages, [0.25, 0.5, 1.0, 2.0], strict=True))
    assert panel.pages[0].reference_s == pytest.approx(3 * 0.2)  # the median over the blocks
    gains, losses = extremes(panel, 1)
    assert ([page.page for page in gains], [page.page for page in losses]) == (["/a/9?x=1"], ["/a/11?x=1"])
    (figure,) = page_figures((panel,), arms_of(data))
    assert "<svg" in figure.drawing.inline
    assert "4 pages, medians of 3 blocks; new: 2 of them come faster than at old" in figure.sentence


def test_a_page_that_is_another_one_at_a_level_is_told() -> None:
    data = trial({"old": list("abcd"), "new": list("aBcD")})
    conditions = Conditions(data.trial.header.study)
    assert list(sentences(unlike_of(data, conditions))) == [
        "The pages differ: at new the bodies of 2 of 4 pages are not what they are at old: /a/9?x=1 and /a/11?x=1."
    ]
    assert not list(sentences(unlike_of(trial(SAME), conditions)))


def test_a_page_that_changes_by_itself_accuses_nobody() -> None:
    data = trial({"old": list("abcd"), "new": list("aBcd")}, varied=(1,))
    (said,) = sentences(unlike_of(data, Conditions(data.trial.header.study)))
    assert said.startswith("1 of 4 pages were not the same twice at old (/a/9?x=1)")
    assert "ignore" in said


@pytest.mark.parametrize(
    "told",
    [
        None,
        {"response_ns": "x", "body": [], "varied": []},
        {"response_ns": [1], "body": [], "varied": []},
        {"response_ns": [-1.0], "body": ["a"], "varied": []},
        {"response_ns": [float("inf")], "body": ["a"], "varied": []},
        {"response_ns": [1], "body": [7], "varied": []},
        {"response_ns": [1] * 99, "body": ["a"] * 99, "varied": [10**9, "x"]},
    ],
)
def test_what_a_packed_trial_may_say_instead_draws_nothing(told: object) -> None:
    data = trial(SAME)
    runs = tuple(replace(run, checks={"pages": told}) for run in data.runs)
    assert pages_of(replace(data, runs=runs), Conditions(data.trial.header.study)) == ()
