"""fio's JSON (``--output-format=json`` or ``json+``) and terse output: jobs, each with read, write, trim or mixed.

A document is one run of its jobs; several documents in a file, and several files of one label, are repeats in the order of
their timestamps. What a job does (its options) is a condition wherever it varies within a label; the group is the label.
bw is in KiB/s; latencies are in nanoseconds (fio 3) or microseconds (fio 2, terse).

Clones of a job (``numjobs``) ran at the same time and become one, by the rules of fio's ``group_reporting``: bytes and
operations over the longest runtime, means weighted by operations, percentiles from the merged histogram if the file has one
(json+). Namesakes with another ``groupid`` ran in turn (``stonewall``) and are repeats.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from iotrial.audits.importers.contract import Format, Imported, ReadOptions, Source, damaged, label, no_result
from iotrial.audits.model import Condition, Observation
from iotrial.errors import UnknownName
from iotrial.units import measured, with_json_numbers

JOB = "job"
_WAYS = ("read", "write", "trim", "mixed")
_PERCENTILES = ("50.000000", "99.000000", "99.900000")
#: in fio's own list of percentiles, but hardly in a user's
_DEFAULT_LIST = {"1.000000", "99.950000", "99.990000"}
_MOST_JOBS = 10_000
#: options that do not say what is measured: names, reports, logs, and how long it takes
_ASIDE = frozenset(
    {"name", "description", "group_reporting", "per_job_logs", "stonewall", "wait_for_previous", "new_group"}
)
_ASIDE_LIKE = (
    "write_",
    "log_",
    "output",
    "percentile_list",
    "status",
    "bwavgtime",
    "iopsavgtime",
    "exec_",
    "unlink",
)
#: the blocks of a job and of a direction; another name is damaged, or of a fio that is not known here
_BLOCKS = frozenset(
    {*_WAYS, "sync", "job options", "iodepth_level", "iodepth_submit", "iodepth_complete"}
    | {"latency_ns", "latency_us", "latency_ms", "steadystate", "block", "cpu_idleness"}
)
_LATENCIES = frozenset({"slat_ns", "clat_ns", "lat_ns", "slat", "clat", "lat"})
#: options that say how much work is done and in which order; the others say how
_SIZES = frozenset({"bs", "size", "filesize", "io_size", "file_size"})
_LOAD = _SIZES | {
    "rw",
    "iodepth",
    "numjobs",
    "rwmixread",
    "rwmixwrite",
    "nrfiles",
    "runtime",
    "rate",
    "rate_iops",
}
#: how names of files spell options, besides the options' own names
_SPELLINGS = {
    "iodepth": ("qd", "q", "depth", "queue[-_]?depth"),
    "numjobs": ("nj", "j", "jobs?", "t", "threads?", "clients?"),
    "bs": ("block[-_]?size",),
    "runtime": ("time",),
    "rwmixread": ("mix", "rwmix"),
    "rw": ("readwrite",),
}
_SAME = {"readwrite": "rw", "blocksize": "bs", "iodepth_batch_submit": "iodepth_batch"}
#: of a document and its successor: an interim report, if its clock and the job's agree this closely (ms)
_CLOCKS_MS = 250.0


def recognises(text: str) -> bool:
    head = text[: 1 << 20]
    return '"fio version"' in head and ('"jobs"' in text or '"client_stats"' in text)


def read(source: Source, _: ReadOptions) -> Imported:
    """One observation for each response of each job of each document."""
    unread: list[str] = []
    documents = _final(source, list(_documents(source, unread)), unread)
    observations: list[Observation] = []
    for at, document in enumerate(documents):
        seconds = measured(document.get("timestamp"))  # all that fio 2 writes
        stamp = measured(document.get("timestamp_ms")) or (seconds and seconds * 1e3)
        place = stamp if stamp is not None else float(at) if len(documents) > 1 else None
        for in_turn, jobs in enumerate(_together(source, document, unread)):
            # jobs that ran in turn share the document's time stamp
            when = place if place is None else place + in_turn * 1e-3
            observations += _of_job(jobs, document, source, when, unread)
    if not observations:
        raise no_result(source, "fio", unread)
    return Imported(tuple(observations), unread=tuple(dict.fromkeys(unread)))


# the documents of a file


def _documents(source: Source, unread: list[str]) -> Iterator[dict[str, Any]]:
    """All JSON objects that begin at the start of a line or with fio's version, with lists of jobs.

    Raises RequestError if there is none.
    """
    decode, at, found, text = json.JSONDecoder().raw_decode, 0, 0, with_json_numbers(source.text)
    why: list[str] = []
    for start in [match.start() for match in re.finditer(r'^\{|\{(?=\s*"fio version")', text, re.MULTILINE)]:
        if start < at:
            continue
        try:
            document, at = decode(text, start)
        except (ValueError, RecursionError) as error:
            why = [damaged(source.name, error)]
            unread += why
            continue
        jobs = document.get("jobs", document.get("client_stats")) if isinstance(document, dict) else None
        if isinstance(jobs, list) and all(isinstance(job, dict) for job in jobs):
            found += 1
            yield document
    if found and len(unread) == 0 and (more := text.count('"fio version"') - found) > 0:
        unread.append(damaged(source.name, f"{more} more results"))
    if not found:
        raise no_result(source, "fio", why, hint="import what `fio --output-format=json` prints")


def _final(source: Source, documents: list[dict[str, Any]], unread: list[str]) -> list[dict[str, Any]]:
    """Without copies and the interim reports of ``--status-interval``, which count up to the final one."""
    kept: list[dict[str, Any]] = []
    for at, document in enumerate(documents):
        if document in kept:
            unread.append(f"{source.name}: result {at + 1} of {len(documents)} (a copy of an earlier one)")
        elif at + 1 < len(documents) and _goes_on(document, documents[at + 1]):
            unread.append(
                f"{source.name}: result {at + 1} of {len(documents)} (an interim report of the run in the next one)"
            )
        else:
            kept.append(document)
    return kept


def _goes_on(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether ``other`` is a later report of the same run: its jobs have run on, for as long as the clock says."""
    jobs, later = one.get("jobs"), other.get("jobs")
    if not isinstance(jobs, list) or not isinstance(later, list) or len(jobs) != len(later):
        return False
    clocks = (measured(other.get("timestamp_ms")), measured(one.get("timestamp_ms")))
    ran = [
        (measured(b.get("job_runtime")), measured(a.get("job_runtime")))
        for a, b in zip(jobs, later, strict=True)
    ]
    if clocks[0] is None or clocks[1] is None or any(b is None or a is None for b, a in ran):
        return False
    passed = clocks[0] - clocks[1]
    further = max((b or 0.0) - (a or 0.0) for b, a in ran)
    done = [_moved(b) - _moved(a) for a, b in zip(jobs, later, strict=True)]
    return (
        further > 0
        and min(done) >= 0
        and max(done) > 0
        and abs(further - passed) <= max(_CLOCKS_MS, 0.1 * passed)
    )


