"""The evidence behind an applied setting: is it from this machine, does it still hold?"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from iotrial.documents import JsonObject
from iotrial.errors import LabError
from iotrial.study.places import IN_PLACE
from iotrial.tune.applied import Entry, Record
from iotrial.tune.machine import Machine
from iotrial.workloads.replay import ReplayWork

if TYPE_CHECKING:
    from iotrial.report.document import Document
    from iotrial.store.model import TrialHeader

#: options of ``run`` and ``try`` that say what to do with the result, with the number of words after each
_OUTPUT = {
    "--json": 0, "--yes": 0, "--full": 0, "--force": 0, "--seed": 1, "--html": 1, "--save": 1, "--export-markdown": 1,
    "--export-json": 1, "--markdown": 1, "--figures": 1, "--fail-if": 1, "--in": 1, "--on": 1,
}  # fmt: skip


class Held(JsonObject, frozen=True):
    """One setting, measured again: ``holds`` is None if the new trial has not decided."""

    name: str
    value: str
    then: str
    now: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a trial was made. ``elsewhere``: how that machine differs from this one; None for this machine."""

    text: str
    elsewhere: str | None
    folder: str | None


def origin_of(document: Document, machine: Machine) -> Origin:
    """Compare the machine of a trial with this one, by processor and memory; an imported trial is always from elsewhere.

    ``folder``: what holds the settings of a trial that was made in place here.
    """
    trial = document.trial
    host, lab = trial.header.host, trial.header.lab
    kind = str(lab.get("kind", "unknown"))
    seen = ", ".join(
        str(part)
        for part in (host.get("processor"), host.get("system"), f"kernel {host.get('kernel', 'unknown')}")
        if part
    )
    elsewhere = None
    if trial.imported is not None:
        elsewhere = f"the evidence is from another machine (imported {trial.imported}): {seen}"
    else:
        different = [
            name
            for name, (then, now) in _facts(host, machine).items()
            if then is not None and now is not None and then != now
        ]
        if different:
            elsewhere = f"the evidence is from another machine ({' and '.join(different)} differ): {seen}"
    folder = None
    if kind == IN_PLACE and elsewhere is None:
        places = lab.get("places")
        first = places[0] if isinstance(places, list | tuple) and places else {}
        mounted = first.get("mounted_at") if isinstance(first, Mapping) else None
        named = trial.header.options.get("folder")
        folder = str(named or mounted) if named or mounted else None
    where = "in place" if kind == IN_PLACE else f"in a lab ({kind})"
    return Origin(f"measured {where} on {seen}", elsewhere, folder)


def _facts(host: Mapping[str, object], machine: Machine) -> dict[str, tuple[object, object]]:
    models = re.findall(r"^model name\s*:\s*(.*)$", machine.text("/proc/cpuinfo") or "", re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*([0-9]+) kB", machine.text("/proc/meminfo") or "", re.MULTILINE)
    return {
        "processors": (host.get("processor"), models[0].strip() if models else None),
        "memory sizes": (
            _rounded(host.get("memory_bytes")),
            _rounded(int(memory[1]) * 1024 if memory else None),
        ),
    }


def _rounded(size: object) -> int | None:
    """Return a size in half GiB: the kernel keeps a little more or less for itself with each version."""
    return round(size / (1 << 29)) if isinstance(size, int) else None


def rerun_words(header: TrialHeader, *, imported: bool) -> tuple[str, ...]:
    """Return the words after ``iotrial`` that measure the same again in place; none for other trials.

    A trial from elsewhere never gives a command.
    """
    argv = header.options.get("argv")
    folder = header.options.get("folder")
    if imported or header.lab.get("kind") != IN_PLACE or not header.study.trusted:
        return ()
    if not isinstance(argv, list | tuple) or len(argv) < 2 or argv[1] not in ("try", "run"):
        return ()
    words = _with_trace([str(word) for word in argv[1:]], header)
    at = words.index("--") if "--" in words else len(words)
    kept, skip = [], 0
    for word in words[:at]:
        if skip:
            skip -= 1
        elif word.partition("=")[0] in _OUTPUT:
            skip = 0 if "=" in word else _OUTPUT[word]
        else:
            kept.append(word)
    where = "--in" if kept[0] == "try" else "--on"
    placed = [where, str(folder)] if folder else []
    return (*kept, *placed, "--yes", "--json", *words[at:])


def _with_trace(words: Sequence[str], header: TrialHeader) -> list[str]:
    """Return the words with the absolute path of the trace of ``--replay``: they are run in another folder."""
    work = next((w.work for w in header.study.workloads if isinstance(w.work, ReplayWork)), None)
    if work is None:
        return list(words)
    found = []
    for before, word in pairwise(["", *words]):
        path = f"{work.folder}/{work.trace}"
        found.append(
            path if before == "--replay" else f"--replay={path}" if word.startswith("--replay=") else word
        )
    return found


def measure_again(record: Record) -> tuple[Held, ...]:
    """Run the trial of a record again in place, and compare its verdicts. Raises LabError if it fails."""
    folder = record.folder or "/"
    done = subprocess.run(
        [sys.executable, "-m", "iotrial", *record.command],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False, cwd=folder, env=dict(os.environ),
    )  # fmt: skip
    try:
        report = json.loads(done.stdout)
        effects = report["effects"]
    except (ValueError, KeyError, TypeError):
        raise LabError(
            f"measuring again ended with status {done.returncode}: iotrial {' '.join(record.command)}",
            hint="run the command yourself to see why",
        ) from None
    return tuple(_held(entry, effects) for entry in record.entries)


def _held(entry: Entry, effects: Sequence[Mapping[str, Any]]) -> Held:
    choice = entry.choice
    same = [
        one
        for one in effects
        if (one["factor"], one["level"], one["reference"], one["response"])
        == (choice.factor, choice.level, choice.reference, choice.response)
        and one["kind"] == "main"
    ]
    better, worse = ("faster", "better"), ("slower", "worse")
    words = [str(one["conclusion"]).removeprefix("probably_") for one in same]
    holds: bool | None = None
    if any(word in worse for word in words) or (
        words and all(word.startswith("equivalent") for word in words)
    ):
        holds = False
    elif any(one["conclusion"] in better for one in same):
        holds = True
    now = (
        ", ".join(f"{one['conclusion'].replace('_', ' ')} {_numbers(one)}" for one in same) or "not measured"
    )
    return Held(choice.name, choice.value, f"{choice.conclusion}: {choice.effect}", now, holds)


def _numbers(effect: Mapping[str, Any]) -> str:
    ends = ["…" if effect[name] is None else f"{effect[name]:.3g}" for name in ("low", "high")]
    value = effect.get("ratio", effect.get("difference"))
    return f"{'?' if value is None else f'{value:.3g}'} [{ends[0]}, {ends[1]}]"
