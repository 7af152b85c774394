"""No finished run is lost.

A trial that was killed at any moment and resumed ends like an undisturbed one; so does one that ended early and was
continued. Plan, order, assignment and counts must be equal; measured values of course differ.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import studies
from usersite import Ended, Site, drawn, idle_loops_kept, site

from iotrial.store.checksums import checksum, numbered
from iotrial.store.records import HEADER_COLUMNS, STATE_COLUMNS
from study_texts import reading

pytestmark = pytest.mark.root
#: where sysctls are turned, and what a killed trial had, as its loop device, must be free when it is restored
alone = pytest.mark.alone
SETTINGS = pytest.param("settings", marks=alone)

KILLED = -9
#: done, with or without an interval: the trials here have few blocks
ENDED = (0, 6)
SCHEMAS = Path(__file__).parents[2] / "schemas"
#: one block with controls and one without
BLOCKS = "2"


@pytest.fixture(scope="module")
def place(disk_folder: Path) -> Iterator[Site]:
    with site(disk_folder) as made:
        yield made


def start(place: Site, study: str, *, blocks: str = BLOCKS, **how: Any) -> Ended:
    path = place.folder / f"{study}.toml"
    path.write_text(studies.ALL[study])
    argv = (
        "run",
        str(path),
        "--on",
        str(place.home),
        "--no-stop",
        "--blocks",
        blocks,
        "--seed",
        "23",
        "--trust",
        "--json",
    )
    return place.run(*argv, **how)


def query(place: Site, text: str) -> list[tuple[Any, ...]]:
    path = place.state_home / "iotrial" / "trials.db"
    if not path.exists():
        return []
    connection = sqlite3.connect(path)
    try:
        return connection.execute(text).fetchall()
    except sqlite3.OperationalError:  # killed before the tables were made
        return []
    finally:
        connection.close()


def plan_as_stored(place: Site) -> dict[str, object]:
    return {
        "seed": query(place, "SELECT seed FROM trial"),
        "runs": query(
            place, "SELECT condition, block, slot, arm, kind, treatment, files FROM run ORDER BY sequence"
        ),
        "ends": query(place, "SELECT condition, block, round, controls FROM block_end ORDER BY sequence"),
    }


def everything(place: Site) -> list[tuple[Any, ...]]:
    return query(place, "SELECT * FROM run ORDER BY sequence")


@pytest.fixture(autouse=True)
def own_start(place: Site, request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave nothing of a test that failed to the one after it."""
    with idle_loops_kept() if request.node.get_closest_marker("alone") else nullcontext():
        yield
    journal = place.state_home / "iotrial" / "journal"
    if list(journal.glob("*.entry")):
        place.run("restore")
        for entry in journal.glob("*.entry"):
            place.run("restore", "--accept", str(int(entry.stem)))
    shutil.rmtree(place.state_home / "iotrial", ignore_errors=True)


def restored(place: Site) -> None:
    ended = place.run("restore")
    assert ended.status in ENDED, f"{ended.stdout}{ended.stderr}"


def forget(place: Site) -> None:
    assert not list((place.state_home / "iotrial" / "journal").glob("*.entry"))
    shutil.rmtree(place.state_home / "iotrial")


def undisturbed(place: Site, study: str, blocks: str = BLOCKS) -> tuple[dict[str, object], float]:
    ended = start(place, study, blocks=blocks)
    assert ended.status in (0, 3, 6), ended.stderr
    found = plan_as_stored(place)
    forget(place)
    return found, ended.seconds


