"""What power cuts left: the interval of a share, the stored record, the report, choices, and the checks of works."""

from __future__ import annotations

import io
import itertools
import json
import sqlite3
import sys
import zlib
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from report_fixtures import document, effect, factor, study
from scipy.stats import beta, binom, binomtest, rankdata, t
from store_examples import header

from iotrial.errors import LabError, StoreError, StudyError
from iotrial.knobs.declaration import Safety
from iotrial.powercut.checking import run_checker
from iotrial.report.best import confirmation_finding, harmed
from iotrial.report.document import Document, build_document
from iotrial.report.durability import measured_risks, verdict_of
from iotrial.report.jsonreport import report_json
from iotrial.report.render import html_report, markdown_report, print_report
from iotrial.report.text import Console
from iotrial.runner.durability_pass import TICK, _Timed
from iotrial.stats.model import Verdict
from iotrial.stats.proportion import Proportion, over_runs, p_of_more
from iotrial.store import Store
from iotrial.store.event_records import NOT_CUT, power_cuts_of, power_cuts_text
from iotrial.store.model import PowerCuts, TrialState
from iotrial.store.packed import read_packed
from iotrial.study.model import Design, DesignKind, Factor, Level, Role, Setting, Study
from iotrial.study.reader import read_study
from iotrial.study.work import LabContext, Recovered
from iotrial.tune.choice import chosen, selected
from iotrial.workloads.command import CommandWork
from iotrial.workloads.database import DatabaseWork
from iotrial.workloads.databases import rows
from iotrial.workloads.files import FilesWork
from values import replace

ROOT = Path(__file__).parents[2]
CONDITION = "workload=probe"


def cuts(arm: str = "off", **changes: object) -> PowerCuts:
    plain = PowerCuts(
        condition=CONDITION,
        arm=arm,
        treatment={"mode": arm},
        repetition=0,
        points=200,
        lossy=0,
        corrupt=0,
        needs_fsck=0,
        unmountable=0,
        acknowledged=40,
        most_lost=0,
        requests=900,
        flushes=80,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def several(*lossy: int, arm: str = "off", points: int = 33) -> list[PowerCuts]:
    """Return the power cuts of several runs, by their lossy points."""
    return [cuts(arm, lossy=count, points=points, repetition=run) for run, count in enumerate(lossy)]


# -- the share of cut points


@pytest.mark.parametrize(("count", "total"), [(1, 1), (1, 7), (37, 100), (199, 200), (200, 200), (3, 5000)])
def test_the_interval_is_that_of_scipy(count: int, total: int) -> None:
    exact = binomtest(count, total).proportion_ci(0.95, "exact")
    assert Proportion(count, total).interval == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize("total", [1, 20, 200, 10_000])
def test_where_nothing_happened_the_limit_is_the_one_sided_one(total: int) -> None:
    low, high = Proportion(0, total).interval
    assert low == 0.0
    # at the limit, seeing none in so many cases has a probability of 5 %
    assert (1.0 - high) ** total == pytest.approx(0.05, rel=1e-9)


@pytest.mark.parametrize(("count", "total"), [(2, 1), (-1, 3), (0, 0)])
def test_a_share_of_impossible_counts_is_refused(count: int, total: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        Proportion(count, total)


@pytest.mark.parametrize("counts", [(3, 5, 4, 4, 3, 5), (0, 9, 1, 0, 12, 2), (30, 0, 0, 1, 0, 0)])
def test_the_interval_over_runs_is_that_of_korn_and_graubard(counts: tuple[int, ...]) -> None:
    """With the variance of a mean over runs of equal size, and scipy's distributions."""
    points, runs = 33, len(counts)
    shares = np.array(counts) / points
    share, cases = float(shares.mean()), points * runs
    effective = share * (1 - share) / (shares.var(ddof=1) / runs)
    effective *= (t.ppf(0.975, cases - 1) / t.ppf(0.975, runs - 1)) ** 2
    effective = min(effective, cases)
    count = share * effective
    low = beta.ppf(0.025, count, effective - count + 1)
    high = beta.ppf(0.975, count + 1, effective - count)
    assert over_runs([Proportion(one, points) for one in counts]) == pytest.approx((low, high), abs=1e-9)


def test_the_interval_over_runs_is_never_narrower_than_that_of_the_points() -> None:
    exact = binomtest(24, 198).proportion_ci(0.95, "exact")
    low, high = over_runs([Proportion(4, 33)] * 6)
    assert low < exact.low
    assert high > exact.high
    assert over_runs([Proportion(0, 33)] * 6) == Proportion(0, 198).interval


@pytest.mark.parametrize(
    ("runs", "others"),
    [((5, 6, 7), (1, 2)), ((0, 1, 0, 3), (0, 0, 1)), ((2, 2), (2, 2)), ((0, 0, 1), (4, 5, 0))],
)
def test_runs_are_compared_as_enumeration_compares_them(
    runs: tuple[int, ...], others: tuple[int, ...]
) -> None:
    ranks = rankdata([*runs, *others])
    sums = [sum(ranks[list(chosen)]) for chosen in itertools.combinations(range(len(ranks)), len(runs))]
    expected = np.mean([one >= sum(ranks[: len(runs)]) for one in sums])
    found = p_of_more([Proportion(n, 9) for n in runs], [Proportion(n, 9) for n in others])
    assert found == pytest.approx(expected)


def test_six_runs_that_all_do_more_are_one_of_924_divisions() -> None:
    assert p_of_more([Proportion(9, 33)] * 6, [Proportion(0, 33)] * 6) == pytest.approx(1 / 924)


# -- stored and packed


def test_power_cuts_come_back_from_the_store_and_from_a_packed_trial(tmp_path: Path) -> None:
    one, other = cuts("a", lossy=3, most_lost=2, examples=("lost: row 7",)), cuts("b")
    with Store.open(tmp_path / "s.db") as store:
        made = store.create_trial(header())
        name = made.header.id
        store.append_power_cuts(name, one)
        store.append_power_cuts(name, other)
        store.note(name, NOT_CUT, "no root")
        store.set_state(name, TrialState.DONE)
        data = store.data(name)
        assert store.power_cuts(name) == (one, other)
        file = io.BytesIO()
        store.pack(name, file)
    assert (data.cuts, data.not_cut) == ((one, other), ("no root",))
    file.seek(0)
    with Store.open(tmp_path / "other.db") as elsewhere:
        again = elsewhere.data(elsewhere.unpack(read_packed(file, "x"), source="x").number)
    assert (again.cuts, again.not_cut) == ((one, other), ("no root",))


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "[]",
        "{}",
        power_cuts_text(cuts()).replace('"points":200', '"points":0'),
        power_cuts_text(cuts()).replace('"lossy":0', '"lossy":201'),
        power_cuts_text(cuts()).replace('"corrupt":0', '"corrupt":-1'),
        power_cuts_text(cuts()).replace('"most_lost":0', '"most_lost":41'),
        power_cuts_text(cuts()).replace('"arm":"off"', '"arm":7'),
        "[" * 100_000,
    ],
)
def test_a_damaged_record_is_refused(damaged: str) -> None:
    with pytest.raises(StoreError, match="damaged"):
        power_cuts_of(damaged)


