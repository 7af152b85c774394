"""The work of a workload as frozen values: one class a kind.

All kinds but ``matrix`` work on files that the lab makes: ``files`` is how many of them one run works on, ``pool`` how many
there are to draw them from (0: as many as the arms of a block need, so that each arm gets files of its own; equal to
``files``: all arms work on the same files). ``contiguous`` draws whole runs of neighbours, for work whose cost depends on how
close together its inodes are.
"""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.study.scales import Better, Scale


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a command workload: a name and an argument list (no shell)."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FilesWork:
    """Operations by file, done and timed inside the probe (workload kind ``files``).

    ``order`` is ``by-file`` (all operations on one file, then the next) or ``by-operation`` (one
    operation on all files, then the next; files stay open in between).
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

    ``on`` is ``file`` (one of the run's) or ``device`` (the lab's own, for reading, from the share ``position`` of it on; in
    order, or, where ``within`` is not 0, blocks drawn from that share behind the position; ``lead_in_bytes`` are
    read before the time begins). ``volume_bytes`` 0: all of it;
    ``time_s`` 0: no limit. ``data`` is what is written: ``zeros``, ``random``, ``50 % random``. ``as_published``: start on
    whatever is cached, and do with each block what the original does besides. ``streams`` work at once, ``shared`` on one
    file, else on one each; a copy takes as many files more, and ``copy_with`` says by which calls it is made.
    """

    operation: str
    on: str = "file"
    position: float = 0.0
    within: float = 0.0
    lead_in_bytes: int = 0
    streams: int = 1
    shared: bool = False
    copy_with: str = "read-write"
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
    """A fio job file, run as it is in the lab's folder (workload kind ``fio``). ``job`` is its text.

    ``clients``: so many fio servers do the job at once, called by one fio; 0: fio alone. ``folder``: where they work,
    on other hosts.
    """

    job: str
    picks: tuple[Pick, ...]
    timeout_s: float = 600.0
    run_as: str = "user"
    clients: int = 0
    folder: str = ""
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
    way at once. What is written is what the files hold at that place. ``rate``: operations a second of open arrivals; 0:
    closed, the next starts when one has ended. ``series``: what each second of a run did is kept. ``ramp`` operations
    come before the clock starts.
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
    ramp: int = 0
    rate: float = 0.0
    series: bool = False
    replicates: int = 1


@dataclass(frozen=True, slots=True)
class CallsWork(CommandWork):
    """Whole processes whose system calls are counted instead of their time (workload kind ``calls``). ``calls`` are the names
    of those that are responses of their own."""

    calls: tuple[str, ...] = ()


class OneFile:
    """The lab's files of a work that makes its own, beside the one that it is given."""

    __slots__ = ()

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


@dataclass(frozen=True, slots=True)
class MkfsWork(OneFile):
    """mkfs on the lab's own device (workload kind ``mkfs``), with the type and options that the study's knobs wish.
    ``volume_bytes`` 0: all of the lab."""

    volume_bytes: int = 0
    timeout_s: float = 300.0

    @property
    def content(self) -> str:
        """Of the lab's file, which goes with what is made."""
        return "zeros"


@dataclass(frozen=True, slots=True)
class AtimeWork(OneFile):
    """System calls, each done once to an object of its own, and what became of its access time (workload kind ``atime``).

    The objects are the job's; the lab's one file tells in which state their times are to stand. ``each`` are those of the
    calls that are responses of their own. ``burst`` reads of one file follow each other at the end.
    """

    calls: tuple[str, ...]
    each: tuple[str, ...] = ()
    burst: int = 1000


@dataclass(frozen=True, slots=True)
class RebuildWork(OneFile):
    """An array brings a disk into step (workload kind ``rebuild``).

    ``returns``: a disk that is new to the array, or the same that has been away for a while, in which ``away_bytes`` were
    written. ``load`` goes on meanwhile in the lab's one file. ``announced_at`` is the share at which md is asked when it will
    be done; ``parts`` equal parts are timed.
    """

    returns: str = "new"
    load: str = "none"
    away_bytes: int = 4 << 20
    parts: int = 8
    announced_at: float = 0.25
    timeout_s: float = 600.0
    size_bytes: int = 8 << 20


@dataclass(frozen=True, slots=True)
class MatrixWork(OneFile):
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


@dataclass(frozen=True, slots=True)
class DatabaseWork(OneFile):
    """One test on a table of a database that the lab holds (workload kind ``database``).

    ``engine`` is ``sqlite`` (embedded in the client), ``mariadb`` or ``postgresql`` (a server that is started for the run).
    ``rows`` are in the table, ``changed`` are inserted or fetched. ``buffer_bytes`` is the engine's own cache. ``durable``: a
    commit waits for the disk. ``buffer_dump``: InnoDB keeps the list of its cached pages over a restart.
    """

    engine: str
    test: str = "count"
    rows: int = 200_000
    changed: int = 2_000
    buffer_bytes: int = 128 << 20
    durable: bool = True
    huge_pages: bool = False
    buffer_dump: bool = False
    connection: str = "socket"
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class PagesWork(OneFile):
    """Pages requested from a web server by the probe (workload kind ``pages``).

    ``pages`` are paths, with ranges as the study has them; ``count`` only the first so many of what they stand for.
    ``server`` is one of ``servers`` (name and address). ``delay_s`` passes between the end of a response and the next
    request of each of ``clients``. ``ignore`` are texts with * between them. ``browser``: the clients are real browsers.
    ``serve`` is a server that the study starts for each run, ``make`` what makes its site in the lab, once; neither by a
    shell.
    """

    pages: tuple[str, ...]
    count: int = 0
    server: str = "site"
    servers: tuple[tuple[str, str], ...] = ()
    host: str = ""
    delay_s: float = 0.0
    clients: int = 1
    warmup: int = 1
    keep_alive: bool = True
    timeout_s: float = 30.0
    expect_status: int = 200
    redirects: str = "refuse"
    ignore: tuple[str, ...] = ()
    browser: bool = False
    serve: tuple[str, ...] = ()
    serve_environment: tuple[tuple[str, str], ...] = ()
    make: tuple[str, ...] = ()
    make_input: str = ""
    replicates: int = 1


@dataclass(frozen=True, slots=True)
class ClientsWork(OneFile):
    """The same commands of many clients at once, against one server (workload kind ``clients``).

    ``clients`` begin at one moment. ``server`` is what ``{server}`` stands for: an address or a folder as the clients see it;
    with ``serve``, where that program listens; with neither, the lab's own folder that ``make`` has filled. ``volume_bytes``:
    what one client moves; 0: rates are works a second. ``spread``: by which share of a run's length the clients may begin
    apart.
    """

    steps: tuple[Step, ...]
    clients: int = 2
    server: str = ""
    volume_bytes: int = 0
    spread: float = 0.1
    cwd: str = "/"
    stdin: str = ""
    timeout_s: float = 60.0
    expect_exit: int = 0
    environment: tuple[tuple[str, str], ...] = ()
    serve: tuple[str, ...] = ()
    serve_environment: tuple[tuple[str, str], ...] = ()
    make: tuple[str, ...] = ()
    make_input: str = ""


Work = (
    FilesWork
    | CommandWork
    | CallsWork
    | StreamWork
    | FioWork
    | RandomWork
    | MatrixWork
    | AtimeWork
    | RebuildWork
    | DatabaseWork
    | PagesWork
    | MkfsWork
    | ClientsWork
)
