"""What every kind of work has: its keys, its responses, the job that the probe is asked to do, and what its answer means.

A kind is one module of ``iotrial.workloads``: a Struct whose fields are the keys of its ``[[workload]]`` table. What it does
beyond the common core it says by the small classes at the end of this module (``HasServer``, ``HasOwnData`` ...).
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from msgspec import Meta, Struct, structs

from iotrial.errors import ProbeError, RequestError, UnknownName
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
#: the package whose modules are the kinds
PACKAGE = "iotrial.workloads"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


# responses


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """One number that a run of a work gives, and what it means. ``stretchable``: a known slow-down can be put into it."""

    name: str
    unit: str
    scale: Scale
    better: Better
    text: str
    stretchable: bool = True


def time_response(name: str, text: str, *, stretchable: bool = True) -> ResponseSpec:
    """A response in seconds: compared by ratio, less is better."""
    return ResponseSpec(name, "s", Scale.LOG, Better.LOWER, text, stretchable)


def rate_response(name: str, unit: str, text: str) -> ResponseSpec:
    """Something a second: compared by ratio, more is better."""
    return ResponseSpec(name, unit, Scale.LOG, Better.HIGHER, text)


def count_response(name: str, unit: str, text: str) -> ResponseSpec:
    """A count that can be zero: compared by difference, less is better."""
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
#: what every kind measures as evidence, and as a response where a study names it (docs/evidence.md)
ACTIVITY_RESPONSES = (
    _difference(
        "io_wait",
        "%",
        Better.LOWER,
        "share of all processors' time that they were idle while something waited for I/O; of the whole machine",
    ),
    _difference("io_wait_most", "%", Better.LOWER, "the same of the one processor that waited most"),
    _difference(
        "device_busy",
        "%",
        Better.NONE,
        "share of the time in which at least one request to the lab's device was under way",
    ),
    _difference("device_depth", "requests", Better.NONE, "requests to the lab's device under way on average"),
)
#: of the machine that serves, where the lab has a link
SERVED_RESPONSES = (
    time_response("nas_cpu", "processor time of the machine that serves the files"),
    count_response(
        "nas_interrupts", "s", "its part in interrupts and in what is done at once because of them"
    ),
    _difference(
        "nas_busy",
        "%",
        Better.NONE,
        "share of the time in which the processors of that machine were busy",
    ),
)


def nameable(specs: tuple[ResponseSpec, ...]) -> tuple[ResponseSpec, ...]:
    """What a study may name of a workload: the responses of its kind, and how busy machine and device were meanwhile."""
    return (*specs, *ACTIVITY_RESPONSES, *SERVED_RESPONSES)


# a run


@dataclass(frozen=True, slots=True)
class LabContext:
    """Where a work is done that has a server, or data of its own.

    ``root`` is the lab's folder, ``files`` the one of the run's files as the work sees them (a view, where a knob makes one);
    ``user`` whose the programs are, never root (None: the probe's own user, who is not root either); ``programs`` are folders
    or programs that the user has chosen, by name; ``log`` is the root of a second place for logs, where the study has one;
    ``port`` of 127.0.0.1 was free when the run began, for a server of this run; ``arguments`` are the values of placeholders
    that knobs have set; ``device`` is the lab's block device, ``disks`` those of which it is made where it is an array.
    """

    target: Target
    root: str
    files: str
    user: Mapping[str, int] | None = None
    programs: Mapping[str, str] = field(default_factory=dict)
    log: str | None = None
    port: int = 0
    arguments: Mapping[str, str] = field(default_factory=dict)
    device: str | None = None
    disks: tuple[str, ...] = ()

    @property
    def program(self) -> str | None:
        """The folder of programs, or the program, that the user has named for the work."""
        return self.programs.get("program")

    @property
    def own(self) -> str:
        """The folder for all that works make in the lab besides file sets."""
        return f"{self.root}/own"


@dataclass(frozen=True, slots=True)
class JobContext:
    """What a run asks besides the work itself.

    ``stretched`` is the response that the positive control stretches; ``arguments`` are the values of placeholders and
    ``environment`` variables that knobs have set, ``sizes`` bytes by name; ``device`` is the lab's block device, as in
    /sys/block; ``folders`` are on places beside that of the run, by the study's name of the place; ``mkfs`` says how the
    lab's file system is to be made.
    """

    stretched: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    device: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    lab: LabContext | None = None
    folders: Mapping[str, str] = field(default_factory=dict)
    mkfs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run of one kind gives beyond what all give.

    ``numbers`` in seconds, bytes or counts by name: responses where the study has them, else evidence. ``histograms``:
    [nanoseconds, count] by name. ``seconds``: what went on within the run, by name one number for each moment in ``at_s``
    (None: there is none); empty where the work does not tell. ``checks``: what else is stored of the run, by name, in JSON's
    values. ``facts`` are a word by name, for a table of facts. ``void``: the rule by which the work throws the run out, and
    with it its block. ``missing``: in words, a value that the work's own program should have told and has not, so that the
    run failed.
    """

    numbers: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, list[list[int]]] = field(default_factory=dict)
    seconds: Mapping[str, list[float | None]] = field(default_factory=dict)
    checks: Mapping[str, object] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    void: str | None = None
    missing: str | None = None

    @classmethod
    def lacking(cls, numbers: Mapping[str, float], error: RequestError) -> Self:
        """What is known of a run whose program did not print what is read from it."""
        return cls(numbers, missing=f"{error.message} ({error.hint})" if error.hint else error.message)


