"""``iotrial import``: a packed trial of another machine into the store."""

from __future__ import annotations

import json
from pathlib import Path

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell
from iotrial.legible import shown
from iotrial.paths import store_path
from iotrial.store import Store
from iotrial.store.packed import open_packed, read_packed


@click.command("import", short_help="Store a packed trial of another machine.")
@click.argument("file")
@json_option
def command(file: str, as_json: bool) -> None:
    """Store the packed trial in FILE, marked as imported: all of it, or nothing."""
    path = Path(file).expanduser()
    with open_packed(path) as packed, Store.open(store_path()) as store:
        trial = store.unpack(read_packed(packed, shown(path)), source=shown(path.name))
    if as_json:
        facts = {"number": trial.number, "id": trial.header.id, "imported": trial.imported}
        click.echo(json.dumps({"schema": 1, "imported": facts}, indent=1))
    else:
        tell(f"trial {trial.number}, {trial.header.study.name}: {trial.imported}", err=True)
