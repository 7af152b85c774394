"""The study declaration as frozen values: what varies, which workloads run, what is measured.

Pure data. A study refers to knobs by name only; the lab decides whether a knob exists and which levels this
machine supports. Level values are kept as the text the user wrote; the knob parses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from iotrial.study.neighbour import Neighbour
from iotrial.study.places import LAB_DEVICE, LOG_KNOB, Holds, PlaceSpec
from iotrial.study.scales import Better, Says, Scale
from iotrial.study.schema import (
    MAX_CLAIMS,
    MAX_FACTORS,
    MAX_LEVELS,
    MAX_PLACES,
    MAX_SETTINGS,
    MAX_WORKLOADS,
    Alpha,
    BitRate,
    Disk,
    Duration,
    KnobName,
    Label,
    Line,
    Margin,
    Name,
    Prose,
    Scalar,
    Size,
    StudyName,
    one_of,
)
from iotrial.study.work import ResponseSpec
from iotrial.units import parse_size

if TYPE_CHECKING:
    from iotrial.study.work import Work
else:
    Work = Any  # the stored object names its own kind: see ``codec``


__all__ = [
    "CACHE_STATES",
    "DEFAULT_CAP",
    "DEFAULT_RESOLUTION",
    "MEAN",
    "TYPICAL",
    "Better",
    "Budget",
    "CacheState",
    "Cap",
    "Claim",
    "ClaimedTolerance",
    "ClaimedValue",
    "Design",
    "DesignKind",
    "Factor",
    "Holds",
    "LabSpec",
    "Level",
    "LinkSpec",
    "PlaceSpec",
    "Ratio",
    "Repeats",
    "Resolution",
    "Response",
    "Role",
    "Says",
    "Scale",
    "Setting",
    "Statistic",
    "Study",
    "Workload",
]


class Role(StrEnum):
    """Role of a factor."""

    TREATMENT = "treatment"
    CONDITION = "condition"


class DesignKind(StrEnum):
    """Which combinations of the treatment factors' levels are run."""

    FULL = "full"
    FRACTIONAL = "fractional"
    PLACKETT_BURMAN = "plackett-burman"
    DEFINITIVE = "definitive-screening"
    #: one factor; its levels leave the trial once they cannot be the best (``iotrial best``)
    RACE = "race"
    #: one factor: today's settings, those to be confirmed, and these without one setting each
    CONFIRM = "confirm"

    @property
    def crossed(self) -> bool:
        """Whether every combination of levels is a treatment; the others choose some by their design."""
        return self in (DesignKind.FULL, DesignKind.RACE, DesignKind.CONFIRM)

    @property
    def one_factor(self) -> bool:
        """Whether it takes exactly one treatment factor."""
        return self in (DesignKind.RACE, DesignKind.CONFIRM)


#: what can address a knob in addition to its name
KnobOption = Annotated[str, one_of("key", "variable", "placeholder", "option")]


class Setting(Struct, frozen=True):
    """One knob at one value. ``options`` address the knob (``key`` of a sysctl, ``variable`` ...)."""

    knob: KnobName
    value: Scalar
    options: tuple[tuple[KnobOption, Line], ...] = ()


#: the level of every knob that is its value before the trial, and the label of the levels that change nothing
TODAY, DEFAULT = "today", "default"


def setting_name(knob: str, options: Mapping[str, str]) -> str:
    """Return the name under which a user knows a setting: a sysctl by its key, others by knob and option."""
    if knob in ("sysctl", "guest.sysctl"):
        return options.get("key", knob)
    return " ".join([knob, *options.values()])


class Level(Struct, frozen=True):
    """One value of a factor; several settings make it a bundle."""

    label: Label
    settings: Annotated[tuple[Setting, ...], Meta(min_length=1, max_length=MAX_SETTINGS)]


