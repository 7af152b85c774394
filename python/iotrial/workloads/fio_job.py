"""Parse a fio job file: its jobs and their options, the files that they need, the entries of fio's result, and the
options that reach beyond the lab's folder.

A job file is a program in a small language: options name files anywhere, run commands and change the
machine's scheduler, and a shell evaluates values. So harmless options are listed, and everything else
requires trust. Checked against fio 3.33: init.c (sections, groups), filesetup.c (sizes), stat.c (entries).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import PurePosixPath

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
    "max_latency", "mem", "mem_align", "name", "new_group", "nice", "nonvectored", "norandommap", "nowait", "nrfiles",
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
_FILE = re.compile(r"(?:[A-Za-z0-9_./-]*/)?[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")
_PLAIN_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")
#: ``filename`` separates files by colons; one in a name is escaped
_BETWEEN_FILES = re.compile(r"(?<!\\):")
#: a section names the job's files, so it must not be a path
_SECTION = re.compile(r"[^\x00-\x1f\x7f/\[\]]{1,200}")
_INCLUDE = re.compile(r"include\s+(\S.*)")
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_VALUE = re.compile(r"[A-Za-z0-9_.,:%+*=() \t-]*")
_SPLIT = re.compile(r"[0-9A-Za-z,:/]*")
_WORD = re.compile(r"[A-Za-z0-9_.,:%+-]{1,100}")
_PLACEHOLDER = re.compile(r"\{[A-Za-z0-9_-]{1,64}\}")
MOST_LINES = 2000
MOST_INCLUDED = 8
#: processes of a job that are distinguished
MOST_CLONES = 256
#: combinations of levels that are looked at
MOST_FILLED = 64
#: engines that work on no file of a file system, and those with files that are empty or their programs'
NO_FILES = frozenset({
    "cpuio", "dev-dax", "dfs", "gfapi", "gfapi_async", "http", "io_uring_cmd", "libblkio", "libhdfs", "libiscsi", "libzbc",
    "mtd", "nbd", "net", "netsplice", "nfs", "null", "rados", "rbd", "rdma", "sg", "xnvme",
})  # fmt: skip
_NO_DATA = NO_FILES | {"exec", "filecreate", "filedelete", "filestat", "ftruncate"}
_BYTES = re.compile(r"(0x[0-9a-f]{1,16}|[0-9]{1,19})(?:([kmgtp])(ib)?)?(?:i|b)?", re.IGNORECASE)
_ALIASES = {
    "readwrite": "rw",
    "nr_files": "nrfiles",
    "wait_for_previous": "stonewall",
    "fileoffset": "offset",
    "fill_fs": "fill_device",
    "blocksize": "bs",
}
_WAYS = ("read", "write", "trim")
#: that fio computes if a job names no others
_PERCENTILES = "1:5:10:20:30:40:50:60:70:80:90:95:99:99.5:99.9:99.95:99.99"


class JobProblem(ValueError):
    """A text that is not a job file."""


@dataclass(frozen=True, slots=True)
class Option:
    """One line of a section; ``value`` is empty if it has none."""

    section: str
    name: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class Job:
    """One job: its section, and all options that hold for it, those of ``[global]`` included."""

    section: str
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        """Its name in fio's result."""
        return self.options.get("name") or self.section

    def on(self, option: str, default: str = "0") -> bool:
        """Return whether a yes-or-no option is set."""
        return self.options.get(option, default) not in ("0", "false")

    def number(self, option: str) -> int | None:
        """Return a count, by default 1; None if it is only known later."""
        value = self.options.get(option) or "1"
        return int(value) if re.fullmatch("[0-9]{1,9}", value) else None

    def percentiles(self, latency: str) -> tuple[str, ...]:
        """Return the percentiles of ``slat``, ``clat`` or ``lat`` in fio's result, as it writes them."""
        if not self.on(f"{latency}_percentiles", "1" if latency == "clat" else "0"):
            return ()
        words = self.options.get("percentile_list", _PERCENTILES).split(":")
        return tuple(
            f"{float(word):f}" for word in words if re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,9})?", word)
        )

    @property
    def direct(self) -> bool:
        """Whether it reads past the page cache."""
        return self.on("direct") or self.options.get("buffered") == "0"

    @property
    def ways(self) -> frozenset[str]:
        """The directions of its I/O; all if they are only known later."""
        word = self.options.get("rw", "read").partition(":")[0].removeprefix("rand")
        if word == "rw":
            word = "readwrite"
        ways = {way for way in _WAYS if way in word} or set(_WAYS)
        if self.options.get("verify", "0") not in ("0", "null"):
            ways.add("read")
        return frozenset(ways)