# -- in words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lossy": 37, "points": 100}, "loses acknowledged writes at 37 of 100 cut points [28 %, 47 %]"),
        ({"corrupt": 1, "points": 100}, "is corrupt at 1 of 100 cut points [0.025 %, 5.4 %]"),
        ({"points": 100}, "loses nothing at 100 cut points (95 %: at most 3 %)"),
        (
            {"needs_fsck": 4, "unmountable": 1},
            "loses nothing at 200 cut points (95 %: at most 1.5 %), needs fsck at 4, 1 of them before it mounts",
        ),
        ({"acknowledged": 0}, "had acknowledged nothing by 200 cut points"),
    ],
)
def test_a_verdict_says_how_often_and_how_sure(changes: dict[str, object], words: str) -> None:
    assert verdict_of([cuts(**changes)]) == words


def test_a_verdict_over_several_runs_has_the_run_as_its_unit() -> None:
    """Six runs of 33 points, of which one loses 30 and the others none: hardly anything is known of further runs."""
    text = verdict_of(several(30, 0, 0, 0, 0, 0))
    assert text.startswith("loses acknowledged writes at 30 of 198 cut points of 6 runs [")
    low, high = over_runs([Proportion(n, 33) for n in (30, 0, 0, 0, 0, 0)])
    exact = binomtest(30, 198).proportion_ci(0.95, "exact")
    assert low < exact.low / 2
    assert high > 2 * exact.high
    assert verdict_of(several(0, 0, 0, 0, 0, 0)) == (
        "loses nothing at 198 cut points of 6 runs (95 %: at most 1.5 %)"
    )