class Factor(Struct, frozen=True):
    """One factor of a study.

    ``reference`` is a label and always set (the first level if the study names none); only treatment factors
    use it. ``default`` holds the labels that run unless the user selects others. ``whole_plot``: costly to
    change, so it varies between plots of a block, not between runs.
    """

    name: Name
    role: Role
    levels: Annotated[tuple[Level, ...], Meta(min_length=1, max_length=MAX_LEVELS)]
    reference: str
    default: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_LEVELS)]
    line: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None
    whole_plot: bool = False

    def level(self, label: str) -> Level:
        """Return the level with this label. Raises KeyError."""
        for level in self.levels:
            if level.label == label:
                return level
        raise KeyError(label)

    @property
    def others(self) -> tuple[str, ...]:
        """The labels except the reference."""
        return tuple(level.label for level in self.levels if level.label != self.reference)


CACHE_STATES = ("as-is", "cold", "cold-data", "cold-files", "cold-system", "warm")
CacheState = Annotated[str, one_of(*CACHE_STATES)]


class Workload(Struct, frozen=True):
    """The work done in a run.

    ``cache`` names the cache state if no factor varies it. ``only`` restricts the workload to some levels of
    condition factors; ``default`` is false for a workload that runs only on request. ``stands_for`` names the
    workload with the verdicts that this one should have, such as the application of a replay (``report.fidelity``).
    ``neighbour`` works at the same time.
    """

    name: Name
    kind: str
    work: Work
    cache: CacheState | None = None
    only: Annotated[Mapping[Name, tuple[str, ...]], Meta(max_length=MAX_FACTORS)] = {}
    default: bool = True
    stands_for: Name | None = None
    neighbour: Neighbour | None = None

    def responses(self) -> tuple[ResponseSpec, ...]:
        """Return what a run measures: of the work, the default primary response first, then of its neighbour."""
        return (*self.work.responses(), *(self.neighbour.responses() if self.neighbour else ()))


TYPICAL, MEAN = "typical", "mean"
DEFAULT_CAP = 10.0
Statistic = Annotated[str, Meta(pattern=r"^(typical|mean|p([5-9]\d)(\.\d{1,2})?)$")]
Cap = Annotated[float, Meta(ge=2, le=1000)]


class Response(Struct, frozen=True):
    """One number measured in a run of one workload. ``unit`` is ``s``, ``bytes``, ``1`` ..."""

    workload: Name
    name: Line
    unit: Line
    scale: Scale
    better: Better
    primary: bool
    #: whether a known slowdown can be injected into it; false for values that a program reports itself
    stretchable: bool = True
    #: statistic of an arm's runs that is compared: ``typical``, ``mean``, or a quantile such as ``p99``
    statistic: Statistic = TYPICAL
    #: for a mean: a run counts as at most this many times the typical value
    cap: Cap = DEFAULT_CAP


Ratio = Annotated[float, Meta(gt=0, le=1e9)]
ClaimedValue = Annotated[float, Meta(ge=0, le=1e15)]
ClaimedTolerance = Annotated[float, Meta(ge=0, le=1e6)]
#: facts about a trial that a claim may require
Need = Annotated[str, one_of("disk", "devices", "engine", "rate", "processor")]


class Claim(Struct, frozen=True):
    """A published number that the study is compared with.

    ``ratio`` is the response at ``level`` divided by the response at ``reference``; None if the claim is in
    words only. ``value`` is instead the response itself at ``level``, such as a count, which is compared
    exactly; ``says`` is a direction without a size. ``condition`` (factor name or ``workload`` to label) is
    the condition it was published for.

    ``needs`` holds what else a trial must satisfy to judge the claim: the accepted words, by fact
    (``tables.NeedsTable``); ``cannot`` says why no trial of this study can judge it. ``scale``: how the work
    differs in size from the published one, such as "1/128 of the size"; ``tolerance``: how far a ``value``
    may differ and still be the same.
    """

    source: Annotated[Line, Meta(min_length=1)]
    text: Annotated[Prose, Meta(min_length=1)]
    factor: Name
    level: str
    reference: str
    ratio: Ratio | None = None
    workload: Line | None = None
    response: Line | None = None
    condition: Annotated[Mapping[Name, Scalar], Meta(max_length=MAX_FACTORS)] = {}
    note: Prose = ""
    value: ClaimedValue | None = None
    says: Says | None = None
    needs: Mapping[Need, tuple[Line, ...]] = {}
    cannot: Prose = ""
    scale: Line = ""
    tolerance: ClaimedTolerance = 0.0


