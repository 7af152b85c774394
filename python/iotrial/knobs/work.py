"""Knobs of the work itself: arguments, environment, workload keys, sizes, cache state, user, priorities, processor, programs.

They change nothing on the target. Most are part of the job, and the probe's behaviour reflects them. Nice value, I/O priority
and affinity apply while the cache is prepared and the work is timed, to the probe and to every command it starts; then the
probe is reset. They use util-linux, because no file sets the nice value of a process. Only a negative nice value needs root.
But without root a process cannot take a higher one back (setpriority(2)), so there the commands are started by nice(1), at
every level alike, and the probe keeps its own.
"""

from __future__ import annotations

import posixpath
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from iotrial.errors import KnobError, RequestError, TargetError, UnsupportedLevel
from iotrial.knobs.declaration import HARMLESS, Consequence, Scope, Stage, at_risk, not_judged, trade_off
from iotrial.knobs.knob import Knob, Requirement, RunContext, WorkDraft, one_of, size_within, whole_number
from iotrial.study.model import CACHE_STATES, Setting
from iotrial.study.places import CACHE_NEEDS_ROOT, CACHE_STATES_OF, EVERYWHERE
from iotrial.study.programs import PROGRAM, PROGRAM_KNOB

FILE_SIZE, RECORD_SIZE = "matrix.file_size", "matrix.record_size"
SMALLEST_RECORD, LARGEST_RECORD = 8, 1 << 30
LARGEST_FILE = 1 << 40
MAXIMUM_TEXT = 4096
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
PLACEHOLDER = re.compile(r"\{[A-Za-z0-9_-]{1,64}\}")
_PLAIN = re.compile(r"(?!.*\.\.)[A-Za-z0-9 .%_-]{1,64}", re.ASCII)
NICE_FIELD = 16  # field 19 of proc_pid_stat(5), counted from after the name


class NamedValue(Knob):
    """A text in the job, under the name that the knob's option gives."""

    requirement = Requirement(labs=EVERYWHERE)

    def values(self, work: WorkDraft) -> dict[str, str]:
        """Return the texts of the draft, by name."""
        raise NotImplementedError

    def read(self, context: RunContext, setting: Setting) -> str:
        return self.values(context.work).get(self.value_option(setting), "")

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        self.values(context.work)[self.value_option(setting)] = value


class MatrixSize(Knob):
    """A size in the job of the matrix workload: of its file, or of a record."""

    of: ClassVar[str]
    largest: ClassVar[int]

    def parse(self, setting: Setting) -> str:
        return str(size_within(self.name, setting.value, SMALLEST_RECORD, self.largest, self.open_levels))

    def read(self, context: RunContext, setting: Setting) -> str:
        return str(context.work.sizes.get(self.of, 0))

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        context.work.sizes[self.of] = int(value)


class ProcessKnob(Knob):
    """Noted in the draft of the work, applied when the work begins, reset when it has ended."""

    #: the default value of a process
    plain: ClassVar[str]

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(labs=EVERYWHERE, tools={self.tool: "util-linux"})

    tool: ClassVar[str]

    def read(self, context: RunContext, setting: Setting) -> str:
        return context.work.process.get(self.name, self.plain)

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        context.work.process[self.name] = value

    def enter(self, context: RunContext, setting: Setting, value: str) -> None:
        self._change(context, value)

    def leave(self, context: RunContext, setting: Setting) -> None:
        self._change(context, self.plain)

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"{self.name} of the work itself, which may affect other processes: {', '.join(values)}",)

    @abstractmethod
    def argv(self, context: RunContext, value: str, pid: str) -> list[str]:
        """Return the arguments that set the value."""

    @abstractmethod
    def found(self, context: RunContext, pid: str) -> str:
        """Return the kernel's current value."""

    def _change(self, context: RunContext, value: str) -> None:
        pid = context.worker.read("/proc/self/stat").split(" ", 1)[0]
        done = context.worker.run([self.tool, *self.argv(context, value, pid)])
        found = self.found(context, pid)
        if done.exit_status != 0 or found != self.wanted(context, value):
            raise KnobError(
                self.name, "the probe", wrote=value, found=found, hint=done.stderr.strip()[-200:] or None
            )

    def wanted(self, context: RunContext, value: str) -> str:
        """Return the value in the form that ``found`` returns."""
        return value


