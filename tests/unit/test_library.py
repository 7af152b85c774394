"""iotrial as a library: same numbers as in the packed file, parsed here independently, and no early imports."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import pkgutil
import sqlite3
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hostile_trial import STEERING, hostile_document
from markdown_it import MarkdownIt
from report_fixtures import all_equivalent
from report_fixtures import document as invalid_document
from store_examples import filled, header, planned_runs

import iotrial
from iotrial.library.effects import Controls
from iotrial.library.trial import FRAMES
from iotrial.store import Store
from iotrial.store.packed import open_packed, read_packed
from iotrial.store.states import TrialState
from values import replace

ROOT = Path(__file__).parents[2]
PACKED = ROOT / "docs" / "catalogue" / "block" / "readahead.iotrial"


@pytest.fixture(scope="module")
def trial() -> iotrial.Trial:
    return iotrial.open(PACKED)


@pytest.fixture(scope="module")
def lines() -> dict[str, list[dict[str, Any]]]:
    """Return the records of the packed file by kind, parsed by the format in docs/sharing.md."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in gzip.decompress(PACKED.read_bytes()).decode().splitlines():
        ((kind, record), *rest) = json.loads(line).items()
        if not rest:
            found[kind].append(record)
    return found


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "trials.db"
    with open_packed(PACKED) as file, Store.open(path) as store:
        store.unpack(read_packed(file, "it"), source="it")
    return path


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'pydantic', 'pandas', 'jinja2', 'sqlite3', 'rich', 'click', 'asyncio'}"
    done = python(f"import iotrial, sys; dir(iotrial); sys.exit(str({heavy} & set(sys.modules) or ''))")
    assert done.returncode in (0, 1)
    assert done.stderr.strip() == ""
    done = python(f"import iotrial, sys; iotrial.studies(); sys.exit(str({heavy} & set(sys.modules) or ''))")
    assert done.stderr.strip() == ""  # a list of studies prints nothing either


def test_no_public_name_is_that_of_a_module_which_would_take_its_place() -> None:
    modules = {module.name for module in pkgutil.iter_modules(iotrial.__path__)}
    assert not modules & set(iotrial.__all__)


def test_every_public_name_is_there_listed_and_documented() -> None:
    page = (ROOT / "docs" / "library.md").read_text()
    for name in iotrial.__all__:
        value = getattr(iotrial, name)
        assert name in dir(iotrial)
        assert f"`{name}" in page or f".{name}(" in page, f"docs/library.md does not name {name}"
        if name != "__version__":
            assert value.__doc__, f"{name} has no documentation"
            for inner, member in vars(value).items() if isinstance(value, type) else ():
                if not inner.startswith("_") and (callable(member) or isinstance(member, property)):
                    assert member.__doc__, f"{name}.{inner} has no documentation"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        iotrial.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_runs_are_those_of_the_file(trial: iotrial.Trial, lines: dict[str, list[dict[str, Any]]]) -> None:
    assert len(trial.runs) == len(lines["run"])
    for run, record in zip(trial.runs, lines["run"], strict=True):
        assert (run.block, run.slot, run.arm, run.kind) == (
            record["block"], record["slot"], record["arm"], record["kind"],
        )  # fmt: skip
        assert run.responses == record["responses"]
        assert run.counters.items() >= record["evidence"].items()
        assert run.started_s == record["started_s"]
    assert trial.id == lines["trial"][0]["id"]
    assert trial.seed == lines["trial"][0]["seed"]
    assert trial.number is None


def test_runs_of_a_block_that_has_not_ended_do_not_count(tmp_path: Path) -> None:
    of = header(controls=True, time_s=60.0, blocks=2)
    with Store.open(tmp_path / "trials.db") as store:
        store.create_trial(of)
        for runs, end in planned_runs(of, 2):
            for record in runs:
                store.append_run(of.id, record)
            if end.block == 0:
                store.end_block(of.id, end)
        store.set_state(of.id, TrialState.INTERRUPTED)
    runs_found = iotrial.trial(1, tmp_path / "trials.db").runs
    assert {(one.block, one.counted) for one in runs_found} == {(0, True), (1, False)}


def test_contrasts_are_logarithms_of_ratios_within_a_block(
    trial: iotrial.Trial, lines: dict[str, list[dict[str, Any]]]
) -> None:
    wall = {(r["condition"], r["block"], r["arm"]): r["responses"]["wall"] for r in lines["run"]}
    assert trial.contrasts
    for one in trial.contrasts:
        condition = f"device=own,workload={one.workload}"
        level, reference = (wall[condition, one.block, arm] for arm in (one.level, one.reference))
        assert one.value == pytest.approx(math.log(level) - math.log(reference), abs=1e-12)
        assert one.ratio == pytest.approx(level / reference)


