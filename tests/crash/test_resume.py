"""No finished run is lost: killed at any instant, a resumed trial ends as one that nobody disturbed.

Equal are plan, order, assignment and count; what was measured is of course another matter.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import studies
from usersite import Ended, Site, drawn, site

pytestmark = pytest.mark.root

KILLED = -9
#: one with controls and one without
BLOCKS = "2"


@pytest.fixture(scope="module")
def place(disk_folder: Path) -> Iterator[Site]:
    with site(disk_folder) as made:
        yield made


def start(place: Site, study: str, **how: Any) -> Ended:
    path = place.folder / f"{study}.toml"
    path.write_text(studies.ALL[study])
    argv = (
        "run",
        str(path),
        "--on",
        str(place.home),
        "--no-stop",
        "--blocks",
        BLOCKS,
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


def forget(place: Site) -> None:
    assert not list((place.state_home / "iotrial" / "journal").glob("*.entry"))
    shutil.rmtree(place.state_home / "iotrial")


def undisturbed(place: Site, study: str) -> tuple[dict[str, object], float]:
    ended = start(place, study)
    assert ended.status in (0, 3), ended.stderr
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
        assert place.run("restore").status == 0
        instant = draw.uniform(0, length) if attempt < kills else None
        if query(place, "SELECT number FROM trial"):
            ended = place.run("resume", "--json", kill_after=instant)
        else:
            ended = start(place, study, kill_after=instant)  # killed before the trial had begun
        assert everything(place)[: len(before)] == before, "a stored run was lost or changed"
    if ended.status == 2:  # killed while it wrote the report of a trial that was done
        assert "nothing to resume" in ended.stderr
        ended = place.run("report", "--json")
    assert ended.status in (0, 3), ended
    assert plan_as_stored(place) == wanted
    gaps = query(place, "SELECT count(*) FROM block_end WHERE gap = 1")[0][0]
    attempts = query(place, "SELECT count(*) FROM state WHERE state = 'running'")[0][0]
    assert gaps < attempts
    report = json.loads(ended.stdout)
    assert report["trial"]["seed"] == wanted["seed"][0][0]  # type: ignore[index]
    forget(place)


@pytest.mark.parametrize("study", ["settings", "folder", pytest.param("formats", marks=pytest.mark.long)])
def test_killed_at_random_and_resumed_the_trial_is_that_of_an_undisturbed_one(
    place: Site, study: str
) -> None:
    killed_and_resumed_until_done(place, study, kills=4)


@pytest.mark.long
@pytest.mark.parametrize("study", sorted(studies.ALL))
def test_killed_many_times_and_resumed_the_trial_is_that_of_an_undisturbed_one(
    place: Site, study: str
) -> None:
    for _ in range(10):
        killed_and_resumed_until_done(place, study, kills=12)


def killed_around_runs(place: Site, study: str, wanted: dict[str, object], steps: range) -> None:
    """Steps alternate: before adding run k is step 2k, after it 2k + 1."""
    runs: list[tuple[Any, ...]] = wanted["runs"]  # type: ignore[assignment]
    for number in steps:
        assert start(place, study, die_at=number, kinds=("store",)).status == KILLED
        assert plan_as_stored(place)["runs"] == runs[: (number + 1) // 2]
        assert place.run("restore").status == 0
        assert place.run("resume", "--json").status in (0, 3)
        assert plan_as_stored(place) == wanted
        forget(place)


def test_killed_around_the_adding_of_a_run_exactly_the_added_ones_are_there(place: Site) -> None:
    wanted, _ = undisturbed(place, "folder")
    killed_around_runs(place, "folder", wanted, range(0, 2 * len(wanted["runs"]), 9))  # type: ignore[arg-type]


@pytest.mark.long
def test_a_round_that_was_cut_off_goes_on_in_the_order_drawn_for_the_whole_of_it(place: Site) -> None:
    wanted, _ = undisturbed(place, "mounts")
    count = len(wanted["runs"])  # type: ignore[arg-type]
    conditions = len({run[0] for run in wanted["runs"]})  # type: ignore[attr-defined]
    assert conditions == 4
    # in the last round: what has spent its blocks is no longer waiting, and still counts for the order
    last = sum(run[1] == int(BLOCKS) - 1 for run in wanted["runs"])  # type: ignore[attr-defined]
    killed_around_runs(place, "mounts", wanted, range(2 * (count - last) + 1, 2 * count, 13))