def _moved(job: Mapping[str, Any]) -> float:
    return math.fsum(
        measured(part.get("total_ios")) or 0.0 for way in _WAYS if isinstance(part := job.get(way), dict)
    )


# the jobs of a document


def _together(
    source: Source, document: Mapping[str, Any], unread: list[str]
) -> Iterator[list[dict[str, Any]]]:
    """The jobs, each with its clones that ran at the same time; without those that failed, or of which a clone failed."""
    given = document.get("jobs") or document.get("client_stats") or []
    found: dict[tuple[object, ...], list[dict[str, Any]]] = defaultdict(list)
    for job in given[:_MOST_JOBS]:
        if _name(job) == "All clients" and len(given) > 1:
            unread.append(f"{source.name}: All clients (the sum of the others)")
            continue
        options = tuple(sorted(_options(job, document).items()))
        found[_name(job), str(job.get("groupid")), job.get("hostname"), str(job.get("port")), options].append(
            job
        )
    if len(given) > _MOST_JOBS:
        unread.append(f"{source.name}: {len(given) - _MOST_JOBS} jobs beyond the first {_MOST_JOBS}")
    for (name, *_), jobs in found.items():
        failed = next((job["error"] for job in jobs if job.get("error")), None)
        if failed is None:
            yield jobs
            continue
        number = measured(failed)
        text = f": {os.strerror(int(number))}" if number is not None and 0 < number < 200 else ""
        unread.append(f"{source.name}: job {name} (ended with error {label(failed)}{text})")