def killed_and_resumed_until_done(place: Site, study: str, kills: int) -> None:
    wanted, length = undisturbed(place, study)
    draw = drawn()
    ended = start(place, study, kill_after=draw.uniform(0, length))
    for attempt in range(200):
        before = everything(place)
        if ended.status != KILLED:
            break
        restored(place)
        instant = draw.uniform(0, length) if attempt < kills else None
        if query(place, "SELECT number FROM trial"):
            ended = place.run("resume", "--json", kill_after=instant)
        else:
            ended = start(place, study, kill_after=instant)  # killed before the trial had started
        assert everything(place)[: len(before)] == before, "a stored run was lost or changed"
    if ended.status == 2:  # killed while it wrote the report of a finished trial
        assert "nothing to resume" in ended.stderr
        ended = place.run("report", "--json")
    assert ended.status in (0, 3, 6), ended
    assert plan_as_stored(place) == wanted
    gaps = query(place, "SELECT count(*) FROM block_end WHERE gap = 1")[0][0]
    attempts = query(place, "SELECT count(*) FROM state WHERE state = 'running'")[0][0]
    assert gaps < attempts
    report = json.loads(ended.stdout)
    assert report["trial"]["seed"] == wanted["seed"][0][0]  # type: ignore[index]
    forget(place)


@pytest.mark.parametrize(
    "study", [SETTINGS, "folder", pytest.param("formats", marks=[alone, pytest.mark.long])]
)
def test_killed_at_random_and_resumed_the_trial_is_that_of_an_undisturbed_one(
    place: Site, study: str
) -> None:
    killed_and_resumed_until_done(place, study, kills=4)


@alone
@pytest.mark.long
@pytest.mark.parametrize("study", sorted(studies.ALL))
def test_killed_many_times_and_resumed_the_trial_is_that_of_an_undisturbed_one(
    place: Site, study: str
) -> None:
    for _ in range(10):
        killed_and_resumed_until_done(place, study, kills=12)


