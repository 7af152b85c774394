"""Parse a fio job file into options, and find those that reach beyond the lab's folder.

A job file is a program in a small language: options name files anywhere, run commands and change the
machine's scheduler, and a shell evaluates values. So harmless options are listed, and everything else
requires trust.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iotrial.study.command_trust import MOST_LOOKED_AT
from iotrial.study.model import Setting

#: options that only affect files in the job's own folder, and how the job is measured
HARMLESS = frozenset({
    "allow_file_create", "allrandrepeat", "ba", "blockalign", "blocksize", "blocksize_range", "blocksize_unaligned",
    "bs", "bs_is_seq_rand", "bs_unaligned", "bsrange", "bssplit", "buffer_compress_chunk",
    "buffer_compress_percentage", "buffered", "clat_percentiles", "clocksource", "continue_on_error", "cpumask",
    "cpus_allowed", "cpus_allowed_policy", "create_fsync", "create_on_open", "create_only", "create_serialize",
    "dedupe_percentage", "description", "direct", "disable_bw", "disable_bw_measurement", "disable_clat",
    "disable_lat", "disable_slat", "do_verify", "end_fsync", "error_dump", "experimental_verify", "fadvise_hint",
    "fallocate", "fdatasync", "file_append", "file_service_type", "filesize", "fixedbufs", "force_async", "fsync",
    "fsync_on_close", "group_reporting", "gtod_cpu", "gtod_reduce", "hipri", "ignore_error", "invalidate", "io_limit",
    "io_size", "io_submit_mode", "ioengine", "iodepth", "iodepth_batch", "iodepth_batch_complete",
    "iodepth_batch_complete_max", "iodepth_batch_complete_min", "iodepth_batch_submit", "iodepth_low", "iomem_align",
    "kb_base", "lat_percentiles", "latency_percentile", "latency_target", "latency_window", "lockfile", "loops",
    "max_latency", "mem", "mem_align", "new_group", "nice", "nonvectored", "norandommap", "nowait", "nrfiles",
    "number_ios", "numjobs", "offset", "offset_align", "offset_increment", "openfiles", "overwrite",
    "percentage_random", "percentile_list", "pre_read", "prio", "prioclass", "ramp_time", "random_distribution",
    "random_generator", "randrepeat", "randseed", "rate", "rate_cycle", "rate_iops", "rate_iops_min", "rate_min",
    "rate_process", "readwrite", "refill_buffers", "registerfiles", "runtime", "rw", "rw_sequencer",
    "rwmixread", "rwmixwrite", "scramble_buffers", "serialize_overlap", "significant_figures", "size",
    "slat_percentiles", "softrandommap", "sqthread_poll", "ss", "ss_dur", "ss_ramp", "startdelay", "steadystate",
    "steadystate_duration", "steadystate_ramp_time", "stonewall", "sync", "sync_file_range", "thinktime",
    "thinktime_blocks", "thinktime_blocks_type", "thinktime_iotime", "thinktime_spin", "thread", "time_based",
    "uncached", "unified_rw_reporting", "unit_base", "unlink", "unlink_each_loop", "verify", "verify_backlog",
    "verify_backlog_batch", "verify_dump", "verify_fatal", "verify_interval", "verify_offset",
    "wait_for", "wait_for_previous", "zero_buffers", "zonerange", "zonesize", "zoneskip",
})  # fmt: skip
#: allowed values of options that have other values with a wider reach
_WORDS = {
    "ioengine": frozenset({
        "falloc", "filecreate", "filedelete", "filestat", "ftruncate", "io_uring", "libaio", "mmap", "null",
        "posixaio", "psync", "pvsync", "pvsync2", "splice", "sync", "vsync",
    }),
    "mem": frozenset(("malloc", "mmap", "shm")),
}  # fmt: skip
#: why some other options are not harmless
_REASONS = {
    "exec": "which runs a program",
    "exec_postrun": "which runs a command",
    "exec_prerun": "which runs a command",
    "fill_device": "which fills the disk",
    "ioscheduler": "which changes the disk's scheduler",
    "opendir": "which takes every file below a folder",
    "read_iolog": "which replays a file on the devices that it names",
    "replay_redirect": "which names a device",
    "buffer_pattern": "which may read a file",
    "verify_pattern": "which may read a file",
}
#: a path to one file that is no device
_FILE = re.compile(r"(?!/dev/)[A-Za-z0-9_./-]*/[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")
_PLAIN_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")
_SECTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_VALUE = re.compile(r"[A-Za-z0-9_.,:%+*=() \t-]*")
_SPLIT = re.compile(r"[0-9A-Za-z,:/]*")
_WORD = re.compile(r"[A-Za-z0-9_.,:%+-]{1,100}")
_PLACEHOLDER = re.compile(r"\{[A-Za-z0-9_-]{1,64}\}")
MOST_LINES = 2000


class JobProblem(ValueError):
    """A text that is not a job file."""


@dataclass(frozen=True, slots=True)
class Option:
    """One line of a section; ``value`` is empty if it has none."""

    section: str
    name: str
    value: str
    line: int


def options_of(text: str) -> tuple[Option, ...]:
    """Parse all options, in order. Raises JobProblem with the line."""
    found = []
    section = None
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise JobProblem(f"has more than {MOST_LINES} lines")
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line or line[0] in ";#":
            continue
        if line.startswith("["):
            name, closed, rest = line[1:].partition("]")
            if not closed or rest.strip() or not _SECTION.fullmatch(name):
                raise JobProblem(
                    f"line {number}: expected a section such as [job], of letters, digits, _ . -"
                )
            section = name
            continue
        name, _, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if name.split() and name.split()[0] == "include":
            raise JobProblem(f"line {number}: includes another file; insert its text")
        if section is None:
            raise JobProblem(f"line {number}: an option before the first section")
        if not _OPTION.fullmatch(name):
            raise JobProblem(f"line {number}: expected an option such as bs=4k")
        found.append(Option(section, name, value, number))
    return tuple(found)


def jobs_of(text: str) -> tuple[str, ...]:
    """Return the names of the jobs: all sections except ``global``. Raises JobProblem if there are none."""
    options_of(text)
    names = [line.strip()[1:].partition("]")[0] for line in text.splitlines() if line.strip().startswith("[")]
    jobs = tuple(name for name in names if name.lower() != "global")
    if not jobs:
        raise JobProblem("has no job: a section such as [read]")
    return jobs


def mapped(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the job with its own folders and paths mapped into the folder it is started in, and what was mapped, in words.

    ``directory`` is left out, and of a path in ``filename`` only the name is kept; devices are not mapped.
    """
    found = {option.line: option for option in options_of(text)}
    lines, notes = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        option = found.get(number)
        name = "" if option is None else option.name.lower()
        if option is not None and name == "directory":
            notes.append(f"directory={option.value}: left out")
            continue
        if option is not None and name == "filename" and _FILE.fullmatch(option.value):
            base = option.value.rpartition("/")[2]
            notes.append(f"filename={option.value}: {base}")
            line = f"filename={base}"
        lines.append(line)
    return "\n".join(lines), tuple(notes)


