"""Works that make the lab's file system themselves: it is removed before they begin, and checked after they end.

The knobs that control mkfs are set and read back as usual; only mkfs itself runs in the timed part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from iotrial.knobs.declaration import Stage
from iotrial.lab.disk import disk_place
from iotrial.lab.knob import RunContext
from iotrial.lab.knobs.filesystem import FilesystemType
from iotrial.runner.outcome import failure_of
from iotrial.runner.resolve import KnobSetting
from iotrial.study.work import Work
from iotrial.workloads.mkfs import MkfsWork


def wished(subject: RunContext, work: Work, turns: Sequence[KnobSetting]) -> bool:
    """If the work makes the file system, record the options its knobs want and return True."""
    if not work.makes_filesystem:
        return False
    for turn in turns:
        turn.write(subject)
    return True


def begin(subject: RunContext, work: Work) -> None:
    """Clear the device, right before the timed part: unused, and nothing of it cached."""
    if work.makes_filesystem:
        assert isinstance(work, MkfsWork)
        place = disk_place(FilesystemType.name, subject.place)
        subject.work.mkfs = place.clear_for_mkfs(work.volume_bytes)


def end(subject: RunContext, work: Work, turns: Iterable[KnobSetting], answer: dict[str, Any]) -> None:
    """Mount the new file system, verify its knobs, and add its free space to the answer.

    Raises KnobError.
    """
    if not work.makes_filesystem or failure_of(answer) is not None:
        return
    assert isinstance(work, MkfsWork)
    place = disk_place(FilesystemType.name, subject.place)
    place.to_neutral(always=False, fresh=False)
    for turn in turns:
        if turn.knob.stage is Stage.FORMAT:
            turn.verify(subject)
    found: Mapping[str, int] = subject.worker.call("statfs", path=place.root)
    answer["made"] = {**found, "volume_bytes": work.volume_bytes or place.size_bytes}
