"""``iotrial fleet``: trials on many hosts. Each subcommand is one file in ``iotrial.cli.fleet``, imported
when it runs."""

from __future__ import annotations

import click

from iotrial.cli import fleet
from iotrial.cli.groups import LazyGroup

#: one-line help of each subcommand, in the order in which a new user meets them
SHORT_HELPS = {
    "keys": "Make the keys of a fleet.",
    "scheduler": "Run the scheduler that hosts join.",
    "worker": "Have this machine measure for a fleet.",
    "list": "Fleets of the store, newest last.",
    "report": "One verdict over the hosts of a fleet (the newest, if none is named).",
    "resume": "Go on with a fleet that was stopped.",
    "clean": "Remove what earlier builds carried to hosts by SSH.",
}


@click.group(cls=LazyGroup, package=fleet, short_helps=SHORT_HELPS, what="part of fleet")
def command() -> None:
    """Trials on many hosts: keys, workers, and what all hosts say together."""
