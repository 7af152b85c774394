"""What every knob declares: its name, what it turns and when, its values, and what they do to the safety of data.

The modules beside this one declare all knobs. ``iotrial.lab.knobs`` holds the code that turns them; a report needs the
declarations alone, on a machine that has no lab.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from functools import cache
from types import MappingProxyType, ModuleType
from typing import ClassVar, TypeVar

import iotrial.knobs
from iotrial.documents import JsonObject
from iotrial.study.model import Setting

T = TypeVar("T")


class Stage(IntEnum):
    """When in a run a knob is turned."""

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
    """What a knob turns, in the words of messages. A work that uses nothing of it cannot show what the knob does."""

    #: any work runs on it
    MACHINE = "this machine"
    FILES = "the files of the lab"
    FILESYSTEM = "the file system of the lab"
    DEVICE = "the device of the lab"


class Safety(StrEnum):
    """How far a setting endangers data, where somebody keeps it."""

    #: costs speed at most
    HARMLESS = "harmless"
    #: costs latency or memory, or makes it more of the data that nobody has synced that a power cut takes
    TRADE_OFF = "trade-off"
    #: data that were synced, or that are on the disk already, may be lost or wrong after a power cut, a crash, or the failure
    #: of a disk
    DATA_AT_RISK = "data at risk"
    #: iotrial does not know
    NOT_JUDGED = "not judged"


class Consequence(JsonObject, frozen=True, rename={"safety": "class", "sentence": "consequence"}):
    """What a setting does to the safety of data, in one sentence without its full stop."""

    safety: Safety
    sentence: str


def harmless(sentence: str) -> Consequence:
    """Costs speed at most."""
    return Consequence(Safety.HARMLESS, sentence)


def trade_off(sentence: str) -> Consequence:
    """Costs latency or memory, or data that nobody has synced."""
    return Consequence(Safety.TRADE_OFF, sentence)


def at_risk(sentence: str) -> Consequence:
    """May cost data."""
    return Consequence(Safety.DATA_AT_RISK, sentence)


def not_judged(sentence: str) -> Consequence:
    """Not known."""
    return Consequence(Safety.NOT_JUDGED, sentence)


class Declaration:
    """What a knob is, without the code that turns it.

    Class attributes: ``name`` (``mount.atime``), ``title`` (one line), ``stage``, ``scope`` (what it turns), ``option`` (the
    key of a study that addresses it, such as ``key`` or ``variable``; None if it needs none),
    ``open_levels`` (words for a range that cannot be listed), ``LEVELS`` (the values, where they are the same everywhere),
    ``rank`` (order within the stage), ``consequence`` (what the setting does to the safety of data).
    """

    name: str
    title: str
    stage: ClassVar[Stage]
    scope: ClassVar[Scope] = Scope.MACHINE
    option: ClassVar[str | None] = None
    #: whether a factor must give that key, or may
    option_needed: ClassVar[bool] = True
    open_levels: str | None = None
    rank: int = 0
    #: for every value that is not in ``consequences``
    consequence: Consequence
    #: by value, where it depends on that; a knob whose values have an address or an argument has its own
    #: ``consequence_of``, and says here by which words it looks them up
    consequences: Mapping[str, Consequence] = MappingProxyType({})

    def consequence_of(self, setting: Setting) -> Consequence:
        """What this value does to the safety of data. Never raises: a stored trial may hold any value."""
        return self.consequences.get(setting.value.strip(), self.consequence)


@cache
def declarations() -> dict[str, Declaration]:
    """All knobs by name: classes of the modules of this package, and rows that a module lists in ``KNOBS``."""
    rows = {row.name: row for module in modules_of(iotrial.knobs) for row in getattr(module, "KNOBS", ())}
    return dict(sorted({**named_classes(iotrial.knobs, Declaration), **rows}.items()))


def consequence_of(setting: Setting) -> Consequence:
    """What a setting does to the safety of data; not judged, where it is of a knob that this version does not have."""
    knob = declarations().get(setting.knob)
    if knob is None:
        return not_judged("this version of iotrial has no such knob")
    return knob.consequence_of(setting)


def modules_of(package: ModuleType) -> list[ModuleType]:
    """All modules of a package, imported."""
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def named_classes(package: ModuleType, kind: type[T]) -> dict[str, T]:
    """An instance of each subclass of ``kind`` in the modules of a package that has a name, by that name."""
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
