"""Workload kind ``command``: whole processes, started and timed by the probe, without a shell.

A program's output can be a response (``[[workload.output]]``), and a server can run alongside (``serve``).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from msgspec import Meta

from iotrial.errors import RequestError, twice
from iotrial.powercut.checking import MARKS, run_checker
from iotrial.study import command_trust
from iotrial.study.model import Setting
from iotrial.study.places import GUEST, IN_PLACE
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import (
    Argument,
    Arguments,
    Duration,
    Form,
    Line,
    LongText,
    Problem,
    Variables,
    formed,
    keyed,
)
from iotrial.study.work import (
    ACTIVITY_RESPONSES,
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    SERVED_RESPONSES,
    SYNCED_RESPONSE,
    Damage,
    HasCheck,
    HasPrograms,
    JobContext,
    Launched,
    Measured,
    Recovered,
    ResponseSpec,
    Step,
    check_program,
    count_response,
    filled,
    minimal_environment,
    only_for,
    time_response,
    to_take_off,
)
from iotrial.workloads.output import FOLDER, MOST_OUTPUTS, Output, fields_of, numbers_and_facts
from iotrial.workloads.served import MAKE_FILE, ServedWork

SINGLE_STEP = "command"
#: ``expect_exit``: every exit status means success
ANY_EXIT = -1
SCRATCH = "{out}"
#: ``stdout``: words that are not files
STDOUT = ("pipe", "null", INHERIT := "inherit")
STEP_TABLES = formed(Form("[[workload.step]] tables"))
_BARE = {ord("{"): "_", ord("}"): "_"}

_WALL = time_response("wall", "total time of the processes, each from just before its start to its end")
WRITTEN = (
    SYNCED_RESPONSE,
    count_response("out_bytes", "bytes", "total size of the files in `{out}` after a run"),
    ResponseSpec("out_files", "1", Scale.DIFFERENCE, Better.NONE, "files in `{out}` after a run"),
)
_COUNTS = (
    ResponseSpec("max_rss", "bytes", Scale.LOG, Better.LOWER, "largest resident memory of a process"),
    count_response("faults_major", "1", "page faults that needed I/O"),
    count_response("faults_minor", "1", "page faults without I/O"),
    *DEVICE_RESPONSES,
)


SERVED = (
    ResponseSpec(
        "server_cpu", "s", Scale.LOG, Better.LOWER, "processor time of the server, user and system", False
    ),
    ResponseSpec(
        "server_resident_bytes",
        "bytes",
        Scale.LOG,
        Better.LOWER,
        "memory of the server after a run, shared pages counted once",
        False,
    ),
)


def _step_times(step: str) -> tuple[ResponseSpec, ...]:
    return (
        time_response(f"wall.{step}", f"time of the step {step}"),
        time_response(f"cpu.{step}", f"processor time of the step {step}, user and system"),
    )


class CommandWork(HasCheck, HasPrograms, ServedWork, frozen=True, kw_only=True):
    """Whole processes, started and timed by the probe.

    ``{file}`` in an argument list runs the command once for each file of the run, ``{files}`` stands for all
    of them, ``{dir}`` for their folder, ``{out}`` for a folder to write to.
    """

    kind = "command"
    about = "Whole processes, started and timed by the probe, without a shell."
    documented = (_WALL, *CPU_RESPONSES, *_step_times("STEP"), *_COUNTS, *WRITTEN, *SERVED)
    file_keys = {
        "argv": Annotated[
            Arguments,
            Meta(
                min_length=1,
                description=(
                    "program and arguments; `{file}`: run once per file; `{files}` (its own argument): all "
                    "files; `{dir}`: their folder; `{out}`: output folder, empty when a run starts"
                ),
            ),
        ],
        "stdin_file": Annotated[
            Line,
            Meta(
                description=(
                    "file with the standard input; path relative to the study file; stored with the study"
                )
            ),
        ],
        **MAKE_FILE,
    }
    text_files = {"stdin_file": "stdin", "make_file": "make_input"}
    noun = "its commands"
    verb = "command"
    starts_programs = True
    accountable = True

    steps: Annotated[
        tuple[Step, ...],
        keyed("step"),
        STEP_TABLES,
        Meta(
            max_length=32,
            description=("instead of `argv`: commands with `name` and `argv`, timed singly and in total"),
        ),
    ] = ()
    cwd: Annotated[
        Argument, Meta(min_length=1, description="working folder; may be in `{dir}` or `{out}`")
    ] = "{dir}"
    stdin: Annotated[LongText, Meta(description="text for standard input")] = ""
    timeout_s: Annotated[
        Duration, Meta(gt=0, le=86400, description="timeout of one command; then the run fails")
    ] = 60.0
    stdout: Annotated[
        Argument,
        Meta(
            min_length=1,
            description=(
                "where standard output goes that no `output` reads: a `pipe` that is emptied meanwhile; `null`, "
                "/dev/null, which some programs notice (GNU grep then stops at the first match of each file); `inherit`, "
                "that of iotrial; or a file, by its absolute path or in `{dir}` or `{out}`, emptied before each run"
            ),
        ),
    ] = "pipe"
    expect_exit: Annotated[
        int, Meta(ge=ANY_EXIT, le=255, description="exit status that means success; -1: any")
    ] = 0
    output_folder: Annotated[bool, Meta(description="make `{out}` although only a level names it")] = False
    run_as: Annotated[Literal["user", "root"], Meta(description="the user who called iotrial, or root")] = (
        "user"
    )
    environment: Annotated[Variables, Meta(description="added to a minimal environment")] = ()
    inherit_environment: Annotated[
        bool,
        Meta(description="the caller's environment instead of a minimal one; not stored"),
    ] = False
    reads: Annotated[
        Literal["data", "names"],
        Meta(
            description=(
                "what a cold run must read from the device: at least the files' size (`data`) or anything"
                " (`names`), and a tenth of the lab data that it [uses](labs.md#work-outside-the-lab)"
            )
        ),
    ] = "data"

    prepare: Annotated[
        Arguments,
        Meta(
            description=(
                "program run untimed before each run, as `argv` (same placeholders and user); the cache "
                "state is set after it"
            )
        ),
    ] = ()
    cleanup: Annotated[Arguments, Meta(description="the same after each run")] = ()
    checker: Annotated[
        Arguments,
        Meta(
            description=(
                "program that looks for what was acknowledged after a [power cut](durability.md): as `argv`, with "
                "`{dir}` and `{out}` in the recovered file system, and `{acknowledged}` for a file with the items, one a "
                "line; prints `lost ITEM` and `corrupt ITEM`"
            )
        ),
    ] = ()
    warmup: Annotated[int, Meta(ge=0, le=1000, description="untimed repetitions before each run")] = 0
    outputs: Annotated[
        tuple[Output, ...],
        keyed("output"),
        formed(Form("[[workload.output]] tables")),
        Meta(
            max_length=MOST_OUTPUTS,
            description="values to read from the commands' output",
        ),
    ] = ()

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        return cls(**_with_steps(values))

    def check(self) -> None:
        super().check()
        self.check_serving()
        if self.serve and self.run_as == "root":
            raise Problem("programs of a study that starts a server are never run as root", "run_as")
        _check_steps(self.steps)
        self._check_outputs()
        self._check_stdout()
        for name in ("warmup", "replicates"):
            if getattr(self, name) > (name == "replicates") and self.needs_scratch():
                raise only_for(name, f"a command without {SCRATCH}, which is empty at the start of a run")
        for index, step in enumerate(self.steps):
            _check_files(step.argv, _path_of(self.steps, index))
        for word in self.checker:
            if "{file}" in word or "{files}" in word:
                raise Problem("a checker gets folders, not files", "checker", hint="use {dir} or {out}")
        for name in ("prepare", "cleanup", "checker"):
            argv = getattr(self, name)
            check_program(argv, name)
            _check_files(argv, (name,))

    def _check_stdout(self) -> None:
        if self.stdout not in STDOUT and not self.stdout.startswith(("/", "{dir}/", f"{SCRATCH}/")):
            raise Problem(
                f'expected {", ".join(STDOUT)} or a file, found "{self.stdout}"',
                "stdout",
                hint="name a file by its absolute path, or in {dir} or {out}",
            )
        if self.stdout not in ("pipe", "null") and self.outputs:
            raise Problem(
                f"output that is read as a response cannot go to {self.stdout} as well",
                "stdout",
                hint="omit it, or let the command write the file: sh -c '... | tee FILE'",
            )

    def _check_outputs(self) -> None:
        known = {spec.name for spec in (*self._measured(), *ACTIVITY_RESPONSES, *SERVED_RESPONSES)}
        for index, output in enumerate(self.outputs):
            try:
                output.check([step.name for step in self.steps])
            except Problem as problem:
                raise Problem(problem.message, "output", index, *problem.path, hint=problem.hint) from None
            if output.name in known:
                raise Problem(twice("response", output.name), "output", index, "name")
            known.add(output.name)

    def responses(self) -> tuple[ResponseSpec, ...]:
        """Return what its programs print, then what the probe measures."""
        return (*self._printed(), *self._measured())

    def _printed(self) -> tuple[ResponseSpec, ...]:
        return tuple(output.spec for output in self.outputs if not output.fact)

    def _measured(self) -> tuple[ResponseSpec, ...]:
        names = [step.name for step in self.steps] if len(self.steps) > 1 else []
        times = (spec for name in names for spec in _step_times(name))
        return (_WALL, *CPU_RESPONSES, *times, *_COUNTS, *self._written(), *(SERVED if self.serve else ()))

    def _written(self) -> tuple[ResponseSpec, ...]:
        """Return the responses about what a run writes, if it has an output folder."""
        return WRITTEN if self.needs_scratch() else ()

    def before(self) -> tuple[Step, ...]:
        return (Step("prepare", self.prepare),) if self.prepare else ()

    def after(self) -> tuple[Step, ...]:
        return (Step("cleanup", self.cleanup),) if self.cleanup else ()

    def _all_steps(self) -> tuple[Step, ...]:
        return (*self._own_steps(), *self.served_steps())

    def _own_steps(self) -> tuple[Step, ...]:
        checker = (Step("checker", self.checker),) if self.checker else ()
        return (*self.before(), *self.steps, *self.after(), *checker)

    def texts(self) -> Iterator[str]:
        for step in self._own_steps():
            yield from step.argv
        yield self.cwd
        yield self.stdin
        yield self.stdout
        yield from (value for _, value in self.environment)
        yield from self.served_texts()

    def demands(self, settings: Sequence[Setting]) -> Iterator[str]:
        if self.inherit_environment:
            yield "gives its commands your environment"
        if self.stdout == INHERIT:
            yield "prints to the output of iotrial"
        elif self.stdout.startswith("/"):
            yield f"writes what its commands print to {self.stdout}"
        yield from command_trust.demands(
            self._own_steps(), settings, stdin=self.stdin, environment=self.environment
        )
        yield from command_trust.demands(
            self.served_steps(), settings, stdin=self.make_input, environment=self.serve_environment
        )

    def named_programs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.argv[0] for step in self._all_steps()))

    def launched(self) -> Launched:
        details = [f"in the folder {self.cwd}"] if self.cwd != "{dir}" else []
        details += [f"with {name}={value}" for name, value in (*self.environment, *self.serve_environment)]
        details += [f"printing to {self.stdout}"] if self.stdout not in ("pipe", "null") else []
        details += ["as root"] if self.run_as == "root" else []
        return Launched(
            tuple(" ".join(map(_word, step.argv)) for step in self._all_steps()),
            tuple(details),
            self.stdin or self.make_input,
        )

    def described(self) -> str:
        server = " with its own server" if self.serve else ""
        return "command " + "; ".join(" ".join(step.argv) for step in self.steps) + server

    def probe_job(self, context: JobContext) -> dict[str, object]:
        values = {**context.arguments, **(self.where(context.lab) if context.lab is not None else {})}
        return {
            "steps": [
                {"name": step.name, "argv": [filled(word, values) for word in step.argv]}
                for step in self.steps
            ],
            "environment": {
                **(os.environ if self.inherit_environment else minimal_environment()),
                **{name: filled(value, values) for name, value in self.environment},
                **context.environment,
            },
            "cwd": filled(self.cwd, values),
            "stdin": filled(self.stdin, values),
            "timeout_s": self.timeout_s,
            "expect_exit": self.expect_exit,
            "stdout": self.stdout if self.stdout in STDOUT else {"file": filled(self.stdout, values)},
            **fields_of(self.outputs),
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
        if answer["failures"]:
            return Measured(numbers)
        try:
            printed, facts = numbers_and_facts(self.outputs, answer)
        except RequestError as error:
            return Measured.lacking(numbers, error)
        if "spun" in answer and answer["spun"]["wall_ns"]:
            printed = self._slowed(printed, context.slowdown)
        return Measured(numbers | printed, facts=facts)

    def _slowed(self, printed: Mapping[str, float], slowdown: float) -> dict[str, float]:
        """Return what was printed, the times of benchmarks longer by the slowdown that was injected into the run.

        The probe spins after the program, which has printed its times by then. So the positive control of such a time tests
        everything after the program's own clock. The share that was asked for counts: on a busy machine the spin itself takes
        longer.
        """
        benchmarks = {output.name for output in self.outputs if output.benchmark}
        return {
            name: value * (1.0 + slowdown) if name in benchmarks else value for name, value in printed.items()
        }

    def checks(self) -> bool:
        return bool(self.checker)

    def acknowledging(self, job: Mapping[str, Any], marks: str) -> dict[str, Any]:
        environment = {**job["environment"], MARKS: marks}
        return {**job, "environment": environment, "acknowledge": marks}

    def damage(self, recovered: Recovered) -> Damage:
        lab = recovered.lab
        values = {**lab.arguments, "{dir}": lab.files, SCRATCH: recovered.scratch}
        return run_checker(
            self.checker,
            values,
            recovered.acknowledged,
            cwd=str(recovered.tree),
            environment={**minimal_environment(), **dict(self.environment)},
            stdin=filled(self.stdin, values),
            user=lab.user,
        )

    def labs(self) -> frozenset[str]:
        """In place there are no files of the lab, and no folder for a server."""
        of_files = any(name in text for text in self.texts() for name in ("{file}", "{files}"))
        labs = super().labs() if self.serve or of_files else super().labs() | {IN_PLACE}
        leaves_lab = self.stdout == INHERIT or self.stdout.startswith("/")
        return labs - {GUEST} if self.inherit_environment or leaves_lab else labs

    def reads_bytes(self, size: int, files: int) -> int:
        return size * files if self.reads == "data" else 1

    def chooses_files(self) -> bool:
        return True

    def inherits_stdout(self) -> bool:
        return self.stdout == INHERIT

    def stretches_each(self) -> bool:
        return any(output.benchmark for output in self.outputs)

    def needs_scratch(self) -> bool:
        named = any(SCRATCH in text for text in self.texts())
        return self.output_folder or named or any(one.source.startswith(FOLDER) for one in self.outputs)

    def as_root(self) -> bool:
        return self.run_as == "root"

    def never_root(self) -> bool:
        return bool(self.serve)

    def warm(self, state: str) -> int:
        return self.warmup


def _with_steps(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with ``argv`` as the only step. Raises Problem if both or neither are given."""
    argv, steps = values.get("argv"), values.get("steps", ())
    if (argv is None) == (not steps):
        found = "both" if steps else "neither"
        message = f"a command workload has either argv or [[workload.step]] tables, found {found}"
        raise Problem(message, *(("step",) if steps else ()))
    if argv is not None:
        steps = (Step(SINGLE_STEP, argv),)
    return {**{name: value for name, value in values.items() if name != "argv"}, "steps": steps}


