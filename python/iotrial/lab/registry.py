"""Finds every knob of ``iotrial.lab.knobs``: adding one is adding one file (or one class) there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache

import iotrial.lab.knobs
from iotrial.errors import RequestError, UnknownName
from iotrial.lab.knob import Knob
from iotrial.study.model import Setting


@cache
def knobs() -> dict[str, Knob]:
    """All knobs by name."""
    found: dict[str, Knob] = {}
    for module in pkgutil.iter_modules(iotrial.lab.knobs.__path__):
        loaded = importlib.import_module(f"iotrial.lab.knobs.{module.name}")
        for _, kind in inspect.getmembers(loaded, inspect.isclass):
            named = "name" in vars(kind)
            if issubclass(kind, Knob) and named and kind.__module__ == loaded.__name__:
                found[kind.name] = kind()
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
