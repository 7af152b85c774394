"""How each kind of work is asked of the probe, and what its answer means: one driver a kind, found by being here."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from iotrial.conduct.works.contract import Asked, Measured, WorkDriver
from iotrial.study.model import Work

__all__ = ["Asked", "Measured", "WorkDriver", "driver", "drivers"]


@cache
def drivers() -> dict[type[Any], WorkDriver[Any]]:
    """All drivers by the class of their work: ``DRIVER`` of every module of this folder that has one."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        entry = getattr(importlib.import_module(f"{__name__}.{module.name}"), "DRIVER", None)
        if isinstance(entry, WorkDriver):
            found[entry.work] = entry
    return found


def driver(work: Work) -> WorkDriver[Any]:
    """The driver of this work."""
    return drivers()[type(work)]
