"""Order of a device lab's steps: claim, check, journal, mark, only then write; the mark is removed last."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recording import Recording, shape

from iotrial.design.plan import Plan
from iotrial.errors import LabError, RequestError
from iotrial.lab import disk_identity
from iotrial.lab.guard import Consent, claim
from iotrial.lab.target import Target
from iotrial.runner import session as session_module
from iotrial.runner.resolve import resolve
from iotrial.runner.run import Runner
from iotrial.runner.session import Session
from iotrial.study.catalogue import find
from iotrial.study.select import select

LAB = 512 << 20


class Disk(Recording):
    """Recording with an empty disk, sdx, that notes the journal's stage at each call."""

    journal: Path

    def __init__(self, *, isolate: bool, **_: object) -> None:
        super().__init__(isolate=isolate)
        self.marked: str | None = None
        self.uuid = ""
        self.stages: list[str] = []

    def _stage(self) -> str:
        entries = [json.loads(path.read_text().splitlines()[0]) for path in self.journal.glob("*.entry")]
        return next((e["identity"]["stage"] for e in entries if e["knob"] == "lab.device"), "none")

    def call(self, verb: str, **fields: Any) -> dict[str, Any]:
        self.stages.append(self._stage())
        return super().call(verb, **fields)

    def _device_claim(self, **_: Any) -> dict[str, Any]:
        return {
            "device": "sdx",
            "rdevice": [8, 1],
            "descriptor": "/proc/1/fd/9",
            "diskseq": 1,
            "users": [],
            "size": LAB + 4096,
            "sector": 512,
            "read_only": False,
            "partitions": [],
        }

    def _device_users(self, **_: Any) -> dict[str, Any]:
        return {"users": []}

    def _device_check(self, **_: Any) -> dict[str, Any]:
        return {"nonzero": None}

    _device_scan = _device_check

    def _device_mark(self, text: str, **_: Any) -> None:
        self.marked = text

    def _device_marked(self, **_: Any) -> dict[str, Any]:
        return {"text": self.marked}

    def _device_window(self, **_: Any) -> dict[str, Any]:
        return {"image": 1, "inode": 1}

    def _loop_status(self, **_: Any) -> dict[str, Any]:
        return {"attached": False, "inode": None}

    def _files(self, **_: Any) -> dict[str, Any]:
        answer = super()._files()
        counters = {"sdx": answer["devices"]["loop9"]}
        return {**answer, "devices": counters, "devices_after_sync": counters}

    def _run(self, argv: list[str], **_: Any) -> dict[str, Any]:
        if argv[0].startswith("mkfs"):
            self.uuid = argv[argv.index("-U") + 1]
        found = json.dumps({"signatures": [{"type": "ext4", "uuid": self.uuid}]})
        said = found if argv[0] == "wipefs" else ""
        return {**super()._run(), "exit": 2 if argv[0] == "blkid" else 0, "stdout": said}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, state: Path, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    monkeypatch.setattr(session_module, "Probe", Disk)
    monkeypatch.setattr(Disk, "journal", state / "journal", raising=False)
    monkeypatch.setattr(session_module.MachineLock, "__enter__", lambda self: self)
    monkeypatch.setattr(session_module.MachineLock, "__exit__", lambda *_: None)
    monkeypatch.setattr(disk_identity, "names_of", lambda *_: disk_identity.Names(frozenset({"s-1234"})))
    monkeypatch.setattr(disk_identity, "disks_named", lambda *_: ("sdx",))

    def open_study(**conditions: list[str]) -> tuple[Session, Plan, Disk]:
        study = select(find("files/permissions"), conditions=conditions)
        consent = Consent("/dev/disk/by-id/x", "S-1234")
        resolved = resolve(study, root=True, lab="device", consent=consent)
        plan = Plan(resolved.study, "0" * 32)
        session = Session(resolved, plan, state=state, folder=str(tmp_path), trial="0" * 32)
        session.open()
        return session, plan, session.probe  # type: ignore[return-value]

    return open_study


def test_a_disk_is_looked_at_through_its_claim_noted_and_marked_before_it_is_written_to(opened: Any) -> None:
    session, _, probe = opened(workload=["probe"], cache=["cold"])
    verbs = [verb for verb, _ in probe.calls]
    wanted = ["device_claim", "device_users", "run", "device_check", "device_scan", "device_mark"]
    wanted += ["device_window", "loop_attach", "loop_detach", "device_release"]
    positions = [verbs.index(verb) for verb in wanted]
    assert positions == sorted(positions)
    assert probe.calls[verbs.index("run")][1]["argv"] == ["blkid", "-p", "-o", "export", "/proc/1/fd/9"]
    assert probe.stages[verbs.index("device_scan")] == "none"
    assert probe.stages[verbs.index("device_mark")] == "announced"
    assert probe.stages[verbs.index("device_window")] == "making"
    assert probe.stages[verbs.index("device_release")] == "made"
    assert verbs[verbs.index("device_release") + 1] == "mount"
    session.close()


