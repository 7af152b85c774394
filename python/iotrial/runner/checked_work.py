"""Which works of a study are checked after power cuts, and what this lab cannot check. For plans too: imports little."""

from __future__ import annotations

import os

from iotrial.knobs.encryption import BlockEncryption
from iotrial.knobs.machine import GuestDiskFormat
from iotrial.runner.resolve import Resolved
from iotrial.study.model import Holds, Study
from iotrial.study.places import DISK_LABS, GUEST
from iotrial.study.work import HasCheck


def checked_workloads(study: Study, lab: str) -> tuple[str, ...]:
    """Return the workloads that are checked for their acknowledged writes in this kind of lab; none without ``check``."""
    if not study.check:
        return ()
    return tuple(
        one.name
        for one in study.workloads
        if isinstance(one.work, HasCheck) and one.work.checks() and (lab != GUEST or one.work.collects())
    )


def why_not(resolved: Resolved) -> str | None:
    """Return why the power cannot be cut in this lab, or None."""
    study = resolved.study
    if resolved.lab not in DISK_LABS:
        return f"a lab of kind {resolved.lab} has no disk to cut the power of; use the image lab, as root"
    if os.geteuid() != 0:
        return "a disk that logs its writes needs root"
    if any(site.disks > 1 for site in resolved.sites):
        return "the power of an array is not cut"
    if any(setting.knob == BlockEncryption.name for setting in study.settings):
        return "what a power cut leaves of an encrypted disk cannot be mounted without its mapping"
    if any(setting.knob == GuestDiskFormat.name and setting.value != "raw" for setting in study.settings):
        return "what a power cut leaves of an image in qcow2 cannot be mounted without QEMU"
    if any(site.kind == "device" for site in resolved.sites):
        return "the power of a real disk is not cut; use the image lab"
    if study.log is not None:
        return "the log of the file system is on another disk"
    if len([site for site in resolved.sites if site.holds is Holds.RUNS]) > 1 or study.extra_places:
        return "the study uses several disks"
    return None
