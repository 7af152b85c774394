"""The tables of a study file, as Structs: which keys each may have, of which type, and within which limits.

``study.reader`` makes a ``Study`` of them; the documentation of keys is derived from them (``study.reference``).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from iotrial.study.model import (
    DEFAULT_CUT_POINTS,
    TYPICAL,
    Better,
    Cap,
    ClaimedTolerance,
    ClaimedValue,
    CutPoints,
    DesignKind,
    Ratio,
    Repeats,
    Resolution,
    Role,
    SamplePeriod,
    Says,
    Scale,
    Statistic,
)
from iotrial.study.neighbour import Neighbour
from iotrial.study.schema import (
    MAX_CLAIMS,
    MAX_FACTORS,
    MAX_INTERACTIONS,
    MAX_LEVELS,
    MAX_PLACES,
    MAX_WORKLOADS,
    Alpha,
    Form,
    KnobName,
    Label,
    Line,
    Margin,
    Name,
    Prose,
    RateWord,
    Scalar,
    StudyName,
    Words,
    formed,
)

Tables = tuple[dict[str, Any], ...]


class StudyFile(Struct, frozen=True):
    """The whole document. Its tables are read one by one so that each error has its path."""

    study: dict[str, Any]
    lab: dict[str, Any] = {}
    budget: dict[str, Any] = {}
    design: dict[str, Any] = {}
    place: Annotated[Tables, Meta(max_length=MAX_PLACES)] = ()
    factor: Annotated[Tables, Meta(max_length=MAX_FACTORS)] = ()
    fixed: Annotated[Tables, Meta(max_length=MAX_FACTORS)] = ()
    workload: Annotated[Tables, Meta(max_length=MAX_WORKLOADS)] = ()
    response: Annotated[Tables, Meta(max_length=256)] = ()
    claim: Annotated[Tables, Meta(max_length=MAX_CLAIMS)] = ()


class StudyTable(Struct, frozen=True):
    """``[study]``"""

    name: StudyName
    question: Annotated[Line, Meta(min_length=1)]
    title: Line = ""
    why: Prose = ""
    margin: Margin = 0.03
    alpha: Alpha = 0.05
    account: bool = True
    wash_in: bool = False
    check: bool = False
    cut_points: CutPoints = DEFAULT_CUT_POINTS
    sample_s: SamplePeriod | None = None


class KnobTable(Struct, frozen=True, kw_only=True):
    """Keys that address a knob in addition to its name; each key that is given becomes an option of the setting."""

    key: Line | None = None
    variable: Line | None = None
    placeholder: Line | None = None
    option: Line | None = None

    def options(self) -> tuple[tuple[str, str], ...]:
        """Return the given options, sorted by name."""
        values = {name: getattr(self, name) for name in KnobTable.__struct_fields__}
        return tuple(sorted((name, value) for name, value in values.items() if value is not None))


class FactorTable(KnobTable, frozen=True, kw_only=True):
    """``[[factor]]``"""

    name: Name
    knob: KnobName | None = None
    levels: Annotated[tuple[Any, ...], Meta(min_length=1, max_length=MAX_LEVELS)]
    reference: Scalar | None = None
    role: Role = Role.TREATMENT
    plot: Literal["whole", "sub"] = "sub"
    default: Annotated[tuple[Scalar, ...], Meta(min_length=1, max_length=MAX_LEVELS)] | None = None


class LevelTable(Struct, frozen=True):
    """A level written as a table. ``set`` is a table of knobs, or a list as in ``[[fixed]]``."""

    label: Label
    value: Scalar | None = None
    set: Any = None


class SettingTable(KnobTable, frozen=True, kw_only=True):
    """A pinned knob (``[[fixed]]``), or one setting of a bundle."""

    knob: KnobName
    level: Scalar


class WorkloadTable(Struct, frozen=True):
    """Keys common to all workloads; the others belong to its kind."""

    name: Annotated[Name, Meta(description="what reports call it")]
    kind: str
    default: Annotated[bool, Meta(description="false: runs only when named")] = True
    cache: Annotated[
        Line | None,
        Meta(
            description="cache state before a run, where no factor varies it: as-is, cold, cold-data, cold-files, "
            "cold-system, warm"
        ),
    ] = None
    only: Annotated[
        dict[Line, tuple[Scalar, ...]],
        Meta(
            max_length=MAX_FACTORS,
            description="levels of condition factors that it runs at, { factor = [labels] }",
        ),
    ] = {}
    stands_for: Annotated[
        Name | None,
        Meta(
            description="another workload that this one should agree with, as a replay with its application: the "
            "report compares them"
        ),
    ] = None
    neighbour: Annotated[
        Neighbour | None,
        formed(Form("[workload.neighbour] table")),
        Meta(description="a program that works in the lab at the same time, with a response of its own"),
    ] = None


class DesignTable(Struct, frozen=True):
    """``[design]``"""

    kind: DesignKind = DesignKind.FULL
    resolution: Resolution | None = None
    fold_over: bool | None = None
    interactions: Annotated[tuple[Line, ...], Meta(max_length=MAX_INTERACTIONS)] = ()
    repeats: Repeats | None = None


class ResponseTable(Struct, frozen=True):
    """``[[response]]``"""

    name: Line
    workload: Line | None = None
    primary: bool | None = None
    scale: Scale | None = None
    better: Better | None = None
    unit: Line | None = None
    statistic: Statistic = TYPICAL
    cap: Cap | None = None


class NeedsTable(Struct, frozen=True):
    """What a trial must satisfy to judge a claim. Each key is one text, or a list of accepted ones."""

    disk: (
        Annotated[
            tuple[Literal["rotating", "solid-state", "nvme", "virtual", "simulated"], ...],
            Words,
            Meta(min_length=1, max_length=8),
        ]
        | None
    ) = None
    devices: Annotated[tuple[Literal["separate"], ...], Words, Meta(min_length=1, max_length=8)] | None = None
    engine: Annotated[tuple[Line, ...], Words, Meta(min_length=1, max_length=8)] | None = None
    rate: Annotated[tuple[RateWord, ...], Words, Meta(min_length=1, max_length=8)] | None = None
    processor: Annotated[tuple[Literal["real"], ...], Words, Meta(min_length=1, max_length=8)] | None = None


class ClaimTable(Struct, frozen=True, kw_only=True):
    """``[[claim]]``"""

    source: Annotated[Line, Meta(min_length=1)]
    text: Annotated[Prose, Meta(min_length=1)]
    level: Scalar
    factor: Line | None = None
    reference: Scalar | None = None
    ratio: Ratio | None = None
    value: ClaimedValue | None = None
    says: Says | None = None
    workload: Line | None = None
    response: Line | None = None
    condition: Annotated[dict[Line, Scalar], Meta(max_length=MAX_FACTORS)] = {}
    needs: NeedsTable = NeedsTable()
    cannot: Prose = ""
    scale: Line = ""
    tolerance: ClaimedTolerance | None = None
    note: Prose = ""
