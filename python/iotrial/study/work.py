"""The interface of a workload kind: its keys, its responses, the job for the probe, and how to read the probe's answer.

A kind is one module of ``iotrial.workloads``: a Struct with the keys of its ``[[workload]]`` table as
fields. What it does beyond the common core it declares by the mixin classes at the end of this module
(``HasServer``, ``HasOwnData`` ...).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from msgspec import Meta, Struct, structs

from iotrial.errors import ProbeError, RequestError, UnknownName, unknown
from iotrial.study.places import DISK_LABS
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import (
    Arguments,
    Key,
    Name,
    Problem,
    ReadFrom,
    Size,
    UnknownKey,
    converted,
    from_table,
    keys_of,
    plain_of,
    shown,
    values_of,
)

if TYPE_CHECKING:
    from iotrial.lab.target import Target
    from iotrial.study.model import Setting
    from iotrial.study.server import Server

W = TypeVar("W", bound="Work")
#: the package with a module for each kind
PACKAGE = "iotrial.workloads"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


# responses


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """One number that a run of a workload gives. ``stretchable``: a known slowdown can be injected into it."""

    name: str
    unit: str
    scale: Scale
    better: Better
    text: str = ""
    stretchable: bool = True


def time_response(name: str, text: str = "", *, stretchable: bool = True) -> ResponseSpec:
    """Return a response in seconds: compared by ratio, less is better."""
    return ResponseSpec(name, "s", Scale.LOG, Better.LOWER, text, stretchable)


def rate_response(name: str, unit: str, text: str = "") -> ResponseSpec:
    """Return a rate: compared by ratio, more is better."""
    return ResponseSpec(name, unit, Scale.LOG, Better.HIGHER, text)


def count_response(name: str, unit: str, text: str) -> ResponseSpec:
    """Return a count that can be zero: compared by difference, less is better."""
    return ResponseSpec(name, unit, Scale.DIFFERENCE, Better.LOWER, text)


def _difference(name: str, unit: str, better: Better, text: str) -> ResponseSpec:
    return ResponseSpec(name, unit, Scale.DIFFERENCE, better, text)


CPU_RESPONSES = (
    time_response("cpu", "processor time, user and system"),
    time_response("user", "processor time in user mode"),
    time_response("sys", "processor time in the kernel"),
)
DEVICE_RESPONSES = (
    count_response("device_read_bytes", "bytes", "read from the lab's devices during the timed part"),
    count_response("device_write_bytes", "bytes", "written to the lab's devices during the timed part"),
)
SYNCED_RESPONSE = count_response(
    "device_write_bytes_synced", "bytes", "written to the devices until a sync after the timed part is done"
)
#: measured by every kind as evidence, and as a response if a study names it (docs/evidence.md)
ACTIVITY_RESPONSES = (
    _difference(
        "io_wait",
        "%",
        Better.LOWER,
        "share of all processors' time idle while waiting for I/O; whole machine",
    ),
    _difference("io_wait_most", "%", Better.LOWER, "the same, of the processor that waited most"),
    _difference(
        "system_cpu",
        "s",
        Better.LOWER,
        "processor time of the whole machine, kernel threads included; in ticks of 10 ms",
    ),
    _difference(
        "device_busy",
        "%",
        Better.NONE,
        "share of the time with at least one request in flight on the lab's device",
    ),
    _difference(
        "device_depth", "requests", Better.NONE, "mean number of requests in flight on the lab's device"
    ),
)
#: name of the response that adds the server's sync to a run's time
TO_DISK = "wall_to_disk"
#: of the machine that serves the files, if the lab has a link
SERVED_RESPONSES = (
    time_response("nas_cpu", "processor time of the machine that serves the files"),
    count_response("nas_interrupts", "s", "of this, in interrupts and soft interrupts"),
    count_response(
        "nas_sync", "s", "time of a sync of that machine after the run: data that it had only in its memory"
    ),
    time_response(
        TO_DISK, "wall and nas_sync: time until all data are on that machine's disk", stretchable=False
    ),
    _difference(
        "nas_busy",
        "%",
        Better.NONE,
        "share of the time that the processors of that machine were busy",
    ),
)


def nameable(specs: tuple[ResponseSpec, ...]) -> tuple[ResponseSpec, ...]:
    """Return what a study may name: the responses of the kind, and how busy machine and device were."""
    return (*specs, *ACTIVITY_RESPONSES, *SERVED_RESPONSES)


# a run


@dataclass(frozen=True, slots=True)
class LabContext:
    """Where a workload runs that has a server or its own data.

    ``root`` is the lab's folder, ``files`` the folder of the run's files as the workload sees them (a view,
    if a knob makes one). ``user`` is the user of servers and of programs that never run as root (None: the probe's own
    user, who is not root either); ``runs_as`` is the user of the work itself (None: the probe's own). ``programs`` are
    folders or programs chosen by the user, by name. ``log`` is the root of a second place for logs, if the study has
    one. ``port`` of 127.0.0.1 was free when the run began, for a server of this run. ``arguments`` are the values of
    placeholders set by knobs. ``device`` is the lab's
    block device, ``disks`` its members if it is an array.
    """

    target: Target
    root: str
    files: str
    user: Mapping[str, int] | None = None
    runs_as: Mapping[str, int] | None = None
    programs: Mapping[str, str] = field(default_factory=dict)
    log: str | None = None
    port: int = 0
    arguments: Mapping[str, str] = field(default_factory=dict)
    device: str | None = None
    disks: tuple[str, ...] = ()

    @property
    def program(self) -> str | None:
        """The folder of programs, or the program, that the user named for the workload."""
        return self.programs.get("program")

    @property
    def own(self) -> str:
        """The folder for everything that workloads create in the lab apart from file sets."""
        return f"{self.root}/own"


@dataclass(frozen=True, slots=True)
class JobContext:
    """Inputs of a run other than the work itself.

    ``stretched`` is the response that the positive control slows down. ``arguments`` are the values of
    placeholders and ``environment`` the variables set by knobs; ``sizes`` are bytes by name. ``device`` is
    the lab's block device, as in /sys/block. ``folders`` are on the additional places, by the study's name of
    the place. ``mkfs`` holds how to make the lab's file system.
    """

    stretched: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    device: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    lab: LabContext | None = None
    folders: Mapping[str, str] = field(default_factory=dict)
    mkfs: tuple[str, ...] = ()
    #: by how much this run is to be slowed down, .1 for 10 %; 0 for all but those of a positive control
    slowdown: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run of one kind gives in addition to what all kinds give.

    ``numbers``: seconds, bytes or counts by name; responses if the study has them, else evidence.
    ``histograms``: [nanoseconds, count] by name. ``seconds``: time series within the run, by name one number
    for each moment in ``at_s`` (None: no value); empty if the workload has none. ``checks``: further values
    stored with the run, by name, JSON types. ``facts``: one word by name, for a table of facts. ``missing``:
    describes a value that the workload's program should have printed but did not, so that the run failed.
    ``past_cache_bytes``: what it read past the page cache; ``once_bytes``: what it read, if it read nothing twice; 0: not
    known.
    """

    numbers: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, list[list[int]]] = field(default_factory=dict)
    seconds: Mapping[str, list[float | None]] = field(default_factory=dict)
    checks: Mapping[str, object] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    missing: str | None = None
    past_cache_bytes: int = 0
    once_bytes: int = 0

    @classmethod
    def lacking(cls, numbers: Mapping[str, float], error: RequestError) -> Self:
        """Return the known numbers of a run if its program did not print the others."""
        return cls(numbers, missing=f"{error.message} ({error.hint})" if error.hint else error.message)


