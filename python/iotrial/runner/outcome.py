"""Turns the probe's answer for one run into responses, evidence and checks, named as in the study."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
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
from iotrial.study.work import TO_DISK, JobContext, Measured, Work, to_take_off
from iotrial.units import format_bytes

KERNEL_BLOCK = 512
#: Key among the checks of a run that made no use of the lab's devices.
UNUSED = "unused"
ELSEWHERE = "work_elsewhere_bytes"
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


@dataclass(frozen=True)
class MeasuredRun:
    """A run that the probe has measured: its answer, and the job and lab that it is the answer to."""

    answer: dict[str, Any]
    context: RunContext
    work: Work
    job: JobContext
    #: the cache state that was prepared
    state: str
    #: names of the study's responses; every other number is evidence
    declared: Collection[str]
    #: what the work was seen to use before
    seen: Touched | None = None
    neighbour: Neighbour | None = None
    #: by how much the probe's monotonic clock is ahead of this machine's (that of a guest)
    clock_ahead_ns: int = 0

    @cached_property
    def devices(self) -> Mapping[str, str]:
        """The block devices that the work may reach, by what each holds."""
        return devices_of(self.context)

    @cached_property
    def served(self) -> Mapping[str, float]:
        """What the server of the work did meanwhile."""
        return work_server.numbers(self.answer)

    @cached_property
    def own_device(self) -> Mapping[str, int]:
        """The counters of the lab's own device; empty if it has none, since others read from one in use."""
        place = self.context.place
        return summed(self.answer["devices"], place.devices.values()) if place.own_device else {}

    def outcome(self) -> Outcome:
        """Name its numbers as the study does, and check that it was in the state that was prepared."""
        found = self.work.measured(self.answer, self.job)
        numbers = {**self._numbers(), **found.numbers}
        if self.neighbour is not None and failure_of(self.answer) is None:
            numbers |= self.neighbour.measured(self.answer)
        evidence = self._evidence()
        bytes_read, expected = self._bytes_read(), self._bytes_expected(found)
        return Outcome(
            responses={name: value for name, value in numbers.items() if name in self.declared},
            evidence=evidence | {name: value for name, value in numbers.items() if name not in self.declared},
            histograms=found.histograms,
            checks={
                "cache": self.state,
                "bytes_read": bytes_read,
                "bytes_expected": expected,
                **self._unused(evidence.get(ELSEWHERE)),
                **clock_of(self.answer, self.clock_ahead_ns),
                **_series(self.answer, self.context.place.device),
                **({BY_SECOND: found.seconds} if found.seconds else {}),
                **found.checks,
                **({FACTS: by_word(found.facts)} if found.facts else {}),
            },
            started_ns=int(self.answer["started_ns"]) - self.clock_ahead_ns,
            failure=failure_of(self.answer)
            or found.missing
            or (_read_holes(found.past_cache_bytes, bytes_read) if self._counts_reads() else None),
            void=self._void(int(bytes_read), expected, kept=int(evidence.get(cache.KEPT, 0))),
        )

    def _numbers(self) -> dict[str, float]:
        """Return times in seconds and the traffic, without those that are the work's own."""
        answer = self.answer
        counters = summed(answer["devices"], self.devices.values())
        read, written = self._bytes_in_process()
        spun_wall, spun_cpu = to_take_off(answer, self.job.stretched)
        numbers: dict[str, float] = {
            "wall": answer["wall_ns"] / 1e9 - spun_wall,
            "user": max(0.0, answer["user_ns"] / 1e9 - spun_cpu),
            "sys": answer["sys_ns"] / 1e9,
            "cpu": answer["cpu_ns"] / 1e9 - spun_cpu,
            "device_read_bytes": float(counters["read_bytes"] if counters else read),
            "device_write_bytes": float(counters["write_bytes"] if counters else written),
            **{key: float(answer["usage"][key]) for key in ("faults_minor", "faults_major")},
            **self.served,
            **activity(answer, self.context.place.device),
            **answer.get("served", {}),
        }
        synced = answer.get("devices_after_sync")
        if self.devices and synced:
            numbers["device_write_bytes_synced"] = float(summed(synced, self.devices.values())["write_bytes"])
        if not self.work.timed:
            for name in ("wall", "user", "sys", "cpu"):
                del numbers[name]
        if TO_DISK in self.declared and {"wall", "nas_sync"} <= numbers.keys():
            numbers[TO_DISK] = numbers["wall"] + numbers["nas_sync"]
        return numbers

    def _evidence(self) -> dict[str, float]:
        evidence = {
            "switches_voluntary": float(self.answer["usage"]["switches_voluntary"]),
            "switches_involuntary": float(self.answer["usage"]["switches_involuntary"]),
            **counted(self.answer, self.devices, self.context.place.queues),
            **self.context.work.evidence,
        }
        elsewhere = elsewhere_bytes(evidence, self.answer, self.devices.values())
        return evidence if elsewhere is None else {**evidence, ELSEWHERE: elsewhere}

    def _unused(self, elsewhere: float | None) -> dict[str, object]:
        devices = self.devices.values()
        return {UNUSED: True} if is_unused(self.answer, devices, elsewhere, self.state) else {}

    def _bytes_in_process(self) -> tuple[float, float]:
        """Return the bytes read and written, as the kernel counts them for the processes of the work."""
        usage, served = self.answer["usage"], self.served
        return (
            usage["blocks_in"] * KERNEL_BLOCK + served.get("server_fetched_bytes", 0.0),
            usage["blocks_out"] * KERNEL_BLOCK + served.get("server_dirtied_bytes", 0.0),
        )

    def _bytes_read(self) -> float:
        return self.own_device["read_bytes"] if self.own_device else self._bytes_in_process()[0]

    def _bytes_expected(self, found: Measured) -> int:
        """Return the bytes that a cold run must read from the device.

        What goes past the client's page cache does not go past that of a server of files, which it fills.
        """
        files, place = self.context.files, self.context.place
        assert files is not None
        if uncounted(place):
            return 0
        served = self.context.worker is not self.context.target
        work = self.work.buffered() if served else self.work
        again = 0 if served else found.past_cache_bytes
        return max(
            work.reads_bytes(files.bytes_each, files.count) if place.data is None else 0,
            int(self.answer.get("least_read_bytes", 0)),
            int(LEAST_PAST_CACHE * max(found.once_bytes, again)),
            0 if self.seen is None else self.seen.least_read(files.bytes),
        )

    def _counts_reads(self) -> bool:
        """Return whether the bytes that it has read are counted: by its own device, or by the kernel for its processes."""
        if self.context.worker is not self.context.target:
            return False
        return bool(self.own_device) or str(self.context.place.facts().get("filesystem")) in COUNTED

    def _void(self, bytes_read: int, expected: int, *, kept: int) -> Void | None:
        if self.state == "warm" and self.work.may_read_warm():
            return None
        return cache.void_rule(
            self.state,
            bytes_read=bytes_read,
            bytes_expected=expected,
            bytes_kept=kept,
            most_kept=0 if self.seen is None else self.seen.most_kept,
        )


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
