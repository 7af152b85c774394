"""``iotrial fleet resume``: resume a fleet after its coordinator was stopped or killed."""

from __future__ import annotations

import click
from msgspec import structs

from iotrial.cli.fleet.run import conducted, scheduler_options
from iotrial.cli.options import json_option
from iotrial.fleet.cluster import checked
from iotrial.fleet.order import Scheduler, find_record


@click.command("resume")
@click.argument("fleet", default="last")
@scheduler_options
@json_option
def command(
    fleet: str,
    scheduler: str | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    as_json: bool,
) -> int:
    """Resume a fleet: FLEET is its id, the beginning of its id, or `last`.

    Hosts return what they have measured, and those that were stopped continue their own trials.
    """
    record = find_record(fleet)
    before = record.scheduler
    named = checked(Scheduler(scheduler or before.address, tls_ca or "", tls_cert or "", tls_key or ""))
    where = named if named.tls_ca else structs.replace(before, address=named.address)
    return conducted(structs.replace(record, scheduler=where), as_json=as_json)
