"""Describe what a run would do to this machine, as lines: every change made as root, every command with its
values.

The same lines are printed by ``iotrial plan`` and before a run of a study that is not from the catalogue. The
user consents to them, so nothing of a foreign study is shortened, and control characters are escaped.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from iotrial.documents import JsonObject, plain
from iotrial.lab.in_place import holding_of
from iotrial.ownership import invoking_user
from iotrial.report.notation import counted
from iotrial.report.safety import study_safety_lines
from iotrial.runner.checked_work import checked_workloads, why_not
from iotrial.runner.command_user import command_user
from iotrial.runner.places import Where
from iotrial.runner.resolve import Resolved
from iotrial.runner.same_disk import sharing
from iotrial.runner.today import is_users_own, system_of, todays_values
from iotrial.runner.trace_job import REPETITIONS, Counted, accounts
from iotrial.study import catalogue
from iotrial.study.model import Holds, Setting, Study
from iotrial.study.places import IN_PLACE, shared_disks_in_words, today_in_words
from iotrial.study.work import HasPrograms
from iotrial.terminal import escape, escape_lines
from iotrial.units import format_duration, format_percent
from iotrial.workloads.live import LiveWork
from iotrial.workloads.replay import ReplayWork

_WIDTH = 11
_FEW_LINES = 12


def intent_lines(resolved: Resolved, folder: str, disks: Sequence[Mapping[str, Any]] = ()) -> tuple[str, ...]:
    """Return the lines on lab, places, notes, changes and commands, each with a heading. ``disks``: the
    result of ``runner.planning.look_at_disks``."""
    return tuple(_lines(resolved, folder, disks))


def typed_intent_lines(resolved: Resolved, folder: str) -> Iterator[str]:
    """Yield the lines for a trial of work that the user has just typed (``iotrial try``): folder and changes."""
    if resolved.lab == IN_PLACE:
        yield from _held(folder)
    else:
        yield _line("lab", f"{resolved.lab}, in {escape(folder)}")
    if resolved.copy_from is not None:
        yield _line("data", f"a copy of {escape(resolved.copy_from)}")
    yield from _today(resolved, folder)
    yield from _replays(resolved)
    for note in resolved.notes:
        yield _line("", escape(note))
    if resolved.changes:
        yield from _changes(resolved)
        yield from study_safety_lines(resolved.study)
    yield from _windows(resolved.study)


def _windows(study: Study) -> Iterator[str]:
    """Yield how a service in use is tried: windows, metrics, what stops it, and how its settings are set back."""
    for workload in study.workloads:
        work = workload.work
        if not isinstance(work, LiveWork):
            continue
        arms = math.prod(len(factor.levels) for factor in study.treatment_factors)
        block_s = arms * (work.washout_s + work.window_s)
        yield _line(
            "windows",
            f"{format_duration(work.window_s)} each, after a washout of {format_duration(work.washout_s)}; "
            f"{arms} in a block, which takes {format_duration(block_s)}",
        )
        for number, metric in enumerate(work.metrics):
            role = "explored" if number else "judged"
            unit = "" if metric.unit == "1" else f" in {escape(metric.unit)}"
            yield _line(
                "" if number else "metrics",
                f"{escape(metric.name)}{unit}, {metric.better.value} is better, {role}: {escape(metric.source)}",
            )
        for number, guard in enumerate(work.guards):
            yield _line("" if number else "guards", escape(guard))
        if work.most_share < 1.0:
            yield _line(
                "share", f"other settings than today's at most {format_percent(work.most_share)} of the time"
            )
        if work.quiet_hours:
            yield _line("quiet", f"{escape(work.quiet_hours)}, local time: {work.resting}")
        yield _line(
            "set back",
            "at the end, on Ctrl-C, by a guard, when a metric is lost, and if iotrial is killed or hangs",
        )


def _held(folder: str) -> Iterator[str]:
    yield _line("in place", escape(folder))
    yield _line("", escape(holding_of(folder).described))


def _today(resolved: Resolved, folder: str) -> Iterator[str]:
    """Yield today's values of what is tried on the user's own system, and which of them no level has."""
    if not any(is_users_own(setting, resolved.lab) for setting in resolved.study.settings):
        return
    with system_of(folder if resolved.lab == IN_PLACE else "/") as context:
        values = todays_values(resolved.study, resolved.lab, context)
    for number, sentence in enumerate(today_in_words(plain(values))):
        yield _line("" if number else "today", escape(sentence.partition(": ")[2] or sentence))


def _replays(resolved: Resolved) -> Iterator[str]:
    for workload in resolved.study.workloads:
        if isinstance(workload.work, ReplayWork):
            yield _line("work", escape(workload.work.described()))
            if resolved.lab == IN_PLACE:
                yield _line("", "its files are made in a folder of their own there, and removed at the end")


def _changes(resolved: Resolved) -> Iterator[str]:
    yield _line("changes", "made as root, and undone at the end:")
    for change in resolved.changes:
        yield _line("", f"- {escape(change)}")


class Place(JsonObject, frozen=True, forbid_unknown_fields=False):
    """A place that the study declares, with the folder or the disk that it is made on. ``located``: the user says where."""

    name: str
    text: str
    holds: Holds
    kind: Literal["directory", "image", "device", "log"]
    filesystems: tuple[str, ...]
    size_bytes: int
    located: bool
    modelled: str | None
    folder: str | None
    disk: Mapping[str, Any] | None


def places_of(resolved: Resolved, folder: str, disks: Sequence[Mapping[str, Any]]) -> list[Place]:
    """Return the places that the study declares."""
    by_place = {disk["place"]: disk for disk in disks if "place" in disk}
    return [
        Place.of(
            site,
            located=site.where != Where(),
            modelled=None if site.disk is None else site.disk.model,
            folder=site.where.folder or folder if site.name not in by_place and site.disk is None else None,
            disk=by_place.get(site.name),
        )
        for site in resolved.sites
        if site.name
    ]


def runs_commands(study: Study) -> bool:
    """Return whether a run starts programs that the study names."""
    return any(w.work.starts_programs or w.neighbour is not None for w in study.workloads)


def command_lines(study: Study) -> Iterator[str]:
    """Yield every command of a study, with all its inputs and values."""
    for workload in study.workloads:
        if workload.neighbour is not None:
            argv = shlex.join(workload.neighbour.argv)
            yield _line("command", f"{escape(workload.name)}, its neighbour: {escape(argv)}")
        if not isinstance(workload.work, HasPrograms):
            continue
        launched = workload.work.launched()
        for command in launched.commands:
            yield _line("command", f"{escape(workload.name)}: {escape(command)}")
        for detail in launched.details:
            yield _line("", escape(detail))
        for line in _input(launched.input, study):
            yield _line("", line)
    if runs_commands(study):
        yield from _values(study)


def _as_nobody(resolved: Resolved) -> bool:
    named = runs_commands(resolved.study)
    return named and resolved.root and command_user(resolved.study) != invoking_user()


def _lines(resolved: Resolved, folder: str, disks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    unnamed = next((disk for disk in disks if "place" not in disk), None)
    if resolved.lab == IN_PLACE:
        yield from _held(folder)
    elif unnamed is None:
        yield _line("lab", f"{resolved.lab}, in {escape(folder)}")
    else:
        yield _line("lab", f"device, on {_disk(unnamed)}")
        yield _line("", _share(unnamed))
        yield _line("", UNSEEN)
    yield from _places(resolved, folder, disks)
    if resolved.copy_from is not None:
        yield _line("data", f"a copy of {escape(resolved.copy_from)}")
    yield from _today(resolved, folder)
    yield from _replays(resolved)
    for note in shared_disks_in_words(plain(sharing(resolved, folder))):
        yield _line("", escape(f"NOTE: {note}"))
    for note in resolved.notes:
        yield _line("", escape(note))
    if resolved.changes:
        yield from _changes(resolved)
    else:
        yield _line("changes", "none outside that folder")
    yield from study_safety_lines(resolved.study)
    yield from _windows(resolved.study)
    yield from command_lines(resolved.study)
    if _as_nobody(resolved):
        yield _line("", "commands of an untrusted study run as user nobody, not as root")
    yield from _accounted(resolved)
    yield from _power_cuts(resolved)


def _input(text: str, study: Study) -> Iterator[str]:
    """Yield the standard input of a command in full, line by line. A long input that ships with iotrial is
    only summarised."""
    lines = text.removesuffix("\n").split("\n") if text else []
    if len(lines) == 1:
        yield escape(f"with the input {shlex.quote(text)}")
    elif len(lines) > _FEW_LINES and _ships(study):
        yield f"with an input of {len(lines)} lines, {len(text.encode()):,} bytes, which ships with iotrial"
    elif lines:
        yield "with the input"
        yield from (f"  {line}" for line in escape_lines("\n".join(lines)).split("\n"))


def _ships(study: Study) -> bool:
    return study.name in catalogue.names() and catalogue.find(study.name).text == study.text


def _places(resolved: Resolved, folder: str, disks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield every place with its meaning in the study, its location, and the option that changes it."""
    for place in places_of(resolved, folder, disks):
        meant = f" ({place.text})" if place.text else ""
        kind = f"{place.kind}, modelled {place.modelled}" if place.modelled else place.kind
        disk = place.disk
        where = _disk(disk) if disk is not None else escape(place.folder or "memory")
        other = "to use your own disk" if place.modelled else "elsewhere"
        unsaid = "" if place.located else f"; {other}: --place {place.name}=FOLDER"
        yield _line(
            "place", f"{escape(place.name + meant)}: {kind}, {'on' if disk else 'in'} {where}{unsaid}"
        )
        if disk is not None:
            yield _line("", _share(disk))
            yield _line("", UNSEEN)