def of_mode() -> Study:
    off = Level("off", (Setting("mount.option", "commit=30"),))
    on = Level("on", (Setting("mount.option", "commit=5"),))
    return study(treatment=Factor("mode", Role.TREATMENT, (on, off), "on", ("on", "off")), conditions=())


def with_cuts(*found: PowerCuts, verdict: Verdict = Verdict.FASTER, value: float = 0.6) -> Document:
    plain = document(
        [effect(verdict, value, value * 0.98, value * 1.02, level="off", reference="on")],
        of=of_mode(),
        runs={"conditions": [{}]},
        control=(),
    )
    return build_document(replace(plain.data, cuts=found), plain.analysis)


LOSER = (cuts("on"), cuts("off", lossy=74, most_lost=3, examples=("lost: row 7",)))


def test_a_faster_level_that_loses_data_is_named_in_the_headline_with_how_often() -> None:
    found = with_cuts(*LOSER)
    assert found.summary.headline.endswith(
        "Caution: the faster mode off loses acknowledged writes at 74 of 200 cut points [30 %, 44 %]."
    )
    assert found.effects[0].risk == "loses data"
    harmless = with_cuts(cuts("on"), cuts("off"))
    assert "Caution" not in harmless.summary.headline
    assert harmless.effects[0].risk == ""


def test_every_format_shows_the_counts_beside_the_speed() -> None:
    found = with_cuts(*LOSER)
    out = io.StringIO()
    print_report(found, Console(file=out, width=200))
    assert "off loses acknowledged writes at 74 of 200 cut points" in out.getvalue()
    assert "on: nothing acknowledged was lost at 200 cut points" in out.getvalue()
    for text in (markdown_report(found), html_report(found)):
        assert "After a power cut" in text
        assert "Nothing lost is not a proof" in text
    assert "lost: row 7" in html_report(found)


def test_the_json_report_has_the_counts_and_fits_its_schema() -> None:
    body = json.loads(json.dumps(report_json(with_cuts(*LOSER))))
    jsonschema.validate(body, json.loads((ROOT / "schemas/report.schema.json").read_text()))
    on, off = body["durability"]
    assert (on["treatment"], on["lossy"], on["points"]) == ("on", 0, 200)
    assert (off["treatment"], off["lossy"], off["most_lost"]) == ("off", 74, 3)
    exact = binomtest(74, 200).proportion_ci(0.95, "exact")
    assert (off["lossy_low"], off["lossy_high"]) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert "durability" not in report_json(with_cuts())


def test_a_level_that_loses_as_its_reference_does_is_no_risk_of_its_own() -> None:
    both = (cuts("on", lossy=70), cuts("off", lossy=74))
    assert measured_risks(both, of_mode()) == {}
    more = (cuts("on", lossy=10), cuts("off", lossy=150))  # single runs, as in trials of earlier versions
    assert list(measured_risks(more, of_mode())["mode"]) == ["off"]


def test_one_lossy_point_against_none_is_no_risk_of_the_level() -> None:
    """Neither of single runs, nor of several: one of six runs has it by chance in every second case."""
    assert measured_risks((cuts("on"), cuts("off", lossy=1)), of_mode()) == {}
    assert measured_risks((cuts("on", lossy=1), cuts("off")), of_mode()) == {}
    runs = (*several(0, 0, 0, 0, 0, 0, arm="on"), *several(0, 0, 1, 0, 0, 0))
    assert measured_risks(runs, of_mode()) == {}


def test_runs_that_all_lose_against_runs_that_do_not_are_a_risk_of_the_level() -> None:
    on, off = several(0, 0, 0, 0, 0, 0, arm="on"), several(9, 12, 4, 8, 20, 3)
    assert list(measured_risks((*on, *off), of_mode())["mode"]) == ["off"]
    worse = several(20, 25, 19, 22, 30, 21)
    reference = several(1, 2, 0, 3, 1, 1, arm="on")
    assert list(measured_risks((*reference, *worse), of_mode())["mode"]) == ["off"]
    assert list(
        measured_risks((*several(9, 12, 4, 8, 20, 3, arm="on"), *several(0, 0, 0, 0, 0, 0)), of_mode())[
            "mode"
        ]
    ) == ["on"]


def test_a_run_with_bad_luck_is_no_risk_however_many_of_its_points_lose() -> None:
    runs = (*several(0, 0, 0, 0, 0, 0, arm="on"), *several(0, 30, 0, 0, 0, 0))
    assert measured_risks(runs, of_mode()) == {}