def _name(job: Mapping[str, Any]) -> str:
    return label(job.get("jobname", "?"))


def _options(job: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, str]:
    """What the job does: its options over the global ones, by their usual names; the client that ran it."""
    found: dict[str, str] = {}
    for options in (document.get("global options"), job.get("job options")):
        for key, value in options.items() if isinstance(options, dict) else ():
            name = _SAME.get(str(key), str(key))
            if name not in _ASIDE and not name.startswith(_ASIDE_LIKE):
                found[label(name)] = label(value)
    if "hostname" in job:
        found["client"] = label(f"{job['hostname']}:{job.get('port')}")
    return found


def _of_job(
    jobs: list[dict[str, Any]],
    document: Mapping[str, Any],
    source: Source,
    place: float | None,
    unread: list[str],
) -> Iterator[Observation]:
    condition: Condition = ((JOB, _name(jobs[0])), *sorted(_options(jobs[0], document).items()))
    for response, unit, raw in _responses(jobs, "fio-2" in str(document.get("fio version"))):
        value = measured(raw)
        if value is not None:
            yield Observation(source.stem, response, unit, value, condition, place=place)
        else:
            why = "absent" if raw is None else label(raw)[:40]
            unread.append(f"{source.name}: job {_name(jobs[0])}: {response} ({why})")
    for lacking in dict.fromkeys(one for job in jobs for one in _lacking(job)):
        unread.append(f"{source.name}: job {_name(jobs[0])}: {lacking}")
    parts = [part for way in _WAYS for part in _parts(jobs, way)]
    timed = [part[name] for part in parts for name in _LATENCIES if isinstance(part.get(name), dict)]
    if len(jobs) > 1 and any("percentile" in one and "bins" not in one for one in timed):
        unread.append(
            f"{source.name}: job {_name(jobs[0])}: percentiles of {len(jobs)} clones (json+ has their histograms)"
        )
    if not parts:
        unread.append(f"{source.name}: job {_name(jobs[0])} (did no reads, writes or trims)")
    elif any("clat_ns" in part or "clat" in part for part in parts) and not any(
        _latencies([part]) for part in parts
    ):
        unread.append(
            f"{source.name}: latencies of job {_name(jobs[0])} (all zero: gtod_reduce or disable_lat)"
        )


def _lacking(job: Mapping[str, Any]) -> Iterator[str]:
    """What every job of fio has and this one lacks, and blocks that have names which fio does not use."""
    ways = {way: job[way] for way in (*_WAYS, "sync") if isinstance(job.get(way), dict)}
    if "mixed" not in ways:
        yield from (f"{way} (absent)" for way in ("read", "write") if way not in ways)
    yield from (f"{name} (unknown)" for name in _odd(job, _BLOCKS))
    for way, part in ways.items():
        if "total_ios" not in part and "lat" not in part:
            yield f"{way}: total_ios (absent)"
        yield from (f"{way}: {name} (unknown)" for name in _odd(part, _LATENCIES))
        for name in _LATENCIES & part.keys():
            taken = part[name] if isinstance(part[name], dict) else {}
            yield from (f"{way}: {name}: {odd} (unknown)" for odd in _odd(taken, {"percentile", "bins"}))
            shares = taken.get("percentile")
            for key in shares if isinstance(shares, dict) else ():
                if measured(key) is None:
                    yield f"{way}: {name}: percentile {label(key)} (unknown)"


