"""The schemas of the JSON documents, from the Structs that are printed: what ``make schemas`` writes into ``schemas/``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from iotrial.cli import output
from iotrial.cli.fleet import clean, keys
from iotrial.cli.fleet import list as fleet_list
from iotrial.cli.verbs import completion, export, import_, list_, meter, restore, serve, trials
from iotrial.documents import JsonObject

_WIDTH = 120
#: by the name of its file in ``schemas/``
DOCUMENTS: dict[str, type[JsonObject]] = {
    "completion": completion.Completion,
    "error": output.Failure,
    "export": export.Exported,
    "fleet-clean": clean.Cleaned,
    "fleet-keys": keys.Made,
    "fleet-list": fleet_list.Fleets,
    "import": import_.Imported,
    "list": list_.Studies,
    "meter": meter.Metered,
    "restore": restore.Restoring,
    "serve": serve.Serving,
    "trials": trials.Trials,
}


def schema_text(name: str) -> str:
    """The file ``NAME.schema.json``."""
    document = DOCUMENTS[name]
    parts = msgspec.json.schema(document)["$defs"]
    open_ones = {
        one.__name__ for one in _objects(JsonObject) if not one.__struct_config__.forbid_unknown_fields
    }
    made = {part: _closed(_short(found), part not in open_ones) for part, found in parts.items()}
    whole = made.pop(document.__name__)
    title, _, description = inspect.cleandoc(document.__doc__ or "").partition("\n\n")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:iotrial:schema:{name}:1"}
    head |= {"title": _line(title)} | ({"description": _line(description)} if description else {})
    body = {key: value for key, value in whole.items() if key not in ("title", "description")}
    return _laid_out(head | body | ({"$defs": made} if made else {})) + "\n"


def _objects(one: type[JsonObject]) -> Iterator[type[JsonObject]]:
    yield one
    for below in one.__subclasses__():
        yield from _objects(below)


def _closed(part: dict[str, Any], closed: bool) -> dict[str, Any]:
    """What is printed has all fields that are not ``UNSET``, those with a default too, and no others."""
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
    """``{"type": ["number", "null"]}`` for what may be one of two plain types."""
    if isinstance(value, list):
        return [_short(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _short(one) for key, one in value.items()}
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
    """JSON with a part on each line, or several where they have room on it."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent + line) <= _WIDTH or not isinstance(value, dict | list):
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_laid_out(one, inner)}" for key, one in value.items()]
        return f"{{\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}}}"
    return f"[\n{inner}" + f",\n{inner}".join(_laid_out(one, inner) for one in value) + f"\n{indent}]"