@dataclass(frozen=True, slots=True)
class Launched:
    """What a work has started of the study's choosing, as the user consents to it: labels are not made safe yet, nothing is
    shortened. ``details`` and the ``input`` of the first that has one hold for all ``commands``."""

    commands: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    input: str = ""


# a work


class Work(Struct, frozen=True, kw_only=True, tag_field="is", tag=True):
    """One kind of work, as a workload declares it. Its fields are the keys of the table, and its stored form.

    A work has no files of its own making, unless it is a ``FileSet``: then it is given one small file of the lab.
    """

    #: as ``kind = "..."`` has it
    kind: ClassVar[str]
    #: what it is, in a sentence, for ``show --workload``; and what else is to be known
    about: ClassVar[str]
    notes: ClassVar[str] = ""
    #: the words that a key may hold, with what each means
    vocabulary: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    #: the responses of every possible work of the kind, with capitals for what varies (``STEP``)
    documented: ClassVar[tuple[ResponseSpec, ...]]
    #: keys of the table that are not fields, by name: their annotated types
    file_keys: ClassVar[Mapping[str, Any]] = {}
    #: keys that the knob ``work.option`` may vary
    options: ClassVar[tuple[str, ...]] = ()
    #: keys that name a text file beside the study, and the keys that its content becomes
    text_files: ClassVar[Mapping[str, str]] = {}
    #: what to use instead, where the kind can only be read from stored trials
    gone: ClassVar[str] = ""
    #: the known slow-down is put into every time of its own, so that each primary one has a positive control
    stretches_each: ClassVar[bool] = False
    #: what those of its responses are that the slow-down cannot be put into
    unstretchable: ClassVar[str] = "what the program reports of itself"

    #: the probe's job
    verb: ClassVar[str]
    #: whole processes, which are rehearsed once so that what is loaded from disk is there
    starts_programs: ClassVar[bool] = False
    #: a repetition whose system calls are counted makes sense
    accountable: ClassVar[bool] = False
    #: it works on a file of its own making, which no knob of the lab's files reaches
    own_file: ClassVar[bool] = False
    #: false where every run is traced, so that its times mean nothing
    timed: ClassVar[bool] = True
    #: it makes the lab's file system itself, as knobs wish, so that this is not done before it
    makes_filesystem: ClassVar[bool] = False

    # its files in the lab

    @property
    def files(self) -> int:
        """How many files of the lab one run works on."""
        return 1

    @property
    def pool(self) -> int:
        """How many there are to draw them from."""
        return 1

    @property
    def contiguous(self) -> bool:
        """Whether they are neighbours."""
        return False

    @property
    def size_bytes(self) -> int:
        """Size of each."""
        return 4096

    @property
    def directories(self) -> int:
        """Folders that they are spread over."""
        return 1

    @property
    def content(self) -> str:
        """What is in it."""
        return "text"

    @property
    def replicates(self) -> int:
        """Repeats inside one run."""
        return 1

    # what a study declares

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        """The work of the values that a table gives, by field or name of a key of ``file_keys``. Raises Problem."""
        return cls(**values)

    def check(self) -> None:
        """Raises Problem for values that are well-formed and cannot work together."""

    def responses(self) -> tuple[ResponseSpec, ...]:
        """What a run measures, the one that counts by default first."""
        raise NotImplementedError

    def default_cache(self) -> str | None:
        """The cache state of a run where the study names none."""
        return None

    def possible(self, settings: Mapping[str, str]) -> bool:
        """Whether the work exists under a condition, given as values by knob."""
        return True

    def remark(self) -> str:
        """What a reader of its numbers must know of the work, a sentence."""
        return ""

    def expected_load(self) -> tuple[str, float] | None:
        """A response that shows whether the machine keeps up with what is asked of it, and its value where it does."""
        return None

    def described(self) -> str:
        """What is done in a run, for the plan in a report (labels not made safe yet)."""
        raise NotImplementedError

    # what the probe is asked, and what it answers

    def probe_job(self, context: JobContext) -> dict[str, object]:
        """The job's own fields (the common ones are the runner's)."""
        raise NotImplementedError

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        """The numbers of the probe's answer, what was spun for other responses taken off."""
        raise NotImplementedError

    def reads_bytes(self, size: int, files: int) -> int:
        """How many bytes it must get from the device when nothing is cached: the check of a cold run."""
        return 0

    def may_read_warm(self) -> bool:
        """Whether even a warm run may read from the device, because no cache that it has need hold all that it reads."""
        return False

    def leaves_dirty(self) -> bool:
        """Whether what a run has written is to be written back after it, so that the next one does not pay for it."""
        return not self.starts_programs and self.writes()

    def own_bytes(self, settings: Mapping[str, str]) -> int:
        """What files of the job's own take on a disk under a condition, given as values by knob."""
        return 0

    def writes(self) -> bool:
        """Whether it changes the files of its set."""
        return True

    def starts_empty(self) -> bool:
        """Whether the files of its set are not there when a run begins, and only their folders are."""
        return False

    def chooses_files(self) -> bool:
        """Whether the study says which files its programs work on, which may be none of the lab's."""
        return False

    def needs_scratch(self) -> bool:
        """Whether it is given an empty folder to write to, ``out`` of its job."""
        return False

    def leaves_other_files(self) -> bool:
        """Whether files have other data or another length behind it, so that it needs a set of its own."""
        return False

    def on_files(self) -> bool:
        """Whether it works on the files of its set."""
        return True

    def labs(self) -> frozenset[str]:
        """The kinds of lab in which it can be done."""
        return frozenset({"directory"}) | DISK_LABS

    def needed_programs(self) -> Mapping[str, str]:
        """Programs that it starts by itself, with the Debian package of each."""
        return {}

    def optional_programs(self) -> Mapping[str, str]:
        """Those of them, with the package of each, without which the workload is left out of a study that has others."""
        return {}

    def takes_program(self) -> bool:
        """Whether the user may say on the command line where its programs are (``--set program=PATH``)."""
        return False

    def check_program(self, path: str) -> None:
        """Raises MissingTool where the folder of programs that the user has named lacks one."""

    def as_root(self) -> bool:
        """Whether it is done by the probe itself and not under the user who typed the command."""
        return True

    def never_root(self) -> bool:
        """Whether root has its programs run as the invoking user, or as nobody where root typed the command."""
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
            "need, so that each has files of its own; equal to `files`: all arms work on the same files",
        ),
    ] = 0
    contiguous: Annotated[
        bool,
        Meta(
            description="draw whole runs of neighbours, for work whose cost depends on how close inodes lie"
        ),
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
                f"a pool of {self.pool} files is too small to draw {self.files} from",
                "pool",
                hint="0 lets iotrial choose",
            )
        if self.content == "c" and self.size_bytes % C_UNIT:
            raise Problem(
                f"C sources of {self.size_bytes} bytes would end inside a function", "size", hint=C_SIZES
            )
        if self.directories > max(self.files, self.pool):
            raise Problem(f"{self.directories} folders for {self.files} files", "directories")