def _odd(block: Mapping[str, Any], known: Collection[str]) -> list[str]:
    return [label(name) for name, part in block.items() if isinstance(part, dict) and name not in known]


def _responses(jobs: list[dict[str, Any]], old: bool) -> Iterator[tuple[str, str, object]]:
    for way in _WAYS:
        parts = _parts(jobs, way)
        if not parts:
            continue
        yield f"{way}_bw", "KiB/s", _rate(parts, "bw", "io_bytes", 1.0 if old else 1024.0)
        yield f"{way}_iops", "1/s", _rate(parts, "iops", "total_ios", 1.0)
        yield from ((f"{way}_{name}", unit, value) for name, unit, value in _latencies(parts))
    # fdatasync has latencies, but counts as no operation
    yield from (
        (f"sync_{name.removeprefix('lat_')}", unit, value)
        for name, unit, value in _latencies(
            [job["sync"] for job in jobs if isinstance(job.get("sync"), dict)], ("lat",)
        )
    )
    for response in ("usr_cpu", "sys_cpu"):
        values = [measured(job.get(response)) for job in jobs]
        if all(value is not None for value in values):
            yield response, "%", math.fsum(value or 0.0 for value in values) / len(values)
        else:
            yield response, "%", jobs[values.index(None)].get(response)


def _parts(jobs: Sequence[Mapping[str, Any]], way: str) -> list[dict[str, Any]]:
    """The parts that did something, by their operations, or by their bytes if the file lacks these."""
    parts = [job[way] for job in jobs if isinstance(job.get(way), dict)]
    return [part for part in parts if measured(part.get("total_ios", part.get("io_bytes")))]


def _rate(parts: Sequence[Mapping[str, Any]], name: str, amount: str, unit: float) -> object:
    """fio's own figure of one job; of clones their amounts over the longest runtime (ms); None if the file lacks them."""
    if len(parts) == 1:
        return parts[0].get(name)
    amounts = [measured(part.get(amount)) for part in parts]
    times = [measured(part.get("runtime")) for part in parts]
    if any(value is None for value in (*amounts, *times)) or not max(time or 0.0 for time in times):
        return None
    return math.fsum(value or 0.0 for value in amounts) / unit / max(time or 0.0 for time in times) * 1e3


def _latencies(
    parts: Sequence[Mapping[str, Any]], names: Sequence[str] = ("clat", "lat")
) -> list[tuple[str, str, object]]:
    """Means and percentiles, of what was timed: fio writes zeros where timing is off. None: it has only the others."""
    found: list[tuple[str, str, object]] = []
    for name in names:
        for key, unit in ((f"{name}_ns", "ns"), (name, "us")):
            timed = [
                (part[key], measured(part.get("total_ios")) or 0.0)
                for part in parts
                if isinstance(part.get(key), dict)
            ]
            timed = [
                (one, ios)
                for one, ios in timed
                if measured(one.get("max")) != 0 or measured(one.get("mean")) is None
            ]
            if not timed or len(timed) < len(parts):
                continue
            found.append((f"{name}_mean", unit, _mean(timed)))
            found += [
                (f"{name}_p{short}", unit, value) for short, value in _percentiles([one for one, _ in timed])
            ]
            break
    absent = [name for name in names if not any(one.startswith(f"{name}_") for one, _, _ in found)]
    return found + [(f"{name}_mean", "", None) for name in absent] if found else []


def _mean(timed: Sequence[tuple[Mapping[str, Any], float]]) -> object:
    if len(timed) == 1:
        return timed[0][0].get("mean")
    counted = [(measured(one.get("mean")), measured(one.get("N")) or ios) for one, ios in timed]
    if any(mean is None for mean, _ in counted):
        return None
    return math.fsum((mean or 0.0) * n for mean, n in counted) / math.fsum(n for _, n in counted)


