"""The contract of every knob, and the words it is written in.

A knob is how one setting of the system or of the work is read, set, verified and put back. Each run
writes the knob's neutral value first and the wanted one after it, in every arm alike, so that the
cost of turning it is no effect. Knobs act in stages: first what belongs to the host, then the file
system, the files, the mount, the cache, the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from iotrial.errors import KnobError, LabError, RequestError, UnsupportedLevel
from iotrial.knobs.declaration import Declaration
from iotrial.study.model import Setting
from iotrial.study.places import LABS
from iotrial.study.work import Work
from iotrial.units import UnitError, parse_size

if TYPE_CHECKING:
    from iotrial.lab.cgroup import Home
    from iotrial.lab.journal import Entry, Journal
    from iotrial.lab.place import Place
    from iotrial.lab.target import Target


def a_lab(kind: str) -> str:
    """A kind of lab with its article, for messages."""
    return f"an {kind} lab" if kind == "image" else f"a {kind} lab"


@dataclass(frozen=True, slots=True)
class FileSelection:
    """The files of a run: a file set of the place and the indices in it (None: all)."""

    set: str
    indices: tuple[int, ...] | None
    bytes_each: int
    count: int

    @property
    def wire(self) -> list[int] | None:
        """As the probe's protocol has it."""
        return None if self.indices is None else list(self.indices)

    @property
    def bytes(self) -> int:
        """How much data the selection holds."""
        return self.bytes_each * self.count


@dataclass(slots=True)
class WorkDraft:
    """What knobs may change of the work itself, before it becomes a job for the probe."""

    environment: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    #: keys of the workload at other values than the study's
    options: dict[str, str] = field(default_factory=dict)
    #: folders of programs, or programs, that the user has chosen, by name
    programs: dict[str, str] = field(default_factory=dict)
    reader: str = "self"
    cache: str = "as-is"
    view: str | None = None
    memory_limit: str = "none"
    #: bytes of the work's own file and of one record, where a knob sets them
    sizes: dict[str, int] = field(default_factory=dict)
    #: the probe's own control group, while it is in another
    home: Home | None = None
    #: how the work is to make a file system, where it is to
    mkfs: tuple[str, ...] = ()
    process: dict[str, str] = field(default_factory=dict)
    #: processors that the probe may use, as the kernel lists them
    processors: str = ""
    #: what was done to the layout of the files after they had been laid out
    relaid: str = "untouched"
    #: free bytes that the disk was told of
    trimmed_bytes: int = 0
    #: numbers that knobs have found while they prepared the run, by name: evidence of it
    evidence: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Subject:
    """All that a knob may act on in one run."""

    target: Target
    place: Place
    journal: Journal
    files: FileSelection | None
    work: WorkDraft
    boot_id: str = ""
    #: bytes of a guest's memory that its modelled disks are given
    memory_besides: int = 0
    trial: str = ""
    #: places beside that of the run, by the study's name: for what a work keeps elsewhere
    beside: Mapping[str, Place] = field(default_factory=dict)

    @property
    def worker(self) -> Target:
        """The machine on which the work is done: that of the place, or one that reaches it through a network."""
        return self.place.worker


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a setting needs: root, one of some labs, programs (name to Debian package), modules of the kernel (a guest has
    only those that it is given)."""

    root: bool = False
    labs: frozenset[str] = frozenset(LABS)
    tools: Mapping[str, str] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()


class Knob(Declaration, ABC):
    """The code that turns one setting. Subclasses in ``iotrial.lab.knobs`` are found by the registry; what each is stands in
    ``iotrial.knobs``."""

    @abstractmethod
    def parse(self, setting: Setting) -> str:
        """The canonical value of a setting. Raises RequestError or UnsupportedLevel for one that
        can never be."""

    @abstractmethod
    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        """What is possible here, found by asking the kernel; empty where ``open_levels`` says it in words."""

    def requires(self, setting: Setting) -> Requirement:
        """What this setting needs."""
        return Requirement()

    def suits(self, setting: Setting, work: Work, bytes_each: int) -> None:
        """Before anything is changed: raises UnsupportedLevel where the files of this work, of that size each, cannot be
        brought to the setting."""

    def needs(self, setting: Setting, filesystem: str) -> tuple[str, str] | None:
        """A program that the setting needs on this file system, with its Debian package."""
        return None

    @abstractmethod
    def read(self, subject: Subject, setting: Setting) -> str:
        """The present value, canonical."""

    @abstractmethod
    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        """Turn it. For stages FORMAT and MOUNT this declares a wish, which the place carries out for all knobs of
        the stage at once."""

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str | None:
        """The value through which every run goes before its own; None where the stage itself starts from a
        neutral state (unmounted, unformatted, a fresh draft of the work)."""
        return None

    def verify(self, subject: Subject, setting: Setting, value: str) -> None:
        """Read back. Raises KnobError where the value did not take."""
        found = self.read(subject, setting)
        if found != value:
            raise KnobError(self.name, self.where(subject, setting), wrote=value, found=found)

    def restore(self, subject: Subject, setting: Setting, original: str) -> None:
        """Put back and prove it. Raises KnobError."""
        self.write(subject, setting, original)
        self.verify(subject, setting, original)

    def prepare(self, subject: Subject, setting: Setting, values: tuple[str, ...]) -> None:
        """Before the first write of a trial: record in the journal what outlives the conductor."""

    def enter(self, subject: Subject, setting: Setting, value: str) -> None:
        """For stage WORK, after all else has settled: put the probe where this value wants it, and prove it. The cache is
        prepared and the work is done there. Raises KnobError."""

    def leave(self, subject: Subject, setting: Setting) -> None:
        """Take the probe out again, in every arm alike. Raises KnobError."""

    def undo(self, target: Target, entry: Entry) -> Undone:
        """Put back what a journal entry of this knob describes; only knobs that record entries have one."""
        raise NotImplementedError(f"{self.name} records nothing ({entry.target} on {target.name})")

    def where(self, subject: Subject, setting: Setting) -> str:
        """The knob's target in words, for messages."""
        return subject.place.label

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        """Privileged changes outside the lab's own files that ``plan`` must announce, in words."""
        return ()

    def value_option(self, setting: Setting) -> str:
        """The value of this knob's addressing option. Raises RequestError where the study does not
        give it."""
        assert self.option is not None
        for key, value in setting.options:
            if key == self.option:
                return value
        raise RequestError(
            f"knob {self.name}: its {self.option} is missing",
            hint=f'add `{self.option} = "..."` to the factor',
        )


