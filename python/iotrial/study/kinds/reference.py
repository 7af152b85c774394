"""The reference of a workload kind as text, made from its keys and responses alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from iotrial.study.kinds.contract import ACTIVITY_RESPONSES, WorkloadKind
from iotrial.study.wire import WorkloadTable, Written

_WIDTH = 100
_COMMON = {
    "name": "what reports call it",
    "default": "false: runs only when asked for",
    "cache": "cache state before a run, where no factor varies it: as-is, cold, cold-data, cold-files, "
    "cold-system, warm",
    "only": "levels of condition factors that it runs at, { factor = [labels] }",
}


def reference(kind: WorkloadKind[Any]) -> str:
    """All keys, words and responses of one kind."""
    common = [(key, _written(WorkloadTable.model_fields[key]), text) for key, text in _COMMON.items()]
    keys = [
        (name, _written(field), field.description or "") for name, field in kind.keys.model_fields.items()
    ]
    parts = [f'kind = "{kind.name}"\n', _paragraph(kind.summary), "Keys of every workload:\n", _rows(common)]
    parts += [f'Keys of kind "{kind.name}":\n', _rows(keys)]
    for key, words in kind.vocabulary.items():
        parts += [f"Words of {key}:\n", _rows((word, "", text) for word, text in words.items())]
    parts += [
        "Responses (the first is primary unless the study says otherwise):\n",
        _rows(
            (spec.name, f"{spec.unit}, by {'ratio' if spec.scale == 'log' else 'difference'}", spec.text)
            for spec in kind.documented
        ),
    ]
    parts += [
        "Responses of every workload, where a study names them:\n",
        _rows((spec.name, f"{spec.unit}, by difference", spec.text) for spec in ACTIVITY_RESPONSES),
    ]
    if kind.notes:
        parts.append(_paragraph(kind.notes))
    return "\n".join(parts).rstrip("\n") + "\n"


def _written(field: FieldInfo) -> str:
    """Type and default of a key: ``size = 4 KiB``, ``number, required``."""
    marker = next((entry for entry in field.metadata if isinstance(entry, Written)), None)
    annotation = field.annotation
    if get_origin(annotation) is Literal:
        what = " | ".join(str(choice) for choice in get_args(annotation))
    elif marker is not None:
        what = marker.what
    else:
        what = _plain(annotation)
    if field.is_required():
        return f"{what}, required"
    default = field.get_default(call_default_factory=True)
    if default is None or default == "" or default == [] or default == {}:
        return what
    if isinstance(default, bool):
        return f"{what}, {str(default).lower()}"
    return f"{what}, {marker.form(default) if marker else default}"


def _plain(annotation: object) -> str:
    inside = get_origin(annotation) or annotation
    if inside is bool:
        return "true | false"
    if inside in (int, float):
        return "number"
    if inside is list:
        return "list of text"
    if inside is dict:
        return "table"
    arguments = [part for part in get_args(annotation) if part is not type(None)]
    if len(arguments) == 1:
        marker = next(
            (part for part in getattr(arguments[0], "__metadata__", ()) if isinstance(part, Written)), None
        )
        return marker.what if marker else _plain(arguments[0])
    return "text"


def _rows(rows: Iterable[tuple[str, str, str]]) -> str:
    rows = list(rows)
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    indent = 2 + first + 2 + (second + 2 if second else 0)
    lines = []
    for name, written, text in rows:
        head = f"  {name:<{first}}  " + (f"{written:<{second}}  " if second else "")
        wrapped = textwrap.wrap(text, max(40, _WIDTH - indent), break_on_hyphens=False) or [""]
        lines += [(head + wrapped[0]).rstrip(), *(" " * indent + line for line in wrapped[1:])]
    return "\n".join(lines) + "\n"


def _paragraph(text: str) -> str:
    return textwrap.fill(text, _WIDTH) + "\n"