def options_of(text: str) -> tuple[Option, ...]:
    """Parse all options, in order. Raises JobProblem with the line."""
    return tuple(option for _, options in _sections(text) for option in options)


def _sections(text: str) -> list[tuple[str, list[Option]]]:
    found: list[tuple[str, list[Option]]] = []
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise JobProblem(f"has more than {MOST_LINES} lines")
    for number, raw in enumerate(lines, start=1):
        line = re.split(r"(?:^|\s)[;#]", raw)[0].strip()  # a comment, on a line of its own or after something
        if not line:
            continue
        if line.startswith("["):
            name, closed, rest = line[1:].partition("]")
            if not closed or rest.strip() or not _SECTION.fullmatch(name):
                raise JobProblem(f"line {number}: expected a section such as [job], without a slash")
            found.append((name, []))
            continue
        if _INCLUDE.fullmatch(line):
            raise JobProblem(
                f"line {number}: includes another file; name the job file with `file`, or insert the text"
            )
        name, _, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if not found:
            raise JobProblem(f"line {number}: an option before the first section")
        if not _OPTION.fullmatch(name):
            raise JobProblem(f"line {number}: expected an option such as bs=4k")
        found[-1][1].append(Option(found[-1][0], name, value, number))
    return found


def jobs_of(text: str) -> tuple[Job, ...]:
    """Return the jobs: all sections but those that begin with ``global``. Raises JobProblem if there are none."""
    common: dict[str, str] = {}
    jobs = []
    for section, options in _sections(text):
        shared = section.startswith("global")
        held = common if shared else dict(common)
        for option in options:
            held[_ALIASES.get(option.name, option.name)] = option.value or "1"
        if shared:
            common.pop("name", None)  # fio ignores it there
        else:
            jobs.append(Job(section, held))
    if not jobs:
        raise JobProblem("has no job: a section such as [read]")
    return tuple(jobs)


def included(text: str, read: Callable[[str], str], name: str, depth: int = 0) -> str:
    """Return the text of the job file ``name`` with the files that it includes, read by name, in their places.

    Raises JobProblem for files that include each other.
    """
    if depth > MOST_INCLUDED:
        raise JobProblem(f"includes files more than {MOST_INCLUDED} deep")
    lines = []
    for line in text.splitlines():
        found = _INCLUDE.fullmatch(line.strip())
        if found:
            other = str(PurePosixPath(name).parent / found[1])
            lines += included(read(other), read, other, depth + 1).splitlines()
        else:
            lines.append(line)
        if len(lines) > MOST_LINES:
            raise JobProblem(f"has more than {MOST_LINES} lines")
    return "\n".join(lines) + "\n" if depth or len(lines) != len(text.splitlines()) else text


