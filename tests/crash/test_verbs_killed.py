"""SIGKILL at random instants of every verb that changes something: after ``restore`` or ``revert`` nothing is left.

``apply``, ``keep`` and ``revert`` act on a tree of files that behaves like a machine; the others on a disk of their own. The
long tier has 1,000 kills in all. The instants are drawn from ``SEED``, a verb and a number; where a process is then varies.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import host_state
import pytest
import studies
from usersite import Site, site

sys.path.insert(0, str(Path(__file__).parents[1] / "root"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from breaking import eventually, processes_with
from machine_trees import image, tree

pytestmark = [pytest.mark.root, pytest.mark.alone]

SEED = 48
KILLED = -signal.SIGKILL
#: kills of each verb in the long tier
COUNTS = {
    "apply": 250, "keep": 100, "revert": 150, "revert --force": 50, "try": 130, "run": 100, "restore": 100, "record": 80,
    "live": 40,
}  # fmt: skip
assert sum(COUNTS.values()) == 1000
ON_A_TREE = ("apply", "keep", "revert", "revert --force")
APPLY = ("apply", "--in", "/data/db", "--yes", "--json")


@pytest.fixture(scope="module")
def place(disk_folder: Path) -> Iterator[Site]:
    with site(disk_folder) as made:
        yield made


def tiers(verb: str) -> list[Any]:
    """Return three kills, and those of the long tier; ``IOTRIAL_KILLS`` multiplies the latter."""
    scale = float(os.environ.get("IOTRIAL_KILLS", "1"))
    return [
        pytest.param(verb, 3, id=verb),
        pytest.param(verb, max(1, round(scale * COUNTS[verb])), id=f"{verb}-long", marks=pytest.mark.long),
    ]


def said(verb: str, times: int, killed: int) -> None:
    print(f"{verb}, seed {SEED}: {killed} of {times} killed before their end, nothing left")


@pytest.mark.parametrize(("verb", "times"), [one for verb in ON_A_TREE for one in tiers(verb)])
def test_killed_while_settings_are_kept_or_taken_back_every_byte_comes_back(
    place: Site, verb: str, times: int
) -> None:
    root = tree(place.folder / "machine")
    here = {"IOTRIAL_ROOT": str(root)}
    before = image(root)
    words = APPLY if verb == "apply" else (*verb.split(), "--json")

    def ready() -> None:
        """Do what comes before the verb that is killed."""
        for earlier in {"apply": (), "keep": (APPLY,)}.get(verb, (APPLY, ("keep",))):
            done = place.run(*earlier, environment=here)
            assert done.status == 0, done.stderr

    def whole_s() -> float:
        ready()
        whole = place.run(*words, environment=here)
        assert whole.status == 0, whole.stderr
        place.run("revert", environment=here)
        assert image(root) == before
        return whole.seconds

    takes_s = min(whole_s() for _ in range(5))  # a slow first one would put most kills after the end
    killed = 0
    for number in range(times):
        draw = random.Random(f"{SEED}/{verb}/{number}")
        ready()
        ended = place.run(*words, environment=here, kill_after=draw.uniform(0, 1.1 * takes_s))
        assert ended.status in (0, KILLED), ended
        killed += ended.status == KILLED
        if draw.random() < 0.5:  # and the one that takes it back as well
            place.run("revert", environment=here, kill_after=draw.uniform(0, takes_s))
        undone = place.run("revert", "--json", environment=here)
        assert undone.status == 0, (number, undone)
        assert image(root) == before, number
        shutil.rmtree(root / "var/lib/iotrial")
    said(verb, times, killed)
    shutil.rmtree(root)


def own_state(place: Site) -> dict[str, object]:
    """Return what the verbs on the site's disk may change."""
    number = place.disk.stat().st_dev
    queue = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/queue")
    return {
        **{f"queue {file.name}": file.read_text() for file in sorted(queue.iterdir()) if file.name in QUEUE},
        **{f"file {name}": untimed(facts) for name, facts in host_state.files(place.disk).items()},
        "mounts": [
            line for line in Path("/proc/self/mounts").read_text().splitlines() if place.token in line
        ],
        "space": host_state.space(place.disk),
        "processes": host_state.processes(place.token),
    }