def test_effects_are_those_of_the_report(trial: iotrial.Trial) -> None:
    report = json.loads(json.dumps(trial.json(), allow_nan=False))
    assert len(trial.effects) == len(report["effects"])
    for effect, row in zip(trial.effects, report["effects"], strict=True):
        assert effect.value == row.get("ratio", row.get("difference"))
        assert (effect.low, effect.high, effect.p) == (row["low"], row["high"], row["p_anytime"])
        assert effect.scale == row["scale"]
        assert effect.ratio == row.get("ratio")
        assert effect.alpha == row["family_alpha"]
        assert (effect.level, effect.condition, effect.verdict) == (
            row["level"], row["condition"], row["verdict"],
        )  # fmt: skip
    others = [row["response"] for row in report["effects"] if not row["primary"] and row["kind"] != "pooled"]
    assert others
    assert [one.response for one in trial.effects.exploratory] == others
    assert trial.verdict == report["trial"]["verdict"]
    assert [one.passed for one in trial.controls] == [one["passed"] for one in report["controls"]]
    assert len(trial.evidence) == len(report["evidence"])
    assert len(trial.claims) == len(report["claims"]) == 1


def test_controls_passed_if_none_failed(trial: iotrial.Trial) -> None:
    assert trial.controls.passed
    first, *others = trial.controls
    assert others
    assert not Controls([replace(first, passed=False), *others]).passed


def test_tables_are_sequences_of_their_own_kind(trial: iotrial.Trial) -> None:
    primary = trial.effects.primary
    assert [one.primary for one in primary] == [True] * 6
    assert isinstance(primary[:2], iotrial.Effects)
    assert len(primary[1:3]) == 2
    assert primary[0] in primary
    assert primary[:2] == primary[:2] != primary[1:3]
    assert primary.where(lambda one: one.verdict == "slower")[0].level == "0"
    assert {one.moved for one in trial.evidence.moved} == {"up", "down"}


@pytest.mark.slow
@pytest.mark.parametrize("what", FRAMES)
def test_frames_have_a_row_a_value_and_dtypes_that_fit(
    trial: iotrial.Trial, what: Any, tmp_path: Path
) -> None:
    pd = pytest.importorskip("pandas")
    frame = trial.frame(what)
    assert len(frame) == len(getattr(trial, what))
    assert frame.attrs["trial"] == trial.id
    for name, dtype in frame.dtypes.items():
        wanted = {
            "block": "int64",
            "value": "float64",
            "low": "float64",
            "wall": "float64",
            "arm": "category",
        }
        assert str(dtype) == wanted.get(str(name), str(dtype)), name
        assert str(dtype) in ("float64", "int64", "bool", "category", "string"), name
    frame.to_parquet(tmp_path / "it.parquet")
    again = pd.read_parquet(tmp_path / "it.parquet")
    assert again.attrs == frame.attrs
    assert list(again.columns) == list(frame.columns)


def test_what_is_unknown_is_not_a_number_in_a_frame(trial: iotrial.Trial) -> None:
    pytest.importorskip("pandas")
    low = trial.frame("controls")["low"]
    assert [math.isnan(value) for value in low] == [one.low is None for one in trial.controls]
    assert low.isna().any()


def test_units_are_those_that_workloads_declare(trial: iotrial.Trial) -> None:
    units = trial.frame("runs").attrs["units"]
    assert (units["wall"], units["device_read_bytes"]) == ("s", "bytes")
    assert units["rate"] == "sequential: bytes/s, random: 1/s, mapped-random: 1/s"


def test_medians_of_the_frame_are_those_of_the_file(
    trial: iotrial.Trial, lines: dict[str, list[dict[str, Any]]]
) -> None:
    frame = trial.frame("runs")
    own = frame[(frame["arm"] == "4 MiB") & (frame["workload"] == "random")]
    values = [
        r["responses"]["wall"]
        for r in lines["run"]
        if r["arm"] == "4 MiB" and r["condition"].endswith("workload=random")
    ]
    assert own["wall"].median() == pytest.approx(statistics.median(values))
    assert set(own["readahead"]) == {"4 MiB"}