def test_arms_that_are_alike_are_called_worse_in_at_most_five_per_cent() -> None:
    """Points of a run share its luck (correlation .3); by points the rate is above .5."""
    rng = np.random.default_rng()
    trials, wrong = 150, 0
    for _ in range(trials):
        on, off = rng.binomial(33, rng.beta(0.3 * 7 / 3, 0.7 * 7 / 3, (2, 6)))
        runs = (*several(*on.tolist(), arm="on"), *several(*off.tolist()))
        wrong += bool(measured_risks(runs, of_mode()))
    assert wrong <= binom.ppf(1 - 1e-5, trials, 0.05)


def test_a_reference_that_loses_where_another_level_does_not_is_a_risk() -> None:
    found = measured_risks((cuts("on", corrupt=9), cuts("off")), of_mode())
    assert list(found["mode"]) == ["on"]


def test_arms_of_several_factors_are_judged_where_only_one_level_differs() -> None:
    first = factor("mode", ["on", "off"], role=Role.TREATMENT)
    second = factor("size", ["small", "large"], role=Role.TREATMENT)
    crossed = replace(study(treatment=first, conditions=()), factors=(first, second))
    arms = [
        replace(cuts(f"{mode} {size}"), treatment={"mode": mode, "size": size}, lossy=50 * (size == "large"))
        for mode in ("on", "off")
        for size in ("small", "large")
    ]
    found = measured_risks(arms, crossed)
    assert {name: list(levels) for name, levels in found.items()} == {"size": ["large"]}


# -- choices


def test_a_setting_that_loses_data_is_applied_only_if_named() -> None:
    safe, loser = chosen(with_cuts(cuts("on"), cuts("off"))), chosen(with_cuts(*LOSER))
    assert [one.safety for one in safe.choices] == [Safety.TRADE_OFF]
    assert "loses nothing at 200 cut points" in safe.choices[0].consequence
    assert len(selected(safe, []).choices) == 1
    assert [one.safety for one in loser.choices] == [Safety.DATA_AT_RISK]
    left = selected(loser, [])
    assert left.choices == ()
    assert "loses acknowledged writes at 74 of 200" in left.left_out[0].reason
    assert len(selected(loser, ["mount.option"]).choices) == 1


@pytest.mark.parametrize(
    ("option", "found", "words"),
    [
        ("commit=30", LOSER, "keep today's settings: with mount.option commit=30"),
        ("commit=30", (cuts("on"), cuts("off")), "use mount.option commit=30"),
        ("commit=30", (), "use mount.option commit=30"),
        # what is declared to put data at risk takes part only if the user has named it
        ("nobarrier", LOSER, "use mount.option nobarrier"),
    ],
)
def test_best_keeps_todays_settings_where_the_winner_loses_data(
    option: str, found: tuple[PowerCuts, ...], words: str
) -> None:
    off = Level("off", (Setting("mount.option", option),))
    on = Level("on", (Setting("mount.option", "default"),))
    mode = Factor("mode", Role.TREATMENT, (on, off), "on", ("on", "off"))
    of = replace(study(treatment=mode, conditions=()), design=Design(kind=DesignKind.CONFIRM))
    effects = [effect(Verdict.FASTER, 0.6, 0.59, 0.61, level="off", reference="on")]
    measured = measured_risks(found, of)
    assert confirmation_finding(effects, of, measured).startswith(words)
    assert (harmed(effects, of, measured) is not None) == words.startswith("keep")


# -- the keys of a study

CHECKED = """
[study]
name = "checked"
question = "Is it still there?"
check = true
cut_points = 7
[[factor]]
name = "barrier"
knob = "mount.option"
levels = ["default", "nobarrier"]
[[workload]]
name = "w"
"""
FILES = 'kind = "files"\noperations = ["create", "write-all", "fsync", "close", "unlink"]\n'


