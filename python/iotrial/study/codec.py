"""Convert a study to JSON-compatible objects and back without loss.

The format follows the Structs of ``model``: a Struct becomes an object of its fields, a tuple a list, and the
work of a workload carries the name of its Struct. Increase the number in ``schema`` when a reader of the old
format would misread the new one; fields added with a default need no new number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from iotrial.errors import StudyError
from iotrial.study.checks import check_study
from iotrial.study.model import Study, Workload
from iotrial.study.schema import Problem, ReadFrom, from_table, shown
from iotrial.study.work import stored_work

SCHEMA = 1


def study_to_json(study: Study) -> dict[str, Any]:
    """Return the study as nested dicts, lists, strings and numbers."""
    return {"schema": SCHEMA, "study": msgspec.to_builtins(study)}


def study_from_json(data: object, *, origin: str = "stored study", foreign: bool = False) -> Study:
    """Return the study that ``study_to_json`` wrote.

    Raises StudyError if it has a newer schema or is damaged, or if ``foreign`` (of untrusted origin) and it
    contains something that a study file cannot.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("schema"), int):
        raise StudyError("holds no study", file=origin)
    if data["schema"] > SCHEMA:
        message = f"has schema {data['schema']}, and this iotrial reads up to {SCHEMA}"
        raise StudyError(message, file=origin, hint="it was written by a newer iotrial; update this one")
    read_from = ReadFrom.PACKED if foreign else ReadFrom.STORE
    try:
        study = from_table(Study, data.get("study"), read_from)
        study = replace(study, workloads=tuple(_with_work(one, read_from) for one in study.workloads))
        if foreign:
            check_study(study)
    except (Problem, RecursionError) as error:
        raise StudyError(f"is damaged: {_printed(error)}", file=origin) from error
    return study


def _with_work(workload: Workload, read_from: ReadFrom) -> Workload:
    try:
        return replace(workload, work=stored_work(workload.kind, workload.work, read_from))
    except Problem as problem:
        raise Problem(f"workload {shown(workload.name)}: {problem.message}", *problem.path) from None


def _printed(error: Exception) -> str:
    """Return the error text, truncated and without control characters."""
    return "".join(c if c.isprintable() else "?" for c in str(error))[:400]