def only_for(key: str, what: str) -> Problem:
    """Return the problem of a key that has no meaning without another value."""
    return Problem(f'"{key}" is only for {what}', key)


def check_program(argv: Sequence[str], *path: str | int) -> None:
    """Raise Problem if the first argument names no program."""
    if argv and not argv[0].strip():
        raise Problem("the first argument names the program and cannot be empty", *path, 0)


@dataclass(frozen=True, slots=True)
class Launched:
    """What a workload has started at the study's choice, as shown to the user for consent.

    Labels are not sanitised yet and nothing is truncated. ``details``, and the first non-empty ``input``,
    apply to all ``commands``.
    """

    commands: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    input: str = ""


# a work


class Work(Struct, frozen=True, kw_only=True, tag_field="is", tag=True):
    """One kind of work, as a workload declares it. Its fields are the keys of the table and its stored form.

    A work does not define its own files unless it is a ``FileSet``: it is given one small file of the lab.
    """

    #: as in ``kind = "..."``
    kind: ClassVar[str]
    #: description in one sentence, for ``show --workload``
    about: ClassVar[str]
    #: the words that a key may hold, with their meanings
    vocabulary: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    #: the responses of every possible work of the kind, with variable parts in capitals (``STEP``)
    documented: ClassVar[tuple[ResponseSpec, ...]]
    #: keys of the table that are not fields: their annotated types, by name
    file_keys: ClassVar[Mapping[str, Any]] = {}
    #: keys that the knob ``work.option`` may vary
    options: ClassVar[tuple[str, ...]] = ()
    #: keys that name a text file next to the study, and the keys that its content is stored under
    text_files: ClassVar[Mapping[str, str]] = {}
    #: its text files may include others
    includes: ClassVar[bool] = False
    #: keys that name a large file next to the study, and the keys that keep its checksum and folder
    input_files: ClassVar[Mapping[str, tuple[str, str]]] = {}
    #: what to use instead, if the kind can only be read from stored trials
    gone: ClassVar[str] = ""
    #: what the responses are into which the slowdown cannot be injected
    unstretchable: ClassVar[str] = "what the program reports"

    #: the probe's job
    verb: ClassVar[str]
    #: starts whole processes; they are rehearsed once, so that what they load from disk is cached
    starts_programs: ClassVar[bool] = False
    #: counting the system calls of a repetition makes sense
    accountable: ClassVar[bool] = False
    #: it works on a file it creates itself, which the lab's file knobs do not affect
    own_file: ClassVar[bool] = False
    #: false if every run is traced, so that its times are meaningless
    timed: ClassVar[bool] = True
    #: it makes the lab's file system itself, as the knobs require, so this is not done beforehand
    makes_filesystem: ClassVar[bool] = False
    #: its runs are time windows of a service in use, and the probe does nothing in them (``iotrial live``)
    in_windows: ClassVar[bool] = False

    # its files in the lab

    @property
    def files(self) -> int:
        """How many files of the lab one run works on."""
        return 1

    @property
    def pool(self) -> int:
        """How many files there are to draw from."""
        return 1

    @property
    def contiguous(self) -> bool:
        """Whether the files are neighbours."""
        return False

    @property
    def size_bytes(self) -> int:
        """Size of each file."""
        return 4096

    @property
    def directories(self) -> int:
        """Number of folders that the files are spread over."""
        return 1

    @property
    def content(self) -> str:
        """Kind of content of the files."""
        return "text"

    @property
    def replicates(self) -> int:
        """Repeats inside one run."""
        return 1

    def repeats_from(self, cache: str) -> int:
        """Return how often a run does the work that starts from this state of the page cache: once if it is cold, since a
        second time would find in the cache what the first one has read."""
        return 1 if cache.startswith("cold") else self.replicates

    # what a study declares

    @classmethod
    def whole_text(cls, name: str, text: str, read: Callable[[str], str]) -> str:
        """Return the text of the file ``name`` with the files that it includes, read by name. Raises ValueError."""
        raise NotImplementedError

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        """Make the work from the values of a table, by field or by key name in ``file_keys``. Raises Problem."""
        return cls(**values)

    def check(self) -> None:
        """Check values that are valid one by one but not together. Raises Problem."""

    def responses(self) -> tuple[ResponseSpec, ...]:
        """Return what a run measures, the default primary response first."""
        raise NotImplementedError

    def stretches_each(self) -> bool:
        """Return whether the known slowdown is injected into each of its times: each primary one has a positive control."""
        return False

    def default_cache(self) -> str | None:
        """Return the cache state of a run if the study names none."""
        return None

    def before(self) -> tuple[Step, ...]:
        """Return commands to run before each run, untimed, before the cache is brought to its state."""
        return ()

    def after(self) -> tuple[Step, ...]:
        """Return commands to run after each run, untimed."""
        return ()

    def possible(self, settings: Mapping[str, str]) -> bool:
        """Return whether the work exists under a condition, given as values by knob."""
        return True

    def remark(self) -> str:
        """Return a sentence that readers of its numbers must know, or ""."""
        return ""

    def expected_load(self) -> tuple[str, float] | None:
        """Return a response that shows whether the machine keeps up with the requested load, and its expected value."""
        return None

    def described(self) -> str:
        """Describe what a run does, for the plan in a report (labels not sanitised yet)."""
        raise NotImplementedError

    # the probe's job and its answer

    def probe_job(self, context: JobContext) -> dict[str, object]:
        """Return the kind-specific fields of the job (the runner adds the common ones)."""
        raise NotImplementedError

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        """Return the numbers in the probe's answer, after subtracting slowdown injected for other responses."""
        raise NotImplementedError

    def reads_bytes(self, size: int, files: int) -> int:
        """Return how many bytes must come from the device when nothing is cached, to check a cold run."""
        return 0

    def buffered(self) -> Self:
        """Return the same work through the page cache; itself if it never goes past it."""
        return self

    def may_read_warm(self) -> bool:
        """Return whether even a warm run may read from the device, because its caches need not hold all that it reads."""
        return False

    def leaves_dirty(self) -> bool:
        """Return whether to write back a run's dirty data after it, so that the next run does not pay for it."""
        return not self.starts_programs and self.writes()

    def own_bytes(self, settings: Mapping[str, str]) -> int:
        """Return the disk space of the job's own files under a condition, given as values by knob."""
        return 0

    def own_files(self, settings: Sequence[Setting]) -> Mapping[str, int]:
        """Return the bytes of the files that its program lays out in the lab, under all of a study's settings, by file.

        Raises RequestError if the program could not tell how large a file is to be.
        """
        return {}

    def writes(self) -> bool:
        """Return whether it changes the files of its set."""
        return True

    def starts_empty(self) -> bool:
        """Return whether the files of its set do not exist when a run begins, only their folders."""
        return False

    def check_cache(self, state: str, settings: Sequence[Setting]) -> None:
        """Check that its runs can find their files in this cache state. Raises RequestError with the reason."""

    def chooses_files(self) -> bool:
        """Return whether the study chooses the files its programs work on, which may be none of the lab's."""
        return False

    def inherits_stdout(self) -> bool:
        """Return whether its programs print to the standard output of iotrial."""
        return False

    def needs_scratch(self) -> bool:
        """Return whether it needs an empty folder to write to, ``out`` of its job."""
        return False

    def leaves_other_files(self) -> bool:
        """Return whether it leaves files with other data or another length, so that it needs its own set."""
        return False

    def on_files(self) -> bool:
        """Return whether it works on the files of its set."""
        return True

    def does_io(self) -> bool:
        """Return whether it reads, writes or makes files at all, as far as the study shows."""
        return True

    def labs(self) -> frozenset[str]:
        """Return the kinds of lab in which it can run."""
        return frozenset({"directory"}) | DISK_LABS

    def needed_programs(self) -> Mapping[str, str]:
        """Return the programs that it starts itself, with the Debian package of each."""
        return {}

    def check_to_run(self, settings: Sequence[Setting], user: tuple[int, int] | None) -> None:
        """Check what the study cannot be run with, under each of its settings. Needs the study's trust. Raises RequestError.

        ``user``: user and group of the study's programs, which may be asked; None: those installed here will not be used.
        """

    def optional_programs(self) -> Mapping[str, str]:
        """Return the programs, with their packages, without which a study skips this workload if it has others."""
        return {}

    def takes_program(self) -> bool:
        """Return whether the user may give the path of its programs on the command line (``--set program=PATH``)."""
        return False

    def check_program(self, path: str) -> None:
        """Check the folder of programs that the user named. Raises MissingTool if one is missing."""

    def as_root(self) -> bool:
        """Return whether the probe does the work itself rather than as the user who called iotrial."""
        return True

    def never_root(self) -> bool:
        """Return whether root runs its programs as the invoking user, or as nobody if root itself typed the command."""
        return False


