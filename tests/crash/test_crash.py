"""SIGKILL at any moment, then ``iotrial restore``: the machine is exactly as before, and no finished run is lost.

Steps are enumerated rather than hit by sleeping; kills at random moments are added. Any difference is a failure:
mounts, loop devices, queue settings, sysctls, modes, times and content of a user's files, free space, processes.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import host_state
import pytest
import studies
from usersite import Ended, Site, drawn, idle_loops_kept, site

from iotrial.lab import registry

#: all loop devices and sysctls of the machine are compared
pytestmark = [pytest.mark.root, pytest.mark.alone]

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def place(disk_folder: Path) -> Iterator[Site]:
    with site(disk_folder) as made, idle_loops_kept():
        yield made


#: the shortest trial that passes every step of the journal
SHORT = ("--blocks", "1", "--no-controls")


def words(place: Site, study: str, *more: str) -> tuple[str, ...]:
    path = place.folder / f"{study}.toml"
    path.write_text((studies.ALL | studies.SLOW)[study])
    return (
        "run",
        str(path),
        "--on",
        str(place.home),
        "--no-stop",
        "--seed",
        "11",
        "--trust",
        "--yes",
        "--json",
        *more,
    )


def whole(place: Site, study: str, kinds: tuple[str, ...], *more: str, probe: Path | None = None) -> Ended:
    """Run without a kill: gives the steps, and proves that a normal run leaves nothing behind."""
    before = place.seen_as_new()
    ended = place.run(*words(place, study, *more), kinds=kinds, probe=probe)
    assert ended.status in (0, 3, 6), ended.stderr
    assert not host_state.differences(before, place.seen())
    place.forget()
    return ended


def remains(place: Site, before: dict[str, object]) -> dict[str, Any]:
    """Restore, and return what still differs; empty if everything is as before."""
    restored = place.run("restore", "--json")
    found: dict[str, Any] = dict(host_state.differences(before, place.seen()))
    if restored.status != 0:
        found["restore"] = (restored.status, restored.stdout, restored.stderr)
    return found


def report(failures: dict[str, Any]) -> str:
    return f"{len(failures)} left something: {json.dumps(failures, indent=1, default=str)[:4000]}"


def test_every_knob_that_ships_is_turned_by_these_studies() -> None:
    turned = set.union(*map(studies.knobs_of, (studies.ALL | studies.SLOW).values()))
    assert turned == set(registry.knobs()) - studies.ELSEWHERE


def test_this_suite_sees_what_a_kill_leaves_before_the_restore(place: Site) -> None:
    kinds = ("journal", "verb")
    steps = whole(place, "settings", kinds, *SHORT).steps
    before = place.seen_as_new()
    words_ = words(place, "settings", *SHORT)
    assert place.run(*words_, die_at=steps.index("after files"), kinds=kinds).status == KILLED
    left = host_state.differences(before, place.seen())
    assert {"lab folder", "sysctl vm/vfs_cache_pressure", "sysctl vm/dirty_expire_centisecs"} <= left.keys()
    assert any(key.startswith("queue loop") for key in left)
    assert not remains(place, before)
    place.forget()
    steps = whole(place, "folder", kinds, *SHORT).steps
    words_ = words(place, "folder", *SHORT)
    assert place.run(*words_, die_at=steps.index("after files"), kinds=kinds).status == KILLED
    left = host_state.differences(before, place.seen())
    assert {"file home", "space"} <= left.keys()
    assert any("iotrial-lab" in key for key in left)
    assert not remains(place, before)
    place.forget()


def kill_at_each_step(
    place: Site,
    study: str,
    kinds: tuple[str, ...],
    *,
    near: str = "",
    every: int = 1,
    probe: Path | None = None,
) -> None:
    """Kill a trial at each of its steps, restore, and compare.

    ``near``: only the steps from three before the first to three after the last whose name contains this.
    ``every``: only one step in ``every``, with a random offset.
    """
    names = whole(place, study, kinds, *SHORT, probe=probe).steps
    assert len(names) > 20
    named = [number for number, name in enumerate(names) if near in name]
    first, last = max(0, named[0] - 3), min(len(names) - 1, named[-1] + 3)
    before = place.seen_as_new()
    failures: dict[str, Any] = {}
    first += drawn().randrange(every)
    for number, name in list(enumerate(names))[first : last + 1 : every]:
        ended = place.run(*words(place, study, *SHORT), die_at=number, kinds=kinds, probe=probe)
        assert ended.status == KILLED, (number, name, ended)
        left = remains(place, before)
        if left:
            failures[f"{number} {name}"] = left
            break  # leftovers would show in all later cases
        place.forget()
    assert not failures, report(failures)


@pytest.mark.parametrize(
    ("study", "every"),
    [("settings", 16), ("commands", 8), ("in-place", 8), pytest.param("power", 24, marks=pytest.mark.long)],
)
def test_killed_at_each_step_of_the_journal_nothing_is_left(place: Site, study: str, every: int) -> None:
    kill_at_each_step(place, study, ("journal",), every=every)


@pytest.mark.long
def test_killed_where_a_loop_device_had_to_be_added_it_goes_again(place: Site) -> None:
    there = {path.name for path in Path("/sys/block").glob("loop*")}
    with place.every_loop_device_taken():
        kill_at_each_step(place, "formats", ("journal", "verb"), near="loop_attach")
        kill_at_each_step(place, "formats", ("journal", "verb"), near="loop_detach")
        assert {path.name for path in Path("/sys/block").glob("loop*")} == there


def test_killed_where_an_image_had_to_have_a_name_the_name_goes_again(place: Site) -> None:
    probe = place.probe_without_anonymous_files()
    steps = whole(place, "formats", ("verb",), *SHORT, probe=probe).steps
    assert steps.count("before image") == 2, "the first is refused, the second has a name"
    kill_at_each_step(place, "formats", ("journal", "verb"), near=" image", probe=probe)


@pytest.mark.long
@pytest.mark.parametrize("study", sorted(studies.ALL))
def test_killed_at_each_step_of_journal_and_probe_nothing_is_left(place: Site, study: str) -> None:
    kill_at_each_step(place, study, ("journal", "verb"))


def restore_killed_at_each_step(
    place: Site, study: str, restoring: tuple[str, ...], *, every: int = 1
) -> None:
    """Cut off a trial in the middle, kill its restore at each of that restore's steps, and restore again.

    ``every``: only one step in ``every``, with a random offset.
    """
    kinds = ("journal", "verb")
    steps = whole(place, study, kinds, *SHORT).steps
    middle = steps.index("after files" if "after files" in steps else "after command")
    before = place.seen_as_new()
    failures: dict[str, Any] = {}
    number = drawn().randrange(every)
    while not failures:
        assert place.run(*words(place, study, *SHORT), die_at=middle, kinds=kinds).status == KILLED
        ended = place.run("restore", "--json", die_at=number, kinds=restoring)
        left = remains(place, before)
        if left:
            failures[f"restore killed at {number}"] = left
        else:
            place.forget()
        if ended.status == 0:
            break
        assert ended.status == KILLED, ended
        number += every
    assert not failures, report(failures)
    assert number > 5


@pytest.mark.parametrize(("study", "every"), [("settings", 12), ("folder", 2)])
def test_a_restore_killed_at_each_step_of_the_journal_is_finished_by_the_next(
    place: Site, study: str, every: int
) -> None:
    restore_killed_at_each_step(place, study, ("journal",), every=every)


@pytest.mark.long
@pytest.mark.parametrize("study", sorted(studies.ALL | studies.SLOW))
def test_a_restore_killed_at_each_step_of_journal_and_probe_is_finished_by_the_next(
    place: Site, study: str
) -> None:
    restore_killed_at_each_step(place, study, ("journal", "verb"))


def kill_at_random(place: Site, times: int, names: list[str]) -> None:
    """Kill trial and restore at random moments over their whole length, over the studies in turn."""
    draw = drawn()
    lengths = {study: whole(place, study, ()).seconds for study in names}
    before = place.seen_as_new()
    killed = 0
    failures: dict[str, Any] = {}
    for number in range(times):
        study = names[number % len(names)]
        instant = draw.uniform(0, 1.1 * lengths[study])
        ended = place.run(*words(place, study), kill_after=instant)
        assert ended.status in (0, 3, KILLED), ended
        killed += ended.status == KILLED
        place.run("restore", "--json", kill_after=draw.uniform(0, 0.3))
        left = remains(place, before)
        if left:
            failures[f"{number}: {study} killed after {instant:.3f} s"] = left
            break
        place.forget()
    assert not failures, report(failures)
    assert killed >= times * 0.5
    print(f"{killed} of {times} killed before their end")


@pytest.mark.long
def test_killed_at_some_random_instants_nothing_is_left(place: Site) -> None:
    kill_at_random(place, 3, sorted(studies.ALL))


@pytest.mark.long
def test_killed_at_a_thousand_random_instants_nothing_is_left(place: Site) -> None:
    kill_at_random(place, 1000, sorted(studies.ALL | studies.SLOW))
