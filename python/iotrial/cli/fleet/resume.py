"""``iotrial fleet resume``: resume a fleet after its coordinator was stopped or killed."""

from __future__ import annotations

from typing import Any

import click
from msgspec import structs

from iotrial.cli.fleet.run import conducted, scheduler_of, scheduler_options
from iotrial.cli.options import json_option
from iotrial.fleet.order import Scheduler, find_record


@click.command("resume")
@click.argument("fleet", default="last")
@scheduler_options
@json_option
def command(fleet: str, as_json: bool, **values: Any) -> int:
    """Resume a fleet: FLEET is its id, the beginning of its id, or `last`.

    Hosts return what they have measured, and those that were stopped continue their own trials.
    """
    named, record = scheduler_of(values), find_record(fleet)
    before = record.scheduler
    where = Scheduler(named.address or before.address, named.tls or before.tls)
    return conducted(structs.replace(record, scheduler=where), as_json=as_json)