class FileSet(Work, frozen=True, kw_only=True):
    """A work on files that the lab makes."""

    files: Annotated[int, Meta(ge=1, le=1_000_000, description="how many files one run works on")] = 1
    pool: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="how many files there are to draw a run's files from; 0: as many as the arms of a block "
            "need, so that each has its own files; equal to `files`: all arms work on the same files",
        ),
    ] = 0
    contiguous: Annotated[
        bool,
        Meta(description="draw whole runs of neighbours, for work that depends on how close inodes lie"),
    ] = False
    size_bytes: Annotated[Size, Meta(ge=0, le=1 << 44, description="size of each file")] = 4096
    content: Annotated[
        Literal["text", "random", "zeros", "words", "c"],
        Meta(
            description="lines of hexadecimal digits, incompressible bytes, zeros, words that compress as a text in "
            "a natural language does, or C sources that compile (sizes in whole KiB; every eighth file is a header)"
        ),
    ] = "text"
    directories: Annotated[
        int, Meta(ge=1, le=10_000, description="folders that the files are spread over")
    ] = 1
    replicates: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="repeats inside one run; their total is the run's response"),
    ] = 1

    def check(self) -> None:
        if 0 < self.pool < self.files:
            raise Problem(
                f"a pool of {self.pool} files is too small for {self.files} files per run",
                "pool",
                hint="0 lets iotrial choose",
            )
        if self.content == "c" and self.size_bytes % C_UNIT:
            raise Problem(
                f"C sources of {self.size_bytes} bytes would end inside a function", "size", hint=C_SIZES
            )
        if self.directories > max(self.files, self.pool):
            raise Problem(f"{self.directories} folders for {self.files} files", "directories")


