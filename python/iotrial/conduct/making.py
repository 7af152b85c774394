"""Works that make the lab's file system themselves: it is taken away before they begin, and looked at after they have ended.

The knobs that say how it is made are turned and read back as everywhere; only that mkfs runs in the timed part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from iotrial.conduct.answers import failure_of
from iotrial.conduct.resolve import Turn
from iotrial.knobs.declaration import Stage
from iotrial.lab.disk import disk_place
from iotrial.lab.knob import Subject
from iotrial.lab.knobs.filesystem import FilesystemType
from iotrial.study.work import Work
from iotrial.workloads.mkfs import MkfsWork


def wished(subject: Subject, work: Work, turns: Sequence[Turn]) -> bool:
    """Whether the work makes the file system; then what the knobs wish for is noted."""
    if not work.makes_filesystem:
        return False
    for turn in turns:
        turn.knob.write(subject, turn.setting, turn.value)
    return True


def begin(subject: Subject, work: Work) -> None:
    """The last thing before the timed part: the device is nobody's, and nothing of it is cached."""
    if work.makes_filesystem:
        assert isinstance(work, MkfsWork)
        place = disk_place(FilesystemType.name, subject.place)
        subject.work.mkfs = place.clear_for_mkfs(work.volume_bytes)


def end(subject: Subject, work: Work, turns: Iterable[Turn], answer: dict[str, Any]) -> None:
    """Mount what was made, read back that it is what the knobs wished for, and note in the answer what is free in it.

    Raises KnobError.
    """
    if not work.makes_filesystem or failure_of(answer) is not None:
        return
    assert isinstance(work, MkfsWork)
    place = disk_place(FilesystemType.name, subject.place)
    place.to_neutral(always=False, fresh=False)
    for turn in turns:
        if turn.knob.stage is Stage.FORMAT:
            turn.knob.verify(subject, turn.setting, turn.value)
    found: Mapping[str, int] = subject.worker.call("statfs", path=place.root)
    answer["made"] = {**found, "volume_bytes": work.volume_bytes or place.size_bytes}
