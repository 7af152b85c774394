"""Turns the probe's answer for one run into responses, evidence and checks, named as in the study."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from iotrial.errors import KnobError, SettingChanged, UnsupportedLevel
from iotrial.knobs.knob import RunContext
from iotrial.lab import cache
from iotrial.runner import work_server
from iotrial.runner.counters import counted, summed
from iotrial.runner.sampling import series_of
from iotrial.runner.touched import Touched, elsewhere_bytes, is_unused, uncounted
from iotrial.stats.voids import Void
from iotrial.store.checks import BY_SECOND, FACTS, SERIES, by_word
from iotrial.study.neighbour import Neighbour
from iotrial.study.work import TO_DISK, JobContext, Work, to_take_off
from iotrial.units import format_bytes

KERNEL_BLOCK = 512
#: Key among the checks of a run that made no use of the lab's devices.
UNUSED = "unused"
#: A run must read from the device this share of what it reads past the page cache.
LEAST_PAST_CACHE = 0.9
#: file systems on disks, for which the kernel counts what a process reads
COUNTED = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one run. Responses in seconds, bytes or counts; ``started_ns`` on this machine's monotonic clock."""

    responses: Mapping[str, float] = field(default_factory=dict)
    evidence: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, list[list[int]]] = field(default_factory=dict)
    checks: Mapping[str, object] = field(default_factory=dict)
    started_ns: int = 0
    failure: str | None = None
    void: Void | None = None
    problem: str | None = None


def voided(error: KnobError | UnsupportedLevel) -> Outcome:
    """Return the outcome of a run without the setting that it was to have."""
    rule = Void.SETTING_CHANGED if isinstance(error, SettingChanged) else Void.READ_BACK_FAILED
    return Outcome(void=rule, problem=error.message)


def outcome_of(
    answer: dict[str, Any],
    context: RunContext,
    work: Work,
    state: str,
    job: JobContext,
    declared: Collection[str],
    seen: Touched | None = None,
    *,
    neighbour: Neighbour | None = None,
    clock_ahead_ns: int = 0,
) -> Outcome:
    """Build the outcome from the probe's answer.

    ``clock_ahead_ns``: by how much the probe's monotonic clock is ahead of this machine's (that of a guest). ``state`` is the
    cache state that was prepared. ``declared`` are the names of the study's responses; every other number is evidence.
    ``seen``: what the work was seen to use before.
    """
    files = context.files
    assert files is not None
    usage = answer["usage"]
    devices = devices_of(context)
    counters = summed(answer["devices"], devices.values())
    own = summed(answer["devices"], context.place.devices.values())
    served = work_server.numbers(answer)
    in_process = (
        usage["blocks_in"] * KERNEL_BLOCK + served.get("server_fetched_bytes", 0.0),
        usage["blocks_out"] * KERNEL_BLOCK + served.get("server_dirtied_bytes", 0.0),
    )
    # what others read from a device in use proves nothing
    bytes_read = own["read_bytes"] if own and context.place.own_device else in_process[0]
    spun_wall, spun_cpu = to_take_off(answer, job.stretched)
    numbers: dict[str, float] = {
        "wall": answer["wall_ns"] / 1e9 - spun_wall,
        "user": max(0.0, answer["user_ns"] / 1e9 - spun_cpu),
        "sys": answer["sys_ns"] / 1e9,
        "cpu": answer["cpu_ns"] / 1e9 - spun_cpu,
        "device_read_bytes": float(counters["read_bytes"] if counters else in_process[0]),
        "device_write_bytes": float(counters["write_bytes"] if counters else in_process[1]),
        **{key: float(usage[key]) for key in ("faults_minor", "faults_major")},
        **served,
        **activity(answer, context.place.device),
        **answer.get("served", {}),
    }
    synced = answer.get("devices_after_sync")
    if devices and synced:
        numbers["device_write_bytes_synced"] = float(summed(synced, devices.values())["write_bytes"])
    if not work.timed:
        for name in ("wall", "user", "sys", "cpu"):
            del numbers[name]
    if TO_DISK in declared and {"wall", "nas_sync"} <= numbers.keys():
        numbers[TO_DISK] = numbers["wall"] + numbers["nas_sync"]
    found = work.measured(answer, job)
    numbers |= found.numbers
    if neighbour is not None and failure_of(answer) is None:
        numbers |= neighbour.measured(answer)
    evidence = {
        "switches_voluntary": float(usage["switches_voluntary"]),
        "switches_involuntary": float(usage["switches_involuntary"]),
        **counted(answer, devices, context.place.queues),
        **context.work.evidence,
    }
    elsewhere = elsewhere_bytes(evidence, answer, devices.values())
    if elsewhere is not None:
        evidence["work_elsewhere_bytes"] = elsewhere
    expected = work.reads_bytes(files.bytes_each, files.count) if context.place.data is None else 0
    expected = max(expected, int(answer.get("least_read_bytes", 0)), int(LEAST_PAST_CACHE * found.cold_bytes))
    if seen is not None:
        expected = max(expected, seen.least_read(files.bytes))
    if uncounted(context.place):
        expected = 0
    return Outcome(
        responses={name: value for name, value in numbers.items() if name in declared},
        evidence=evidence | {k: v for k, v in numbers.items() if k not in declared},
        histograms=found.histograms,
        checks={
            "cache": state,
            "bytes_read": bytes_read,
            "bytes_expected": expected,
            **({UNUSED: True} if is_unused(answer, devices.values(), elsewhere, state) else {}),
            **clock_of(answer, clock_ahead_ns),
            **_series(answer, context.place.device),
            **({BY_SECOND: found.seconds} if found.seconds else {}),
            **found.checks,
            **({FACTS: by_word(found.facts)} if found.facts else {}),
        },
        started_ns=int(answer["started_ns"]) - clock_ahead_ns,
        failure=failure_of(answer)
        or found.missing
        or (_read_holes(found.past_cache_bytes, bytes_read) if _counts_reads(context, answer) else None),
        void=None
        if state == "warm" and work.may_read_warm()
        else cache.void_rule(
            state,
            bytes_read=int(bytes_read),
            bytes_expected=expected,
            bytes_kept=int(evidence.get(cache.KEPT, 0)),
            most_kept=0 if seen is None else seen.most_kept,
        ),
    )


