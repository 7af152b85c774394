"""The control group of a memory limit, on a real kernel with either version of control groups.

The test moves the probe into a group below or next to the one that the tests were started in; it is skipped
if no such group can be created.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from iotrial.errors import LabError, UnsupportedLevel
from iotrial.knobs.knob import RunContext, Undone, WorkDraft
from iotrial.lab import cgroup, host, registry
from iotrial.lab.journal import Journal
from iotrial.lab.restore import restore
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.study.model import Setting

pytestmark = pytest.mark.root
LIMIT = 32 << 20
KNOB = registry.knob("memory.limit")
NONE, SOME = Setting("memory.limit", "none"), Setting("memory.limit", "32 MiB")
VALUES = ("none", str(LIMIT))


@pytest.fixture
def probe() -> Iterator[Probe]:
    with Probe(isolate=True) as probe:
        yield probe


@pytest.fixture
def context(probe: Probe, tmp_path: Path) -> RunContext:
    target = Target(probe)
    try:
        cgroup.find(target)
    except UnsupportedLevel as error:
        pytest.skip(error.message)
    place: object = SimpleNamespace(worker=target)
    return RunContext(
        target=target,
        place=place,  # type: ignore[arg-type]
        journal=Journal(tmp_path / "journal"),
        files=None,
        work=WorkDraft(),
        boot_id=host.boot_id(target),
        trial="0badcafe",
    )


def groups(context: RunContext) -> dict[str, Path]:
    home = cgroup.find(context.target, anywhere=True)
    return {value: Path(home.group(context.trial, value)) for value in VALUES}


def undone(journal: Journal) -> list[Undone | None]:
    with Probe(isolate=False) as fresh:
        return [r.outcome for r in restore(journal, Target(fresh))]


def test_the_page_cache_that_the_probe_fills_inside_stays_below_the_limit(
    context: RunContext, disk_folder: Path
) -> None:
    KNOB.prepare(context, NONE, VALUES)
    (disk_folder / "big").write_bytes(os.urandom(1 << 20) * 96)
    made, home = groups(context), cgroup.find(context.target).folder
    usage = "memory.usage_in_bytes" if (made["none"] / "memory.usage_in_bytes").exists() else "memory.current"
    used = {}
    for setting, value in ((SOME, VALUES[1]), (NONE, "none")):
        subprocess.run(
            ["dd", f"of={disk_folder}/big", "oflag=nocache", "conv=notrunc,fdatasync", "count=0"], check=True
        )
        KNOB.write(context, setting, value)
        KNOB.enter(context, setting, value)
        assert (made[value] / "cgroup.procs").read_text().strip()
        context.target.run(["cat", f"{disk_folder}/big"])
        used[value] = int((made[value] / usage).read_text())
        KNOB.leave(context, setting)
        assert cgroup.find(context.target).folder == home
        assert not (made[value] / "cgroup.procs").read_text().strip()
    assert 8 << 20 < used[VALUES[1]] <= LIMIT
    assert used["none"] > 64 << 20
    assert undone(context.journal) == [Undone.RESTORED, Undone.RESTORED]
    assert not any(path.exists() for path in made.values())
    assert context.journal.pending() == ()


def test_a_probe_that_is_killed_inside_leaves_groups_that_restore_removes(
    context: RunContext, probe: Probe
) -> None:
    KNOB.prepare(context, NONE, VALUES)
    made = groups(context)
    KNOB.enter(context, SOME, VALUES[1])
    probe.kill()
    assert made[VALUES[1]].is_dir()
    assert undone(context.journal) == [Undone.RESTORED, Undone.RESTORED]
    assert not any(path.exists() for path in made.values())
    assert undone(context.journal) == []


def test_a_group_that_somebody_is_in_keeps_its_entry_and_names_him(context: RunContext) -> None:
    KNOB.prepare(context, NONE, ("none",))
    group = groups(context)["none"]
    stranger = subprocess.Popen(["sleep", "60"])
    (group / "cgroup.procs").write_text(str(stranger.pid))
    with Probe(isolate=False) as fresh:
        (kept,) = restore(context.journal, Target(fresh))
    assert kept.kept
    assert str(stranger.pid) in (kept.problem or "")
    stranger.kill()
    stranger.wait()
    assert undone(context.journal) == [Undone.RESTORED]


def test_a_group_of_that_name_that_is_not_ours_is_refused_and_stays(context: RunContext) -> None:
    group = groups(context)["none"]
    group.mkdir()
    try:
        with pytest.raises(LabError, match="exists already"):
            KNOB.prepare(context, NONE, ("none",))
        assert context.journal.pending() == ()
    finally:
        group.rmdir()