def test_nothing_but_the_claim_is_told_a_path_of_the_disk_in_dev(opened: Any) -> None:
    session, _, probe = opened(workload=["probe"], cache=["cold"])
    session.close()
    paths = [
        (verb, value)
        for verb, fields in probe.calls
        for value in (*fields.values(), *fields.get("argv", ()))
        if isinstance(value, str) and value.startswith("/dev/") and "loop" not in value
    ]
    assert set(paths) == {("device_claim", "/dev/disk/by-id/x"), ("evict_device", "/dev/sdx")}


def test_after_every_unmount_the_claim_is_taken_back_and_the_mark_looked_for(opened: Any) -> None:
    session, plan, probe = opened(workload=["probe"], cache=["cold"])
    runner = Runner(session, injected=1.06)
    for run in plan.block(plan.conditions[0], 0).runs:
        assert runner.run(plan.conditions[0], run, block=0).problem is None
    session.close()
    verbs = [verb for verb, _ in probe.calls]
    of_disk = [
        i for i, (verb, f) in enumerate(probe.calls) if verb == "unmount" and f["target"].endswith("ext4")
    ]
    assert len(of_disk) > 4
    for at in of_disk:
        assert verbs[at : at + 4] == ["unmount", "evict_device", "device_reclaim", "device_marked"]


def test_at_the_end_the_range_is_zeroed_and_then_the_mark_and_then_the_disk_given_up(opened: Any) -> None:
    session, _, probe = opened(workload=["probe"], cache=["cold"])
    session.close()
    zeroed = [(f["offset"], f["length"]) for verb, f in probe.calls if verb == "device_zero"]
    assert zeroed == [(0, LAB), (LAB, 4096)]
    verbs = [verb for verb, _ in probe.calls]
    first = verbs.index("device_zero")
    assert verbs[first : first + 3] == ["device_zero", "device_zero", "device_close"]
    assert probe.stages[first] == "zeroing"
    assert list(probe.journal.glob("*.entry")) == []


def test_a_disk_that_carries_another_mark_when_it_is_taken_back_ends_the_trial(opened: Any) -> None:
    session, plan, probe = opened(workload=["probe"], cache=["cold"])
    probe.marked = "trial of somebody else"
    with pytest.raises(LabError, match="expected the mark of this trial"):
        Runner(session, injected=1.06).run(
            plan.conditions[0], plan.block(plan.conditions[0], 0).runs[0], block=0
        )
    session.close()
    assert not any(verb == "device_zero" for verb, _ in probe.calls)


def test_a_disk_with_one_signature_that_is_not_the_labs_is_not_zeroed(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _, probe = opened(workload=["probe"], cache=["cold"])
    plain = Disk._run

    def run(disk: Disk, argv: list[str], **words: Any) -> dict[str, Any]:
        both = [{"type": "ext4", "uuid": probe.uuid}, {"type": "xfs", "uuid": "theirs"}]
        more = {"stdout": json.dumps({"signatures": both})} if argv[0] == "wipefs" else {}
        return {**plain(disk, argv, **words), **more}

    monkeypatch.setattr(Disk, "_run", run)
    (place,) = session.places.values()
    with pytest.raises(LabError, match="another program has written to it"):
        place.close()
    assert not any(verb == "device_zero" for verb, _ in probe.calls)


@pytest.mark.parametrize("status", [0, 4, 8])
def test_a_disk_is_taken_only_where_blkid_says_that_it_found_nothing(
    opened: Any, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    plain = Disk._run

    def run(disk: Disk, argv: list[str], **words: Any) -> dict[str, Any]:
        answer = plain(disk, argv, **words)
        return {**answer, "exit": status} if argv[0] == "blkid" else answer

    monkeypatch.setattr(Disk, "_run", run)
    with pytest.raises(RequestError, match=f"blkid ended with {status}"):
        opened(workload=["probe"])


@pytest.mark.parametrize("discard", [True, False])
def test_what_has_come_onto_the_disk_of_a_resumed_trial_since_is_refused(
    opened: Any, monkeypatch: pytest.MonkeyPatch, discard: bool
) -> None:
    monkeypatch.setattr(Disk, "_device_scan", lambda *_, **__: {"nonzero": 8192})
    disk = Disk(isolate=True)
    with pytest.raises(RequestError, match="there is data at byte 8,192"):
        claim(Target(disk), Consent(None, "S-1234", discard_contents=discard), LAB)
    assert disk.calls[-1][0] == "device_close"


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_every_arm_makes_the_same_transitions(cache: str, opened: Any) -> None:
    session, plan, probe = opened(workload=["probe"], cache=[cache])
    runner = Runner(session, injected=1.06)
    shapes = set()
    for index in range(2):
        for run in plan.block(plan.conditions[0], index).runs:
            probe.calls.clear()
            assert runner.run(plan.conditions[0], run, block=0).problem is None
            shapes.add(tuple(shape(probe.calls)))
    session.close()
    assert len(shapes) == 1
