"""The declaration of a study as frozen values: what varies, what work is done, what is measured.

Pure data. A study names knobs only by name; whether such a knob exists and which levels this
machine has is the lab's to say. Values of levels are kept as the text that the user wrote; the knob
parses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """What a factor is for."""

    TREATMENT = "treatment"
    CONDITION = "condition"


class DesignKind(StrEnum):
    """Which combinations of the treatment factors' levels are run."""

    FULL = "full"
    FRACTIONAL = "fractional"
    PLACKETT_BURMAN = "plackett-burman"
    DEFINITIVE = "definitive-screening"


class Scale(StrEnum):
    """How two values of a response are compared: by ratio or by difference."""

    LOG = "log"
    DIFFERENCE = "difference"


class Better(StrEnum):
    """Which direction of a response its reader prefers."""

    LOWER = "lower"
    HIGHER = "higher"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Setting:
    """One knob at one value. ``options`` address the knob (``key`` of a sysctl, ``variable`` ...)."""

    knob: str
    value: str
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """One value of a factor; several settings make it a bundle."""

    label: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Factor:
    """What varies.

    ``reference`` is a label and always set (the first level where the study names none); only treatment
    factors use it. ``default`` holds the labels that run unless the user asks for others. ``whole_plot``: costly to
    change, so it varies between stretches of a block and not from run to run.
    """

    name: str
    role: Role
    levels: tuple[Level, ...]
    reference: str
    default: tuple[str, ...]
    line: int | None = None
    whole_plot: bool = False

    def level(self, label: str) -> Level:
        """The level of this label; KeyError where there is none."""
        for level in self.levels:
            if level.label == label:
                return level
        raise KeyError(label)


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a command workload: a name and an argument list (no shell)."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FilesWork:
    """Operations by file, done and timed inside the probe (workload kind ``files``).

    ``files`` is how many files one run works on, ``pool`` how many there are to draw them from
    (0: as many as the arms of a block need, so that each arm gets files of its own; equal to
    ``files``: all arms work on the same files). ``contiguous`` draws whole runs of neighbours, for work whose cost
    depends on how close together its inodes are. ``order`` is ``by-file`` (all operations on one
    file, then the next) or ``by-operation`` (one operation on all files, then the next; files stay
    open in between).
    """

    operations: tuple[str, ...]
    files: int = 100
    pool: int = 0
    contiguous: bool = False
    size_bytes: int = 4096
    content: str = "text"
    directories: int = 1
    buffer_bytes: int = 131072
    order: str = "by-file"
    replicates: int = 1


@dataclass(frozen=True, slots=True)
class CommandWork:
    """Whole processes, spawned and timed by the probe (workload kind ``command``).

    ``{file}`` in an argument list runs the command once for each file of the run, ``{files}``
    stands for all of them, ``{dir}`` for their folder. ``run_as`` is ``user`` (who invoked
    iotrial) or ``root``. ``reads`` says what the command is expected to read when cold: ``data`` (at least
    the files' size) or ``names`` (something).
    """

    steps: tuple[Step, ...]
    files: int = 1
    pool: int = 0
    contiguous: bool = False
    size_bytes: int = 4096
    content: str = "text"
    directories: int = 1
    cwd: str = "{dir}"
    stdin: str = ""
    timeout_s: float = 60.0
    expect_exit: int = 0
    run_as: str = "user"
    environment: tuple[tuple[str, str], ...] = ()
    reads: str = "data"
    replicates: int = 1


@dataclass(frozen=True, slots=True)
class StreamWork:
    """Sequential reading or writing as dd and hdparm do it, done and timed inside the probe (workload kind ``stream``).

    ``on`` is ``file`` (one of the run's) or ``device`` (the lab's own, for reading). ``volume_bytes`` 0: all that there is;
    ``time_s`` 0: no limit. ``data`` is what is written: ``zeros``, ``random``, ``50 % random``. ``as_published``: start on
    whatever is cached, and do with each block what the original does besides.
    """

    operation: str
    on: str = "file"
    block_size_bytes: int = 1 << 20
    volume_bytes: int = 0
    time_s: float = 0.0
    pause_s: float = 0.0
    direct: bool = False
    sync: str = "none"
    flush: str = "none"
    truncate: bool = True
    data: str = "zeros"
    as_published: bool = False
    files: int = 1
    pool: int = 1
    contiguous: bool = False
    size_bytes: int = 64 << 20
    content: str = "text"
    directories: int = 1
    replicates: int = 1


@dataclass(frozen=True, slots=True)
class Pick:
    """One number of a program's JSON: the response's name, where it stands, ``factor`` from its unit there to ``unit``."""

    name: str
    path: str
    unit: str
    factor: float
    scale: Scale
    better: Better


@dataclass(frozen=True, slots=True)
class FioWork:
    """A fio job file, run as it is in the lab's folder (workload kind ``fio``). ``job`` is its text."""

    job: str
    picks: tuple[Pick, ...]
    timeout_s: float = 600.0
    run_as: str = "user"
    files: int = 1
    pool: int = 1
    contiguous: bool = False
    size_bytes: int = 0
    content: str = "text"
    directories: int = 1
    replicates: int = 1


