"""Finds all knobs and all kinds of lab objects. To add one, add it to ``iotrial.knobs`` or ``iotrial.lab.objects``."""

from __future__ import annotations

from functools import cache

import iotrial.lab.knobs
import iotrial.lab.objects
from iotrial.errors import RequestError, UnknownName, unknown
from iotrial.knobs.declaration import declarations, named_classes
from iotrial.knobs.knob import Knob
from iotrial.lab.object import LabObject
from iotrial.study.model import Setting


@cache
def knobs() -> dict[str, Knob]:
    """Return all knobs by name."""
    whole = {name: found for name, found in declarations().items() if isinstance(found, Knob)}
    return dict(sorted({**whole, **named_classes(iotrial.lab.knobs, Knob)}.items()))  # type: ignore[type-abstract]


@cache
def objects() -> dict[str, LabObject]:
    """Return all kinds of lab objects by name."""
    return named_classes(iotrial.lab.objects, LabObject)  # type: ignore[type-abstract]


def knob(name: str, *, where: str = "") -> Knob:
    """Return the knob with this name. Raises UnknownName, suggesting the nearest."""
    try:
        return knobs()[name]
    except KeyError:
        raise UnknownName("knob", name, knobs(), where=where) from None


def check_options(setting: Setting) -> None:
    """Raise RequestError if a setting has an option that its knob does not know."""
    known = knob(setting.knob).option
    for key, _ in setting.options:
        if key != known:
            message, hint = unknown("option", key, [known] if known else [], where=f"knob {setting.knob}")
            raise RequestError(message, hint=hint)
