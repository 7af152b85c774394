"""``iotrial fleet list`` and ``fleet report``: which trials form a fleet, the results, and which hosts are left out."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from fleet_stores import FLEET, add_host
from rich.console import Console

from iotrial.cli import cli
from iotrial.errors import IotrialError, RequestError, UnknownName
from iotrial.fleet import summary
from iotrial.fleet.report.blocks import fleet_html, fleet_markdown, print_fleet
from iotrial.fleet.report.words import _covered, evidence_words, headline, host_verdict, note_of, spread_words
from iotrial.fleet.verdict import Fleet, FleetReport, chosen, fleet_report, fleets, report_of
from iotrial.report.opening import document_of
from iotrial.stats.fleet.model import Outlier
from iotrial.stats.model import Verdict
from iotrial.store import Store
from iotrial.store.model import TrialState
from iotrial.store.outline import Outline, _membership, outlines
from values import replace

SCHEMAS = Path(__file__).parents[2] / "schemas"
HOSTILE = 'a<script>alert(1)</script>\x1b[31m"&'
OTHER = "0dd" + "0" * 29
Verb = Callable[..., object]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Store seven valid hosts with two kernels, one of each kind that does not count, and another fleet of one host."""
    path = tmp_path_factory.mktemp("fleet") / "trials.db"
    with Store.open(path) as store:
        add_host(store, 0, fleet=OTHER, name="alone")
        for number, ratio in enumerate((0.80, 0.82, 0.79, 0.81, 0.83, 0.80, 0.78), start=1):
            add_host(
                store,
                number,
                ratio=ratio,
                facts={"kernel": "6.1" if number < 5 else "6.12"},
                name=f"h{number}",
            )
        add_host(store, 20, ratio=0.2, copy_slower=1.5, name="broken-controls")
        add_host(store, 21, ratio=0.2, state=TrialState.FAILED, reason="the disk is full", name="failed")
        add_host(store, 22, ratio=0.2, blocks=5, state=TrialState.INTERRUPTED, name="short")
        add_host(store, 23, ratio=0.2, failing=True, name="runs-failed")
        add_host(store, 24, ratio=0.2, state=TrialState.RUNNING, name=HOSTILE)
        add_host(store, 25, ratio=0.8, name="h7")  # a second trial of h7
    return path


@pytest.fixture(scope="module")
def report(stored: Path) -> FleetReport:
    return report_of(stored, FLEET)[0]


@pytest.fixture
def verb(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    monkeypatch.setenv("IOTRIAL_STORE", str(stored))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)
    return lambda *words: cli.main(list(words), prog_name="iotrial", standalone_mode=False)


def test_a_level_that_is_faster_on_average_and_puts_data_at_risk_is_not_praised_alone(
    report: FleetReport,
) -> None:
    (one, *_) = [
        one for one in report.comparisons if one.mean is not None and one.mean.verdict is Verdict.FASTER
    ]
    assert "at risk" not in headline(report)
    danger = {one.like.factor: {one.like.level: "a power cut may cost data"}}
    risky = replace(report, risks=danger)
    assert headline(risky).endswith("puts data at risk.")
    assert "a power cut may cost data." in " ".join(said(risky).split())
    assert 'class="badge risk"' in fleet_html(risky)
    assert 'class="badge risk"' not in fleet_html(report)
    # with several comparisons there is a table
    for marked, found in ((True, risky), (False, report)):
        several = replace(found, comparisons=(*found.comparisons, *found.comparisons))
        for text in (said(several, width=140), fleet_markdown(several).replace("⚠ ", "")):
            assert ("faster, data at risk" in text) is marked


def said(report: FleetReport, width: int = 80) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    print_fleet(report, console)
    return console.export_text()


def test_fleets_are_known_by_the_id_that_their_trials_carry(
    stored: Path, capsys: pytest.CaptureFixture[str], verb: Verb
) -> None:
    found = fleets(outlines(stored)[0])
    assert [(one.id, len(one.trials)) for one in found] == [(OTHER, 1), (FLEET, 12)]
    assert [one.member for one in found[1].replaced] == ["h7"]  # the older of two
    verb("fleet", "list", "--json")
    listed = json.loads(capsys.readouterr().out)
    jsonschema.validate(listed, json.loads((SCHEMAS / "fleet-list.schema.json").read_text()))
    assert [len(one["hosts"]) for one in listed["fleets"]] == [1, 12]
    verb("fleet", "list")
    assert "12 hosts" in capsys.readouterr().out