@dataclass(frozen=True, slots=True)
class RandomWork:
    """Blocks of files read and written inside the probe (workload kind ``random``).

    ``order`` is ``random`` or ``sequential``, ``engine`` ``psync``, ``mmap`` or ``io_uring``; ``depth`` operations are under
    way at once. What is written is what the files hold at that place.
    """

    operations: int = 1000
    files: int = 1
    pool: int = 0
    contiguous: bool = False
    size_bytes: int = 16 << 20
    content: str = "random"
    directories: int = 1
    engine: str = "psync"
    block_bytes: int = 4096
    order: str = "random"
    write_share: float = 0.0
    direct: bool = False
    depth: int = 1
    replicates: int = 1


@dataclass(frozen=True, slots=True)
class CallsWork(CommandWork):
    """Whole processes whose system calls are counted instead of their time (workload kind ``calls``). ``calls`` are the names
    of those that are responses of their own."""

    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MatrixWork:
    """iozone's tests on a file of the job's own (workload kind ``matrix``), in iozone's order.

    The sizes are those of a cell where no condition varies them. ``direct``, ``sync``, ``fsync`` and ``close`` are iozone's
    -I, -o, -e and -c; ``cold`` takes the file out of the cache before what reads it.
    """

    tests: tuple[str, ...]
    file_size_bytes: int = 4 << 20
    record_size_bytes: int = 65536
    direct: bool = False
    sync: bool = False
    fsync: bool = False
    close: bool = False
    cold: bool = False
    content: str = "random"
    stride: int = 17
    replicates: int = 1

    # The lab's files, of which it needs one: in whose folder the job's own is made.
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


Work = FilesWork | CommandWork | CallsWork | StreamWork | FioWork | RandomWork | MatrixWork


@dataclass(frozen=True, slots=True)
class Workload:
    """What is done in a run.

    ``cache`` names the cache state where no factor varies it. ``only`` restricts the workload to some
    levels of condition factors; ``default`` is false for one that runs only when asked for.
    """

    name: str
    kind: str
    work: Work
    cache: str | None = None
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    default: bool = True


@dataclass(frozen=True, slots=True)
class Response:
    """One number measured by a run of one workload. ``unit`` is ``s``, ``bytes``, ``1`` ..."""

    workload: str
    name: str
    unit: str
    scale: Scale
    better: Better
    primary: bool
    #: whether a known slow-down can be put into it; not into what a program says of itself
    stretchable: bool = True


@dataclass(frozen=True, slots=True)
class Claim:
    """A published number that the study is held against.

    ``ratio`` is response at ``level`` over response at ``reference``; None where the claim is in words only. ``value`` is
    instead the response itself at ``level``, a count say, which is compared exactly. ``condition`` (factor name or
    ``workload`` to label) says which condition comes nearest to what was published.
    """

    source: str
    text: str
    factor: str
    level: str
    reference: str
    ratio: float | None = None
    workload: str | None = None
    response: str | None = None
    condition: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    value: float | None = None


@dataclass(frozen=True, slots=True)
class LabSpec:
    """Where runs happen; ``kind`` None means the first lab that can serve."""

    kind: str | None = None
    filesystem: str = "ext4"
    size_bytes: int = 512 << 20
    mkfs_options: tuple[str, ...] = ()
    mount_options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop at the latest. ``blocks`` counts complete blocks of each condition."""

    time_s: float = 300.0
    blocks: int = 2000


@dataclass(frozen=True, slots=True)
class Design:
    """Which treatments a block holds, and which interactions are asked for.

    ``resolution`` is that of a fractional design, ``fold_over`` adds the mirror image of every row to a fractional or
    Plackett-Burman design. ``interactions`` are pairs of names of treatment factors whose interaction is primary.
    ``repeats`` is how often every treatment is run in each stretch of a study with whole plots.
    """

    kind: DesignKind = DesignKind.FULL
    resolution: int = 4
    fold_over: bool = False
    interactions: tuple[tuple[str, str], ...] = ()
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class Study:
    """A whole declaration. ``text`` is the TOML it was read from, ``origin`` its file or catalogue name. ``account``: the
    system calls of its commands and the requests to the lab's device are counted, in repetitions that are not timed."""

    name: str
    title: str
    question: str
    why: str
    margin: float
    alpha: float
    lab: LabSpec
    budget: Budget
    factors: tuple[Factor, ...]
    fixed: tuple[Setting, ...]
    workloads: tuple[Workload, ...]
    responses: tuple[Response, ...]
    claims: tuple[Claim, ...]
    text: str
    origin: str
    trusted: bool = False
    design: Design = field(default_factory=Design)
    account: bool = True

    @property
    def treatment_factors(self) -> tuple[Factor, ...]:
        """The factors whose effects are asked for."""
        return tuple(f for f in self.factors if f.role is Role.TREATMENT)

    @property
    def condition_factors(self) -> tuple[Factor, ...]:
        """The factors that are crossed with the treatments and reported each."""
        return tuple(f for f in self.factors if f.role is Role.CONDITION)

    def factor(self, name: str) -> Factor:
        """The factor of this name; KeyError where there is none."""
        for factor in self.factors:
            if factor.name == name:
                return factor
        raise KeyError(name)

    def workload(self, name: str) -> Workload:
        """The workload of this name; KeyError where there is none."""
        for workload in self.workloads:
            if workload.name == name:
                return workload
        raise KeyError(name)
