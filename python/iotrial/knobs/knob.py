"""The interface of every knob, and the types it uses.

A knob reads, sets, verifies and restores one setting of the system or of the work. Each run writes the knob's neutral value
first and then the wanted one, in every arm alike, so that the cost of changing a setting does not look like an effect. Knobs
act in stages: first the host, then the file system, the files, the mount, the cache, the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from iotrial.errors import KnobError, LabError, RequestError, UnsupportedLevel, unknown
from iotrial.knobs.declaration import Declaration
from iotrial.study.model import Setting
from iotrial.study.places import OWN_LABS
from iotrial.study.work import Work
from iotrial.units import UnitError, parse_size

if TYPE_CHECKING:
    from iotrial.lab.cgroup import Groups, Home
    from iotrial.lab.journal import Entry, Journal
    from iotrial.lab.place import Place
    from iotrial.lab.target import Target


def a_lab(kind: str) -> str:
    """Return a kind of lab with its article, for messages."""
    return f"an {kind} lab" if kind[0] in "aeio" else f"a {kind} lab"


@dataclass(frozen=True, slots=True)
class FileSelection:
    """The files of a run: a file set of the place and the indices into it (None: all)."""

    set: str
    indices: tuple[int, ...] | None
    bytes_each: int
    count: int

    @property
    def wire(self) -> list[int] | None:
        """The indices, in the form of the probe's protocol."""
        return None if self.indices is None else list(self.indices)

    @property
    def bytes(self) -> int:
        """Total size of the files."""
        return self.bytes_each * self.count


