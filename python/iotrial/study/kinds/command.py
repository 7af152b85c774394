"""Workload kind ``command``: whole processes, started and timed by the probe, without a shell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from iotrial.study import command_trust
from iotrial.study.kinds.contract import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    SYNCED_RESPONSE,
    FileSetKeys,
    KeyProblem,
    Programs,
    ResponseSpec,
    WorkloadKind,
    count_response,
    file_set,
    time_response,
)
from iotrial.study.model import Better, CommandWork, Scale, Step, Work
from iotrial.study.wire import Argument, Duration, Name, Prose, Table, Written

SINGLE_STEP = "command"
SCRATCH = "{out}"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _variable(text: str) -> str:
    if len(text) > 128 or not _VARIABLE.fullmatch(text):
        raise ValueError("wanted a variable's name: letters, digits and _, no digit first")
    return text


Variable = Annotated[str, AfterValidator(_variable)]
Arguments = Annotated[list[Argument], Field(min_length=1, max_length=256), Written("list of text")]


class StepTable(Table):
    """One ``[[workload.step]]``."""

    name: Name
    argv: Arguments


class CommandKeys(FileSetKeys):
    """Keys of ``kind = "command"``."""

    argv: Arguments | None = Field(
        None,
        description="program and arguments; `{file}`: run once for each file; `{files}` (an argument of its "
        "own): all files; `{dir}`: their folder; `{out}`: a folder for what it writes, empty at the start of a run",
    )
    step: Annotated[list[StepTable], Written("[[workload.step]] tables")] = Field(
        [],
        max_length=32,
        description="instead of `argv`: several commands with `name` and `argv`, timed apart and in sum",
    )
    files: int = Field(1, ge=1, le=1_000_000, description="how many files one run works on")
    cwd: Argument = Field("{dir}", min_length=1, description="working folder; may be in `{dir}` or `{out}`")
    stdin: Prose = Field("", description="text for standard input")
    timeout: Duration = Field(
        60.0, gt=0, le=86400, description="longest time of one command; after it the run failed"
    )
    expect_exit: int = Field(0, ge=0, le=255, description="exit status of success")
    run_as: Literal["user", "root"] = Field("user", description="who runs it: who called iotrial, or root")
    environment: Annotated[dict[Variable, Argument], Written("table of text")] = Field(
        {}, max_length=64, description="variables added to a minimal environment"
    )
    reads: Literal["data", "names"] = Field(
        "data",
        description="what a run must have read from the device to count as cold: at least the files' "
        "size, or something; and of the lab's data that it was [seen to read](labs.md#what-a-work-uses) a tenth",
    )


def build(keys: CommandKeys) -> CommandWork:
    """The work of these keys; KeyProblem where the steps cannot work."""
    return CommandWork(**declared(keys))


def declared(keys: CommandKeys) -> dict[str, Any]:
    """The fields of the work, for this kind and those that build on it."""
    steps = _steps(keys)
    if keys.replicates > 1 and _in_any(SCRATCH, steps, keys.cwd):
        message = f"{SCRATCH} is empty at the start of a run, but not at that of each of its {keys.replicates} replicates"
        raise KeyProblem(message, "replicates", hint="leave it out, or have several steps")
    return {
        **file_set(keys),
        "steps": steps,
        "cwd": keys.cwd,
        "stdin": keys.stdin,
        "timeout_s": keys.timeout,
        "expect_exit": keys.expect_exit,
        "run_as": keys.run_as,
        "environment": tuple(sorted(keys.environment.items())),
        "reads": keys.reads,
    }


def _steps(keys: CommandKeys) -> tuple[Step, ...]:
    if (keys.argv is None) == (not keys.step):
        message = "a command workload has either argv or [[workload.step]] tables"
        raise KeyProblem(
            f"{message}, found {'both' if keys.step else 'neither'}", *(("step",) if keys.step else ())
        )
    if keys.argv is not None:
        _check_arguments(keys.argv, ("argv",))
        return (Step(SINGLE_STEP, tuple(keys.argv)),)
    seen: set[str] = set()
    for index, step in enumerate(keys.step):
        if step.name in seen:
            raise KeyProblem(f'two steps are called "{step.name}"', "step", index, "name")
        seen.add(step.name)
        _check_arguments(step.argv, ("step", index, "argv"))
    return tuple(Step(step.name, tuple(step.argv)) for step in keys.step)


def _in_any(placeholder: str, steps: tuple[Step, ...], cwd: str) -> bool:
    return placeholder in cwd or any(placeholder in word for step in steps for word in step.argv)


def writes_to_scratch(work: CommandWork) -> bool:
    """Whether a run of it has a folder of its own to write to."""
    return _in_any(SCRATCH, work.steps, work.cwd)


def _check_arguments(argv: list[str], path: tuple[str | int, ...]) -> None:
    if not argv[0].strip():
        raise KeyProblem("the first argument names the program and cannot be empty", *path, 0)
    for index, argument in enumerate(argv):
        if "{files}" in argument and argument != "{files}":
            hint = "it becomes one argument for each file"
            raise KeyProblem(
                f'{{files}} must be an argument of its own, found "{argument}"', *path, index, hint=hint
            )
    if "{files}" in argv and any("{file}" in argument for argument in argv):
        raise KeyProblem("{file} and {files} cannot stand in one command", *path)


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run of this work measures."""
    assert isinstance(work, CommandWork)
    names = [step.name for step in work.steps] if len(work.steps) > 1 else []
    return (
        _WALL,
        *CPU_RESPONSES,
        *(spec for name in names for spec in _step_times(name)),
        *_COUNTS,
        *written(work),
    )