def test_a_fleet_is_named_by_the_beginning_of_its_id_or_is_the_newest(stored: Path) -> None:
    found = fleets(outlines(stored)[0])
    assert chosen(found, None).id == chosen(found, "last").id == chosen(found, "f1e").id == FLEET
    assert chosen(found, "0dd").id == OTHER
    with pytest.raises(UnknownName):
        chosen(found, "abc")
    with pytest.raises(RequestError, match="several"):
        chosen([*found, *found], "f1")
    with pytest.raises(RequestError, match="no fleet"):
        chosen([], None)


def test_a_store_without_a_fleet_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOTRIAL_STORE", str(tmp_path / "none.db"))
    with pytest.raises(RequestError, match="no fleet"):
        cli.main(["fleet", "report"], prog_name="iotrial", standalone_mode=False)


def test_the_mean_is_of_the_sound_hosts_and_every_other_has_its_reason(report: FleetReport) -> None:
    (one,) = report.comparisons
    reasons = {row.trial.host: row.why for row in one.rows if row.why is not None}
    assert reasons.keys() == {"broken-controls", "failed", "short", "runs-failed", HOSTILE}
    assert str(reasons["broken-controls"]).startswith(
        "invalid: wall finds a difference between identical arms"
    )
    assert reasons["failed"] == "failed: the disk is full"
    assert str(reasons["short"]).startswith("5 usable blocks")
    assert reasons["runs-failed"] == "runs failed"
    assert reasons[HOSTILE] == "still running"
    assert one.mean is not None
    assert one.mean.value == pytest.approx(0.805, abs=0.01)
    assert one.mean.verdict.value == "faster"
    assert one.found.evidence.hosts == 9  # valid hosts, including short or running ones
    assert headline(report).startswith("On average over 7 of 12 hosts, f b is faster than a: it takes 19")


def test_the_note_and_verdict_of_a_host_say_what_sets_it_apart(report: FleetReport) -> None:
    rows = {row.trial.host: row for row in report.comparisons[0].rows}
    assert note_of(rows["h1"]) == ""
    assert note_of(rows["short"]).endswith("; interrupted")
    for distance, side in ((4.0, "above"), (-4.0, "below")):
        far = replace(rows["h1"], outlier=Outlier("h1", distance, 0.001))
        assert note_of(far) == f"outlying: 4.0 SD {side} the others"
    assert [host_verdict(rows[name]) for name in ("h1", "broken-controls")] == ["faster", "no verdict"]


def test_the_spread_and_the_fewest_hosts_with_an_effect_are_said_in_ratios(report: FleetReport) -> None:
    (one,) = report.comparisons
    mean = replace(one.found.mean, spread=math.log(1.1), spread_low=math.log(1.02), spread_high=math.log(1.5))
    words = spread_words(replace(one, found=replace(one.found, mean=mean)))
    assert str(words).startswith("True effects differ between hosts by a factor of 1.1")
    evidence = replace(one.found.evidence, least_hosts_with_an_effect=3)
    assert "At least 3 of 9 hosts have one." in evidence_words(
        replace(one, found=replace(one.found, evidence=evidence))
    )


def test_a_host_s_effect_is_that_of_its_own_report(stored: Path, report: FleetReport) -> None:
    (one,) = report.comparisons
    row = next(row for row in one.rows if row.trial.host == "h3")
    with Store.open(stored, read_only=True) as store:
        document = document_of(store, row.trial.number)
    own = next(effect.effect for effect in document.primary if effect.effect.kind == "main")
    assert row.effect == own
    contrasts = [
        math.log(next(o for o in block.observations if o.arm == "b").responses["wall"])
        - math.log(next(o for o in block.observations if o.arm == "a").responses["wall"])
        for block in document.data.blocks
    ]
    assert row.part.estimate == pytest.approx(math.fsum(contrasts) / len(contrasts))


def test_what_was_summed_up_is_remembered_and_the_same(stored: Path, report: FleetReport) -> None:
    again, _ = report_of(stored, FLEET)
    assert again.comparisons[0].found == report.comparisons[0].found
    assert [one.effects for one in again.hosts] == [one.effects for one in report.hosts]