def untimed(facts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leave out the access time: commands read these files where they are."""
    return tuple(one for one in facts if not (isinstance(one, tuple) and one[0] == "atime"))


QUEUE = (
    "read_ahead_kb",
    "scheduler",
    "nr_requests",
    "wbt_lat_usec",
    "max_sectors_kb",
    "rotational",
    "nomerges",
)


def in_place(place: Site) -> tuple[str, ...]:
    return (
        "try", "block.read_ahead_kb=128,1024", "--in", str(place.home), "--yes", "--no-stop", "--blocks", "1", "--json",
        "--", "cat", "papers/letter",
    )  # fmt: skip


def in_use(place: Site) -> tuple[str, ...]:
    return (
        "live", "block.read_ahead_kb=128,1024", "--metric", "psi:io", "--in", str(place.home), "--window", "600ms",
        "--washout", "200ms", "--yes", "--no-stop", "--blocks", "2", "--json",
    )  # fmt: skip


def in_a_lab(place: Site) -> tuple[str, ...]:
    path = place.folder / "folder.toml"
    path.write_text(studies.ALL["folder"])
    return (
        "run", str(path), "--on", str(place.home), "--no-stop", "--blocks", "1", "--no-controls", "--trust", "--yes",
        "--json",
    )  # fmt: skip


def recorded(place: Site) -> tuple[str, ...]:
    (place.output / "app.iotrace").unlink(missing_ok=True)
    return (
        "record", "-o", str(place.output / "app.iotrace"), "--under", str(place.home), "--json",
        "--", "sh", "-c", f": {place.token}; sleep 0.5",
    )  # fmt: skip


WORDS = {"try": in_place, "restore": in_place, "run": in_a_lab, "record": recorded, "live": in_use}


@pytest.mark.parametrize(("verb", "times"), [one for verb in WORDS for one in tiers(verb)])
def test_killed_on_a_disk_of_its_own_nothing_is_left(place: Site, verb: str, times: int) -> None:
    """For ``live`` the watchdog is killed too in half of the cases; for ``restore`` a killed trial comes first."""
    before = own_state(place)
    whole = place.run(*WORDS[verb](place))
    assert whole.status in (0, 3, 6), whole.stderr
    restoring_s = place.run("restore", "--json").seconds
    place.forget()
    assert eventually(lambda: own_state(place) == before, 5), differences(before, own_state(place))
    killed = 0
    for number in range(times):
        draw = random.Random(f"{SEED}/{verb}/{number}")
        ended = place.run(*WORDS[verb](place), kill_after=draw.uniform(0, 1.1 * whole.seconds))
        assert ended.status in (0, 3, 6, KILLED), ended
        killed += ended.status == KILLED
        if verb == "live" and draw.random() < 0.5:
            for pid in processes_with("iotrial.live.watchdog"):
                with suppress(OSError):
                    if place.token in Path(f"/proc/{pid}/environ").read_text():
                        os.kill(pid, signal.SIGKILL)
        if verb == "restore":
            again = place.run("restore", "--json", kill_after=draw.uniform(0, 1.5 * restoring_s))
            killed += again.status == KILLED and ended.status != KILLED
        began = time.monotonic()
        if verb == "live":  # no restore: the watchdog does it
            assert eventually(lambda: not differences(before, own_state(place)), 40), (
                number,
                differences(before, own_state(place)),
                said_by_watchdogs(place),
            )
        left = place.run("restore", "--end", "--json")
        assert left.status == 0, (number, left)
        assert eventually(lambda: not differences(before, own_state(place)), 5), (
            number,
            differences(before, own_state(place)),
            time.monotonic() - began,
            json.loads(left.stdout),
        )
        place.forget()
    said(verb, times, killed)


def said_by_watchdogs(place: Site) -> str:
    log = place.state_home / "iotrial/watchdog.log"
    return log.read_text() if log.exists() else "no log"


def differences(before: dict[str, object], after: dict[str, object]) -> dict[str, object]:
    return {
        name: (before.get(name), after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    }
