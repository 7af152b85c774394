"""``iotrial fleet keys``: create the TLS keys with which the parts of a fleet authenticate each other."""

from __future__ import annotations

from pathlib import Path

import click

from iotrial.cli.options import json_option
from iotrial.cli.output import tell
from iotrial.documents import JsonDocument, JsonObject, json_text
from iotrial.fleet.keys import VALID_DAYS, Part, make_keys


class Keys(JsonObject, frozen=True):
    """What was made, and for how long it is good."""

    folder: str
    files: list[str]
    valid_days: int


class Made(JsonDocument, frozen=True):
    """iotrial fleet keys --json"""

    keys: Keys


@click.command("keys")
@click.argument("folder", type=click.Path())
@json_option
def command(folder: str, as_json: bool) -> None:
    """Create the keys of a fleet in FOLDER: an authority's certificate, and one with its key for scheduler, worker, client.

    Existing files are not overwritten. Anyone who holds one of the keys is part of the fleet: protect them like SSH keys.
    """
    path = Path(folder).expanduser()
    made = make_keys(path)
    if as_json:
        click.echo(json_text(Made(Keys(str(path), [one.name for one in made], VALID_DAYS))))
        return
    where = {
        Part.SCHEDULER: "where the scheduler runs",
        Part.WORKER: "every host that measures",
        Part.CLIENT: "where you type `iotrial run --fleet`",
    }
    tell(f"Keys of a new fleet in {path}, valid for {VALID_DAYS} days. Each machine needs three files:")
    for part in Part:
        tell(f"  {where[part]}: ca.pem {part}.pem {part}-key.pem")