#: what the size of a C source is a multiple of, for whole functions
C_UNIT = 1024
C_SIZES = "C sources have whole KiB"


class Step(Struct, frozen=True):
    """One command: a name and an argument list (no shell)."""

    name: Name
    argv: Annotated[Arguments, Meta(min_length=1)]


# what some kinds have besides


class HasPrograms:
    """It starts programs of the study's choosing. ``said`` is what they are called in a sentence."""

    __slots__ = ()
    said: ClassVar[str]

    def texts(self) -> Iterator[str]:
        """The texts that a placeholder may stand in."""
        raise NotImplementedError

    def demands(self, settings: Sequence[Setting]) -> Iterator[str]:
        """What in them needs trust, whatever of the study's settings is put into them, in words that follow the workload's
        name."""
        raise NotImplementedError

    def named_programs(self) -> tuple[str, ...]:
        """The programs, as the study names them."""
        return ()

    def launched(self) -> Launched:
        """What the study has it start."""
        raise NotImplementedError


class HasOwnData:
    """It has data in ``LabContext.own``, or something else of its own to make ready before a run."""

    __slots__ = ()

    def has_own_data(self) -> bool:
        """Whether they are to be made cold with the rest."""
        return False

    def provide(self, lab: LabContext) -> None:
        """Make what the work needs in the lab besides files of its set; untimed, before every run, so it looks first whether
        that is there. No server runs yet. Raises LabError."""

    def warm(self, state: str) -> int:
        """How often the job itself is done, untimed, before each timed one in this cache state; the server runs."""
        return 0

    def settle(self, lab: LabContext, answer: Mapping[str, Any]) -> str | None:
        """After each job, timed or not: check what it did, and undo it, so that all runs find the same. The server runs.
        In words what was wrong with the outcome, which is a failure of the run."""
        return None