#: the size of a C source is a multiple of this, so that functions are complete
C_UNIT = 1024
C_SIZES = "C sources have whole KiB"


class Step(Struct, frozen=True):
    """One command: a name and an argument list (no shell)."""

    name: Name
    argv: Annotated[Arguments, Meta(min_length=1)]


# additional capabilities of some kinds


class HasPrograms:
    """A kind that starts programs chosen by the study. ``noun`` is what they are called in a sentence."""

    __slots__ = ()
    noun: ClassVar[str]

    def texts(self) -> Iterator[str]:
        """Yield the texts in which a placeholder may occur."""
        raise NotImplementedError

    def demands(self, settings: Sequence[Setting]) -> Iterator[str]:
        """Yield what in them requires trust under any of the study's settings, in words that follow the workload's name."""
        raise NotImplementedError

    def named_programs(self) -> tuple[str, ...]:
        """Return the programs, as the study names them."""
        return ()

    def launched(self) -> Launched:
        """Return what the study has it start."""
        raise NotImplementedError


class HasOwnData:
    """A kind with data in ``LabContext.own``, or with other preparation before a run."""

    __slots__ = ()

    def has_own_data(self) -> bool:
        """Return whether its data is to be made cold with the rest."""
        return False

    def provide(self, lab: LabContext) -> None:
        """Create what the work needs in the lab in addition to the files of its set.

        Untimed and called before every run, so it checks first whether the data exists. No server runs yet.
        Raises LabError.
        """

    def warm(self, state: str) -> int:
        """Return how many warm-up jobs to run, untimed, before each timed one in this cache state; the server runs."""
        return 0

    def warming(self, job: Mapping[str, object]) -> Mapping[str, object]:
        """Return the warm-up job, given the timed one."""
        return job

    def held(self, lab: LabContext) -> tuple[str, ...]:
        """Return the paths of files that a warm run finds in memory: read before it, and kept there until it has ended.

        Only for kinds with the job ``command``.
        """
        return ()

    def settle(self, lab: LabContext, answer: Mapping[str, Any]) -> str | None:
        """Check and undo the effects of each job, timed or not, so that all runs start from the same state.

        The server runs. Returns a description of what was wrong with the outcome, which fails the run, or
        None.
        """
        return None