def _path_of(steps: Sequence[Step], index: int) -> tuple[str | int, ...]:
    """Return the path of a step's arguments in the table."""
    alone = len(steps) == 1 and steps[0].name == SINGLE_STEP
    return ("argv",) if alone else ("step", index, "argv")


def _check_steps(steps: Sequence[Step]) -> None:
    """Raise Problem if two steps have one name, or if a program's name is empty."""
    names = [step.name for step in steps]
    for index, step in enumerate(steps):
        if step.name in names[:index]:
            raise Problem(twice("step", step.name), "step", index, "name")
        check_program(step.argv, *_path_of(steps, index))


def _check_files(argv: Sequence[str], path: tuple[str | int, ...]) -> None:
    for index, argument in enumerate(argv):
        if "{files}" in argument and argument != "{files}":
            hint = "it expands to one argument per file"
            raise Problem(
                f'{{files}} must be a separate argument, found "{argument}"', *path, index, hint=hint
            )
    if "{files}" in argv and any("{file}" in argument for argument in argv):
        raise Problem("{file} and {files} cannot be used in one command", *path)


def _word(word: str) -> str:
    """Quote an argument that could be read as two or as none; ``{file}`` and the like stay bare."""
    return word if word and shlex.quote(word.translate(_BARE)) == word.translate(_BARE) else shlex.quote(word)


WORK = CommandWork