class CommandArgument(NamedValue):
    """Text that replaces a placeholder in a command's argument list."""

    name = "command.argument"
    title = "text that replaces a placeholder in the command's arguments"
    stage = Stage.WORK
    option = "placeholder"
    open_levels = "any text"
    consequence = not_judged(
        "iotrial does not know what this argument means to the program, or how it affects data in a power cut"
    )

    def values(self, work: WorkDraft) -> dict[str, str]:
        return work.arguments

    def parse(self, setting: Setting) -> str:
        placeholder = self.value_option(setting)
        if not PLACEHOLDER.fullmatch(placeholder):
            raise RequestError(
                f'knob command.argument: "{placeholder}" is not a placeholder', hint='for example "{threads}"'
            )
        if placeholder in ("{file}", "{files}", "{dir}", "{out}"):
            raise RequestError(f"knob command.argument: {placeholder} is set by iotrial itself")
        return _text(self.name, setting.value)


class EnvironmentVariable(NamedValue):
    """A variable in the environment of the command."""

    name = "environment.variable"
    title = "an environment variable of the command"
    stage = Stage.WORK
    option = "variable"
    open_levels = "any text"
    consequence = not_judged(
        "iotrial does not know what this variable means to the program, or how it affects data in a power cut"
    )

    def values(self, work: WorkDraft) -> dict[str, str]:
        return work.environment

    def parse(self, setting: Setting) -> str:
        variable = self.value_option(setting)
        if not VARIABLE.fullmatch(variable):
            raise RequestError(f'knob environment.variable: "{variable}" is not the name of a variable')
        if variable.startswith("LD_"):
            raise RequestError(
                f"knob environment.variable: {variable} changes which program runs, and is not allowed"
            )
        return _text(self.name, setting.value)


class WorkOption(NamedValue):
    """A key of the workload itself, such as the block size of a stream. The workload kind defines which keys can be varied
    and which values are valid."""

    name = "work.option"
    title = "another value for a key of the workload (block_size, direct, data ... of a stream)"
    stage = Stage.WORK
    option = "option"
    open_levels = "any value that a study file may have for that key"
    consequence = not_judged("iotrial does not know how this key of the work affects data in a power cut")
    consequences: Mapping[str, Consequence] = {
        **dict.fromkeys(
            (
                "block", "block_size", "buffer_dump", "clients", "count", "data", "delay", "direct", "load", "operations",
                "order", "position", "rows", "truncate", "volume",
            ),
            HARMLESS,
        ),
        "durable=true": HARMLESS,
        # SQLite: synchronous = OFF; MariaDB: innodb_flush_log_at_trx_commit = 2; PostgreSQL: synchronous_commit = off
        "durable=false": at_risk(
            "committed transactions may be lost in a power cut; SQLite may lose the whole database, MariaDB and "
            "PostgreSQL stay consistent"
        ),
        # https://www.sqlite.org/pragma.html, innodb_flush_log_at_trx_commit, synchronous_commit and fsync of PostgreSQL
        **dict.fromkeys(
            ("commit=full", "commit=extra", "commit=1", "commit=on"),
            HARMLESS,
        ),
        "commit=normal": at_risk(
            "with a write-ahead log, committed transactions may be lost in a power cut; the database stays consistent"
        ),
        "commit=off": at_risk(
            "committed transactions may be lost in a power cut; SQLite may lose the whole database, PostgreSQL stays "
            "consistent"
        ),
        **dict.fromkeys(
            ("commit=0", "commit=2"),
            at_risk("committed transactions of the last second may be lost in a power cut"),
        ),
        "commit=no-fsync": at_risk("nothing is ever flushed: a power cut may corrupt the whole database"),
        **dict.fromkeys(
            ("journal=delete", "journal=truncate", "journal=persist", "journal=wal"),
            HARMLESS,
        ),
        **dict.fromkeys(
            ("journal=memory", "journal=off"),
            at_risk("a transaction that is interrupted, even by the end of the program, may corrupt the database"),
        ),
    }  # fmt: skip

    def consequence_of(self, setting: Setting) -> Consequence:
        key = dict(setting.options).get("option", "")
        by_value = self.consequences.get(f"{key}={setting.value.strip()}")
        return by_value or self.consequences.get(key, self.consequence)

    def values(self, work: WorkDraft) -> dict[str, str]:
        return work.options

    def parse(self, setting: Setting) -> str:
        self.value_option(setting)
        if not _PLAIN.fullmatch(setting.value):
            raise UnsupportedLevel(
                f"knob {self.name}: {self.value_option(setting)}: {setting.value!r} is not a value of a key",
                hint="allowed: letters, digits, spaces and . % _ -, as in 64 KiB or 50 % random",
            )
        return setting.value


