"""``iotrial fleet list``: list the fleets in the store."""

from __future__ import annotations

import click

from iotrial.cli.options import json_option
from iotrial.cli.output import tell, warn
from iotrial.documents import JsonDocument, JsonObject, json_text
from iotrial.fleet.verdict import fleets_of
from iotrial.paths import store_path
from iotrial.report.notation import counted, day_and_time
from iotrial.store.states import TrialState
from iotrial.terminal import escape


class Host(JsonObject, frozen=True):
    """One host, with the number and the state of its trial."""

    host: str
    trial: int
    state: TrialState


class Row(JsonObject, frozen=True):
    """One fleet. ``replaced``: numbers of trials superseded by a newer one of the same host."""

    id: str
    study: str
    started: str
    hosts: list[Host]
    replaced: list[int]


class Fleets(JsonDocument, frozen=True):
    """iotrial fleet list --json

    The fleets of the store, the newest last.
    """

    fleets: list[Row]


@click.command("list")
@json_option
def command(as_json: bool) -> None:
    found, warnings = fleets_of(store_path())
    for warning in warnings:
        warn(warning)
    if as_json:
        rows = [
            Row(
                fleet.id,
                fleet.first.study,
                started=min(one.started for one in fleet.trials),
                hosts=[Host.of(one, host=one.member, trial=one.number) for one in fleet.trials],
                replaced=[one.number for one in fleet.replaced],
            )
            for fleet in found
        ]
        click.echo(json_text(Fleets(rows)))
        return
    if not found:
        tell("No fleets yet.")
    for fleet in found:
        when = day_and_time(min(one.started for one in fleet.trials))
        states = ", ".join(f"{number} {state}" for state, number in fleet.states.items())
        hosts = counted(len(fleet.trials), "host")
        tell(f"{fleet.id[:12]}  {when}  {hosts} ({states})  {escape(fleet.first.study)}")