def test_the_terminal_gets_it_in_80_columns_without_what_steers_it(report: FleetReport) -> None:
    text = said(report)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b[31m" not in text
    assert "still running: the mean is provisional" in " ".join(text.split())
    assert text.startswith("On average over 7 of 12 hosts")


def test_json_keeps_its_schema(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    assert verb("fleet", "report", FLEET[:8], "--json") == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json.loads((SCHEMAS / "fleet-report.schema.json").read_text()))
    (one,) = found["comparisons"]
    assert one["verdict"] == "faster"
    assert one["averaged"] == 7
    assert sum(host["not_averaged"] is None for host in one["hosts"]) == 7
    assert 0.7 < one["mean"]["low"] < one["mean"]["ratio"] < one["mean"]["high"]
    assert one["mean"]["ratio"] == pytest.approx(0.805, abs=0.01)
    assert {host["host"]: host["verdict"] for host in one["hosts"]}["broken-controls"] is None
    valid = {host["host"]: host["valid"] for host in found["hosts"]}
    assert (valid["h1"], valid["broken-controls"]) == (True, False)
    assert {group["value"]: group["hosts"] for group in one["moderators"][0]["groups"]} == {
        "6.1": 5,
        "6.12": 2,
    }


class Tags(HTMLParser):
    """Collects the names of all elements, and everything that could load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.loads += [
            f"{tag} {name}={value}"
            for name, value in attrs
            if name.startswith("on")
            or (name in ("src", "href") and not (value or "").startswith(("#", "data:")))
        ]


def test_the_page_runs_nothing_loads_nothing_and_shows_labels_as_text(verb: Verb, tmp_path: Path) -> None:
    verb("fleet", "report", FLEET, "--html", "fleet.html", "--markdown", "fleet.md")
    page = (tmp_path / "fleet.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert "script" not in tags.names
    assert tags.loads == []
    assert "alert(1)" in page  # as plain text
    assert tags.names.count("svg") == 2
    markdown = (tmp_path / "fleet.md").read_text()
    assert "<script" not in markdown
    assert "broken-controls" in markdown


def test_standard_output_takes_either_markdown_or_json(verb: Verb) -> None:
    with pytest.raises(RequestError, match="exclude each other"):
        verb("fleet", "report", "--json", "--markdown", "-")


def test_one_host_is_no_mean_and_keeps_its_own_verdict(stored: Path) -> None:
    found, _ = report_of(stored, OTHER)
    assert headline(found) == "No verdict over hosts: 1 of 1 host counts, alone: faster."
    assert "faster" in said(found)
    assert "<svg" in fleet_html(found)


def test_a_thousand_hosts_stay_readable_those_that_need_a_look_first(report: FleetReport) -> None:
    sound = [row.trial for row in report.comparisons[0].averaged]
    bad = [row.trial for row in report.comparisons[0].rows if row.why is not None]
    many = [replace(sound[i % len(sound)], host=f"host{i:04d}", number=i) for i in range(995)] + bad
    found = fleet_report(Fleet(FLEET, ()), many)
    text = said(found)
    assert len(text.splitlines()) <= 40
    assert "broken-controls" in text
    first = re.search(r"host\d{4}", text)
    assert first is not None
    assert text.index("broken-controls") < first.start()
    assert "more hosts" in text
    page = fleet_html(found)
    look = page.partition("Hosts that need a look")[2].partition("</table>")[0]
    assert "broken-controls" in look
    assert "host0500" not in look
    assert page.count("host0500") == 1
    assert len(page) < 2_000_000
    assert len(fleet_markdown(found)) < 20_000


def test_a_trial_that_cannot_be_read_is_told_and_the_others_are_averaged(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with Store.open(path) as store:
        for number in range(1, 5):
            add_host(store, number, blocks=12)
    with sqlite3.connect(path) as connection:
        connection.executescript("DROP TRIGGER run_keeps_update; UPDATE run SET arm = 'zz' WHERE trial = 2;")
    connection.close()
    found, _ = report_of(path)
    (one,) = found.comparisons
    assert len(one.averaged) == 3
    (lost,) = [row for row in one.rows if row.why is not None]
    assert lost.trial.host == "h2"
    assert str(lost.why).startswith("cannot be read: trial 2 is damaged")


@pytest.mark.parametrize(
    "options",
    ["[1]", '{"id": 5, "host": "a"}', '{"id": "' + "g" * 32 + '", "host": "a"}', '{"id": "' + FLEET + '"}'],
)
def test_what_is_no_membership_makes_no_fleet(options: str) -> None:
    found = _membership(json.loads(options))
    one = Outline(number=1, id="x", fleet=found["fleet"], member=found["member"])
    assert fleets([one]) == ()


def test_the_help_names_both_parts(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    verb("fleet", "--help")
    assert re.search(r"list\s.*\n\s+report\s", capsys.readouterr().out)


@pytest.mark.slow
def test_many_trials_are_summed_up_by_several_processes_as_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trials.db"
    with Store.open(path) as store:
        asked = [(add_host(store, number, blocks=9), f"h{number}") for number in range(1, summary.FEWEST + 1)]
    asked.append((99, "lost"))  # no such trial
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    with Store.open(path, read_only=True) as store:
        together = list(summary.summaries(store, asked))
        monkeypatch.setattr("sys.executable", "/bin/false")  # dies at once: its share is done here
        left = list(summary.summaries(store, asked))
    assert together[:-1] == left[:-1]
    for found in (together, left):
        assert isinstance(found[-1], IotrialError)
        assert 'no trial is called "99"' in found[-1].message


def test_opposite_hosts_and_hosts_that_are_all_equivalent_are_said_to_be(tmp_path: Path) -> None:
    for name, ratios in (("apart", (0.9, 1.1)), ("same", (1.0, 1.001))):
        path = tmp_path / f"{name}.db"
        with Store.open(path) as store:
            for number, ratio in enumerate(ratios):
                add_host(store, number, ratio=ratio, blocks=40)
        text = " ".join(said(report_of(path)[0]).split())
        assert ("Hosts differ in direction, and" in text) is (name == "apart")
        assert ("is undecided" in text) is (name == "apart")
        assert ("That every host is equivalent is wrong with probability 0.05 at most" in text) is (
            name == "same"
        )
        assert "two hosts cannot predict a third" in text


def test_comparisons_of_several_workloads_are_told_apart_and_what_all_share_is_said_once(
    report: FleetReport,
) -> None:
    hosts = [
        replace(
            row.trial,
            effects=tuple(
                replace(effect, workload=workload, condition={"size": "10 KiB", "cache": cache})
                for effect in row.trial.effects
                for workload in ("probe", "md5sum")
                for cache in ("cold", "warm")
            ),
        )
        for row in report.comparisons[0].rows
    ]
    found = fleet_report(Fleet(FLEET, ()), hosts)
    assert headline(found) == "On average over 7 of 12 hosts, all 4 comparisons are faster."
    text, page, markdown = said(found), fleet_html(found), fleet_markdown(found)
    assert max(map(len, text.splitlines())) <= 80
    for place in ("workload probe, cache cold", "workload md5sum, cache warm"):
        assert place in " ".join(text.split())  # in the heading of the rows that all of them share
        assert place in page
        assert place in markdown
    assert text.count("10 KiB") == page.count("10 KiB") == markdown.count("10 KiB") == 1
    assert text.count("outlying host at") == 3  # hosts are listed for at most this many comparisons
    assert "Hosts of 1 further comparison" in text
    assert "Not averaged: 2 of 12 hosts" in " ".join(text.split())  # broken controls, and a full disk


def test_what_intervals_cannot_say_is_not_said_in_figures(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with Store.open(path) as store:
        for number, ratio in enumerate((0.2, 1.0, 5.0)):  # three such hosts say nothing about a fourth
            add_host(store, number, ratio=ratio, blocks=12)
    text = " ".join(said(report_of(path)[0]).split())
    assert "cannot be estimated from 3 hosts with intervals as wide as these" in text
    assert "Expected on another host like these" not in text


def test_a_level_says_what_is_left_of_a_hundred_per_cent() -> None:
    # 1 - .05, 1 - .05/4, 1 - .05/12 and 1 - .001/12 by hand
    told = {0.05: "95 %", 0.0125: "98.8 %", 0.05 / 12: "99.6 %", 0.001 / 12: "99.992 %"}
    assert {alpha: _covered(alpha) for alpha in told} == told


def test_one_host_with_another_margin_moves_nothing_that_the_others_are_judged_by(
    report: FleetReport,
) -> None:
    sound = [row.trial for row in report.comparisons[0].averaged]
    liar = replace(sound[0], host="0-liar", number=0, margin=0.5)  # with a margin of 50 % all is equal
    found = fleet_report(Fleet(FLEET, ()), [liar, *sound])
    assert found.margin == report.margin
    assert headline(found).startswith("On average over 7 of 8 hosts, f b is faster than a")
    assert [row.why for row in found.comparisons[0].rows if row.why] == [
        "invalid: its question or criteria differ from those of most hosts"
    ]
