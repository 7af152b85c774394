"""Builds a study that compares two builds of a program (``iotrial ci``), and finds out which benchmarks they have.

The study is an ordinary one: one factor ``build`` with the levels base and head, one command, and a primary response for each
benchmark that both builds print. Where the command prints none, its wall time is the response.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from iotrial.audits.benchmarks import SUITES, benchmark_times
from iotrial.errors import IotrialError, NoAnswer, RequestError
from iotrial.ownership import invoking_user
from iotrial.powercut.checking import run_as
from iotrial.runner.quick_study import ARGUMENT, SHELL, TIMEOUT
from iotrial.study.model import BUILDS
from iotrial.study.places import IN_PLACE
from iotrial.terminal import escape
from iotrial.workloads.command import SCRATCH
from iotrial.workloads.output import FOLDER, MOST_BYTES, MOST_OUTPUTS

BASE, HEAD = "base", "head"
FACTOR, WORKLOAD = "build", "benchmarks"
_BUILD = f"{{{FACTOR}}}"
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME = 60
_FIRST_RUN_S = 3600.0


@dataclass(frozen=True, slots=True)
class Builds:
    """Two builds: two lines for the shell, or, with ``command``, the two folders in which that command is run.

    ``results``: the file with the benchmarks' times, beginning with ``{out}/``; None: standard output. ``margin``, ``time``
    as in a study. ``alpha``: the error level of the job, of which the study has half (``report.gate``).
    """

    base: str
    head: str
    command: tuple[str, ...] = ()
    results: str | None = None
    margin: str = "5 %"
    time: str = "10 min"
    alpha: float = 0.01

    @property
    def argv(self) -> list[str]:
        """What is started, with the build's placeholder unless it is the folder."""
        return list(self.command) if self.command else [SHELL, "-c", _BUILD]


@dataclass(frozen=True, slots=True)
class Found:
    """The benchmarks that both builds have, and those of one alone. None at all: the command prints none that can be read."""

    both: tuple[str, ...] = ()
    only_base: tuple[str, ...] = ()
    only_head: tuple[str, ...] = ()


def find_benchmarks(builds: Builds, cwd: Path) -> Found:
    """Run each build once, untimed, and read which benchmarks it has.

    Raises NoAnswer if a build fails, and RequestError if the results that were named cannot be read, or if the builds have no
    benchmark in common.
    """
    texts = {label: _first_run(builds, label, value, cwd) for label, value in _levels(builds)}
    found: dict[str, tuple[str, ...]] = {}
    for label, text in texts.items():
        try:
            found[label] = tuple(benchmark_times(text))
        except IotrialError as error:
            if builds.results is not None:
                raise RequestError(
                    f"{label}: {builds.results} has no benchmarks: {error.message}", hint=f"expected {SUITES}"
                ) from error
            found[label] = ()
    both = tuple(name for name in found[BASE] if name in found[HEAD])
    if not both and any(found.values()):
        raise RequestError("base and head have no benchmark in common", hint="compare builds of one suite")
    if len(both) > MOST_OUTPUTS:
        raise RequestError(
            f"{len(both)} benchmarks, at most {MOST_OUTPUTS} can be compared in one job",
            hint="run fewer, by the filter of the suite itself",
        )
    return Found(
        both,
        tuple(name for name in found[BASE] if name not in both),
        tuple(name for name in found[HEAD] if name not in both),
    )


def _levels(builds: Builds) -> tuple[tuple[str, str], ...]:
    return (BASE, builds.base), (HEAD, builds.head)


def _first_run(builds: Builds, label: str, value: str, cwd: Path) -> str:
    """Run a build once; return its results as text."""
    uid, gid = invoking_user()
    with tempfile.TemporaryDirectory(prefix="iotrial-ci-") as out:
        if os.geteuid() == 0:
            os.chown(out, uid, gid)
        words = [word.replace(_BUILD, value).replace(SCRATCH, out) for word in builds.argv]
        try:
            done = run_as(
                words,
                cwd=value if builds.command else str(cwd),
                environment=os.environ,
                stdin="",
                user={"uid": uid, "gid": gid},
                limit_s=_FIRST_RUN_S,
            )
        except subprocess.TimeoutExpired as error:
            raise NoAnswer(f"{label} did not end within {_FIRST_RUN_S:g} s") from error
        except OSError as error:
            raise RequestError(f"{label} cannot be started: {error.strerror}: {words[0]}") from error
        if done.returncode:
            said = escape((done.stderr or done.stdout).strip()[-300:])
            raise NoAnswer(f"{label} ended with status {done.returncode}: {said}")
        if builds.results is None:
            return done.stdout
        try:
            with (Path(out) / builds.results.removeprefix(FOLDER)).open("rb") as file:
                return file.read(MOST_BYTES + 1).decode(errors="replace")
        except OSError as error:
            raise RequestError(
                f"{label} has not written {builds.results}: {error.strerror}",
                hint=f"name the file in the command as {SCRATCH}/FILE, and --results {SCRATCH}/FILE",
            ) from error


def study_text(builds: Builds, benchmarks: Sequence[str]) -> str:
    """Return the study as TOML. ``benchmarks``: those to compare; empty: the wall time of the command."""
    outputs = [
        {
            "name": name,
            "benchmark": benchmark,
            "from": builds.results or "stdout",
            "take": "median",
            "unit": "s",
        }
        for benchmark, name in _names(benchmarks).items()
    ]
    asked = (builds.base, builds.head, builds.command, builds.results, tuple(benchmarks))
    digest = hashlib.sha256(repr(asked).encode("utf-8", "surrogateescape")).hexdigest()[:6]
    texts = " ".join([builds.base, builds.head, *builds.command])
    workload = {
        "name": WORKLOAD,
        "kind": "command",
        "argv": builds.argv,
        **({"cwd": _BUILD} if builds.command else {}),
        "cache": "as-is",
        "timeout": TIMEOUT,
        "inherit_environment": True,
        **({"output_folder": True} if SCRATCH in texts else {}),
        **({"output": outputs} if outputs else {}),
    }
    document: dict[str, Any] = {
        "study": {
            "name": f"{BUILDS}{WORKLOAD}-{digest}",
            "title": "head compared with base",
            "question": "Is head slower than base?",
            "margin": builds.margin,
            "alpha": builds.alpha / 2.0,
            "account": False,
        },
        "lab": {"kind": IN_PLACE},
        "budget": {"time": builds.time},
        "factor": [
            {
                "name": FACTOR,
                "knob": ARGUMENT,
                "placeholder": _BUILD,
                "levels": [{"label": label, "value": value} for label, value in _levels(builds)],
            }
        ],
        "workload": [workload],
        **({"response": [{"name": one["name"], "primary": True} for one in outputs]} if outputs else {}),
    }
    return tomlkit.dumps(document)


def _names(benchmarks: Sequence[str]) -> Mapping[str, str]:
    """Return a name for each benchmark that a study allows, no two alike."""
    found: dict[str, str] = {}
    for benchmark in benchmarks:
        plain = _UNFIT.sub("-", benchmark).strip("-._")[:_LONGEST_NAME] or "benchmark"
        taken = set(found.values())
        name, number = plain, 1
        while name in taken:
            number += 1
            name = f"{plain}-{number}"
        found[benchmark] = name
    return found
