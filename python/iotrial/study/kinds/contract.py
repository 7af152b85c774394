"""What a module of this folder gives: keys of a table, the work they declare, the responses of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, TypeVar

from pydantic import Field

from iotrial.study.model import Better, Scale, Setting, Work
from iotrial.study.wire import Size, Table

Keys = TypeVar("Keys", bound=Table)


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """One number that a run of this kind gives, and what it means."""

    name: str
    unit: str
    scale: Scale
    better: Better
    text: str
    stretchable: bool = True


def _always(_work: Work, _settings: Mapping[str, str]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Programs:
    """What is to be known of a kind that starts programs of the study's choosing.

    ``said`` is what they are called in a sentence. ``texts`` are those that a placeholder may stand in, ``as_root`` whether
    root runs them; ``demands`` says what in them needs trust, whatever of the study's settings is put into them, in words
    that follow the workload's name.
    """

    said: str
    texts: Callable[[Work], Iterator[str]]
    as_root: Callable[[Work], bool]
    demands: Callable[[Work, Sequence[Setting]], Iterator[str]]


@dataclass(frozen=True, slots=True)
class WorkloadKind(Generic[Keys]):
    """One workload kind.

    ``work`` is the class of what ``build`` makes of validated keys; it raises KeyProblem where they cannot work together.
    ``responses`` names what a run of that work measures, the one that counts by default first.
    ``documented`` are the same for every possible work, with capitals for what varies (``STEP``).
    ``possible``: whether the work exists under a condition, given as values by knob. ``stretches_each``: the known slow-down
    is put into every time of its own, so that each primary one has a positive control. ``unstretchable``: what those of its
    responses are that it cannot be put into. ``remark``: what a reader of its numbers must know of the work, a sentence.
    ``load``: a response that shows whether the machine keeps up with what is asked of it, and its value where it does.
    """

    name: str
    work: type[Any]
    summary: str
    keys: type[Keys]
    build: Callable[[Keys], Work]
    responses: Callable[[Work], tuple[ResponseSpec, ...]]
    documented: tuple[ResponseSpec, ...]
    vocabulary: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: keys that the knob ``work.option`` may vary
    options: tuple[str, ...] = ()
    #: a key that names a text file beside the study, and the key that its content becomes
    text_file: tuple[str, str] | None = None
    #: the cache state of a run where the study names none
    cache: Callable[[Work], str | None] = lambda _: None
    notes: str = ""
    possible: Callable[[Work, Mapping[str, str]], bool] = _always
    stretches_each: bool = False
    unstretchable: str = "what the program reports of itself"
    programs: Programs | None = None
    remark: Callable[[Work], str] = lambda _: ""
    load: Callable[[Work], tuple[str, float] | None] = lambda _: None
    #: whether the user may say on the command line where its programs are (``--set program=PATH``)
    takes_program: bool = False


class KeyProblem(ValueError):
    """A value that is well-formed and cannot work. ``path`` leads to it inside the workload's table."""

    def __init__(self, message: str, *path: str | int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint


#: what the size of a C source is a multiple of, for whole functions
C_UNIT = 1024
C_SIZES = "C sources have whole KiB"


class FileSetKeys(Table):
    """The keys of kinds that work on files of the lab."""

    files: int = Field(ge=1, le=1_000_000, description="how many files one run works on")
    pool: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="how many files there are to draw a run's files from; 0: as many as the arms of a block "
        "need, so that each has files of its own; equal to `files`: all arms work on the same files",
    )
    contiguous: bool = Field(
        False,
        description="draw whole runs of neighbours, for work whose cost depends on how close inodes lie",
    )
    size: Size = Field(4096, ge=0, le=1 << 44, description="size of each file")
    content: Literal["text", "random", "zeros", "words", "c"] = Field(
        "text",
        description="lines of hexadecimal digits, incompressible bytes, zeros, words that compress as a text in a natural "
        "language does, or C sources that compile (sizes in whole KiB; every eighth file is a header)",
    )
    directories: int = Field(1, ge=1, le=10_000, description="folders that the files are spread over")
    replicates: int = Field(
        1, ge=1, le=1_000_000, description="repeats inside one run; their total is the run's response"
    )