def _counts_reads(context: RunContext, answer: Mapping[str, Any]) -> bool:
    """Return whether the bytes that a run has read are counted: by its own device, or by the kernel for its processes."""
    place = context.place
    if context.worker is not context.target:
        return False
    if place.own_device and summed(answer["devices"], place.devices.values()):
        return True
    return str(place.facts().get("filesystem")) in COUNTED


def _read_holes(past_cache: int, bytes_read: float) -> str | None:
    """Return a message if less came from a device than was read past the page cache."""
    if bytes_read >= LEAST_PAST_CACHE * past_cache:
        return None
    return (
        f"the program read {format_bytes(past_cache)} past the page cache, but only {format_bytes(int(bytes_read))} came "
        "from the device: the rest was never written (with fio, overwrite=1 in the job that writes lays its files out first)"
    )


def devices_of(context: RunContext) -> dict[str, str]:
    """Return the block devices that a run's work may reach, by what each holds: its place's, and those of
    additional places.
    """
    extra = {
        f"beside {name}": place.device
        for name, place in context.extra_places.items()
        if place.device is not None
    }
    return {**context.place.devices, **extra}


def requested_of(context: RunContext) -> tuple[str, ...]:
    """Return the block devices that receive requests: for an array its disks, since the array itself gets none."""
    place = context.place
    return tuple(
        device for device in counters_of(context) if device in place.queues or device != place.device
    )


def counters_of(context: RunContext) -> tuple[str, ...]:
    """Return the block devices that the working probe reads counters of around a run.

    These are all devices that the work may reach, and the disks of an array; none if another machine has
    them.
    """
    if context.worker is not context.target:
        return ()
    return tuple(dict.fromkeys((*context.place.queues, *devices_of(context).values())))


def _series(answer: dict[str, Any], device: str | None) -> dict[str, object]:
    if "samples" not in answer:
        return {}
    found = series_of(
        answer["samples"], device, started_ns=int(answer["started_ns"]), wall_ns=int(answer["wall_ns"])
    )
    return {} if found is None else {SERIES: found}


def clock_of(answer: dict[str, Any], clock_ahead_ns: int = 0) -> dict[str, object]:
    """Return the wall-clock time of this machine when the timed part began, and its duration.

    They assign a meter's readings to the run. The wall clock may be set at any time. ``clock_ahead_ns``: by how much the
    monotonic clock of the answer is ahead of this machine's.
    """
    lasted_ns = (answer.get("around") or {}).get("lasted_ns")
    if lasted_ns is None:
        return {}
    ago_s = (time.monotonic_ns() + clock_ahead_ns - int(answer["started_ns"])) / 1e9
    return {"clock": {"unix_s": round(time.time() - ago_s, 4), "lasted_s": lasted_ns / 1e9}}


def failure_of(answer: dict[str, Any]) -> str | None:
    """Return a message for the first failure of a job; None if there is none."""
    failures = answer.get("failures") or []
    if not failures:
        return None
    first = failures[0]
    if first.get("timed_out"):
        how = "did not end in time"
    elif first.get("signal") is not None:
        how = f"was killed by signal {first['signal']}"
    else:
        how = f"ended with status {first.get('exit')}"
    text = str(first.get("stderr", "")).strip()
    return f"{first['argv0']} {how}" + (f": {text[-200:]}" if text else "")


def activity(answer: Mapping[str, Any], device: str | None) -> dict[str, float]:
    """Return how busy the machine and the lab's device were in the timed part of a run, from kernel counters.

    They are evidence of every run, and responses if a study names them (docs/study-files.md, `[[response]]`).

    - ``io_wait`` and ``io_wait_most``: percent, of all processors and of the one that waited most.
    - ``system_cpu``: processor seconds of the whole machine.
    - ``device_busy`` in percent and ``device_depth``, the mean number of requests in flight: only if the lab
      has its own device.
    """
    around = answer.get("around") or {}
    lasted = (around.get("lasted_ns") or 0) - answer.get("spun", {}).get("wall_ns", 0)
    if lasted <= 0:
        return {}
    found: dict[str, float] = {}
    processors = around.get("processors")
    if processors:
        # iowait is counted in ticks of 1/100 s: in a short run it may exceed the run's time.
        found["io_wait"] = min(100.0, 100.0 * processors["iowait_ns"] / (lasted * processors["count"]))
        each = processors["iowait_each_ns"]
        if each:
            found["io_wait_most"] = min(100.0, 100.0 * max(each) / lasted)
        spent = processors["user_ns"] + processors["sys_ns"] - answer.get("spun", {}).get("cpu_ns", 0)
        found["system_cpu"] = max(0.0, spent / 1e9)
    counters = (answer.get("devices") or {}).get(device or "")
    if counters:
        found["device_busy"] = min(100.0, 100.0 * counters["busy_ns"] / lasted)
        found["device_depth"] = counters["queue_ns"] / lasted
    return found