class ProcessUser(Knob):
    """The user that does the work: root, or one without privileges (``nobody``)."""

    name = "process.user"
    title = "user who does the work: self, root, or unprivileged (the user nobody)"
    stage = Stage.WORK
    LEVELS = ("self", "root", "unprivileged")
    consequence = HARMLESS

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(root=setting.value != "self", labs=EVERYWHERE)

    def read(self, context: RunContext, setting: Setting) -> str:
        return context.work.reader

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        context.work.reader = value


class CacheState(Knob):
    """The state of the cache when the timed part begins."""

    name = "cache.state"
    title = "what is cached before the timed part"
    stage = Stage.CACHE
    scope = Scope.FILES
    consequence = HARMLESS

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, CACHE_STATES)

    def levels(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        return ("cold", *CACHE_STATES_OF[context.place.kind])

    def requires(self, setting: Setting) -> Requirement:
        labs = {kind for kind, states in CACHE_STATES_OF.items() if setting.value in (*states, "cold")}
        return Requirement(root=setting.value in CACHE_NEEDS_ROOT, labs=frozenset(labs))

    def read(self, context: RunContext, setting: Setting) -> str:
        return context.work.cache

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        context.work.cache = value

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return ("drops the page cache of the whole machine before runs",) if "cold-system" in values else ()


class ProcessNice(ProcessKnob):
    """Nice value of the work, set by setpriority(2)."""

    name = "process.nice"
    title = "niceness of the work: -20 (first) to 19 (last)"
    stage = Stage.WORK
    open_levels = "-20 to 19"
    consequence = trade_off("other processes get more or less CPU time")

    tool = "renice"
    plain = "0"

    def parse(self, setting: Setting) -> str:
        negative = setting.value.startswith("-")
        number = whole_number("knob process.nice", setting.value.removeprefix("-"), 0, 20 if negative else 19)
        return f"-{number}" if negative and number != "0" else number

    def requires(self, setting: Setting) -> Requirement:
        tools = {self.tool: "util-linux", "nice": "coreutils"}
        return Requirement(root=setting.value.startswith("-"), labs=EVERYWHERE, tools=tools)

    def enter(self, context: RunContext, setting: Setting, value: str) -> None:
        if context.worker.read("/proc/self/status").partition("\nUid:")[2].split()[1] == "0":
            super().enter(context, setting, value)
            return
        now = self.found(context, "")
        more = int(value) - int(now)
        if more < 0:
            raise UnsupportedLevel(
                f"knob process.nice: iotrial itself has niceness {now}, and without root {value} cannot be had",
            )
        context.work.prefix = ("nice", "-n", str(more))

    def leave(self, context: RunContext, setting: Setting) -> None:
        if context.work.prefix:
            context.work.prefix = ()
        else:
            super().leave(context, setting)

    def argv(self, context: RunContext, value: str, pid: str) -> list[str]:
        return ["-n", value, "-p", pid]

    def found(self, context: RunContext, pid: str) -> str:
        fields = context.worker.read("/proc/self/stat").rpartition(")")[2].split()
        return fields[NICE_FIELD] if len(fields) > NICE_FIELD else "nothing"


class ProcessIoPriority(ProcessKnob):
    """I/O priority of the work, set by ioprio_set(2). Only bfq and mq-deadline use it."""

    name = "process.io_priority"
    title = "I/O priority of the work (used by mq-deadline and bfq)"
    stage = Stage.WORK
    consequence = trade_off("other processes wait more or less for the disk")

    tool = "ionice"
    plain = "none"

    LEVELS = ("none", *(f"best-effort-{n}" for n in range(8)), "idle")

    def argv(self, context: RunContext, value: str, pid: str) -> list[str]:
        if value in ("none", "idle"):
            return ["-c", {"none": "0", "idle": "3"}[value], "-p", pid]
        return ["-c", "2", "-n", value[-1], "-p", pid]

    def found(self, context: RunContext, pid: str) -> str:
        text = context.worker.run([self.tool, "-p", pid]).stdout.strip()
        known = re.fullmatch(r"(none|best-effort|idle)(?:: prio ([0-7]))?", text)
        if known is None:
            return text
        return f"best-effort-{known[2]}" if known[1] == "best-effort" else known[1]


class ProcessCpu(ProcessKnob):
    """CPU affinity of the work, set by sched_setaffinity(2)."""

    name = "process.cpu"
    title = "CPU that the work is pinned to: its number, or any"
    stage = Stage.WORK
    open_levels = "any, or the number of a CPU"
    consequence = trade_off("the work cannot move to an idle CPU")

    tool = "taskset"
    plain = "any"

    def parse(self, setting: Setting) -> str:
        return "any" if setting.value == "any" else whole_number("knob process.cpu", setting.value, 0, 8191)

    def enter(self, context: RunContext, setting: Setting, value: str) -> None:
        allowed = self.found(context, "")
        context.work.processors = allowed
        if value != "any" and value not in _numbers(allowed):
            raise UnsupportedLevel(
                f"knob process.cpu: this machine has no CPU {value}", hint=f"available: {allowed}"
            )
        super().enter(context, setting, value)

    def argv(self, context: RunContext, value: str, pid: str) -> list[str]:
        return ["-a", "-c", "-p", self.wanted(context, value), pid]

    def found(self, context: RunContext, pid: str) -> str:
        for line in context.worker.read("/proc/self/status").split("\n"):
            if line.startswith("Cpus_allowed_list:"):
                return line.partition(":")[2].strip()
        return ""

    def wanted(self, context: RunContext, value: str) -> str:
        return context.work.processors if value == "any" else value


class ProgramPath(Knob):
    """A program, or a folder of programs, that does the work; named by the user on the command line.

    A study cannot name one (``study.select`` creates the levels from the user's options). Before anything runs,
    ``runner.programs`` checks who could have written to it.
    """

    name = PROGRAM_KNOB
    title = "folder of the work's programs, to compare versions (only on the command line)"
    stage = Stage.WORK
    open_levels = "absolute paths, by --set program=PATH,PATH"
    consequence = not_judged(
        "iotrial does not know how another version of the program affects data in a power cut"
    )

    def parse(self, setting: Setting) -> str:
        path = setting.value
        if (
            not path.startswith("/")
            or path.startswith("//")
            or posixpath.normpath(path) != path
            or not path.isprintable()
            or ":" in path
        ):
            raise UnsupportedLevel(
                f'knob {self.name}: "{path}" is not a plain absolute path',
                hint="as in /usr/lib/postgresql/15/bin",
            )
        return path

    def read(self, context: RunContext, setting: Setting) -> str:
        return context.work.programs.get(PROGRAM, "")

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        context.work.programs[PROGRAM] = value

    def verify(self, context: RunContext, setting: Setting, value: str) -> None:
        super().verify(context, setting, value)
        if not value:
            return  # Debian's default location
        try:
            context.target.stat(value)
        except TargetError as error:
            raise KnobError(self.name, value, wrote=value, found=error.message) from error

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"nothing; programs of {path} run as the user who typed the command" for path in values)


class MatrixFileSize(MatrixSize):
    """Size of the file that the tests work on."""

    name = FILE_SIZE
    title = "file size of a matrix workload, a multiple of its record size"
    stage = Stage.WORK
    open_levels = "8 B to 1 TiB"
    consequence = HARMLESS

    of = "file_size"
    largest = LARGEST_FILE


class MatrixRecordSize(MatrixSize):
    """Bytes that each call of a test reads or writes."""

    name = RECORD_SIZE
    title = "record size of a matrix workload: what each call reads or writes"
    stage = Stage.WORK
    open_levels = "8 B to 1 GiB"
    consequence = HARMLESS

    of = "record_size"
    largest = LARGEST_RECORD


def _text(knob: str, value: str) -> str:
    if "\0" in value or len(value) > MAXIMUM_TEXT:
        raise UnsupportedLevel(f"knob {knob}: a value has at most {MAXIMUM_TEXT} characters and no NUL")
    return value


def _numbers(ranges: str) -> set[str]:
    """Parse a list of ranges such as "0-3,8"."""
    found: set[str] = set()
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        found |= {str(n) for n in range(int(first), int(last or first) + 1)}
    return found
