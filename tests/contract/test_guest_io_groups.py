"""Limits of I/O by control groups on a real kernel with version 2, which a guest has: set, obeyed, restored."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from booted import Booted

from iotrial.errors import UnsupportedLevel
from iotrial.guest.place import disk_with_serial
from iotrial.knobs import cgroup as knobs
from iotrial.knobs.knob import RunContext, Undone, WorkDraft
from iotrial.lab import cgroup, host, registry
from iotrial.lab.journal import Journal
from iotrial.lab.restore import restore
from iotrial.study.model import Setting

GROUP = "backup.slice/backup.service"
FOLDER = f"/sys/fs/cgroup/{GROUP}"
KEY = (("key", GROUP),)
MIB = 1 << 20
QOS = "rpct=95 rlat=5000 wpct=90 wlat=9000 min=50 max=150"
#: by knob, a value, its file, and words of the disk's line that the kernel then shows
VALUES = {
    "io.max": ("wbps=1MiB riops=50", f"{FOLDER}/io.max", "rbps=max wbps=1048576 riops=50 wiops=max"),
    "io.latency": ("10 ms", f"{FOLDER}/io.latency", "target=10000"),
    "io.cost.qos": (QOS, "/sys/fs/cgroup/io.cost.qos", "enable=1 ctrl=user rpct=95.00 rlat=5000"),
}


@pytest.fixture
def context(booted: Booted, tmp_path: Path) -> RunContext:
    target = booted.target
    disk = disk_with_serial(target, "one")
    cgroup.mount_in_guest(target)
    for folder in ("/sys/fs/cgroup/backup.slice", FOLDER):
        if not target.exists(folder):
            target.call("mkdir", path=folder, mode="0755")
    target.write("/sys/fs/cgroup/backup.slice/cgroup.subtree_control", "+io")
    place = SimpleNamespace(
        worker=target, kind="guest", device=disk, whole=disk, queues=(disk,), label="the disk"
    )
    return RunContext(
        target=target,
        place=place,  # type: ignore[arg-type]
        journal=Journal(tmp_path / "journal"),
        files=None,
        work=WorkDraft(),
        boot_id=host.boot_id(target),
        trial="0badcafe",
    )


def line_of(context: RunContext, path: str) -> str:
    """Return what the kernel shows for the disk; "" if nothing."""
    number = context.target.read(f"/sys/block/{context.place.device}/dev").strip()
    lines = context.target.read(path).split("\n")
    return next((line.removeprefix(f"{number} ") for line in lines if line.startswith(f"{number} ")), "")


def undone(context: RunContext) -> list[Undone | None]:
    """Undo what the journal says, as `restore` does after the conductor was killed."""
    return [one.outcome for one in restore(context.journal, context.target)]


@pytest.mark.parametrize("name", VALUES)
def test_a_limit_is_in_force_and_is_restored_from_the_journal_alone(context: RunContext, name: str) -> None:
    value, path, shown = VALUES[name]
    if not context.target.exists(path):
        pytest.skip(f"this kernel has no {name}")
    knob, setting = registry.knob(name), Setting(name, value, () if name == "io.cost.qos" else KEY)
    wanted = knob.parse(setting)
    before = knob.read(context, setting)
    knob.prepare(context, setting, (wanted,))
    knob.write(context, setting, wanted)
    knob.verify(context, setting, wanted)
    assert line_of(context, path).startswith(shown)
    assert undone(context) == [Undone.RESTORED]
    assert knob.read(context, setting) == before
    assert shown not in line_of(context, path)
    assert context.journal.pending() == ()


def test_a_weight_is_in_force_and_is_restored(context: RunContext) -> None:
    knob, setting = registry.knob("io.weight"), Setting("io.weight", "10", KEY)
    knob.prepare(context, setting, ("10",))
    knob.write(context, setting, "10")
    paths = [f"{FOLDER}/{file}" for file in ("io.weight", "io.bfq.weight")]
    there = [path for path in paths if context.target.exists(path)]
    assert there
    assert {context.target.read(path).split("\n")[0] for path in there} == {"default 10"}
    assert set(undone(context)) == {Undone.RESTORED}
    assert {context.target.read(path).split("\n")[0] for path in there} == {"default 100"}


def test_the_groups_of_a_trial_limit_who_joins_them_and_are_removed(context: RunContext) -> None:
    knob, key = registry.knob("io.max"), (("key", "neighbour"),)
    limit = Setting("io.max", "wbps=1MiB", key)
    value = knob.parse(limit)
    knob.prepare(context, limit, (value, "none"))
    groups = cgroup.groups_of(context.target, "io.max", context.trial)
    argv = ["dd", "if=/dev/zero", f"of=/dev/{context.place.device}", "bs=256k", "count=8", "oflag=direct"]
    seconds = {}
    for one in ("none", value):
        knob.write(context, limit, one)
        assert context.work.groups == groups
        knobs.join(context, groups.neighbour)
        begun = context.target.call("time")["monotonic_ns"]
        assert context.target.run(argv).exit_status == 0
        seconds[one] = (context.target.call("time")["monotonic_ns"] - begun) / 1e9
        knobs.join(context, groups.home)
    # 2 MiB; the first slice of the limit may be free
    assert seconds[value] > 1.4
    assert seconds["none"] < seconds[value]
    words = dict(word.split("=") for word in line_of(context, f"{groups.neighbour}/io.stat").split())
    assert int(words["wbytes"]) == 4 * MIB
    assert "wbytes" not in line_of(context, f"{groups.work}/io.stat")
    assert undone(context) == [Undone.RESTORED, Undone.RESTORED]
    assert not context.target.exists(groups.neighbour)
    assert not context.target.exists(groups.work)


def test_a_group_that_does_not_exist_is_refused_before_anything_is_recorded(context: RunContext) -> None:
    knob = registry.knob("io.max")
    with pytest.raises(UnsupportedLevel, match="there is no control group"):
        knob.prepare(context, Setting("io.max", "none", (("key", "no.slice"),)), ("none",))
    assert context.journal.pending() == ()