class HasServer(HasOwnData):
    """It has servers: started for each run, in every arm alike, after the lab is mounted and made cold, before it is warmed
    up; and stopped after the run, before the lab is unmounted."""

    __slots__ = ()

    def started_servers(self, lab: LabContext) -> Sequence[Server]:
        """What is started; nothing where this work needs none."""
        raise NotImplementedError

    def listens(self) -> bool:
        """Whether it needs a port of 127.0.0.1."""
        return True

    def begun(self, lab: LabContext) -> None:
        """Just after the servers are ready: wait for what it goes on doing by itself. Raises LabError."""


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
    """The Struct of every kind by its name: ``WORK`` of each module of ``iotrial.workloads`` that has one. Kind and module
    have one name."""
    return {name: work for name in sorted(_modules()) if (work := _found(name)) is not None}


def kind(name: str) -> type[Work]:
    """The Struct of the kind of this name, of which alone the module is imported; UnknownName where there is none."""
    work = _found(name) if name in _modules() else None
    if work is None:
        raise UnknownName("workload kind", name, kinds())
    return work


def past_kinds() -> dict[str, type[Work]]:
    """The Structs of kinds that are only read from stored trials, by name."""
    found: dict[str, type[Work]] = importlib.import_module(f"{PACKAGE}.past").KINDS
    return found