def mapped(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the job with its own folders and paths mapped into the folder it is started in, and what was mapped, in words.

    ``directory`` is left out. Of a path in ``filename`` only the name is kept, so a device becomes a file.
    """
    found = {option.line: option for option in options_of(text)}
    lines, notes = [], []
    taken: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        option = found.get(number)
        name = "" if option is None else option.name.lower()
        if option is not None and name == "directory":
            notes.append(f"directory={option.value}: left out")
            continue
        if option is not None and name == "filename" and "/" in option.value:
            paths = _BETWEEN_FILES.split(option.value)
            if all(map(_FILE.fullmatch, paths)):
                names = [_own_name(path, taken) for path in paths]
                line = f"filename={':'.join(names)}"
                files = f"file{'s' * (len(names) > 1)} {', '.join(names)} of the lab"
                notes.append(f"filename={option.value}: {files}")
        lines.append(line)
    return "\n".join(lines), tuple(dict.fromkeys(notes))


def _own_name(path: str, taken: dict[str, str]) -> str:
    """Return the name of a path's file, or all of the path in one name if another path has that name already."""
    base = path.rpartition("/")[2]
    if taken.setdefault(base, path) != path:
        base = path.strip("./").replace("/", "_")
    return base


def filled_jobs(text: str, settings: Sequence[Setting]) -> Iterator[str]:
    """Yield the job with the levels in its placeholders: the first MOST_FILLED combinations."""
    values: dict[str, list[str]] = {}
    for setting in settings:
        placeholder = dict(setting.options).get("placeholder")
        if placeholder is not None and placeholder in text:
            values.setdefault(placeholder, []).append(setting.value)
    for words in islice(product(*values.values()), MOST_FILLED):
        job = text
        for placeholder, word in zip(values, words, strict=True):
            job = job.replace(placeholder, word)
        yield job


# files


def files_of(text: str) -> dict[str, int]:
    """Return the bytes of the files that the jobs need, by file, or by job with its own files.

    A size that is only known later counts as 0. Raises JobProblem for a job without a size, which fio would refuse,
    and for one that expects to find more than an empty folder.
    """
    found: dict[str, int] = {}
    jobs = jobs_of(text)
    for job in jobs:
        options = job.options
        if options.get("ioengine", "") in _NO_DATA:
            continue
        if lacking := _lacking(job, jobs):
            raise JobProblem(f'job "{job.name}": {lacking}')
        if job.on("fill_device") or "read_iolog" in options:
            continue
        named = _BETWEEN_FILES.split(options["filename"]) if options.get("filename") else []
        files = len(named) or job.number("nrfiles") or 0
        each = _file_bytes(job, files)
        if each is None and not (named and all(name in found for name in named)):
            raise JobProblem(f'job "{job.name}" has no size, and its files do not exist yet: add size')
        if named:
            found |= {name: max(each or 0, found.get(name, 0)) for name in named}
        else:
            found[job.section] = (job.number("numjobs") or 0) * files * (each or 0)
    return found


def _lacking(job: Job, jobs: Sequence[Job]) -> str | None:
    """Return what a job expects to find that a new folder does not have, in words."""
    log = job.options.get("read_iolog", "/")
    if not log.startswith("/") and log not in (one.options.get("write_iolog") for one in jobs):
        return f"read_iolog={log} names no file of the lab: use an absolute path"
    if "trim" in job.options.get("rw", "") and job.options.get("ioengine") != "falloc":
        return "it trims, which fio does on devices only, and it works on a file in the lab"
    if job.options.get("zonemode") == "zbd":
        return "zonemode=zbd needs a device with zones, and works on a file in the lab"
    if job.on("verify_state_load"):
        return "verify_state_load needs the state that an earlier fio has saved"
    verifies = job.options.get("verify", "0") not in ("0", "null")
    if (
        verifies
        and job.ways == {"read"}
        and not any(_writes_for(one, job) for one in jobs[: jobs.index(job)])
    ):
        return "it verifies what no job has written"
    return None


def _writes_for(one: Job, reader: Job) -> bool:
    """Return whether a job may write what another reads: a file of that name, and a part of it that is read."""
    if "write" not in one.ways or one.options.get("filename") != reader.options.get("filename"):
        return False
    if "filename" not in one.options:
        return False  # each has its own files
    (begins, ends), (first, last) = _part(one), _part(reader)
    return begins is None or first is None or (begins < (last or math.inf) and first < (ends or math.inf))


def _part(job: Job) -> tuple[int | None, int | None]:
    """Return where in its file a job begins and ends; None: only known later."""
    begins, size = bytes_in(job.options.get("offset", "0")), bytes_in(job.options.get("size", ""))
    return begins, None if begins is None or size is None else begins + size


def least_seconds(job: Job) -> float:
    """Return how long a job takes at least, by its run time or its rate; 0: not known."""
    options = job.options
    if {"ss", "steadystate"} & options.keys():  # it may end earlier
        return 0.0
    begins, runs = (_seconds(options.get(name, "")) for name in ("startdelay", "runtime"))
    if job.on("time_based"):
        return begins + runs
    block = None if {"bsrange", "bssplit"} & options.keys() else bytes_in(options.get("bs", "4k"))
    rates = [(bytes_in(word) or 0) for word in options.get("rate", "").split(",")]
    if "rate_iops" in options:
        rates = [(bytes_in(word) or 0) * (block or 0) for word in options["rate_iops"].split(",")]
    each = dict(zip(_WAYS, rates * 3 if len(rates) == 1 else rates, strict=False))
    limited = [each.get(way, 0) for way in job.ways]
    amount = bytes_in(options.get("io_size", options.get("size", ""))) or 0
    takes = amount / sum(limited) if all(limited) else 0.0
    return begins + (min(takes, runs) if runs else takes)


def _seconds(text: str) -> float:
    """Return the seconds that fio reads in a time; 0: none, or only known later."""
    found = re.fullmatch(r"([0-9]{1,9})(us|ms|s|m|h|d)?", text)
    return (
        int(found[1]) * {"us": 1e-6, "ms": 1e-3, "m": 60, "h": 3600, "d": 86400}.get(found[2], 1)
        if found
        else 0.0
    )


def _file_bytes(job: Job, files: int) -> int | None:
    """Return the bytes of each of its files: None if it has no size, 0 if that is only known later."""
    options = job.options
    size, each = options.get("size", ""), options.get("filesize", "")
    if each:
        largest = bytes_in(re.split("[-,]", each)[-1])
        share = size[:-1] if size.endswith("%") else "100"
        return (largest or 0) * min(100, int(share) if re.fullmatch("[0-9]{1,3}", share) else 100) // 100
    if not size or size.endswith("%"):
        return None
    begins = bytes_in(options.get("offset", "0")) or 0
    begins += (bytes_in(options.get("offset_increment", "0")) or 0) * max(0, (job.number("numjobs") or 1) - 1)
    return 0 if (total := bytes_in(size)) is None else total // max(1, files) + begins


def bytes_in(text: str) -> int | None:
    """Return the bytes that fio reads in a size: ``4k`` and ``4kb`` are 4096, ``4kib`` is 4000. None: not a plain size."""
    found = _BYTES.fullmatch(text.strip())
    if found is None:
        return None
    number, unit, small = found.groups()
    power = "kmgtp".index(unit.lower()) + 1 if unit else 0
    count = int(number, 16 if number[:2] in ("0x", "0X") else 10)
    return count * int((1000 if small else 1024) ** power)


# fio's result


def entries_of(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return the entries of ``jobs`` in fio's result, each with the jobs that it adds up; its name is that of the first.

    ``group_reporting`` adds up the jobs of a group; ``stonewall`` and ``new_group`` begin one.
    """
    entries: list[list[Job]] = []
    group, last = 0, -1
    for job in jobs:
        if entries and (job.on("stonewall") or job.on("new_group")):
            group += 1
        for _ in range(min(job.number("numjobs") or 1, MOST_CLONES)):
            if job.on("group_reporting") and last == group:
                entries[-1].append(job)
            else:
                entries.append([job])
            last = group
    return entries


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
        plain = all(map(_PLAIN_FILE.fullmatch, _BETWEEN_FILES.split(bare)))
        return None if plain else "files that may not be in the lab's folder"
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