def written(work: CommandWork) -> tuple[ResponseSpec, ...]:
    """What is counted of what a run writes, where there is a folder for that."""
    return WRITTEN if writes_to_scratch(work) else ()


def _step_times(step: str) -> tuple[ResponseSpec, ...]:
    return (
        time_response(f"wall.{step}", f"time of the step {step}"),
        time_response(f"cpu.{step}", f"processor time of the step {step}, user and system"),
    )


def texts(work: Work) -> Iterator[str]:
    """All texts that a placeholder may stand in."""
    assert isinstance(work, CommandWork)
    for step in work.steps:
        yield from step.argv
    yield work.cwd
    yield work.stdin
    yield from (value for _, value in work.environment)


def as_root(work: Work) -> bool:
    """Whether root runs the commands."""
    assert isinstance(work, CommandWork)
    return work.run_as == "root"


PROGRAMS = Programs("its commands", texts, as_root, command_trust.demands)

_WALL = time_response("wall", "time from just before each process is started to its end, in sum")
WRITTEN = (
    SYNCED_RESPONSE,
    count_response("out_bytes", "bytes", "sizes of all that is in `{out}` after a run"),
    ResponseSpec("out_files", "1", Scale.DIFFERENCE, Better.NONE, "files in `{out}` after a run"),
)
_COUNTS = (
    ResponseSpec("max_rss", "bytes", Scale.LOG, Better.LOWER, "largest resident memory of a process"),
    count_response("faults_major", "1", "page faults that had to read"),
    count_response("faults_minor", "1", "page faults that had not to read"),
    *DEVICE_RESPONSES,
)

KIND = WorkloadKind(
    name="command",
    work=CommandWork,
    summary="Whole processes, started and timed by the probe, without a shell.",
    keys=CommandKeys,
    build=build,
    responses=responses,
    documented=(_WALL, *CPU_RESPONSES, *_step_times("STEP"), *_COUNTS, *WRITTEN),
    notes="wall.STEP and cpu.STEP are there where a workload has several steps; out_bytes, out_files and "
    "device_write_bytes_synced where it writes to {out}, a folder that is made anew for every run, beside the files, "
    "and written back before the clock starts. A command that fails, ends "
    "with another status than expect_exit, or runs into its timeout, is a failure of its level.",
    programs=PROGRAMS,
)