def _percentiles(timed: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, object]]:
    """Median, 99 % and 99.9 %; the file's own list if the user gave one. Of clones from the merged histogram only."""
    lists = [one["percentile"] for one in timed if isinstance(one.get("percentile"), dict)]
    if len(lists) < len(timed):
        return
    named = [key for key in lists[0] if measured(key)]
    keys = list(_PERCENTILES) if set(named) >= _DEFAULT_LIST else named[:20]
    bins: Counter[float] = Counter()
    if len(timed) > 1:
        for one in timed:
            if not isinstance(one.get("bins"), dict):
                return
            bins.update(
                {
                    float(at): int(measured(n) or 0)
                    for at, n in one["bins"].items()
                    if measured(at) is not None
                }
            )
    for key in keys:
        short = key.rstrip("0").rstrip(".") if "." in key else key
        yield short, lists[0].get(key) if len(timed) == 1 else _quantile(bins, float(key) / 100.0)


def _quantile(bins: Counter[float], share: float) -> float | None:
    """The first bin at or below which ``share`` of the counts lie, as fio takes it; None without counts."""
    least, below = math.ceil(share * bins.total()), 0
    for at in sorted(bins):
        below += bins[at]
        if below >= least > 0:
            return at
    return None


# groups and conditions, once all files are known


def settle(
    observations: Sequence[Observation], options: ReadOptions, unlabelled: Collection[str]
) -> tuple[tuple[Observation, ...], tuple[str, ...]]:
    """Decide what is compared; return the observations with it, and notes on it.

    ``--group OPTION`` names it. Else it is the label, if there are several; words of a file's name that are options of its
    jobs (ext4-qd32) are left out of it. Else it is the job's name, where jobs of different names do the same. Options that
    vary within a group are conditions; those that only differ between groups go with it, and a note names them. Raises
    UnknownName.
    """
    observations, in_names = _without_options(observations, unlabelled)
    known = dict.fromkeys(name for one in observations for name, _ in one.condition)
    if options.group is not None and options.group not in known:
        raise UnknownName("option of the jobs", options.group, tuple(known))
    labels = {one.group for one in observations}
    works: dict[Condition, set[str]] = defaultdict(set)
    for one in observations:
        works[_without(one.condition, (JOB,))].add(dict(one.condition)[JOB])
    by = options.group or (
        JOB if len(labels) == 1 and any(len(names) > 1 for names in works.values()) else None
    )
    if by is not None:
        several = len(labels) > 1
        observations = [
            replace(
                one,
                group=dict(one.condition).get(by, "(not set)"),
                condition=(*((("file", one.group),) if several else ()), *_without(one.condition, (by,))),
            )
            for one in observations
        ]
    within: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in observations:
        own = dict(one.condition)
        for name in dict.fromkeys((*known, "file")):
            within[name][one.group].add(own.get(name, ""))
    vary = {name for name, groups in within.items() if any(len(values) > 1 for values in groups.values())}
    if JOB in vary and not _tells_more(observations, vary):
        vary.discard(JOB)
    kept = tuple(
        replace(one, condition=tuple(pair for pair in one.condition if pair[0] in vary))
        for one in observations
    )
    return kept, (*in_names, *_notes(within, vary, kept))


def _without_options(
    observations: Sequence[Observation], unlabelled: Collection[str]
) -> tuple[Sequence[Observation], list[str]]:
    """The observations with groups that do not name options which differ between the files; a note on these options.

    Options that are no part of the load stay in the names if nothing else tells the files apart.
    """
    options: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in observations:
        if one.group in unlabelled:
            for name, value in one.condition:
                options[name][one.group].add(value)
    differ = [
        name
        for name, by_group in options.items()
        if name != JOB and len({value for values in by_group.values() for value in values}) > 1
    ]
    groups = {group: group for group in dict.fromkeys(one.group for one in observations)}
    moved: list[str] = []
    for name in sorted(differ, key=lambda name: name not in _LOAD):
        shorter = {
            group: _without_words(left, name, options[name].get(group, ())) for group, left in groups.items()
        }
        if shorter != groups and (name in _LOAD or len(set(shorter.values())) > 1):
            groups = shorter
            moved.append(name)
    if not moved or len(groups) < 2:
        return observations, []
    names = {
        group: re.sub(r"([-_ .=+,/])[-_ .=+,/]+", r"\1", left).strip("-_ .=+,/") or "all"
        for group, left in groups.items()
    }
    note = f"{', '.join(moved)} in the names of files: a condition, no group; LABEL=FILE names other groups"
    return [replace(one, group=names[one.group]) for one in observations], [note]