class FileSetFields(TypedDict):
    """What the works of these kinds have in common."""

    files: int
    pool: int
    contiguous: bool
    size_bytes: int
    content: str
    directories: int
    replicates: int


def file_set(keys: FileSetKeys) -> FileSetFields:
    """The fields of the files of a work; KeyProblem where they contradict each other."""
    check_file_set(keys)
    return {
        "files": keys.files,
        "pool": keys.pool,
        "contiguous": keys.contiguous,
        "size_bytes": keys.size,
        "content": keys.content,
        "directories": keys.directories,
        "replicates": keys.replicates,
    }


def check_file_set(keys: FileSetKeys) -> None:
    """KeyProblem where the numbers of files, pool and folders contradict each other."""
    if 0 < keys.pool < keys.files:
        raise KeyProblem(
            f"a pool of {keys.pool} files is too small to draw {keys.files} from",
            "pool",
            hint="0 lets iotrial choose",
        )
    if keys.content == "c" and keys.size % C_UNIT:
        raise KeyProblem(f"C sources of {keys.size} bytes would end inside a function", "size", hint=C_SIZES)
    if keys.directories > max(keys.files, keys.pool):
        raise KeyProblem(f"{keys.directories} folders for {keys.files} files", "directories")


def time_response(name: str, text: str) -> ResponseSpec:
    """A response in seconds: compared by ratio, less is better."""
    return ResponseSpec(name, "s", Scale.LOG, Better.LOWER, text)


def rate_response(name: str, unit: str, text: str) -> ResponseSpec:
    """Something a second: compared by ratio, more is better."""
    return ResponseSpec(name, unit, Scale.LOG, Better.HIGHER, text)


def count_response(name: str, unit: str, text: str) -> ResponseSpec:
    """A count that can be zero: compared by difference, less is better."""
    return ResponseSpec(name, unit, Scale.DIFFERENCE, Better.LOWER, text)


CPU_RESPONSES = (
    time_response("cpu", "processor time, user and system"),
    time_response("user", "processor time in user mode"),
    time_response("sys", "processor time in the kernel"),
)
DEVICE_RESPONSES = (
    count_response("device_read_bytes", "bytes", "read from the lab's devices during the timed part"),
    count_response("device_write_bytes", "bytes", "written to the lab's devices during the timed part"),
)
#: what every kind measures as evidence, and as a response where a study names it (docs/evidence.md)
ACTIVITY_RESPONSES = (
    ResponseSpec(
        "io_wait",
        "%",
        Scale.DIFFERENCE,
        Better.LOWER,
        "share of all processors' time that they were idle while something waited for I/O; of the whole machine",
    ),
    ResponseSpec(
        "io_wait_most", "%", Scale.DIFFERENCE, Better.LOWER, "the same of the one processor that waited most"
    ),
    ResponseSpec(
        "device_busy",
        "%",
        Scale.DIFFERENCE,
        Better.NONE,
        "share of the time in which at least one request to the lab's device was under way",
    ),
    ResponseSpec(
        "device_depth",
        "requests",
        Scale.DIFFERENCE,
        Better.NONE,
        "requests to the lab's device under way on average",
    ),
)
#: of the machine that serves, where the lab has a link
SERVED_RESPONSES = (
    time_response("nas_cpu", "processor time of the machine that serves the files"),
    count_response(
        "nas_interrupts", "s", "its part in interrupts and in what is done at once because of them"
    ),
    ResponseSpec(
        "nas_busy",
        "%",
        Scale.DIFFERENCE,
        Better.NONE,
        "share of the time in which the processors of that machine were busy",
    ),
)
SYNCED_RESPONSE = count_response(
    "device_write_bytes_synced", "bytes", "written to the devices until a sync after the timed part is done"
)
