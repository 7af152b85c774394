"""Finds every knob of ``iotrial.lab.knobs`` and every object of ``iotrial.lab.objects``: adding one is adding one file
(or one class) there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from types import ModuleType
from typing import TypeVar

import iotrial.lab.knobs
import iotrial.lab.objects
from iotrial.errors import RequestError, UnknownName
from iotrial.lab.knob import Knob
from iotrial.lab.object import LabObject
from iotrial.study.model import Setting

T = TypeVar("T")


@cache
def knobs() -> dict[str, Knob]:
    """All knobs by name."""
    listed = {
        knob.name: knob for module in _modules(iotrial.lab.knobs) for knob in getattr(module, "KNOBS", ())
    }
    return dict(sorted({**_found(iotrial.lab.knobs, Knob), **listed}.items()))  # type: ignore[type-abstract]


@cache
def objects() -> dict[str, LabObject]:
    """All kinds of lab objects by name."""
    return _found(iotrial.lab.objects, LabObject)  # type: ignore[type-abstract]


def _modules(package: ModuleType) -> list[ModuleType]:
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def _found(package: ModuleType, kind: type[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for loaded in _modules(package):
        for _, member in inspect.getmembers(loaded, inspect.isclass):
            named = "name" in vars(member)
            if issubclass(member, kind) and named and member.__module__ == loaded.__name__:
                found[member.name] = member()  # type: ignore[attr-defined]
    return dict(sorted(found.items()))


def knob(name: str, *, where: str = "") -> Knob:
    """The knob of this name. Raises UnknownName with the nearest."""
    try:
        return knobs()[name]
    except KeyError:
        raise UnknownName("knob", name, knobs(), where=where) from None


def check_options(setting: Setting) -> None:
    """Raises RequestError where a setting carries options that its knob does not know."""
    known = knob(setting.knob).option
    for key, _ in setting.options:
        if key != known:
            raise RequestError(
                f'knob {setting.knob}: it has no option "{key}"',
                hint=f"it has: {known}" if known else "it has no options",
            )
