"""Workload kind ``command``: whole processes, started and timed by the probe, without a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from msgspec import Meta

from iotrial.study import command_trust
from iotrial.study.model import Setting
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Argument, Arguments, Duration, Form, Problem, Prose, Variables, formed, keyed
from iotrial.study.work import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    SYNCED_RESPONSE,
    FileSet,
    HasPrograms,
    JobContext,
    Launched,
    Measured,
    ResponseSpec,
    Step,
    count_response,
    filled,
    minimal_environment,
    time_response,
    to_take_off,
)

SINGLE_STEP = "command"
SCRATCH = "{out}"
STEP_TABLES = formed(Form("[[workload.step]] tables"))
_BARE = {ord("{"): "_", ord("}"): "_"}

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


def _step_times(step: str) -> tuple[ResponseSpec, ...]:
    return (
        time_response(f"wall.{step}", f"time of the step {step}"),
        time_response(f"cpu.{step}", f"processor time of the step {step}, user and system"),
    )


class CommandWork(HasPrograms, FileSet, frozen=True, kw_only=True):
    """Whole processes, started and timed by the probe.

    ``{file}`` in an argument list runs the command once for each file of the run, ``{files}`` stands for all of them,
    ``{dir}`` for their folder, ``{out}`` for a folder to write to.
    """

    kind = "command"
    about = "Whole processes, started and timed by the probe, without a shell."
    notes = (
        "wall.STEP and cpu.STEP are there where a workload has several steps; out_bytes, out_files and "
        "device_write_bytes_synced where it writes to {out}, a folder that is made anew for every run, beside the files, "
        "and written back before the clock starts. A command that fails, ends "
        "with another status than expect_exit, or runs into its timeout, is a failure of its level."
    )
    documented = (_WALL, *CPU_RESPONSES, *_step_times("STEP"), *_COUNTS, *WRITTEN)
    file_keys = {
        "argv": Annotated[
            Arguments,
            Meta(
                min_length=1,
                description="program and arguments; `{file}`: run once for each file; `{files}` (an argument of its "
                "own): all files; `{dir}`: their folder; `{out}`: a folder for what it writes, empty at the start of a run",
            ),
        ]
    }
    said = "its commands"
    verb = "command"
    starts_programs = True
    accountable = True

    steps: Annotated[
        tuple[Step, ...],
        keyed("step"),
        STEP_TABLES,
        Meta(
            max_length=32,
            description="instead of `argv`: several commands with `name` and `argv`, timed apart and in sum",
        ),
    ] = ()
    cwd: Annotated[
        Argument, Meta(min_length=1, description="working folder; may be in `{dir}` or `{out}`")
    ] = "{dir}"
    stdin: Annotated[Prose, Meta(description="text for standard input")] = ""
    timeout_s: Annotated[
        Duration, Meta(gt=0, le=86400, description="longest time of one command; after it the run failed")
    ] = 60.0
    expect_exit: Annotated[int, Meta(ge=0, le=255, description="exit status of success")] = 0
    run_as: Annotated[
        Literal["user", "root"], Meta(description="who runs it: who called iotrial, or root")
    ] = "user"
    environment: Annotated[Variables, Meta(description="variables added to a minimal environment")] = ()
    reads: Annotated[
        Literal["data", "names"],
        Meta(
            description="what a run must have read from the device to count as cold: at least the files' "
            "size, or something; and of the lab's data that it was [seen to read](labs.md#what-a-work-uses) a tenth"
        ),
    ] = "data"

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        return cls(**with_steps(values, "a command workload has"))

    def check(self) -> None:
        super().check()
        check_steps(self.steps)
        for index, step in enumerate(self.steps):
            _check_files(step.argv, path_of(self.steps, index))
        if self.replicates > 1 and self.needs_scratch():
            raise Problem(
                f"{SCRATCH} is empty at the start of a run, but not at that of each of its {self.replicates} replicates",
                "replicates",
                hint="leave it out, or have several steps",
            )

    def responses(self) -> tuple[ResponseSpec, ...]:
        names = [step.name for step in self.steps] if len(self.steps) > 1 else []
        times = (spec for name in names for spec in _step_times(name))
        return (_WALL, *CPU_RESPONSES, *times, *_COUNTS, *self._written())

    def _written(self) -> tuple[ResponseSpec, ...]:
        """What is counted of what a run writes, where there is a folder for that."""
        return WRITTEN if self.needs_scratch() else ()

    def texts(self) -> Iterator[str]:
        for step in self.steps:
            yield from step.argv
        yield self.cwd
        yield self.stdin
        yield from (value for _, value in self.environment)

    def demands(self, settings: Sequence[Setting]) -> Iterator[str]:
        return command_trust.demands(self.steps, settings, stdin=self.stdin, environment=self.environment)

    def named_programs(self) -> tuple[str, ...]:
        return tuple(step.argv[0] for step in self.steps)

    def launched(self) -> Launched:
        details = [f"in the folder {self.cwd}"] if self.cwd != "{dir}" else []
        details += [f"with {name}={value}" for name, value in self.environment]
        details += ["as root"] if self.run_as == "root" else []
        return Launched(
            tuple(" ".join(map(_word, step.argv)) for step in self.steps), tuple(details), self.stdin or ""
        )

    def described(self) -> str:
        return "command " + "; ".join(" ".join(step.argv) for step in self.steps)

    def probe_job(self, context: JobContext) -> dict[str, object]:
        return {
            "steps": [
                {"name": step.name, "argv": [filled(word, context.arguments) for word in step.argv]}
                for step in self.steps
            ],
            "environment": {
                **minimal_environment(),
                **{name: filled(value, context.arguments) for name, value in self.environment},
                **context.environment,
            },
            "cwd": filled(self.cwd, context.arguments),
            "stdin": filled(self.stdin, context.arguments),
            "timeout_s": self.timeout_s,
            "expect_exit": self.expect_exit,
        }

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        numbers = {"max_rss": float(answer["max_rss_bytes"])}
        if answer["out"] is not None:
            numbers |= {f"out_{what}": float(answer["out"][what]) for what in ("bytes", "files")}
        if answer["stragglers"]:
            numbers["stragglers"] = float(answer["stragglers"])
        for step in answer["steps"] if len(answer["steps"]) > 1 else ():
            spun_wall, spun_cpu = to_take_off(step, context.stretched)
            numbers[f"wall.{step['name']}"] = step["wall_ns"] / 1e9 - spun_wall
            numbers[f"cpu.{step['name']}"] = (step["user_ns"] + step["sys_ns"]) / 1e9 - spun_cpu
        return Measured(numbers)

    def reads_bytes(self, size: int, files: int) -> int:
        return size * files if self.reads == "data" else 1

    def chooses_files(self) -> bool:
        return True

    def needs_scratch(self) -> bool:
        return SCRATCH in self.cwd or any(SCRATCH in word for step in self.steps for word in step.argv)

    def as_root(self) -> bool:
        return self.run_as == "root"


def with_steps(values: dict[str, Any], who: str) -> dict[str, Any]:
    """The values with ``argv`` as the only step. Problem where there are both, or neither. ``who`` begins the sentence."""
    argv, steps = values.get("argv"), values.get("steps", ())
    if (argv is None) == (not steps):
        found = "both" if steps else "neither"
        message = f"{who} either argv or [[workload.step]] tables, found {found}"
        raise Problem(message, *(("step",) if steps else ()))
    if argv is not None:
        steps = (Step(SINGLE_STEP, argv),)
    return {**{name: value for name, value in values.items() if name != "argv"}, "steps": steps}


def path_of(steps: Sequence[Step], index: int) -> tuple[str | int, ...]:
    """Where the arguments of a step stand in the table."""
    alone = len(steps) == 1 and steps[0].name == SINGLE_STEP
    return ("argv",) if alone else ("step", index, "argv")


def check_steps(steps: Sequence[Step]) -> None:
    """Problem for steps of one name, and for a program without a name."""
    names = [step.name for step in steps]
    for index, step in enumerate(steps):
        if step.name in names[:index]:
            raise Problem(f'two steps are called "{step.name}"', "step", index, "name")
        if not step.argv[0].strip():
            message = "the first argument names the program and cannot be empty"
            raise Problem(message, *path_of(steps, index), 0)


def _check_files(argv: Sequence[str], path: tuple[str | int, ...]) -> None:
    for index, argument in enumerate(argv):
        if "{files}" in argument and argument != "{files}":
            hint = "it becomes one argument for each file"
            raise Problem(
                f'{{files}} must be an argument of its own, found "{argument}"', *path, index, hint=hint
            )
    if "{files}" in argv and any("{file}" in argument for argument in argv):
        raise Problem("{file} and {files} cannot stand in one command", *path)


def _word(word: str) -> str:
    """The argument, quoted where it could be taken for two or for none; ``{file}`` and the like stay bare."""
    return word if word and shlex.quote(word.translate(_BARE)) == word.translate(_BARE) else shlex.quote(word)


WORK = CommandWork