def killed_around_runs(place: Site, study: str, wanted: dict[str, object], steps: range) -> None:
    """Steps alternate: step 2k is before adding run k, step 2k + 1 after it."""
    runs: list[tuple[Any, ...]] = wanted["runs"]  # type: ignore[assignment]
    for number in steps:
        assert start(place, study, die_at=number, kinds=("store",)).status == KILLED
        assert plan_as_stored(place)["runs"] == runs[: (number + 1) // 2]
        restored(place)
        assert place.run("resume", "--json").status in (0, 3, 6)
        assert plan_as_stored(place) == wanted
        forget(place)


def test_killed_around_the_adding_of_a_run_exactly_the_added_ones_are_there(place: Site) -> None:
    wanted, _ = undisturbed(place, "folder")
    killed_around_runs(place, "folder", wanted, range(0, 2 * len(wanted["runs"]), 9))  # type: ignore[arg-type]


@alone
@pytest.mark.long
def test_a_round_that_was_cut_off_goes_on_in_the_order_drawn_for_the_whole_of_it(place: Site) -> None:
    wanted, _ = undisturbed(place, "mounts")
    count = len(wanted["runs"])  # type: ignore[arg-type]
    conditions = len({run[0] for run in wanted["runs"]})  # type: ignore[attr-defined]
    assert conditions == 4
    # in the last round: a condition that has used up its blocks no longer waits, and still counts for the
    # order
    last = sum(run[1] == int(BLOCKS) - 1 for run in wanted["runs"])  # type: ignore[attr-defined]
    killed_around_runs(place, "mounts", wanted, range(2 * (count - last) + 1, 2 * count, 13))


# -- continuing a trial that had ended


def continued(place: Site, *words: str, **how: Any) -> Ended:
    return place.run("continue", "--blocks", "2", *words, "--json", **how)


def states(place: Site) -> list[str]:
    return [state for (state,) in query(place, "SELECT state FROM state ORDER BY sequence")]


@pytest.mark.parametrize("study", [SETTINGS, "folder"])
def test_a_trial_that_ended_and_is_continued_is_one_that_never_ended(place: Site, study: str) -> None:
    wanted, _ = undisturbed(place, study, blocks="4")
    first = json.loads(start(place, study).stdout)
    before = everything(place)
    ended = continued(place)
    assert ended.status in ENDED, ended.stderr
    assert everything(place)[: len(before)] == before, "a stored run was lost or changed"
    assert plan_as_stored(place) == wanted
    assert query(place, "SELECT count(*) FROM block_end WHERE gap = 1") == [(0,)]
    assert states(place) == ["running", "done", "running", "done"]
    report = json.loads(ended.stdout)
    jsonschema.validate(report, json.loads((SCHEMAS / "report.schema.json").read_text()))
    assert {effect["blocks"] for effect in first["effects"] if effect["primary"]} == {2}
    assert {e["blocks"] for e in report["effects"] if e["primary"]} == {4}, "the verdicts are of all blocks"
    assert report["trial"]["duration_s"] > first["trial"]["duration_s"]
    (continuation,) = report["trial"]["continued"]
    assert (continuation["blocks"], continuation["no_stop"]) == (4, True)  # as at its start
    # the stored analysis of the ended trial is not shown again
    again = json.loads(place.run("report", "--json").stdout)
    assert again["effects"] == report["effects"]
    assert "continued once" in place.run("report", "--full").stdout
    packed_and_read_again(place, report)
    forget(place)


def packed_and_read_again(place: Site, report: dict[str, Any]) -> None:
    file = place.folder / "continued.iotrial"
    assert place.run("export", "1", str(file), "--force").status == 0
    read = json.loads(place.run("report", str(file), "--json").stdout)
    assert read["effects"] == report["effects"]
    assert read["trial"]["continued"] == report["trial"]["continued"]


@alone
def test_killed_while_it_is_continued_a_trial_is_resumed_to_its_new_limits(place: Site) -> None:
    wanted, length = undisturbed(place, "settings", blocks="4")
    draw = drawn()
    for _ in range(3):
        assert start(place, "settings").status in ENDED
        ended = continued(place, kill_after=draw.uniform(0, length))
        restored(place)
        if states(place)[-1] == "done" and len(states(place)) == 2:
            ended = continued(place)  # killed before it had started
        elif states(place)[-1] == "running":
            assert place.run("continue").status == 2, "what was cut off is resumed first"
            ended = place.run("resume", "--json")
            assert ended.status in ENDED, ended.stderr
        assert plan_as_stored(place) == wanted
        assert len(query(place, "SELECT text FROM event WHERE kind = 'continued'")) == 1
        forget(place)


def test_killed_around_the_adding_of_a_run_while_it_is_continued(place: Site) -> None:
    wanted, _ = undisturbed(place, "folder", blocks="4")
    runs: list[tuple[Any, ...]] = wanted["runs"]  # type: ignore[assignment]
    half = sum(run[1] < 2 for run in runs)
    for step in range(0, 2 * (len(runs) - half), 5):
        assert start(place, "folder").status in ENDED
        assert continued(place, die_at=step, kinds=("store",)).status == KILLED
        assert plan_as_stored(place)["runs"] == runs[: half + (step + 1) // 2]
        restored(place)
        assert place.run("resume", "--json").status in ENDED
        assert plan_as_stored(place) == wanted
        forget(place)


def refusal(place: Site, *words: str) -> str:
    ended = place.run("continue", *words)
    assert (ended.status, ended.stdout) == (2, "")
    return ended.stderr


def rewritten(place: Site, statement: str) -> None:
    """Change the store to what another machine, or another end, would have left. Its own triggers forbid that."""
    connection = sqlite3.connect(place.state_home / "iotrial" / "trials.db")
    guards = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE name LIKE '%_keeps_UPDATE'"
    ).fetchall()
    for name, _ in guards:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(statement)
    seal_again(connection)
    for _, guard in guards:
        connection.execute(guard)
    connection.commit()
    connection.close()


def seal_again(connection: sqlite3.Connection) -> None:
    """Recompute the checksums of trials and states."""
    for table, key, owner, columns in (
        ("trial", "number", "id", HEADER_COLUMNS),
        ("state", "sequence", "(SELECT id FROM trial WHERE number = state.trial)", STATE_COLUMNS),
    ):
        rows = connection.execute(f"SELECT {key}, {owner}, {columns} FROM {table}").fetchall()
        for number, trial, *row in rows:
            sealed = numbered(checksum(table, trial, row), number)
            connection.execute(f"UPDATE {table} SET checksum = ? WHERE {key} = ?", (sealed, number))


@pytest.mark.parametrize(
    ("state", "says", "hint"),
    [
        ("invalid", "is invalid", "controls failed"),
        ("failed", "is failed", "iotrial resume 1"),
        ("interrupted", "is interrupted", "iotrial resume 1"),
    ],
)
def test_only_a_trial_that_is_done_can_be_continued(place: Site, state: str, says: str, hint: str) -> None:
    assert start(place, "folder").status in ENDED
    rewritten(place, f"UPDATE state SET state = '{state}' WHERE state = 'done'")
    before = everything(place)
    message = refusal(place)
    assert says in message
    assert hint in message
    assert everything(place) == before
    forget(place)


@alone
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("host = json_set(host, '$.kernel', '5.4.0-other')", "kernel was 5.4.0-other"),
        ("host = json_set(host, '$.processor', 'Another')", "processor was Another"),
        ("lab = json_set(lab, '$.places[0].filesystem', 'zfs')", "filesystem"),
        ("lab = json_set(lab, '$.pinned.\"block.scheduler\"', 'bfq')", "pinned"),
    ],
)
def test_on_another_machine_or_lab_a_trial_is_not_continued(place: Site, change: str, says: str) -> None:
    assert start(place, "settings").status in ENDED
    rewritten(place, f"UPDATE trial SET {change}")
    before = everything(place)
    message = refusal(place)
    assert "cannot be continued here" in message
    assert says in message
    assert everything(place) == before
    assert states(place) == ["running", "done"]
    forget(place)


