"""``iotrial fleet``: trials on many hosts. Each subcommand is one file in ``iotrial.cli.fleet``, imported
when it runs."""

from __future__ import annotations

import click

from iotrial.cli import fleet
from iotrial.cli.groups import LazyGroup

#: one-line help of each subcommand, in the order in which a new user meets them
SECTIONS = {
    "Commands": {
        "keys": ("Create the keys of a fleet.", ""),
        "scheduler": ("Run the scheduler of a fleet.", ""),
        "worker": ("Run this machine as a host of a fleet.", ""),
        "list": ("List the fleets of the store, newest last.", ""),
        "report": ("Report the combined verdict of a fleet (the newest, if none is named).", ""),
        "resume": ("Resume a fleet that was stopped.", ""),
        "clean": ("Remove files that earlier versions copied to hosts by SSH.", ""),
    },
}


@click.group(cls=LazyGroup, package=fleet, sections=SECTIONS, what="part of fleet")
def command() -> None:
    """Run trials on many hosts: keys, workers, combined verdict."""