def test_a_study_declares_that_its_work_is_checked() -> None:
    found = read_study(CHECKED + FILES, "s.toml", trusted=True)
    assert (found.check, found.cut_points) == (True, 7)
    plain = read_study(CHECKED.replace("check = true\ncut_points = 7\n", "") + FILES, "s.toml", trusted=True)
    assert (plain.check, plain.cut_points) == (False, 100)


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ('kind = "files"\noperations = ["create", "write-all", "close", "unlink"]\n', "can be checked"),
        ('kind = "command"\nargv = ["true"]\n', "can be checked"),
        ('kind = "database"\nengine = "sqlite"\ntest = "count"\n', "can be checked"),
        ('kind = "command"\nargv = ["true"]\nchecker = ["cat", "{file}"]\n', "folders, not files"),
        ('kind = "command"\nargv = ["true"]\nchecker = [" "]\n', "cannot be empty"),
    ],
)
def test_a_study_without_anything_to_check_is_refused_with_what_to_do(workload: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        read_study(CHECKED + workload, "s.toml", trusted=True)


@pytest.mark.parametrize("points", ["0", "100001", '"many"'])
def test_impossible_numbers_of_cut_points_are_refused(points: str) -> None:
    with pytest.raises(StudyError, match="cut_points"):
        read_study(
            CHECKED.replace("cut_points = 7", f"cut_points = {points}") + FILES, "s.toml", trusted=True
        )


# -- what works look for


def recovered(tree: Path, *acknowledged: str, **lab: object) -> Recovered:
    context = LabContext(target=None, root=str(tree), files=str(tree / "set"), **lab)  # type: ignore[arg-type]
    return Recovered(context, "/run/iotrial/ext4", str(tree / "out"), acknowledged)


def kept(data: bytes, path: str) -> str:
    return f"+ {len(data)} {zlib.crc32(data):08x} /run/iotrial/ext4/{path}"


def test_a_synced_file_must_be_there_whole_until_it_is_changed_again(tmp_path: Path) -> None:
    work = FilesWork(operations=("create", "write-all", "fsync", "close", "unlink"))
    for name, data in {"whole": b"whole", "short": b"sh", "other": b"xxxxx"}.items():
        (tmp_path / name).write_bytes(data)
    marks = [kept(b"whole", "whole"), kept(b"short", "short"), kept(b"other", "other"), kept(b"gone", "gone")]
    found = work.damage(recovered(tmp_path, *marks))
    assert [text.split(":")[0].rpartition("/")[2] for text in found.lost] == ["short", "gone"]
    assert [text.split(":")[0].rpartition("/")[2] for text in found.corrupt] == ["other"]
    assert work.items([*marks, "- /run/iotrial/ext4/gone"]) == 4
    withdrawn = [*marks, *(f"- /run/iotrial/ext4/{name}" for name in ("short", "other", "gone"))]
    assert work.damage(recovered(tmp_path, *withdrawn)) == work.damage(recovered(tmp_path))


def sqlite(tmp_path: Path, present: range) -> DatabaseWork:
    work = DatabaseWork(engine="sqlite", test="insert-small", rows=1000, changed=5)
    folder = tmp_path / "own" / "sqlite-1000"
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "data.sqlite") as connection:
        connection.execute(rows.create_sql("INTEGER"))
        connection.executemany(
            f"INSERT INTO {rows.TABLE} VALUES (?, ?, ?, ?, ?)", [rows.row(i) for i in present]
        )
    connection.close()
    return work


def test_committed_rows_must_be_in_the_database_with_their_values(tmp_path: Path) -> None:
    work = sqlite(tmp_path, range(1, 1004))
    assert work.damage(recovered(tmp_path, "1001", "1002", "1003")).lost == ()
    assert work.damage(recovered(tmp_path, "1001-1005")).lost == ("row 1004", "row 1005")
    with sqlite3.connect(tmp_path / "own" / "sqlite-1000" / "data.sqlite") as connection:
        connection.execute(f"UPDATE {rows.TABLE} SET amount = amount + 1 WHERE id = 1002")
        connection.execute(f"DELETE FROM {rows.TABLE} WHERE id = 3")
    connection.close()
    found = work.damage(recovered(tmp_path, "1001"))
    assert found.lost == ()
    assert "row 1002" in found.corrupt[0]
    assert "1 of the 1000 rows" in found.corrupt[1]


def test_a_database_that_sqlite_calls_malformed_is_corrupt(tmp_path: Path) -> None:
    work = sqlite(tmp_path, range(1, 1004))
    path = tmp_path / "own" / "sqlite-1000" / "data.sqlite"
    data = bytearray(path.read_bytes())
    data[8192:16384] = bytes(8192)
    path.write_bytes(data)
    assert "SQLite" in work.damage(recovered(tmp_path, "1001")).corrupt[0]
    path.unlink()
    assert "no such file" in work.damage(recovered(tmp_path, "1001")).corrupt[0]


