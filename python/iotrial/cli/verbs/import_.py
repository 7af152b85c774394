"""``iotrial import``: store a packed trial from another machine."""

from __future__ import annotations

from pathlib import Path

import click

from iotrial.cli.options import json_option
from iotrial.cli.output import tell
from iotrial.documents import Count, JsonDocument, JsonObject, json_text
from iotrial.paths import store_path
from iotrial.store import Store
from iotrial.store.packed import open_packed, read_packed
from iotrial.terminal import escape


class Trial(JsonObject, frozen=True):
    """The trial as it was stored; ``imported`` says where it came from."""

    number: Count
    id: str
    imported: str


class Imported(JsonDocument, frozen=True):
    """iotrial import --json"""

    imported: Trial


@click.command("import")
@click.argument("file")
@json_option
def command(file: str, as_json: bool) -> None:
    """Store the packed trial in FILE, marked as imported; all of it or nothing."""
    path = Path(file).expanduser()
    with open_packed(path) as packed, Store.open(store_path()) as store:
        trial = store.unpack(read_packed(packed, escape(path)), source=escape(path.name))
    if as_json:
        click.echo(json_text(Imported(Trial.of(trial, id=trial.header.id))))
    else:
        tell(f"trial {trial.number}, {trial.header.study.name}: {trial.imported}", err=True)
