"""``iotrial fleet resume``: resume a fleet after its coordinator was stopped or killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from iotrial.cli.fleet_run import conducted
from iotrial.cli.options import json_option
from iotrial.fleet.hosts import KEYS
from iotrial.fleet.order import find_record


@click.command("resume")
@click.argument("fleet", default="last")
@click.option("--keys", metavar="FOLDER", help="Folder with the client's keys, if they have moved.")
@json_option
def command(fleet: str, keys: str | None, as_json: bool) -> int:
    """Resume a fleet: FLEET is its id, the beginning of its id, or `last`.

    Hosts that went on measuring send their new results; hosts that were stopped resume their own trials.
    """
    record = find_record(fleet)
    if keys is not None and KEYS in record.reached:
        record = replace(record, reached={**record.reached, KEYS: str(Path(keys).expanduser().absolute())})
    return conducted(record, as_json=as_json)
