"""Runs of a study that compares places: the same steps in every arm, on its own place, with all places quiet before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recording import MOUNT, Recording, shape

from iotrial.design.plan import Plan
from iotrial.runner import session as session_module
from iotrial.runner.resolve import resolve
from iotrial.runner.run import Runner
from iotrial.runner.session import Session
from iotrial.study.reader import read_study

STUDY = """
[study]
name = "places"
question = "?"
[lab]
size = "64 MiB"
[[place]]
name = "one"
[[place]]
name = "other"
[[place]]
name = "aside"
holds = "files"
[[factor]]
name = "device"
knob = "lab.device"
levels = ["one", "other"]
[[factor]]
name = "scheduler"
knob = "block.scheduler"
levels = ["none"]
role = "condition"
MORE
[[workload]]
name = "read"
kind = "files"
files = 2
operations = ["open", "read", "close"]
cache = "CACHE"
"""
WHOLE = """
[design]
repeats = 2
[[factor]]
name = "filesystem"
knob = "filesystem.type"
levels = ["ext4", "xfs"]
plot = "whole"
"""


class Disks(Recording):
    """Recording with a loop device and a mount for each place."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.attached = 8
        self.mounts: dict[str, tuple[str, str]] = {}

    def _loop_free(self) -> dict[str, Any]:
        self.attached += 1
        return {"name": f"loop{self.attached}", "present": True, "node": True}

    def _loop_attach(self, device: str, **_: Any) -> dict[str, Any]:
        return {"device": f"/dev/{device}", "name": device, "direct_io": True, "inode": 1}

    def _mount(self, target: str, options: list[str], type: str, source: str = "", **_: Any) -> None:
        if source != "iotrial":
            self.mounts[target] = (type, source)

    def _read(self, path: str) -> dict[str, Any]:
        if not path.endswith("mountinfo"):
            return super()._read(path)
        line = MOUNT.format(words="rw", kind="{kind}", rest="rw")
        shown = [
            line.format(kind=kind).replace("/run/iotrial/ext4", target).replace("/dev/loop9", source)
            for target, (kind, source) in self.mounts.items()
        ]
        return {"data": "\n".join(shown or [MOUNT.format(words="rw", kind="tmpfs", rest="rw")])}

    def _files(self, devices: list[str], **fields: Any) -> dict[str, Any]:
        answer = super()._files(**fields)
        counters = answer["devices"]["loop9"]
        return {
            **answer,
            **dict.fromkeys(("devices", "devices_after_sync"), dict.fromkeys(devices, counters)),
        }


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, state: Path, tmp_path: Path) -> Iterator[Any]:
    monkeypatch.setattr(session_module, "Probe", Disks)
    monkeypatch.setattr(session_module.MachineLock, "__enter__", lambda self: self)
    monkeypatch.setattr(session_module.MachineLock, "__exit__", lambda *_: None)
    sessions: list[Session] = []

    def open_study(more: str = "", cache: str = "warm") -> tuple[Session, Plan, Disks]:
        text = STUDY.replace("MORE", more).replace("CACHE", cache)
        resolved = resolve(read_study(text, "test", trusted=False), root=True, lab="image")
        plan = Plan(resolved.study, "0" * 32)
        session = Session(resolved, plan, state=state, folder=str(tmp_path), trial="0" * 32)
        session.open()
        sessions.append(session)
        return session, plan, session.probe  # type: ignore[return-value]

    yield open_study
    for session in sessions:
        session.close()


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_every_arm_makes_the_same_steps_on_its_own_place(opened: Any, cache: str) -> None:
    session, plan, probe = opened(cache=cache)
    runner = Runner(session, injected=1.06)
    condition = plan.conditions[0]
    for run in plan.block(condition, 1).runs:
        runner.run(condition, run, block=1)  # the first run of all follows the making of the lab
    shapes = set()
    for index in range(2, 6):
        for run in plan.block(condition, index).runs:
            probe.calls.clear()
            assert runner.run(condition, run, block=index).problem is None
            shapes.add(tuple(shape(probe.calls)))
            root = f"/run/iotrial/{run.arm.treatment['device']}"
            touched = {f["target"] for verb, f in probe.calls if verb in ("mount", "unmount")}
            # the place aside is cold too, or not touched
            assert touched == {root, "/run/iotrial/aside"} if cache == "cold" else touched <= {root}
            (job,) = [f for verb, f in probe.calls if verb == "files"]
            own = session.places[run.arm.treatment["device"]].device
            assert job["devices"] == [own, session.places["aside"].device]
            assert job["sync_after"] == root
            queues = {
                f["path"].split("/")[3] for v, f in probe.calls if v == "write" and "/queue/" in f["path"]
            }
            assert queues <= {own}
    assert len(shapes) == 1, shapes


def test_all_places_are_written_back_before_anything_of_a_run_is_done(opened: Any) -> None:
    session, plan, probe = opened()
    runner = Runner(session, injected=1.06)
    condition = plan.conditions[0]
    for run in plan.block(condition, 0).runs:
        probe.calls.clear()
        runner.run(condition, run, block=0)
        first = probe.calls[:3]
        assert [verb for verb, _ in first] == ["syncfs"] * 3
        assert [fields["path"].rpartition("/")[2] for _, fields in first] == ["one", "other", "aside"]


def test_a_file_system_that_is_a_whole_plot_is_made_once_a_stretch_on_every_place(opened: Any) -> None:
    session, plan, probe = opened(more=WHOLE)
    runner = Runner(session, injected=1.06)
    condition = plan.conditions[0]
    made: dict[tuple[int | None, str], int] = {}
    for run in plan.block(condition, 0).runs:
        probe.calls.clear()
        assert runner.run(condition, run, block=0).problem is None
        place = run.arm.treatment["device"]
        formats = [f["argv"] for verb, f in probe.calls if verb == "run" and f["argv"][0].startswith("mkfs.")]
        assert all(argv[-1] == f"/dev/{session.places[place].device}" for argv in formats)
        made[run.plot, place] = made.get((run.plot, place), 0) + len(formats)
    assert set(made.values()) == {1}
    assert len(made) == 2 * 3  # two levels and the copy of the reference's stretch, on two places


def test_all_places_hold_the_same_files(opened: Any) -> None:
    _, _, probe = opened()
    sets = {f["set"]: f for verb, f in probe.calls if verb == "fileset"}
    assert set(sets) == {"one-s0", "other-s0", "aside-own"}
    one, other = sets["one-s0"], sets["other-s0"]
    assert {k: v for k, v in one.items() if k not in ("set", "dir")} == {
        k: v for k, v in other.items() if k not in ("set", "dir")
    }
    assert sets["aside-own"]["count"] == 0
