"""The tables of a study file as they are written: types, limits, and nothing that spans two tables.

What these models accept is well-formed; whether it makes sense together is checked where the frozen values
of ``model`` are built from them. A study may come from anywhere, so every text has a longest length and
every list a largest count, and names and labels hold nothing that could disguise itself on a terminal.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from iotrial import units
from iotrial.study.disks import DiskSpec, parse_disk

MAX_FACTORS = 64
MAX_LEVELS = 256
MAX_WORKLOADS = 64
MAX_CLAIMS = 256
MAX_LABEL = 100
MAX_INTERACTIONS = 256
MAX_PLACES = 16

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_STUDY_NAME = re.compile(rf"({_NAME.pattern}/)?{_NAME.pattern}")
#: part of names in the file system, too
_PLACE = re.compile(r"[a-z][a-z0-9-]*")
_KNOB = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")


class Table(BaseModel):
    """A table of the file: unknown keys and wrong types are errors, nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


@dataclass(frozen=True, slots=True)
class Written:
    """How a value is written in the file, for the reference of a workload kind."""

    what: str
    form: Callable[[Any], str] = str


def _fits(text: str, pattern: re.Pattern[str], what: str, *, longest: int = 64) -> str:
    if len(text) > longest:
        raise ValueError(f"a {what} has at most {longest} characters, found {len(text)}")
    if not pattern.fullmatch(text):
        raise ValueError(f'wanted a {what} (pattern {pattern.pattern}), found "{text}"')
    return text


def _name(text: str) -> str:
    return _fits(printable(text), _NAME, "name")


def _study_name(text: str) -> str:
    return _fits(printable(text), _STUDY_NAME, "study's name, or family/name")


def _place(text: str) -> str:
    return _fits(printable(text), _PLACE, "name of a place", longest=32)


def _knob(text: str) -> str:
    return _fits(printable(text), _KNOB, "knob's name")


def printable(text: str) -> str:
    """The text itself; ValueError where it holds a control, format or unassigned character."""
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
            raise ValueError(f"holds the character U+{ord(character):04X}, which cannot be shown safely")
    return text


def prose(text: str) -> str:
    printable(text.replace("\n", " ").replace("\t", " "))
    return text


def label(text: str) -> str:
    """A label of a level; ValueError where it could not be named on a command line or in a report."""
    if not text:
        raise ValueError('a label cannot be empty; write { label = "none", value = "" }')
    if len(text) > MAX_LABEL:
        raise ValueError(
            f"a label has at most {MAX_LABEL} characters, found {len(text)}; write {{ label, value }}"
        )
    printable(text)
    if text != text.strip():
        raise ValueError("a label cannot begin or end with a blank")
    if "," in text or "+" in text:
        raise ValueError(
            f'a label holds no "," and no "+" (they join labels), found "{text}"; write {{ label, value }}'
        )
    if text.casefold() == "all" or text.startswith("control:"):
        raise ValueError(f'the label "{text}" is reserved')
    return text


def scalar(value: object) -> str:
    """The text of a level's value: text, a whole number, true or false; ValueError otherwise."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if abs(value) >= 2**63:
            raise ValueError("a whole number of a level fits into 64 bits")
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"wanted text, a whole number, true or false, found {shown(value)}")
    if len(value) > 4096:
        raise ValueError(f"a level's value has at most 4096 characters, found {len(value)}")
    return prose(value)


def shown(value: object) -> str:
    """A value of the file as an error message may show it: short, and of known length."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() if abs(value) >= 2**63:
            return "a huge number"
        case str():
            short = value if len(value) <= 40 else f"{value[:37]}..."
            return '"' + "".join(c if c.isprintable() else "?" for c in short) + '"'
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return str(value)


Name = Annotated[str, AfterValidator(_name), Written("name")]
StudyName = Annotated[str, AfterValidator(_study_name), Written("name")]
PlaceName = Annotated[str, AfterValidator(_place), Written("name")]
KnobName = Annotated[str, AfterValidator(_knob), Written("knob")]
Label = Annotated[str, AfterValidator(label), Written("label")]
Line = Annotated[str, AfterValidator(printable), Field(max_length=500), Written("text")]
Prose = Annotated[str, AfterValidator(prose), Field(max_length=8192), Written("text")]
Argument = Annotated[str, AfterValidator(prose), Field(max_length=4096), Written("text")]
Scalar = Annotated[str, BeforeValidator(scalar), Written("text, number, true or false")]
Size = Annotated[int, BeforeValidator(units.parse_size), Written("size", units.format_size)]
Duration = Annotated[float, BeforeValidator(units.parse_duration), Written("duration", units.format_duration)]
BitRate = Annotated[float, BeforeValidator(units.parse_bit_rate), Written("rate", units.format_bit_rate)]
Share = Annotated[float, BeforeValidator(units.parse_fraction), Written("share", units.format_percent)]
Margin = Annotated[float, BeforeValidator(units.parse_margin), Written("margin", units.format_percent)]
Alpha = Annotated[float, BeforeValidator(units.parse_alpha), Written("number")]
Disk = Annotated[DiskSpec | None, BeforeValidator(parse_disk), Written("modelled disk")]
Tables = list[dict[str, Any]]