class Undone(IntEnum):
    """What became of one journal entry."""

    RESTORED = 1
    ALREADY = 2
    GONE = 3
    FOREIGN = 4  # stands at a value that is neither ours nor the original: reported, not overwritten


class TakenError(LabError):
    """What a journal entry describes is somebody else's by now, and is left alone; the message says what is there."""


def whole_number(knob: str, value: str, least: int, most: int) -> str:
    """The number as the kernel writes it. Raises UnsupportedLevel for anything but ASCII digits, and out of range."""
    if value.isascii() and value.isdigit() and len(value) <= len(str(most)) and least <= int(value) <= most:
        return str(int(value))
    raise UnsupportedLevel(
        f'{knob}: "{value}" is out of range, or no number in plain digits', hint=f"{least} to {most}"
    )


def size_within(
    knob: str,
    value: str,
    least: int,
    most: int,
    levels: str | None,
    *,
    multiple_of: int = 1,
    power: bool = False,
) -> int:
    """The size in bytes; ``power``: a power of two. Raises UnsupportedLevel, which names ``levels``, for what is no size
    with its unit, and for one that is not among them."""
    try:
        size = parse_size(value)
    except UnitError as error:
        raise UnsupportedLevel(f"knob {knob}: {error.message}", hint=error.hint or levels) from error
    if not least <= size <= most or size % multiple_of or (power and size & (size - 1)):
        raise UnsupportedLevel(f'knob {knob}: "{value}" is not among its sizes', hint=levels)
    return size


def one_of(knob: str, value: str, known: tuple[str, ...]) -> str:
    """The value if it is among the known. Raises UnsupportedLevel that names what there is."""
    if value in known:
        return value
    raise UnsupportedLevel(
        f'knob {knob}: there is no level "{value}"', hint="it has: " + ", ".join(known) if known else None
    )
