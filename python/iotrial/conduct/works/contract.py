"""What a module of this folder gives: the job of the probe that does a work, and the numbers that come of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from iotrial.errors import ProbeError
from iotrial.lab.knob import DISK_LABS
from iotrial.lab.server import Server
from iotrial.lab.target import Target
from iotrial.study.model import Work

W = TypeVar("W", bound=Work)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run asks besides the work itself.

    ``stretched`` is the response that the positive control stretches; ``arguments`` are the values of placeholders and
    ``environment`` variables that knobs have set, ``sizes`` bytes by name.
    """

    stretched: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    #: the lab's block device, as in /sys/block
    device: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    #: where the work is done
    at: Situation | None = None
    #: folders on places beside that of the run, by the study's name of the place
    folders: Mapping[str, str] = field(default_factory=dict)
    #: how the lab's file system is to be made
    mkfs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a work is done that has a server, or data of its own.

    ``root`` is the lab's folder, ``files`` the one of the run's files as the work sees them (a view, where a knob makes one);
    ``user`` whose the programs are, never root (None: the probe's own user, who is not root either); ``programs`` are folders
    or programs that the user has chosen, by name; ``log`` is the root of a second place for logs, where the study has one.
    """

    target: Target
    root: str
    files: str
    user: Mapping[str, int] | None = None
    programs: Mapping[str, str] = field(default_factory=dict)
    log: str | None = None
    #: of 127.0.0.1, that nobody listened on when the run began; for a server of this run
    port: int = 0
    #: values of placeholders that knobs have set
    arguments: Mapping[str, str] = field(default_factory=dict)
    #: the lab's block device, and the disks of which it is made where it is an array
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
class Measured:
    """What a run of one kind gives beyond what all give. ``numbers`` in seconds, bytes or counts by name: responses where the
    study has them, else evidence. ``histograms``: [nanoseconds, count] by name. ``seconds``: what went on within the run, by
    name one number for each moment in ``at_s`` (None: there is none); empty where the work does not tell. ``facts`` are a
    word by name, for a table of facts."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, list[list[int]]] = field(default_factory=dict)
    seconds: Mapping[str, list[float | None]] = field(default_factory=dict)
    #: what else is stored of the run, by name, in JSON's values
    checks: Mapping[str, object] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    #: the rule by which the work throws the run out, and with it its block
    void: str | None = None


@dataclass(frozen=True, slots=True)
class Launched:
    """What a work has started of the study's choosing, as the user consents to it: labels are not made safe yet, nothing is
    shortened. ``details`` and the ``input`` of the first that has one hold for all ``commands``."""

    commands: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    input: str = ""


class WorkDriver(ABC, Generic[W]):
    """One kind of work. ``verb`` is the probe's job. ``starts_programs``: whole processes, which are rehearsed once so that
    what is loaded from disk is there. ``accountable``: a repetition whose system calls are counted makes sense;
    ``own_file``: it works on a file of its own making, which no knob of the lab's files reaches; ``timed``: false where every
    run is traced, so that its times mean nothing."""

    verb: ClassVar[str]
    work: ClassVar[type[Any]]
    starts_programs: ClassVar[bool] = False
    accountable: ClassVar[bool] = False
    own_file: ClassVar[bool] = False
    timed: ClassVar[bool] = True
    #: the processor time of a run is that of a client, which is evidence; the work is another process's
    of_client: ClassVar[bool] = False
    #: it makes the lab's file system itself, as knobs wish, so that this is not done before it
    makes_filesystem: ClassVar[bool] = False

    #: its clients serve a program of the lab's probe, which calls them
    calls_clients: ClassVar[bool] = False

    @abstractmethod
    def fields(self, work: W, asked: Asked) -> dict[str, object]:
        """The job's own fields (the common ones are the runner's)."""

    @abstractmethod
    def measured(self, work: W, answer: Mapping[str, Any], asked: Asked) -> Measured:
        """The numbers of the probe's answer, what was spun for other responses taken off."""

    @abstractmethod
    def reads_bytes(self, work: W, size: int, files: int) -> int:
        """How many bytes it must get from the device when nothing is cached: the check of a cold run."""

    @abstractmethod
    def summary(self, work: W) -> str:
        """What is done in a run, for the plan in a report (labels not made safe yet)."""

    def clients(self, work: W) -> int:
        """How many clients do its job at once, each by a probe of its own; 0 where the lab's probe does it."""
        return 0

    def folder(self, work: W) -> str:
        """The folder on its clients' hosts that they work in, where they serve; empty: none is named."""
        return ""

    def longest_s(self, work: W) -> float:
        """How long one of them may take."""
        return 0.0

    def spread(self, work: W) -> float:
        """By which share of a run's length they may begin apart."""
        return 0.0

    def server(self, work: W, at: Situation) -> Server | None:
        """The server that the work needs. It is started for each run, in every arm alike: after the lab is mounted and made
        cold, before it is warmed up; and stopped after the run, before the lab is unmounted."""
        return None

    def has_own_data(self, work: W) -> bool:
        """Whether it has data in ``Situation.own``, to be made cold with the rest."""
        return False

    def provide(self, work: W, at: Situation) -> None:
        """Make what the work needs in the lab besides files of its set; untimed, before every run, so it looks first whether
        that is there. No server runs yet. Raises LabError."""

    def begun(self, work: W, at: Situation) -> None:
        """Just after its server is ready: wait for what that goes on doing by itself. Raises LabError."""

    def warm(self, work: W, state: str) -> int:
        """How often the job itself is done, untimed, before each timed one in this cache state; the server runs."""
        return 0

    def settle(self, work: W, at: Situation, answer: Mapping[str, Any]) -> str | None:
        """After each job, timed or not: check what it did, and undo it, so that all runs find the same. The server runs.
        In words what was wrong with the outcome, which is a failure of the run."""
        return None

    def may_read_warm(self, work: W) -> bool:
        """Whether even a warm run may read from the device, because no cache that it has need hold all that it reads."""
        return False

    def leaves_dirty(self, work: W) -> bool:
        """Whether what a run has written is to be written back after it, so that the next one does not pay for it."""
        return not self.starts_programs and self.writes(work)

    def own_bytes(self, work: W, settings: Mapping[str, str]) -> int:
        """What files of the job's own take on a disk under a condition, given as values by knob."""
        return 0

    def writes(self, work: W) -> bool:
        """Whether it changes the files of its set."""
        return True

    def starts_empty(self, work: W) -> bool:
        """Whether the files of its set are not there when a run begins, and only their folders are."""
        return False

    def chooses_files(self, work: W) -> bool:
        """Whether the study says which files its programs work on, which may be none of the lab's."""
        return False

    def scratch(self, work: W) -> bool:
        """Whether it is given an empty folder to write to, ``out`` of its job."""
        return False

    def leaves_other_files(self, work: W) -> bool:
        """Whether files have other data or another length behind it, so that it needs a set of its own."""
        return False

    def on_files(self, work: W) -> bool:
        """Whether it works on the files of its set."""
        return True

    def labs(self, work: W) -> frozenset[str]:
        """The kinds of lab in which it can be done."""
        return frozenset({"directory"}) | DISK_LABS

    def programs(self, work: W) -> Mapping[str, str]:
        """Programs that it starts by itself, with the Debian package of each."""
        return {}

    def optional_programs(self, work: W) -> Mapping[str, str]:
        """Those of them, with the package of each, without which the workload is left out of a study that has others."""
        return {}

    def named_programs(self, work: W) -> tuple[str, ...]:
        """Programs that the study names, as it names them."""
        return ()

    def check_program(self, work: W, path: str) -> None:
        """Raises MissingTool where the folder of programs that the user has named lacks one."""

    def launched(self, work: W) -> Launched:
        """What the study has it start."""
        return Launched()

    def as_root(self, work: W) -> bool:
        """Whether it is done by the probe itself and not under the user who typed the command."""
        return True

    def never_root(self, work: W) -> bool:
        """Whether root has its programs run as the invoking user, or as nobody where root typed the command."""
        return False


def minimal_environment() -> dict[str, str]:
    """What every program of a study finds in its environment."""
    return {"PATH": PATH, "LC_ALL": "C", "HOME": "/"}


def filled(text: str, arguments: Mapping[str, str]) -> str:
    """The text with values in place of placeholders."""
    for placeholder, value in arguments.items():
        text = text.replace(placeholder, value)
    return text


def to_take_off(answer: Mapping[str, Any], stretched: str) -> tuple[float, float]:
    """Seconds of wall and of CPU time that a stretch has put into responses that it was not meant for: half of the treatments
    of a screening design are stretched, and would differ in all that contains the spin."""
    spun = answer.get("spun", {"wall_ns": 0, "cpu_ns": 0})
    by_cpu = is_cpu(stretched)
    in_wall = 0.0 if stretched.partition(".")[0] == "wall" else spun["wall_ns"] / 1e9
    return in_wall, 0.0 if by_cpu else spun["cpu_ns"] / 1e9


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