class LinkSpec(Struct, frozen=True):
    """A network between two guests, one of which has the disks and serves them to the other.

    ``rate_bits_per_s`` and ``latency_s`` apply to each direction; ``card`` is the model of both network
    cards.
    """

    rate_bits_per_s: Annotated[BitRate, Meta(ge=1e6, le=100e9)] = 1e9
    latency_s: Annotated[Duration, Meta(ge=0, le=1)] = 100e-6
    card: Literal["virtio", "e1000e"] = "virtio"


LabKind = Literal["directory", "image", "device", "guest", "in-place"]


class LabSpec(Struct, frozen=True):
    """Where runs happen; ``kind`` None selects the first lab that is available.

    ``disk``: the simulated disk of an image lab or a guest. ``disks``: number of disks in the array that
    holds a guest's file system; 1: no array. ``link``: the work is done on another guest, which reaches the
    file system over this network.
    """

    kind: LabKind | None = None
    filesystem: Name = "ext4"
    size_bytes: Annotated[Size, Meta(ge=1 << 20, le=16 << 40)] = 512 << 20
    mkfs_options: Annotated[tuple[Line, ...], Meta(max_length=64)] = ()
    mount_options: Annotated[tuple[Line, ...], Meta(max_length=64)] = ()
    disk: Disk = None
    disks: Annotated[int, Meta(ge=1, le=16)] = 1
    link: LinkSpec | None = None


class Budget(Struct, frozen=True):
    """Upper limits of a trial. ``blocks`` counts complete blocks of each condition."""

    time_s: Annotated[Duration, Meta(gt=0, le=30 * 86400)] = 300.0
    blocks: Annotated[int, Meta(ge=1, le=1_000_000)] = 2000


DEFAULT_RESOLUTION = 4
MAX_TREATMENT_PAIRS = MAX_FACTORS * (MAX_FACTORS - 1) // 2
Resolution = Annotated[int, Meta(ge=3, le=6)]
Repeats = Annotated[int, Meta(ge=1, le=100)]


class Design(Struct, frozen=True):
    """Which treatments a block holds, and which interactions are of interest.

    ``resolution`` applies to a fractional design; ``fold_over`` adds the mirror image of every row to a
    fractional or Plackett-Burman design. ``interactions`` are pairs of names of treatment factors with
    a primary interaction. ``repeats`` is how often every treatment is run in each plot of a study with
    whole plots.
    """

    kind: DesignKind = DesignKind.FULL
    resolution: Resolution = DEFAULT_RESOLUTION
    fold_over: bool = False
    interactions: Annotated[tuple[tuple[str, str], ...], Meta(max_length=MAX_TREATMENT_PAIRS)] = ()
    repeats: Repeats = 1


DEFAULT_CUT_POINTS = 100
#: runs of each arm that share the cut points, so that arms are compared with the run as the unit: of 12 runs of two arms,
#: 924 divisions into six and six are equally likely if the arms are alike
CUT_RUNS = 6
SHORTEST_SAMPLE_S, LONGEST_SAMPLE_S = 0.01, 60.0
SamplePeriod = Annotated[Duration, Meta(ge=SHORTEST_SAMPLE_S, le=LONGEST_SAMPLE_S)]
CutPoints = Annotated[int, Meta(ge=1, le=100_000)]

#: the names of studies that ``iotrial try``, ``best``, ``live`` and ``ci`` make begin with these
QUICK, BEST, LIVE, BUILDS = OWN = "try/", "best/", "live/", "ci/"