#: what no inspection of a disk can find
UNSEEN = (
    "found unused. Not visible: other machines on a shared disk, processes outside this container, descriptors held only by "
    "a socket, io_uring or a kernel target driver"
)


def _disk(disk: Mapping[str, Any]) -> str:
    return f"{escape(disk['path'])}: {escape(disk['model'] or 'a disk')}, {escape(disk['name'])}"


def _share(disk: Mapping[str, Any]) -> str:
    return f"{disk['bytes']:,} bytes, of which the lab uses the first {disk['lab_bytes']:,}"


def _accounted(resolved: Resolved) -> Iterator[str]:
    """Yield what is counted after the last block, and what this kind of lab leaves out."""
    wanted = accounts(resolved.study, resolved.lab)
    if not wanted:
        return
    calls = [name for name, what in wanted.items() if Counted.CALLS in what]
    counts = [f"system calls of {escape(', '.join(calls))}"] if calls else []
    counts += (
        ["requests to the lab's device"] if any(Counted.REQUESTS in what for what in wanted.values()) else []
    )
    yield _line(
        "accounted",
        f"{' and '.join(counts)}, in up to {REPETITIONS} untimed repetitions of each arm (--no-account skips this)",
    )


def _power_cuts(resolved: Resolved) -> Iterator[str]:
    """Yield what is done after the timed runs about acknowledged writes."""
    study = resolved.study
    if not study.check:
        return
    names = checked_workloads(study, resolved.lab)
    reason = why_not(resolved) if names else None
    if reason is not None:
        yield _line("power cuts", f"none: {escape(reason)}")
    if reason is not None or not names:
        return
    yield _line(
        "power cuts",
        f"at {study.cut_points:,} points of {counted(study.cut_runs, 'more run')} of each arm of "
        f"{escape(', '.join(names))}, on simulated disks (--no-check skips this)",
    )


def _values(study: Study) -> Iterator[str]:
    """Yield the values of the commands' placeholders and variables."""
    found: dict[str, list[str]] = {}
    for setting in study.settings:
        name = _stands_for(setting)
        if name is not None and setting.value not in found.setdefault(name, []):
            found[name].append(setting.value)
    for name, values in found.items():
        yield _line("with", f"{escape(name)} = {', '.join(escape(shlex.quote(value)) for value in values)}")


def _stands_for(setting: Setting) -> str | None:
    options = dict(setting.options)
    return options.get("placeholder", options.get("variable"))


def _line(name: str, text: str) -> str:
    return f"{name:<{_WIDTH}}{text}"
