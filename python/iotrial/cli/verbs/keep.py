"""``iotrial keep``: keep what ``iotrial apply`` has set, so that nothing takes it back any more."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import click
from msgspec import Meta

from iotrial.cli.kept_settings import machine_here, readable, record_for
from iotrial.cli.options import json_option
from iotrial.cli.output import tell, warn
from iotrial.documents import JsonDocument, json_text
from iotrial.errors import RequestError
from iotrial.tune import watchdog
from iotrial.tune.applied import Records
from iotrial.tune.applied import keep as keep_record


class Kept(JsonDocument, frozen=True):
    """iotrial keep --json"""

    trial: str
    settings: Annotated[list[str], Meta(description="what is kept")]


@click.command("keep")
@click.argument("trial", required=False)
@json_option
def command(trial: str | None, as_json: bool) -> None:
    """Keep the settings that `iotrial apply` has set: they are not taken back any more."""
    machine = machine_here()
    records = Records(machine)
    with records.lock():
        every, _ = readable(records)
        pending = [one for one in every if one.state == "pending"]
        if not pending:
            lost = next((one for one in reversed(every) if one.state == "reverted" and one.why), None)
            hint = None if lost is None else f"trial {lost.short} was taken back at {lost.ended}: {lost.why}"
            raise RequestError(
                "nothing waits to be kept", hint=hint or "`iotrial applied` shows what is in force"
            )
        record = record_for(trial, among=pending)
        if record.boot != machine.boot:
            raise RequestError(
                f"trial {record.short}: the machine was started again before it was kept, so it is taken back",
                hint="`iotrial revert`, then `iotrial apply` again",
            )
        kept = keep_record(records, record, partial(watchdog.disarm, machine, record.timer))
    for step in kept.steps:
        if (drift := step.drift(machine)) is not None:
            warn(f"setting changed by something else since `iotrial apply`: {step.target}: {drift}")
    for problem in kept.problems:
        warn(problem)
    if as_json:
        click.echo(json_text(Kept(kept.trial, [f"{e.choice.name}={e.choice.value}" for e in kept.entries])))
        return
    names = ", ".join(f"{entry.choice.name} = {entry.choice.value}" for entry in kept.entries)
    tell(f"Kept: {names}. `iotrial revert {kept.short}` takes it back.")