def own_keys(work: type[Work]) -> dict[str, Any]:
    """The annotated types of the keys of a kind's table by name."""
    return {**work.file_keys, **{key.name: key.wanted for key in keys_of(work).values()}}


def work_of(kind: type[W], table: Mapping[str, object]) -> W:
    """The work that a table declares. Raises Problem, with the path from the table on."""
    beside = {name: table[name] for name in kind.file_keys if name in table}
    own = {name: value for name, value in table.items() if name not in beside}
    known = list(own_keys(kind))
    for name in own:
        if name not in known:
            raise UnknownKey(name, known)
    values = values_of(kind, own)
    values |= {name: converted(kind.file_keys[name], value, name) for name, value in beside.items()}
    work = kind.made(values)
    work.check()
    return work


def stored_work(name: str, data: object, read_from: ReadFrom) -> Work:
    """The work of a stored workload, whose kind has this name; the object itself names its Struct in ``is``. Raises
    Problem."""
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
    """The work with these keys at these values, as a study file would write them.

    Raises Problem for a key that this kind does not let be varied, and for a value that cannot work.
    """
    if not options:
        return work
    keys = keys_of(type(work))
    values = {}
    for name, text in options.items():
        if name not in work.options:
            known = ", ".join(work.options) or "none"
            raise Problem(
                f'a workload of kind "{work.kind}" has no option "{name}" to vary', hint=f"it has: {known}"
            )
        values[keys[name].field] = converted(keys[name].wanted, _written(keys[name], text), name)
    found = type(work).made({**structs.asdict(work), **values})
    found.check()
    return found


def _written(key: Key, text: str) -> object:
    """The value that a file would hold for this text of a level."""
    plain = plain_of(key.wanted)
    if plain is bool:
        if text not in ("true", "false"):
            raise Problem(f'{key.name}: wanted true or false, found "{text}"')
        return text == "true"
    number = plain is int and key.form is None and text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if number else text


# for the modules of the kinds


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint where a key holds a word that is not known."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    return f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(known)}"


def minimal_environment() -> dict[str, str]:
    """What every program of a study finds in its environment."""
    return {"PATH": PATH, "LC_ALL": "C", "HOME": "/"}


def filled(text: str, arguments: Mapping[str, str]) -> str:
    """The text with values in place of placeholders."""
    for placeholder, value in arguments.items():
        text = text.replace(placeholder, value)
    return text


def printed_by(answer: Mapping[str, Any]) -> str:
    """The standard output of the only step of a ``command`` job that was asked to keep it."""
    [step] = answer["steps"]
    return str(step["printed"]["stdout"])


def to_take_off(answer: Mapping[str, Any], stretched: str) -> tuple[float, float]:
    """Seconds of wall and of CPU time that a stretch has put into responses that it was not meant for: half of the treatments
    of a screening design are stretched, and would differ in all that contains the spin."""
    spun = answer.get("spun", {"wall_ns": 0, "cpu_ns": 0})
    in_wall = 0.0 if stretched.partition(".")[0] == "wall" else spun["wall_ns"] / 1e9
    return in_wall, 0.0 if is_cpu(stretched) else spun["cpu_ns"] / 1e9


def calls_of(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The system calls of an accounted job by name; ProbeError where some were lost, so that counts are too low."""
    account = answer.get("account")
    if not isinstance(account, dict):
        raise ProbeError("counting system calls: wanted an account of the job, found none")
    if account["lost"]:
        raise ProbeError(
            f"counting system calls: wanted every one, found that {account['lost']} events were lost"
        )
    found: Mapping[str, Any] = account["calls"]
    return found


def is_cpu(response: str) -> bool:
    """Whether a response is processor time of a whole run or of a step."""
    return response == "cpu" or response.startswith("cpu.")
