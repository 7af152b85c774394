"""Every shipped study, found in the catalogue, is planned, runs one short block here, leaves nothing behind,
and keeps its promises on claims and time.

A study with missing programs names them; its run is then skipped with that reason.
"""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path

import jsonschema
import pytest

from iotrial.design.plan import Plan
from iotrial.errors import MissingTool
from iotrial.runner.rehearsal import cut_down
from iotrial.runner.resolve import Resolved, resolve
from iotrial.study import catalogue
from iotrial.study.model import Study
from iotrial.study.select import select
from iotrial.workloads.files import FilesWork
from left_behind import host_state, left_by_tests
from program import iotrial

SEED = "0" * 32
MOST_S = 600
STUDIES = catalogue.names()
ROOT = Path(__file__).parents[2]
AUDITS = ROOT / "docs" / "audits"
SCHEMA = json.loads((ROOT / "schemas" / "rehearsal.schema.json").read_text())

#: study that repeats the question behind each published table
HOMES = {
    "atime": "mount/atime", "atime-calls": "mount/read-calls", "compile": "application/con*",
    "database": "application/database*", "gzip": "application/archive", "mysql": "application/database*",
    "scheduler-atom": "block/scheduler", "scheduler-buffered": "block/scheduler",
    "filesystem-raid1": "filesystem/stream", "hdparm-buffered": "block/read-direct", "iozone-sample": "matrix/iozone*",
    "links": "files/links", "mkfs": "filesystem/make", "nas-knobs": "nas/*",
    "nas-protocols": "nas/*", "rebuild": "raid/rebuild", "rebuild-minutes": "raid/rebuild",
    "nas-tuning": "filesystem/*fragment*", "opcache": "application/opcode-cache*", "permissions": "files/permissions",
    "permissions-raw": "files/permissions",
    "raid1-layouts": "raid/btrfs-vs-md", "scheduler": "block/scheduler", "throughput": "block/stream",
    "trees": "filesystem/copy-tree",
}  # fmt: skip
#: slow ones; smaller tests elsewhere cover the same: images of some GiB written in full, files in thousands
#: of fragments, screens, a PHP site, guests that boot
SLOW = {
    "application/opcode-cache", "block/stream", "filesystem/copy-tree", "filesystem/fragmentation", "filesystem/make",
    "filesystem/small-files", "system/boot", "system/screen", "system/screen-follow-up",
}  # fmt: skip
#: each boots a guest
IN_GUESTS = {name for name in STUDIES if catalogue.find(name).lab.kind == "guest"}
ELSEWHERE: set[str] = set()
#: two of each family with short blocks; all of them run in `make test-long`
SHORT = {
    name
    for family in {name.partition("/")[0] for name in STUDIES}
    for name in [one for one in STUDIES if one.startswith(f"{family}/") and one not in SLOW | IN_GUESTS][:2]
}


def resolved(study: Study) -> Resolved:
    """Resolve the study as root; skip with the reason if its programs are missing."""
    try:
        return resolve(study, root=True)
    except MissingTool as error:
        if not error.hint:  # names the package
            raise
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_says_why_and_ends_in_time(name: str) -> None:
    study = catalogue.find(name)
    assert len(study.why.split()) >= 20
    assert study.question.endswith("?")
    assert 0 < study.budget.time_s <= MOST_S


@pytest.mark.parametrize("name", STUDIES)
def test_every_claim_is_about_a_level_and_a_response_that_are_there(name: str) -> None:
    study = catalogue.find(name)
    for claim in study.claims:
        factor = study.factor(claim.factor or study.treatment_factors[0].name)
        labels = {level.label for level in factor.levels}
        assert claim.level in labels
        assert (claim.reference or factor.reference) in labels
        assert claim.text
        assert claim.source
        for condition, label in claim.condition.items():
            known = (
                {workload.name for workload in study.workloads}
                if condition == "workload"
                else {level.label for level in study.factor(condition).levels}
            )
            assert label in known, (claim.text, condition)
        if claim.workload is not None and claim.response is not None:
            assert (claim.workload, claim.response) in {(r.workload, r.name) for r in study.responses}


@pytest.mark.parametrize("name", STUDIES)
def test_where_many_files_are_made_on_btrfs_the_lab_has_room_for_its_metadata(name: str) -> None:
    study = select(catalogue.find(name))
    values = {setting.value for f in study.factors for level in f.levels for setting in level.settings}
    made = [
        work.work
        for work in study.workloads
        if isinstance(work.work, FilesWork) and "create" in work.work.operations and work.work.files >= 1000
    ]
    if "btrfs" in values and made:
        assert study.lab.size_bytes >= 2 << 30


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_planned_at_its_defaults_and_with_everything(name: str) -> None:
    study = catalogue.find(name)
    usual = Plan(resolved(select(study)).study, SEED)
    assert usual.conditions
    assert usual.primary_effects >= 1
    assert len(Plan(select(study, full=True), SEED).conditions) >= len(usual.conditions)


@pytest.mark.parametrize("table", sorted(path.stem for path in AUDITS.glob("*.csv")))
def test_every_published_table_has_a_study_that_asks_again(table: str) -> None:
    if table in ELSEWHERE:
        return
    homes = [name for name in STUDIES if fnmatch(name, HOMES[table])]
    if not homes:
        pytest.skip(f"no study of the catalogue is called {HOMES[table]} yet")
    assert any(catalogue.find(name).claims for name in homes), homes


@pytest.mark.root
@pytest.mark.alone  # compares all loop devices and sysctls of the machine
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in SHORT)) for name in STUDIES]
)
def test_every_study_runs_one_short_block_here_and_leaves_nothing(name: str, state: Path) -> None:
    resolved(select(cut_down(select(catalogue.find(name)))))
    before = host_state()
    done = iotrial("run", name, "--rehearse", "--json", timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    rehearsal = found["rehearsal"]
    assert rehearsal["failures"] == 0
    assert all(one["runs"] >= 2 for one in rehearsal["workloads"])
    assert left_by_tests(before, host_state()) == {}
    assert not list((state / "journal").glob("*.entry"))
    assert not (state / "trials.db").exists()


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.long
@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs_one_block_of_every_default_condition(name: str, state: Path) -> None:
    resolved(select(catalogue.find(name)))
    before = host_state()
    done = iotrial("run", name, "--blocks", "1", "--no-stop", "--time", "30min", "--json", timeout=1800)
    assert done.returncode in (0, 3, 6), done.stderr
    report = json.loads(done.stdout)
    assert report["effects"]
    assert not any(effect["failures"] for effect in report["effects"])
    assert left_by_tests(before, host_state()) == {}
