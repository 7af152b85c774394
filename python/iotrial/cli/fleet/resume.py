"""``iotrial fleet resume``: go on with a fleet whose coordinator was stopped or killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from iotrial.cli.fleet_run import conducted
from iotrial.cli.options import as_json as json_option
from iotrial.fleet.hosts import KEYS
from iotrial.fleet.order import find_record


@click.command("resume", short_help="Go on with a fleet that was stopped.")
@click.argument("fleet", default="last")
@click.option("--keys", metavar="FOLDER", help="Keys of the client, where they are in another folder now.")
@json_option
def command(fleet: str, keys: str | None, as_json: bool) -> int:
    """Go on with a fleet: FLEET is its id, the beginning of it, or `last`.

    Hosts that measured on meanwhile are asked for what is new; those that were stopped go on with their own trials.
    """
    record = find_record(fleet)
    if keys is not None and KEYS in record.reached:
        record = replace(record, reached={**record.reached, KEYS: str(Path(keys).expanduser().absolute())})
    return conducted(record, as_json=as_json)