def makes_files(work: Work) -> bool:
    """Return whether it makes files in the lab apart from its file set: output, or its own data."""
    return work.needs_scratch() or (isinstance(work, HasOwnData) and work.has_own_data())


class HasServer(HasOwnData):
    """A kind with servers.

    They are started for each run, in every arm, after the lab is mounted and made cold and before the
    warm-up; and stopped after the run, before the lab is unmounted.
    """

    __slots__ = ()

    def started_servers(self, lab: LabContext) -> Sequence[Server]:
        """Return the servers to start; empty if this work needs none."""
        raise NotImplementedError

    def listens(self) -> bool:
        """Return whether it needs a port of 127.0.0.1."""
        return True

    def begun(self, lab: LabContext) -> None:
        """Called just after the servers are ready: wait for their background work to finish. Raises LabError."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What a check found wrong after a power cut: acknowledged items that are missing, and content that nobody wrote.

    Each is named by a short line.
    """

    lost: tuple[str, ...] = ()
    corrupt: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recovered:
    """The lab's file system as a power cut left it, mounted again.

    ``lab`` is that of the run, with ``root`` and ``files`` in the recovered file system; its ``target`` cannot be
    used. ``was``: the root of the run. ``acknowledged``: everything acknowledged before the cut, in order.
    ``scratch``: the folder of what the run wrote.
    """

    lab: LabContext
    was: str
    scratch: str
    acknowledged: Sequence[str]

    @property
    def tree(self) -> Path:
        """The root of the recovered file system."""
        return Path(self.lab.root)

    def path(self, path: str) -> Path:
        """Return where a path of the run is in the recovered file system."""
        return self.tree / Path(path).relative_to(self.was)