@dataclass(slots=True)
class WorkDraft:
    """The parts of the work that knobs may change before it is sent to the probe as a job."""

    environment: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    #: keys of the workload that differ from the study
    options: dict[str, str] = field(default_factory=dict)
    #: programs, or folders of programs, that the user has chosen, by name
    programs: dict[str, str] = field(default_factory=dict)
    reader: str = "self"
    cache: str = "as-is"
    view: str | None = None
    memory_limit: str = "none"
    #: bytes of the work's own file and of one record, if a knob sets them
    sizes: dict[str, int] = field(default_factory=dict)
    #: the probe's own control group, while the probe is in another one
    home: Home | None = None
    #: the mkfs command, for a work that makes a file system
    mkfs: tuple[str, ...] = ()
    #: the control groups of the work and its neighbour, if a knob sets one of them
    groups: Groups | None = None
    process: dict[str, str] = field(default_factory=dict)
    #: words before each command of the work, for what only a child of the probe can have
    prefix: tuple[str, ...] = ()
    #: processors that the probe may use, in the kernel's list format
    processors: str = ""
    #: what was done to the layout of the files after they were written
    relaid: str = "untouched"
    #: free bytes reported to the disk by trim
    trimmed_bytes: int = 0
    #: numbers that knobs measured while preparing the run, by name; stored as its evidence
    evidence: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class RunContext:
    """Everything that a knob may act on in one run."""

    target: Target
    place: Place
    journal: Journal
    files: FileSelection | None
    work: WorkDraft
    boot_id: str = ""
    #: bytes of a guest's memory that its simulated disks use
    memory_besides: int = 0
    trial: str = ""
    #: further places, by the study's name: for what a work keeps elsewhere
    extra_places: Mapping[str, Place] = field(default_factory=dict)
    #: files that the work reads, where it uses the user's own in place
    own_files: tuple[str, ...] = ()
    #: returns how a guest's disks are attached, as QEMU shows it; of a field of ``guest.qemu.Attachment``
    attachment: Callable[[str], str] = lambda _about: "unknown"

    @property
    def worker(self) -> Target:
        """The machine that does the work: the place's own, or one that reaches the place through a network."""
        return self.place.worker

    def selection(self, knob: str) -> FileSelection:
        """Return the files of the run. Raises RequestError, naming the knob, if the workload has none."""
        if self.files is None:
            raise RequestError(f"knob {knob}: this workload has no files to act on")
        return self.files


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a setting needs: root, one of several labs, programs (name to Debian package), kernel modules (a guest has only
    those that it is given)."""

    root: bool = False
    labs: frozenset[str] = OWN_LABS
    tools: Mapping[str, str] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()


class Knob(Declaration, ABC):
    """A declaration with the code that applies it. The registry finds subclasses in ``iotrial.knobs``, and in
    ``iotrial.lab.knobs`` those whose declaration is still apart."""

    #: what every setting of the knob needs; ``requires`` is overridden if it depends on the setting
    requirement: Requirement = Requirement()
    #: True if other programs can change the value during a run, and reading it is cheap: it is verified again just before
    #: and just after each run. What is made for the lab alone (its files and file system) and what ends with the work's own
    #: processes is not.
    open_to_others = False

    def parse(self, setting: Setting) -> str:
        """Return the canonical value of a setting. Raises RequestError or UnsupportedLevel if it is never valid.

        A knob without ``LEVELS`` overrides it.
        """
        return one_of(self.name, setting.value, tuple(self.LEVELS))

    def levels(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        """Return the levels possible here; empty if ``open_levels`` describes them in words.

        Overridden where the levels depend on the kernel or the place.
        """
        return tuple(self.LEVELS)

    def requires(self, setting: Setting) -> Requirement:
        """Return what this setting needs."""
        return self.requirement

    def suits(self, setting: Setting, work: Work, bytes_each: int) -> None:
        """Check before any change whether the files of this work, each of this size, can be brought to the setting.

        Raises UnsupportedLevel if not.
        """

    def needs(self, setting: Setting, filesystem: str) -> tuple[str, str] | None:
        """Return a program that the setting needs on this file system, with its Debian package."""
        return None

    @abstractmethod
    def read(self, context: RunContext, setting: Setting) -> str:
        """Return the current value in canonical form."""

    def today(self, context: RunContext, setting: Setting) -> str:
        """Return the value before any change, in the form of a level. ``setting`` is one of its levels."""
        return self.read(context, Setting(setting.knob, "", setting.options))

    def is_today(self, setting: Setting, value: str) -> bool:
        """Return whether a level is this value, which ``today`` has returned. The level may be one that the knob does not
        have."""
        try:
            return self.parse(setting) == value
        except (RequestError, UnsupportedLevel):
            return False

    @abstractmethod
    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        """Set the value. In stages FORMAT and MOUNT this only registers a request; the place applies the requests of all
        knobs of the stage at once."""

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str | None:
        """Return the value that every run sets before its own. None if the stage itself starts from a neutral state
        (unmounted, unformatted, a fresh draft of the work)."""
        return None

    def yields(self, value: str) -> bool:
        """Return whether this value takes effect by setting another knob, which may be set in the same run: it goes first."""
        return False

    def verify(self, context: RunContext, setting: Setting, value: str) -> None:
        """Read the value back. Raises KnobError if it was not applied."""
        found = self.read(context, setting)
        if found != value:
            raise KnobError(self.name, self.where(context, setting), wrote=value, found=found)

    def restore(self, context: RunContext, setting: Setting, original: str) -> None:
        """Restore the original value and verify it. Raises KnobError."""
        self.write(context, setting, original)
        self.verify(context, setting, original)

    def prepare(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        """Record in the journal, before the first write of a trial, what would outlive the conductor."""

    def enter(self, context: RunContext, setting: Setting, value: str) -> None:
        """Move the probe to where this value needs it, and verify it.

        Called in stage WORK, after all other settings. The cache is prepared and the work is done there. Raises KnobError.
        """

    def leave(self, context: RunContext, setting: Setting) -> None:
        """Move the probe back, in every arm alike. Raises KnobError."""

    def undo(self, target: Target, entry: Entry) -> Undone:
        """Undo the change in a journal entry of this knob. Only knobs that record entries implement it."""
        raise NotImplementedError(f"{self.name} records nothing ({entry.target} on {target.name})")

    def where(self, context: RunContext, setting: Setting) -> str:
        """Return what the knob acts on in words, for messages."""
        return context.place.label

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return the privileged changes outside the lab's own files, in words; ``plan`` must announce them."""
        return ()

    def changes_in_place(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return the same where the file system and the device in use are set."""
        return self.changes(setting, values)

    def changes_in_use(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return the same for a service in use: its programs see every change."""
        return self.changes_in_place(setting, values)

    def value_option(self, setting: Setting) -> str:
        """Return the value of this knob's addressing option. Raises RequestError if the study does not set it."""
        assert self.option is not None
        for key, value in setting.options:
            if key == self.option:
                return value
        raise RequestError(
            f"knob {self.name}: its {self.option} is missing",
            hint=f'add `{self.option} = "..."` to the factor',
        )


class Undone(IntEnum):
    """The outcome of undoing one journal entry."""

    RESTORED = 1
    ALREADY = 2
    GONE = 3
    FOREIGN = 4  # the value is neither ours nor the original: reported, not overwritten


class TakenError(LabError):
    """The subject of a journal entry now belongs to another program and is left alone; the message says what is there."""


def whole_number(knob: str, value: str, least: int, most: int) -> str:
    """Return the number as the kernel writes it. Raises UnsupportedLevel if it is out of range or not only ASCII digits."""
    if value.isascii() and value.isdigit() and len(value) <= len(str(most)) and least <= int(value) <= most:
        return str(int(value))
    raise UnsupportedLevel(
        f'{knob}: "{value}" is out of range, or not a plain number', hint=f"{least} to {most}"
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
    """Parse a size in bytes. ``power``: it must be a power of two.

    Raises UnsupportedLevel, with ``levels`` as the hint, if it is not a size with its unit or not allowed.
    """
    try:
        size = parse_size(value)
    except UnitError as error:
        raise UnsupportedLevel(f"knob {knob}: {error.message}", hint=error.hint or levels) from error
    if not least <= size <= most or size % multiple_of or (power and size & (size - 1)):
        raise UnsupportedLevel(f'knob {knob}: "{value}" is not one of its sizes', hint=levels)
    return size


def one_of(knob: str, value: str, known: tuple[str, ...]) -> str:
    """Return the value if it is a known one. Raises UnsupportedLevel listing the known values."""
    if value in known:
        return value
    message, hint = unknown("level", value, known, where=f"knob {knob}")
    raise UnsupportedLevel(message, hint=hint)
