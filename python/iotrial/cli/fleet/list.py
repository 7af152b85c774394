"""``iotrial fleet list``: the fleets that the store holds."""

from __future__ import annotations

import json

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell, warn
from iotrial.fleet.verdict import fleets_of
from iotrial.legible import shown
from iotrial.paths import store_path


@click.command("list")
@json_option
def command(as_json: bool) -> None:
    """Fleets of the store, newest last."""
    found, warnings = fleets_of(store_path())
    for warning in warnings:
        warn(warning)
    if as_json:
        rows = [
            {
                "id": fleet.id,
                "study": fleet.first.study,
                "started": min(one.started for one in fleet.trials),
                "hosts": [
                    {"host": one.member, "trial": one.number, "state": str(one.state)} for one in fleet.trials
                ],
                "replaced": [one.number for one in fleet.replaced],
            }
            for fleet in found
        ]
        click.echo(json.dumps({"schema": 1, "fleets": rows}, indent=1))
        return
    if not found:
        tell("No fleets yet.")
    for fleet in found:
        when = min(one.started for one in fleet.trials)[:16].replace("T", " ")
        states = ", ".join(f"{number} {state}" for state, number in fleet.states.items())
        hosts = f"{len(fleet.trials):,} host{'s' * (len(fleet.trials) != 1)}"
        tell(f"{fleet.id[:12]}  {shown(when)}  {hosts} ({states})  {shown(fleet.first.study)}")