class HasCheck:
    """A kind that can acknowledge what it has made durable, and look for it after a power cut."""

    __slots__ = ()

    def checks(self) -> bool:
        """Return whether the work as declared can be checked."""
        return True

    def acknowledging(self, job: Mapping[str, Any], marks: str) -> dict[str, Any]:
        """Return the probe's job in which the work acknowledges: by marks sent to this socket, or if it is empty, in the
        answer: ``acknowledged`` is then a list of nanoseconds (CLOCK_MONOTONIC) and text.
        """
        return {**job, "acknowledge": marks}

    def collects(self) -> bool:
        """Return whether it can also acknowledge in the answer of its job (no socket), which works in a guest."""
        return False

    def withdraws(self, acknowledgement: str) -> bool:
        """Return whether this takes an earlier acknowledgement back, because the work is about to change the item."""
        return False

    def items(self, acknowledged: Sequence[str]) -> int:
        """Return how many items these acknowledgements are."""
        return len(acknowledged)

    def damage(self, recovered: Recovered) -> Damage:
        """Return what is missing or wrong. Called in a separate process, as root, which may be killed.

        Raises OSError where the file system cannot be read, which counts as corrupt; LabError if it cannot be
        checked.
        """
        raise NotImplementedError


# the kinds


@cache
def _modules() -> frozenset[str]:
    return frozenset(
        module.name for module in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__)
    )


@cache
def _found(module: str) -> type[Work] | None:
    found: type[Work] | None = getattr(importlib.import_module(f"{PACKAGE}.{module}"), "WORK", None)
    return found


def kinds() -> dict[str, type[Work]]:
    """Return the Struct of every kind by name: ``WORK`` of each module of ``iotrial.workloads`` that has one.

    The name of a kind is the name of its module.
    """
    return {name: work for name in sorted(_modules()) if (work := _found(name)) is not None}


def kind(name: str) -> type[Work]:
    """Return the Struct of the named kind, importing only its module. Raises UnknownName."""
    work = _found(name) if name in _modules() else None
    if work is None:
        raise UnknownName("workload kind", name, kinds())
    return work


def past_kinds() -> dict[str, type[Work]]:
    """Return the Structs of kinds that can only be read from stored trials, by name."""
    found: dict[str, type[Work]] = importlib.import_module(f"{PACKAGE}.past").KINDS
    return found