def test_an_imported_trial_is_not_continued(place: Site) -> None:
    assert start(place, "folder").status in ENDED
    file = place.folder / "elsewhere.iotrial"
    assert place.run("export", "1", str(file), "--force").status == 0
    forget(place)
    assert place.run("import", str(file)).status == 0
    assert "another machine" in refusal(place)
    forget(place)


def test_a_trial_that_runs_is_not_continued(place: Site) -> None:
    assert start(place, "folder").status in ENDED
    pid, began = os.getpid(), Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    rewritten(
        place,
        f"UPDATE state SET state = 'running', pid = {pid}, pid_started = '{began}' WHERE state = 'done'",
    )
    assert "is running" in refusal(place)
    forget(place)


DECIDED = """
[study]
name = "decided"
account = false
question = "Does reading a larger file take longer?"
[lab]
kind = "directory"
[budget]
time = "60 s"
[[factor]]
name = "size"
knob = "file.size"
levels = ["4 KiB", "4 MiB"]
""" + reading(cache="warm")


def test_a_decided_trial_is_continued_only_where_that_is_wanted(place: Site) -> None:
    path = place.folder / "decided.toml"
    path.write_text(DECIDED)
    argv = ("run", str(path), "--on", str(place.home), "--seed", "23", "--trust", "--json")
    ended = place.run(*argv)
    assert ended.status in ENDED, ended.stderr
    first = json.loads(ended.stdout)
    assert {effect["verdict"] for effect in first["effects"] if effect["primary"]} == {"slower"}
    message = refusal(place)
    assert "is decided" in message
    assert "--no-stop" in message
    ended = continued(place, "--no-stop")
    assert ended.status in ENDED, ended.stderr
    report = json.loads(ended.stdout)
    assert report["effects"][0]["blocks"] == first["effects"][0]["blocks"] + 2
    forget(place)
