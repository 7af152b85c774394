"""Works that make the lab's file system themselves: it is removed before they begin, and checked after they end.

The knobs that control mkfs are set and read back as usual; only mkfs itself runs in the timed part. ``check`` refuses
settings that do not fit such a work, before anything is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from iotrial.conduct.probe_job import failure_of
from iotrial.conduct.resolve import KnobSetting
from iotrial.errors import RequestError
from iotrial.knobs.declaration import Stage
from iotrial.lab import registry
from iotrial.lab.disk import disk_place
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.knob import RunContext
from iotrial.lab.knobs.filesystem import FilesystemType
from iotrial.lab.knobs.use import FilesystemAge
from iotrial.study.model import Study, Workload
from iotrial.study.work import Work, varied
from iotrial.units import format_size
from iotrial.workloads.mkfs import VOLUME, MkfsWork


def wished(subject: RunContext, work: Work, turns: Sequence[KnobSetting]) -> bool:
    """If the work makes the file system, record the options its knobs want and return True."""
    if not work.makes_filesystem:
        return False
    for turn in turns:
        turn.knob.write(subject, turn.setting, turn.value)
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
            turn.knob.verify(subject, turn.setting, turn.value)
    found: Mapping[str, int] = subject.worker.call("statfs", path=place.root)
    answer["made"] = {**found, "volume_bytes": work.volume_bytes or place.size_bytes}


#: Stages with knobs that have no effect while a file system is made.
IDLE = frozenset({Stage.FILES, Stage.MOUNT, Stage.CACHE})


def check(study: Study, *, lab_bytes: int) -> None:
    """Raise RequestError for settings that do not fit such a work.

    Refused are other workloads, whose files it would destroy; knobs that have no effect on it; and a file
    system larger than the lab or smaller than its type allows.
    """
    own = [w for w in study.workloads if w.work.makes_filesystem]
    if not own:
        return
    where = f"workload {own[0].name}"
    others = [w.name for w in study.workloads if w not in own]
    if others:
        raise RequestError(f"{where}: it makes the file system anew, and takes the files of {others[0]} away")
    for setting in study.settings:
        if setting.knob == FilesystemAge.name or registry.knob(setting.knob).stage in IDLE:
            raise RequestError(f"{where}: knob {setting.knob} turns nothing while a file system is made")
    types = {s.value for s in study.settings if s.knob == FilesystemType.name} or {study.lab.filesystem}
    smallest = max(FILESYSTEMS[name].smallest_bytes for name in types)
    for workload in own:
        if workload.cache not in (None, "as-is"):
            raise RequestError(
                f"workload {workload.name}: there is nothing to be cached", hint="leave `cache` out"
            )
        for volume in _volumes(study, workload):
            if volume > lab_bytes:
                raise RequestError(
                    f"workload {workload.name}: a file system of {format_size(volume)} in a lab of {format_size(lab_bytes)}",
                    hint="make it larger: [lab] size",
                )
            if 0 < volume < smallest:
                raise RequestError(
                    f"workload {workload.name}: a file system of {format_size(volume)}, wanted at least "
                    f"{format_size(smallest)} for {', '.join(sorted(types))}"
                )


def _volumes(study: Study, workload: Workload) -> list[int]:
    given = [s for s in study.settings if s.knob == "work.option"]
    found = []
    for options in [{}, *({VOLUME: setting.value} for setting in given)]:
        work = varied(workload.work, options)
        assert isinstance(work, MkfsWork)
        found.append(work.volume_bytes)
    return found
