"""The declaration of a knob: its name, what it sets and when, its values, and what they do to the safety of data.

The modules of this package declare all knobs, most with the code that applies them (``Knob``); ``iotrial.lab.knobs`` holds
the rest of that code. A report reads them on a machine that has no lab.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Collection, Mapping
from enum import IntEnum, StrEnum
from functools import cache
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, ClassVar, TypeVar

import iotrial.knobs
from iotrial.documents import JsonObject

if TYPE_CHECKING:
    from iotrial.study.model import Setting

T = TypeVar("T")


class Stage(IntEnum):
    """The point in a run at which a knob is set."""

    MACHINE = -1
    PLACE = 0
    HOST = 1
    FORMAT = 2
    DEVICE = 3
    FILES = 4
    MOUNT = 5
    CACHE = 6
    WORK = 7


class Scope(StrEnum):
    """The object that a knob acts on, worded for messages. A work that uses none of it cannot show an effect of the knob."""

    #: every work runs on it
    MACHINE = "this machine"
    FILES = "the files of the lab"
    FILESYSTEM = "the file system of the lab"
    DEVICE = "the device of the lab"


class Safety(StrEnum):
    """Degree to which a setting endangers data on a system that uses it."""

    #: costs at most speed
    HARMLESS = "harmless"
    #: costs latency or memory, or makes a power cut lose more of the data that nobody has synced
    TRADE_OFF = "trade-off"
    #: data that were synced or are already on the disk may be lost or wrong after a power cut, a crash or a disk failure
    DATA_AT_RISK = "data at risk"
    #: iotrial does not know
    NOT_JUDGED = "not judged"


class Need(StrEnum):
    """What a machine or a run must have for a setting to have any effect, worded as the reason why it had none."""

    SWAP = "this machine has no swap"
    WRITES = "no run wrote anything"
    HUGE_PAGES = "no run got a huge page"
    WRITE_BACK = "no dirty page was written back during a run"


class Consequence(JsonObject, frozen=True, rename={"safety": "class", "sentence": "consequence"}):
    """The effect of a setting on the safety of data, as one sentence without the full stop."""

    safety: Safety
    sentence: str


#: of a setting that costs at most speed
HARMLESS = Consequence(Safety.HARMLESS, "no risk to data")


def trade_off(sentence: str) -> Consequence:
    """Build the consequence of a setting that costs latency or memory, or data that nobody has synced."""
    return Consequence(Safety.TRADE_OFF, sentence)


def at_risk(sentence: str) -> Consequence:
    """Build the consequence of a setting that may cost data."""
    return Consequence(Safety.DATA_AT_RISK, sentence)


def not_judged(sentence: str) -> Consequence:
    """Build the consequence of a setting with unknown safety."""
    return Consequence(Safety.NOT_JUDGED, sentence)


class Declaration:
    """The description of a knob, without the code that applies it.

    Class attributes: ``name`` (``mount.atime``), ``title`` (one line), ``stage``, ``scope`` (what it acts on), ``option``
    (the key in a study that addresses it, such as ``key`` or ``variable``; None if it needs none), ``open_levels`` (text for
    a range that cannot be listed), ``LEVELS`` (the values, if they are the same everywhere), ``rank`` (order within the
    stage), ``consequence`` (what the setting does to the safety of data), ``candidates`` (values that are worth a try on a
    machine in use, for ``iotrial best all``).
    """

    name: str
    title: str
    stage: ClassVar[Stage]
    scope: ClassVar[Scope] = Scope.MACHINE
    option: ClassVar[str | None] = None
    #: True if a factor must set that key, False if it may
    option_needed: ClassVar[bool] = True
    open_levels: str | None = None
    #: the kernel lists the values when they are set: any word is accepted before
    listed_by_kernel: ClassVar[bool] = False
    LEVELS: Collection[str] = ()
    rank: int = 0
    candidates: tuple[str, ...] = ()
    #: for every value that is not in ``consequences``
    consequence: Consequence
    #: by value, if it depends on the value. A knob with an address or argument in its values overrides
    #: ``consequence_of``, and the keys here are those that it looks up.
    consequences: Mapping[str, Consequence] = MappingProxyType({})

    def consequence_of(self, setting: Setting) -> Consequence:
        """Return what this value does to the safety of data. Never raises: a stored trial may hold any value."""
        return self.consequences.get(setting.value.strip(), self.consequence)

    def default_of(self, setting: Setting) -> str | None:
        """Return the kernel's default of what is set; None if it depends on the machine, or is not known."""
        return None

    def period_s(self, setting: Setting) -> float | None:
        """Return after how many seconds this value first acts; None if it acts at once, or its period is not known."""
        return None

    def need_of(self, setting: Setting) -> Need | None:
        """Return what this setting needs to have an effect; None for nothing in particular."""
        return None


@cache
def declarations() -> dict[str, Declaration]:
    """Return all knobs by name: classes in the modules of this package, and rows that a module lists in ``KNOBS``."""
    rows = {row.name: row for module in modules_of(iotrial.knobs) for row in getattr(module, "KNOBS", ())}
    return dict(sorted({**named_classes(iotrial.knobs, Declaration), **rows}.items()))


def consequence_of(setting: Setting) -> Consequence:
    """Return what a setting does to the safety of data; not judged if this version does not have the knob."""
    knob = declarations().get(setting.knob)
    if knob is None:
        return not_judged("this version of iotrial has no such knob")
    return knob.consequence_of(setting)


def modules_of(package: ModuleType) -> list[ModuleType]:
    """Import and return all modules of a package."""
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def named_classes(package: ModuleType, kind: type[T]) -> dict[str, T]:
    """Instantiate each subclass of ``kind`` that has a name, in the modules of a package; by name."""
    found: dict[str, T] = {}
    for module in modules_of(package):
        for _, member in inspect.getmembers(module, inspect.isclass):
            if (
                issubclass(member, kind)
                and member.__module__ == module.__name__
                and isinstance(getattr(member, "name", None), str)
            ):
                found[member.name] = member()  # type: ignore[attr-defined]
    return dict(sorted(found.items()))