class StudyFile(Table):
    """The whole document; its tables are read one by one, so that each error knows its place."""

    study: dict[str, Any]
    lab: dict[str, Any] = {}
    budget: dict[str, Any] = {}
    design: dict[str, Any] = {}
    place: Tables = Field([], max_length=MAX_PLACES)
    factor: Tables = Field([], max_length=MAX_FACTORS)
    fixed: Tables = Field([], max_length=MAX_FACTORS)
    workload: Tables = Field([], max_length=MAX_WORKLOADS)
    response: Tables = Field([], max_length=256)
    claim: Tables = Field([], max_length=MAX_CLAIMS)


class StudyTable(Table):
    name: StudyName
    question: Line = Field(min_length=1)
    title: Line = ""
    why: Prose = ""
    margin: Margin = 0.03
    alpha: Alpha = 0.05
    account: bool = True
    wash_in: bool = False


class LabTable(Table):
    kind: Literal["directory", "image", "device", "guest"] | None = None
    filesystem: Name = "ext4"
    size: Size = Field(512 << 20, ge=1 << 20, le=16 << 40)
    mkfs_options: list[Line] = Field([], max_length=64)
    mount_options: list[Line] = Field([], max_length=64)
    disk: Disk = None
    disks: int = Field(1, ge=1, le=16)
    link: dict[str, Any] | None = None


class LinkTable(Table):
    rate: BitRate = Field(1e9, ge=1e6, le=100e9)
    latency: Duration = Field(100e-6, ge=0, le=1)
    card: Literal["virtio", "e1000e"] = "virtio"


class PlaceTable(Table):
    name: PlaceName
    text: Line = ""
    holds: Literal["runs", "log", "files"] = "runs"
    kind: Literal["directory", "image", "device"] | None = None
    size: Size | None = Field(None, ge=1 << 20, le=16 << 40)
    filesystem: Name | None = None
    disk: Disk = None


class BudgetTable(Table):
    time: Duration = Field(300.0, gt=0, le=30 * 86400)
    blocks: int = Field(2000, ge=1, le=1_000_000)


class DesignTable(Table):
    kind: Literal["full", "fractional", "plackett-burman", "definitive-screening"] = "full"
    resolution: Literal[3, 4, 5, 6] | None = None
    fold_over: bool | None = None
    interactions: list[Line] = Field([], max_length=MAX_INTERACTIONS)
    repeats: int | None = Field(None, ge=1, le=100)


class KnobOptions(Table):
    """What addresses a knob beyond its name; each key that is given goes into the setting's options."""

    key: Line | None = None
    variable: Line | None = None
    placeholder: Line | None = None
    option: Line | None = None

    def options(self) -> tuple[tuple[str, str], ...]:
        """The given options, sorted by name."""
        given = {name: getattr(self, name) for name in KnobOptions.model_fields}
        return tuple(sorted((name, value) for name, value in given.items() if value is not None))


class FactorTable(KnobOptions):
    name: Name
    knob: KnobName | None = None
    levels: list[Any] = Field(min_length=1, max_length=MAX_LEVELS)
    reference: Scalar | None = None
    role: Literal["treatment", "condition"] = "treatment"
    plot: Literal["whole", "sub"] = "sub"
    default: list[Scalar] | None = Field(None, min_length=1, max_length=MAX_LEVELS)


class LevelTable(Table):
    label: Label
    value: Scalar | None = None
    set: dict[str, Any] | list[Any] | None = Field(None, min_length=1, max_length=64)


class SettingTable(KnobOptions):
    """A pinned knob (``[[fixed]]``), or one of the settings of a bundle."""

    knob: KnobName
    level: Scalar


class WorkloadTable(Table):
    """The keys that every workload has; the others belong to its kind."""

    name: Name
    kind: str
    default: bool = True
    cache: str | None = None
    only: dict[str, list[Scalar]] = Field({}, max_length=MAX_FACTORS)


class ResponseTable(Table):
    name: Line
    workload: Line | None = None
    primary: bool | None = None
    scale: Literal["log", "difference"] | None = None
    better: Literal["lower", "higher", "none"] | None = None
    unit: Line | None = None
    statistic: str = Field("typical", pattern=r"^(typical|mean|p([5-9]\d)(\.\d{1,2})?)$")
    cap: float | None = Field(None, ge=2, le=1000)


_One = TypeVar("_One")


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _bit_rate(text: str) -> str:
    return units.format_bit_rate(units.parse_bit_rate(text))


OneOf = Annotated[list[_One], BeforeValidator(_several), Field(min_length=1, max_length=8)]


class NeedsTable(Table):
    """What a trial must have been to judge a claim. Each key is one text or a list of those that will do."""

    disk: OneOf[Literal["rotating", "solid-state", "virtual", "simulated"]] | None = None
    devices: OneOf[Literal["separate"]] | None = None
    engine: OneOf[Line] | None = None
    rate: OneOf[Annotated[str, AfterValidator(_bit_rate)]] | None = None
    processor: OneOf[Literal["real"]] | None = None


class ClaimTable(Table):
    source: Line = Field(min_length=1)
    text: Prose = Field(min_length=1)
    level: Scalar
    factor: Line | None = None
    reference: Scalar | None = None
    ratio: float | None = Field(None, gt=0, le=1e9, allow_inf_nan=False)
    value: float | None = Field(None, ge=0, le=1e15, allow_inf_nan=False)
    says: Literal["faster", "slower", "higher", "lower", "same"] | None = None
    workload: Line | None = None
    response: Line | None = None
    condition: dict[str, Scalar] = Field({}, max_length=MAX_FACTORS)
    needs: NeedsTable = NeedsTable()
    cannot: Prose = ""
    note: Prose = ""