def own_keys(work: type[Work]) -> dict[str, Any]:
    """Return the annotated types of the keys of a kind's table, by name."""
    return {**work.file_keys, **{key.name: key.wanted for key in keys_of(work).values()}}


def work_of(kind: type[W], table: Mapping[str, object]) -> W:
    """Return the work that a table declares. Raises Problem, with the path from the table on."""
    shared = {name: table[name] for name in kind.file_keys if name in table}
    own = {name: value for name, value in table.items() if name not in shared}
    known = list(own_keys(kind))
    for name in own:
        if name not in known:
            raise UnknownKey(name, known)
    values = values_of(kind, own)
    values |= {name: converted(kind.file_keys[name], value, name) for name, value in shared.items()}
    work = kind.made(values)
    work.check()
    return work


def stored_work(name: str, data: object, read_from: ReadFrom) -> Work:
    """Return the work of a stored workload of the named kind; the object names its Struct in ``is``. Raises Problem."""
    try:
        struct = kind(name)
    except UnknownName as error:
        past = past_kinds().get(name)
        if past is None:
            raise Problem(error.message, hint=error.hint) from None
        struct = past
    if not isinstance(data, dict) or data.get("is") != struct.__name__:
        raise Problem(f"its work is not of the kind {shown(name)}")
    work = from_table(struct, {key: value for key, value in data.items() if key != "is"}, read_from)
    work.check()
    return work


def varied(work: W, options: Mapping[str, str]) -> W:
    """Return the work with these keys set to these values, written as in a study file.

    Raises Problem for a key that cannot be varied in this kind, and for an invalid value.
    """
    if not options:
        return work
    keys = keys_of(type(work))
    values = {}
    for name, text in options.items():
        if name not in work.options:
            message, hint = unknown(f"option of {work.kind}", name, work.options)
            raise Problem(message, hint=hint)
        values[keys[name].field] = converted(keys[name].wanted, _written(keys[name], text), name)
    found = type(work).made({**structs.asdict(work), **values})
    found.check()
    return found


def _written(key: Key, text: str) -> object:
    """Convert the text of a level to the value that a file would hold."""
    plain = plain_of(key.wanted)
    if plain is bool:
        if text not in ("true", "false"):
            raise Problem(f'{key.name}: expected true or false, found "{text}"')
        return text == "true"
    number = plain is int and key.form is None and text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if number else text


# for the modules of the kinds


def minimal_environment() -> dict[str, str]:
    """Return the environment of every program of a study."""
    return {"PATH": PATH, "LC_ALL": "C", "HOME": "/"}


def filled(text: str, arguments: Mapping[str, str]) -> str:
    """Replace placeholders by their values."""
    for placeholder, value in arguments.items():
        text = text.replace(placeholder, value)
    return text


def printed_by(answer: Mapping[str, Any]) -> str:
    """Return the standard output of the only step of a ``command`` job, which was set to keep it."""
    [step] = answer["steps"]
    return str(step["printed"]["stdout"])


def to_take_off(answer: Mapping[str, Any], stretched: str) -> tuple[float, float]:
    """Return the seconds of wall and CPU time by which injected slowdown increased responses other than its target.

    Half of the treatments of a screening design are slowed down and would otherwise differ in every response
    that contains the spin.
    """
    spun = answer.get("spun", {"wall_ns": 0, "cpu_ns": 0})
    in_wall = 0.0 if stretched.partition(".")[0] == "wall" else spun["wall_ns"] / 1e9
    return in_wall, 0.0 if is_cpu(stretched) else spun["cpu_ns"] / 1e9


def calls_of(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the system calls of an accounted job, by name.

    Raises ProbeError if events were lost, since the counts would be too low.
    """
    account = answer.get("account")
    if not isinstance(account, dict):
        raise ProbeError("counting system calls: expected counts for the job, found none")
    if account["lost"]:
        raise ProbeError(
            f"counting system calls: expected all events, but {account['lost']} events were lost"
        )
    found: Mapping[str, Any] = account["calls"]
    return found


def is_cpu(response: str) -> bool:
    """Return whether a response is CPU time, of a whole run or of a step."""
    return response == "cpu" or response.startswith("cpu.")