def demands_of(job: str, settings: Sequence[Setting]) -> Iterator[str]:
    """Yield what the job file, its paths mapped, makes fio do beyond the lab, with each setting of each placeholder."""
    try:
        job, _ = mapped(job)
        yield from (f"gives fio {reason}" for reason in beyond_the_lab(job))
        looked_at = 0
        for setting in settings:
            placeholder = dict(setting.options).get("placeholder")
            if placeholder is None or placeholder not in job:
                continue
            looked_at += len(job)
            if looked_at > MOST_LOOKED_AT:
                yield "has more levels than can be checked"
                return
            if not _WORD.fullmatch(setting.value):
                yield f"puts a level into a job file that is not a plain word ({placeholder})"
                continue
            filled = job.replace(placeholder, setting.value)
            yield from (f"gives fio {reason}" for reason in beyond_the_lab(filled))
    except JobProblem as problem:
        yield f"has a job file that {problem}"


def beyond_the_lab(text: str) -> Iterator[str]:
    """Yield what in a job file requires trust, in words."""
    for option in options_of(text):
        reason = _reason(option.name.lower(), option.value)
        if reason is not None:
            yield f"{option.name} (line {option.line}), {reason}"


def _reason(name: str, value: str) -> str | None:
    bare = _PLACEHOLDER.sub("0", value)
    if len(_PLACEHOLDER.findall(value)) > 1:
        return "a value of several placeholders"
    if name == "filename":
        return None if _PLAIN_FILE.fullmatch(bare) else "files that may not be in the lab's folder"
    if name in _REASONS:
        return _REASONS[name]
    if name.endswith(("_log", "_logs", "_iolog")):
        return "which writes or reads another file"
    if name not in HARMLESS:
        return "which is not on the list of options that stay in the lab's folder"
    if name in _WORDS and value not in _WORDS[name] and not _PLACEHOLDER.fullmatch(value):
        return f"a value other than {', '.join(sorted(_WORDS[name]))}"
    if not (_SPLIT if name == "bssplit" else _VALUE).fullmatch(bare):
        return "a value that could be a path, or a text for a shell"
    return None
