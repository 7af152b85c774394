"""The declaration of a study as frozen values: what varies, what work is done, what is measured.

Pure data. A study names knobs only by name; whether such a knob exists and which levels this
machine has is the lab's to say. Values of levels are kept as the text that the user wrote; the knob
parses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from iotrial.study.disks import DiskSpec
from iotrial.study.places import LAB_DEVICE, LOG_KNOB, Holds, PlaceSpec
from iotrial.study.scales import Better, Says, Scale
from iotrial.study.works import (
    AtimeWork,
    CallsWork,
    ClientsWork,
    CommandWork,
    DatabaseWork,
    FilesWork,
    FioWork,
    MatrixWork,
    MkfsWork,
    PagesWork,
    Pick,
    RandomWork,
    RebuildWork,
    Step,
    StreamWork,
    Work,
)

__all__ = [
    "DEFAULT_CAP",
    "MEAN",
    "TYPICAL",
    "AtimeWork",
    "Better",
    "Budget",
    "CallsWork",
    "Claim",
    "ClientsWork",
    "CommandWork",
    "DatabaseWork",
    "Design",
    "DesignKind",
    "Factor",
    "FilesWork",
    "FioWork",
    "Holds",
    "LabSpec",
    "Level",
    "MatrixWork",
    "MkfsWork",
    "PagesWork",
    "Pick",
    "PlaceSpec",
    "RandomWork",
    "RebuildWork",
    "Response",
    "Role",
    "Says",
    "Scale",
    "Setting",
    "Step",
    "StreamWork",
    "Study",
    "Work",
    "Workload",
]


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


TYPICAL, MEAN = "typical", "mean"
DEFAULT_CAP = 10.0


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
    #: what is compared of an arm's runs: ``typical``, ``mean``, or a quantile such as ``p99``
    statistic: str = TYPICAL
    #: of a mean: a run counts as at most so many times what is typical
    cap: float = DEFAULT_CAP


@dataclass(frozen=True, slots=True)
class Claim:
    """A published number that the study is held against.

    ``ratio`` is response at ``level`` over response at ``reference``; None where the claim is in words only. ``value`` is
    instead the response itself at ``level``, a count say, which is compared exactly; ``says`` is a direction without a
    size. ``condition`` (factor name or
    ``workload`` to label) says under which condition it was published.

    ``needs`` holds what else a trial must have been to judge the claim, the words allowed by fact (``wire.NeedsTable``);
    ``cannot`` says why no trial of this study can judge it.
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
    says: Says | None = None
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cannot: str = ""


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """A network between two guests, of which one has the disks and serves them to the other. ``rate_bits_per_s`` and
    ``latency_s`` hold for each direction; ``card`` is the model of both network cards."""

    rate_bits_per_s: float = 1e9
    latency_s: float = 100e-6
    card: str = "virtio"


@dataclass(frozen=True, slots=True)
class LabSpec:
    """Where runs happen; ``kind`` None means the first lab that can serve. ``disk``: what the disk of an image lab or a guest
    is like; ``disks``, of how many the array consists on which a guest's file system lies, 1: no array; ``link``: the works
    are done on another guest, which reaches the file system over this network."""

    kind: str | None = None
    filesystem: str = "ext4"
    size_bytes: int = 512 << 20
    mkfs_options: tuple[str, ...] = ()
    mount_options: tuple[str, ...] = ()
    disk: DiskSpec | None = None
    disks: int = 1
    link: LinkSpec | None = None


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
    #: a neutral, unmeasured run before each measured one, from the first block on
    wash_in: bool = False
    places: tuple[PlaceSpec, ...] = ()

    @property
    def treatment_factors(self) -> tuple[Factor, ...]:
        """The factors whose effects are asked for."""
        return tuple(f for f in self.factors if f.role is Role.TREATMENT)

    @property
    def condition_factors(self) -> tuple[Factor, ...]:
        """The factors that are crossed with the treatments and reported each."""
        return tuple(f for f in self.factors if f.role is Role.CONDITION)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every setting that some run has: those of all levels, and those that are pinned."""
        return (
            *(s for factor in self.factors for level in factor.levels for s in level.settings),
            *self.fixed,
        )

    @property
    def log(self) -> PlaceSpec | None:
        """The bare device that file systems are given for an external log; None where no setting asks for one."""
        if not any(setting.knob == LOG_KNOB for setting in self.settings):
            return None
        declared = [place for place in self.places if place.holds is Holds.LOG]
        return declared[0] if declared else PlaceSpec("log", holds=Holds.LOG)

    @property
    def places_of_runs(self) -> tuple[PlaceSpec, ...]:
        """The places at which some run of the chosen levels happens, as declared; none where no factor names any."""
        named = {setting.value for setting in self.settings if setting.knob == LAB_DEVICE}
        return tuple(place for place in self.places if place.name in named)

    @property
    def places_beside(self) -> tuple[PlaceSpec, ...]:
        """The places that are there beside that of a run, for what its work keeps elsewhere."""
        return tuple(place for place in self.places if place.holds is Holds.FILES)

    def settings_under(self, levels: Mapping[str, str]) -> dict[str, str]:
        """What a condition pins, by knob; KeyError where one of these levels is none of its factor's."""
        found = {setting.knob: setting.value for setting in self.fixed}
        for name, label in levels.items():
            found |= {setting.knob: setting.value for setting in self.factor(name).level(label).settings}
        return found

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