class Study(Struct, frozen=True):
    """A complete study. ``text`` is the TOML it was read from, ``origin`` its file or catalogue name.

    ``account``: count the system calls of its commands and the requests to the lab's device, in repetitions
    that are not timed. ``check``: after the timed runs, cut the power of the lab's disk at ``cut_points``
    drawn points of one more run of each arm, and check which acknowledged writes survived. ``sample_s``: sample
    processors, page cache and the lab's device this often during runs.
    """

    name: StudyName
    title: Line
    question: Line
    why: Prose
    margin: Annotated[Margin, Meta(gt=0, le=1)]
    alpha: Annotated[Alpha, Meta(gt=0, le=0.5)]
    lab: LabSpec
    budget: Budget
    factors: Annotated[tuple[Factor, ...], Meta(min_length=1, max_length=MAX_FACTORS)]
    fixed: Annotated[tuple[Setting, ...], Meta(max_length=MAX_FACTORS)]
    workloads: Annotated[tuple[Workload, ...], Meta(min_length=1, max_length=MAX_WORKLOADS)]
    responses: tuple[Response, ...]
    claims: Annotated[tuple[Claim, ...], Meta(max_length=MAX_CLAIMS)]
    text: str
    origin: str
    trusted: bool = False
    design: Design = Design()
    account: bool = True
    #: run a neutral, unmeasured run before each measured one, from the first block on
    wash_in: bool = False
    check: bool = False
    cut_points: CutPoints = DEFAULT_CUT_POINTS
    sample_s: SamplePeriod | None = None
    places: Annotated[tuple[PlaceSpec, ...], Meta(max_length=MAX_PLACES)] = ()

    @property
    def cut_runs(self) -> int:
        """In how many runs of each arm the power is cut."""
        return min(CUT_RUNS, self.cut_points)

    @property
    def quick(self) -> bool:
        """Whether the study comes from ``iotrial try`` or its kin: one question, typed by this user on the command line."""
        return self.trusted and self.name.startswith(OWN)

    @property
    def in_windows(self) -> bool:
        """Whether its runs are time windows of a service in use (``iotrial live``)."""
        return any(workload.work.in_windows for workload in self.workloads)

    @property
    def treatment_factors(self) -> tuple[Factor, ...]:
        """The factors with estimated effects."""
        return tuple(f for f in self.factors if f.role is Role.TREATMENT)

    @property
    def condition_factors(self) -> tuple[Factor, ...]:
        """The factors that are crossed with the treatments; each of their combinations is reported separately."""
        return tuple(f for f in self.factors if f.role is Role.CONDITION)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every setting that any run uses: those of all levels and the pinned ones."""
        return (
            *(s for factor in self.factors for level in factor.levels for s in level.settings),
            *self.fixed,
        )

    @property
    def file_sizes(self) -> tuple[int, ...]:
        """The sizes of files in bytes that settings give, in place of the workloads' own."""
        values = (setting.value for setting in self.settings if setting.knob == "file.size")
        return tuple(int(value) if value.isdecimal() else parse_size(value) for value in values)

    @property
    def log(self) -> PlaceSpec | None:
        """The bare device for the file systems' external log, or None if no setting uses one."""
        if not any(setting.knob == LOG_KNOB for setting in self.settings):
            return None
        declared = [place for place in self.places if place.holds is Holds.LOG]
        return declared[0] if declared else PlaceSpec("log", holds=Holds.LOG)

    @property
    def places_of_runs(self) -> tuple[PlaceSpec, ...]:
        """The declared places where some run of the chosen levels happens; empty if no factor names a place."""
        named = {setting.value for setting in self.settings if setting.knob == LAB_DEVICE}
        return tuple(place for place in self.places if place.name in named)

    @property
    def extra_places(self) -> tuple[PlaceSpec, ...]:
        """The additional places where a workload keeps other files."""
        return tuple(place for place in self.places if place.holds is Holds.FILES)

    def settings_under(self, levels: Mapping[str, str]) -> dict[str, str]:
        """Return the settings fixed under a condition, by knob: pinned ones and those of its levels.

        Raises KeyError for a label that its factor does not have.
        """
        found = {setting.knob: setting.value for setting in self.fixed}
        for name, label in levels.items():
            found |= {setting.knob: setting.value for setting in self.factor(name).level(label).settings}
        return found

    def factor(self, name: str) -> Factor:
        """Return the factor with this name. Raises KeyError."""
        for factor in self.factors:
            if factor.name == name:
                return factor
        raise KeyError(name)

    def workload(self, name: str) -> Workload:
        """Return the workload with this name. Raises KeyError."""
        for workload in self.workloads:
            if workload.name == name:
                return workload
        raise KeyError(name)