def _without_words(text: str, option: str, values: Collection[str]) -> str:
    """The text without what says that an option has this value: qd32 and 32qd, bs4k or only 4k, randread."""
    if len(values) != 1:
        return text
    value = next(iter(values))
    bare, keyed = ("", f"0*{value}") if value.isdigit() else (re.escape(value), re.escape(value))
    if option == "rw":
        random, way = re.fullmatch("(rand)?(.*)", value, re.DOTALL).groups()  # type: ignore[union-attr]
        ways = "rw|readwrite|mixed" if way in ("rw", "readwrite") else re.escape(way)
        bare = keyed = rf"{'rand(?:om)?' if random else '(?:seq(?:uential)?)?'}[-_]?(?:{ways})"
    elif option in _SIZES and (size := re.fullmatch("([0-9]{1,15})([kmgt]?)(?:i?b)?", value, re.IGNORECASE)):
        amount = int(size[1]) << 10 * ("kmgt".find(size[2].lower() or "-") + 1)
        units = [(f"{amount >> 10 * at}{unit}", 1 << 10 * at) for at, unit in enumerate("kmgt", 1)]
        bare = "|".join(f"{text}(?:i?b)?" for text, least in units if amount % least == 0 < amount)
        keyed = f"{bare}|{amount}" if bare else str(amount)
    keys = "|".join([*_SPELLINGS.get(option, ()), re.escape(option).replace("_", "[-_]?")])
    words = [rf"(?:{keys})[-_=.]?(?:{keyed})", rf"(?:{keyed})[-_]?(?:{keys})", *([bare] if bare else [])]
    return re.sub(rf"(?<![a-z0-9])(?:{'|'.join(words)})(?![a-z0-9])", "", text, flags=re.IGNORECASE)


def _without(condition: Condition, names: Iterable[str]) -> Condition:
    return tuple(pair for pair in condition if pair[0] not in names)


def _tells_more(observations: Sequence[Observation], vary: set[str]) -> bool:
    """Whether jobs of one group have different names, though their options that vary are the same."""
    names: dict[tuple[str, Condition], set[str]] = defaultdict(set)
    for one in observations:
        rest = tuple(pair for pair in one.condition if pair[0] in vary - {JOB})
        names[one.group, rest].add(dict(one.condition).get(JOB, ""))
    return any(len(found) > 1 for found in names.values())


def _notes(
    within: Mapping[str, Mapping[str, set[str]]], vary: set[str], observations: Sequence[Observation]
) -> Iterator[str]:
    groups = dict.fromkeys(one.group for one in observations)
    for name, found in within.items():
        values = {group: next(iter(found[group])) for group in groups if name not in vary}
        if all(_without_words(group, name, {value}) != group for group, value in values.items()):
            continue  # the groups' names say it
        if name != JOB and len(set(values.values())) > 1:
            shown = ", ".join(f"{group} {value or 'not set'}" for group, value in list(values.items())[:4])
            yield f"the groups differ in {name} as well: {shown}"
    options = sorted(vary - {JOB, "file"})
    if len(groups) == 1 and options:
        yield f"the jobs differ in {', '.join(options[:6])}; --group {options[0]} compares them by it"


FORMAT = Format("fio", "fio JSON", recognises, read, settle=settle)