def test_without_pandas_it_says_how_to_install_it(
    trial: iotrial.Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(iotrial.RequestError, match="needs pandas") as caught:
        trial.frame("effects")
    assert caught.value.hint == "pip install 'iotrial[frames]'"
    assert caught.value.__notes__ == ["hint: pip install 'iotrial[frames]'"]  # shown in a traceback


def test_an_unknown_frame_is_an_error(trial: iotrial.Trial) -> None:
    with pytest.raises(iotrial.UnknownName, match='no frame is called "blocks"'):
        trial.frame("blocks")  # type: ignore[arg-type]


def test_the_store_is_only_read(stored: Path) -> None:
    before = hashlib.sha256(stored.read_bytes()).digest()
    found = iotrial.trials(stored)
    assert [one.number for one in found] == [1]
    assert "analysed" not in repr(found)
    last = iotrial.trial(store=stored)
    assert last.id == iotrial.trial(1, stored).id == iotrial.trial(last.id[:8], stored).id
    assert [one.value for one in last.effects.primary][:1] == pytest.approx([20.83], abs=0.05)
    assert last.imported is not None
    assert last.imported.startswith('from "it"')
    assert last.started.tzinfo is not None
    assert str(last.frame("runs")["wall"].dtype) == "float64"
    assert hashlib.sha256(stored.read_bytes()).digest() == before
    frame = found.frame()
    assert str(frame["started"].dt.tz) == "UTC"
    assert list(frame["study"]) == ["block/readahead"]


def test_no_store_is_no_trials(tmp_path: Path) -> None:
    assert len(iotrial.trials(tmp_path / "none.db")) == 0
    assert "0 trials" in repr(iotrial.trials(tmp_path / "none.db"))
    with pytest.raises(iotrial.RequestError, match="no trials yet"):
        iotrial.trial(store=tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


def test_names_that_are_none_and_files_that_are_none(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(iotrial.UnknownName):
        iotrial.trial("nonsense", stored)
    text = tmp_path / "text.iotrial"
    text.write_text("not packed")
    with pytest.raises(iotrial.RequestError):
        iotrial.open(text)
    with pytest.raises(iotrial.StoreError):
        iotrial.trials(text)
    assert text.read_text() == "not packed"


def test_studies_are_found_by_name_by_path_and_read_from_text(tmp_path: Path) -> None:
    shipped = iotrial.studies()
    assert {one.name for one in shipped} >= {"files/permissions", "mount/atime"}
    study = iotrial.find_study("files/permissions")
    mode = study.factors[0]
    assert (mode.name, mode.role, mode.reference) == ("mode", "treatment", "0777")
    assert "0444" in mode.levels
    assert study.margin == 0.03
    file = tmp_path / "it.toml"
    file.write_text(study.text)
    assert iotrial.find_study(file).question == iotrial.read_study(study.text).question == study.question
    with pytest.raises(iotrial.UnknownName) as caught:
        iotrial.find_study("files/permisions")
    assert caught.value.hint is not None
    assert "files/permissions" in caught.value.hint
    with pytest.raises(iotrial.StudyError):
        iotrial.read_study("[study]\nname = 3")


def displays(trial: iotrial.Trial) -> list[Any]:
    tables = [trial.effects.primary[:4], trial.controls, trial.claims, trial.evidence, trial.runs]
    return [trial, trial.study, *tables, *trial.effects[:3]]


def test_every_value_shows_itself_in_three_ways(trial: iotrial.Trial) -> None:
    assert f"... and {len(trial.runs) - 12} more" in str(trial.runs)
    for value in (*displays(trial), trial.contrasts):
        page = value._repr_html_()
        assert page.startswith('<div class="iotrial">')
        assert page.endswith("</div>")
        assert value._repr_markdown_().startswith("**")
        assert repr(value)
    page = trial._repr_html_()
    assert "<svg" in page
    assert "4 of 6 comparisons differ, 1 undecided" in page
    assert "21 times as long" in page
    # colours come from the surrounding page, because the report's style sheet is not there
    assert "var(--ink)" not in page
    assert "var(--iotrial-ink)" in page


def test_hostile_labels_are_shown_and_do_nothing() -> None:
    document = hostile_document()
    trial = iotrial.Trial(document.trial, lambda: document, number=1)
    for value in displays(trial):
        page, text, source = value._repr_html_(), repr(value) + str(value), value._repr_markdown_()
        for written in (page, text, source):
            assert not {f"U+{ord(one):04X}" for one in written if one in STEERING}
        assert "<script>document" not in page
        assert "<img" not in page
        assert "</style></svg></title>" not in page
        rendered = MarkdownIt("commonmark").enable("table").render(source)
        assert "<img" not in rendered
        assert "<a href" not in rendered
        assert "<script>document" not in rendered
    assert len(trial.frame("runs")) == len(document.data.runs)


def test_a_trial_that_cannot_be_read_is_told_beside_those_that_can(stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    path.write_bytes(stored.read_bytes())
    with Store.open(path) as store:
        filled(store)
    connection = sqlite3.connect(path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("UPDATE trial SET study = '{\x1b[31m' WHERE number = 1")
    for _, sql in triggers:
        connection.execute(sql)
    connection.commit()
    connection.close()
    with pytest.warns(UserWarning, match="trial 1 cannot be read") as caught:
        found = iotrial.trials(path)
    assert [one.number for one in found] == [2]
    assert list(found.damaged) == [1]
    assert "\x1b" not in str(caught[0].message)
    assert caught[0].filename == __file__
    assert [one.number for one in found[:1]] == [2]
    with pytest.raises(iotrial.StoreError):
        iotrial.trial(1, path)


def test_an_invalid_trial_says_that_its_table_gives_no_verdicts() -> None:
    document = invalid_document(all_equivalent(), valid=False)
    trial = iotrial.Trial(document.trial, lambda: document, number=12)
    assert not trial.valid
    for written in (str(trial), trial._repr_html_(), trial._repr_markdown_()):
        assert "no verdicts" in written
    assert "invalid" in trial.verdict.lower()