def test_each_row_is_acknowledged_after_its_own_commit() -> None:
    small = DatabaseWork(
        engine="sqlite", test="insert-small", rows=1000, changed=3, commit="normal", journal="wal"
    )
    job = small.acknowledging({"steps": [], "stdin": "", "cwd": "/"}, "/marks")
    assert [part.split()[-1] for part in job["dialog"]] == ["1001';", "1002';", "1003';"]
    for part in job["dialog"]:
        assert [line.split()[0] for line in part.splitlines()[-2:]] == ["INSERT", "SELECT"]
    assert "PRAGMA synchronous = NORMAL" in job["dialog"][0]
    assert "PRAGMA journal_mode = WAL" in job["dialog"][0]
    assert job["acknowledge"] == "/marks"
    (bulk,) = replace(small, test="insert-bulk").acknowledging({"steps": []}, "/marks")["dialog"]
    assert bulk.splitlines()[-2:] == ["COMMIT;", "SELECT 'acknowledged 1001-1003';"]


@pytest.mark.parametrize(
    ("engine", "commit"),
    [("sqlite", "2"), ("mariadb", "full"), ("postgresql", "extra"), ("sqlite", "nonsense")],
)
def test_a_way_to_commit_that_an_engine_does_not_have_is_refused(engine: str, commit: str) -> None:
    workload = f'kind = "database"\nengine = "{engine}"\ntest = "insert-small"\ncommit = "{commit}"\n'
    with pytest.raises(StudyError, match="no commit of"):
        read_study(CHECKED + workload, "s.toml", trusted=True)


# -- a study's own checker


def check(script: str, *acknowledged: str, folder: Path) -> object:
    return run_checker(
        [sys.executable, "-c", script, "{out}", "{acknowledged}"],
        {"{out}": str(folder)},
        acknowledged,
        cwd=str(folder),
        environment={},
        stdin="",
        user=None,
    )


def test_a_checker_gets_the_folder_and_the_items_and_its_lines_are_what_it_found(tmp_path: Path) -> None:
    script = (
        "import sys\nfor item in open(sys.argv[2]):\n    print('lost', item.strip(), 'in', sys.argv[1])\n"
        "print('corrupt index')\nprint('a remark')"
    )
    found = check(script, "one", "two", folder=tmp_path)
    assert found.lost == (f"one in {tmp_path}", f"two in {tmp_path}")  # type: ignore[attr-defined]
    assert found.corrupt == ("index",)  # type: ignore[attr-defined]


def test_status_1_alone_is_corrupt_and_any_other_is_a_failure_of_the_check(tmp_path: Path) -> None:
    found = check("import sys; sys.exit('bad index')", folder=tmp_path)
    assert found.corrupt == ("bad index",)  # type: ignore[attr-defined]
    with pytest.raises(LabError, match="status 2"):
        check("raise SystemExit(2)", folder=tmp_path)
    with pytest.raises(LabError, match="cannot be started"):
        run_checker(["/no/such/program"], {}, [], cwd="/", environment={}, stdin="", user=None)


def test_a_command_is_told_where_to_acknowledge_and_its_checker_is_run_like_its_programs(
    tmp_path: Path,
) -> None:
    (tmp_path / "out").mkdir()
    work = CommandWork(
        steps=(),
        checker=("sh", "-c", 'test -d "$1" && cat - "$2"', "-", "{out}", "{acknowledged}"),
        stdin="lost x\n",
    )
    job = work.acknowledging({"environment": {"A": "b"}}, "/the/socket")
    assert job["environment"] == {"A": "b", "IOTRIAL_MARKS": "/the/socket"}
    found = work.damage(recovered(tmp_path, "corrupt y"))
    assert (found.lost, found.corrupt) == (("x",), ("y",))
    assert work.named_programs() == ("sh",)
    assert not CommandWork(steps=()).checks()


# -- acknowledgements from a guest, by its clock


def test_an_acknowledgement_counts_late_and_what_takes_it_back_counts_early() -> None:
    ms = 1_000_000
    timed = _Timed(((10 * ms, False, "+ a"), (26 * ms, True, "- a")), off_ns=2 * ms)
    every = [f"{TICK}{at * ms}" for at in (5, 11, 12, 17, 23, 29)]
    seen = [timed.before(every[:count], every) for count in range(len(every) + 1)]
    # at 10 ms, 2 ms uncertain: certainly made at the tick of 12 ms, the third
    # perhaps taken back at 24 ms: the power may have been cut as late as that where the second tick to come is at 29 ms
    assert seen == [(), (), (), ("+ a",), ("+ a", "- a"), ("+ a", "- a"), ("+ a", "- a")]
