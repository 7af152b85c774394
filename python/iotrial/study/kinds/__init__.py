"""Workload kinds: what work a study can declare. One module each in this folder, found by being there.

A kind says which keys its ``[[workload]]`` table has, builds the frozen work from them (refusing what cannot
work), and names the responses that a run of it gives.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from iotrial.errors import UnknownName
from iotrial.study.kinds.contract import KeyProblem, ResponseSpec, WorkloadKind
from iotrial.study.model import Work

__all__ = ["KeyProblem", "ResponseSpec", "WorkloadKind", "describe", "kind", "kind_of", "kinds"]


@cache
def kinds() -> dict[str, WorkloadKind[Any]]:
    """All kinds by name: ``KIND`` of every module of this folder that has one."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        entry = getattr(importlib.import_module(f"{__name__}.{module.name}"), "KIND", None)
        if isinstance(entry, WorkloadKind):
            found[entry.name] = entry
    return dict(sorted(found.items()))


def kind(name: str) -> WorkloadKind[Any]:
    """The kind of this name; UnknownName where there is none."""
    try:
        return kinds()[name]
    except KeyError:
        raise UnknownName("workload kind", name, kinds()) from None


def kind_of(work: Work) -> WorkloadKind[Any]:
    """The kind that this work is of, whatever a stored study calls it."""
    return next(found for found in kinds().values() if found.work is type(work))


def describe(name: str) -> str:
    """The reference of one kind: keys, operations, responses (``iotrial show --workload KIND``)."""
    from iotrial.study.kinds.reference import reference

    return reference(kind(name))
