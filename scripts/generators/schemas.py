"""JSON schemas of the printed documents, generated from their Structs. ``make schemas`` writes them to
``schemas/``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from iotrial.cli import best_summary
from iotrial.cli.fleet import list as fleet_list
from iotrial.cli.fleet import run as fleet_run
from iotrial.cli.verbs import (
    account,
    applied,
    apply,
    ci,
    completion,
    doctor,
    export,
    import_,
    keep,
    knobs,
    list_,
    meter,
    plan,
    record,
    refine,
    restore,
    revert,
    run,
    serve,
    show,
    trials,
)
from iotrial.documents import Failure, JsonObject
from iotrial.fleet.report.json_report import FleetReported
from iotrial.powercut.results import Cuts
from iotrial.report.audit.jsonaudit import Audited
from iotrial.report.comparison_json import Compared
from iotrial.report.jsonreport import Report
from iotrial.report.progress import Progress

_WIDTH = 120


def _one_of(*keys: list[str]) -> Meta:
    return Meta(extra_json_schema={"oneOf": [{"required": one} for one in keys]})


#: by schema name, that is, the file name in ``schemas/`` without its suffix
DOCUMENTS: dict[str, Any] = {
    "account": account.Accounted,
    "applied": applied.Applied,
    "apply": apply.Applying,
    "audit": Audited,
    "best": best_summary.Best,
    "ci": ci.Compared,
    "compare": Compared,
    "completion": completion.Completion,
    "doctor": doctor.Examined,
    "error": Failure,
    "export": export.Exported,
    "fleet": fleet_run.FleetRun,
    "fleet-list": fleet_list.Fleets,
    "fleet-report": FleetReported,
    "import": import_.Imported,
    "keep": keep.Kept,
    "knobs": knobs.Knobs,
    "list": list_.Studies,
    "meter": meter.Metered,
    "plan": plan.Planned,
    "powercut": Cuts,
    "record": record.Recorded,
    "refine": refine.Refined,
    "rehearsal": run.Rehearsing,
    "report": Report,
    "restore": restore.Restoring,
    "revert": revert.Reverted,
    "serve": serve.Serving,
    "show": Annotated[show.Shown, _one_of(["study", "shape"], ["workload"], ["trace", "similar"])],
    "standing": Progress,
    "trials": trials.Trials,
}


def schema_text(name: str) -> str:
    """Return the text of the file ``NAME.schema.json``."""
    found = msgspec.json.schema(DOCUMENTS[name])
    parts = found.pop("$defs")
    open_ones = {
        one.__name__ for one in _objects(JsonObject) if not one.__struct_config__.forbid_unknown_fields
    }
    made = {part: _closed(_short(found), part not in open_ones) for part, found in parts.items()}
    main = found.pop("$ref").rpartition("/")[2]
    title, _, description = inspect.cleandoc(parts[main]["description"]).partition("\n\n")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:iotrial:schema:{name}:1"}
    head |= {"title": _line(title)} | ({"description": _line(description)} if description else {})
    body = {key: value for key, value in made.pop(main).items() if key != "description"}
    return _laid_out(head | body | found | ({"$defs": made} if made else {})) + "\n"


def _objects(one: type[JsonObject]) -> Iterator[type[JsonObject]]:
    yield one
    for below in one.__subclasses__():
        yield from _objects(below)


def _closed(part: dict[str, Any], closed: bool) -> dict[str, Any]:
    """Require every field that is not ``UNSET``, also those with a default, and allow no others if
    ``closed``."""
    part.pop("title", None)
    if "description" in part:
        part["description"] = _line(inspect.cleandoc(part["description"]))
    if "properties" in part:
        part["required"] = [
            name
            for name, one in part["properties"].items()
            if one.pop("default", part) is not part or name in part["required"]
        ]
        part |= {"additionalProperties": False} if closed else {}
    return part


def _short(value: Any) -> Any:
    """Shorten a union with null to ``{"type": ["number", "null"]}``."""
    if isinstance(value, list):
        return [_short(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _short(one) for key, one in value.items()}
    if found.pop("nullable", False):  # ``documents.Unbounded``
        found["type"] = [found["type"], "null"]
    either = found.get("anyOf", ())
    if (
        either
        and all("type" in one for one in either)
        and either[-1] == {"type": "null"}
        and len(either) == 2
    ):
        del found["anyOf"]
        found |= either[0] | {"type": [either[0]["type"], "null"]}
    return found


def _line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _laid_out(value: Any, indent: str = "") -> str:
    """Format JSON with one member per line, or several if they fit."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent + line) <= _WIDTH or not isinstance(value, dict | list):
        return line
    inner = indent + "  "
    if isinstance(value, list) and not any(isinstance(one, dict | list) for one in value):
        return f"[\n{_filled([json.dumps(one, ensure_ascii=False) for one in value], inner)}\n{indent}]"
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_laid_out(one, inner)}" for key, one in value.items()]
        return f"{{\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}}}"
    return f"[\n{inner}" + f",\n{inner}".join(_laid_out(one, inner) for one in value) + f"\n{indent}]"


def _filled(words: list[str], indent: str) -> str:
    lines = [indent + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) + 3 > _WIDTH:
            lines.append(indent + word)
        else:
            lines[-1] += f", {word}"
    return ",\n".join(lines)
