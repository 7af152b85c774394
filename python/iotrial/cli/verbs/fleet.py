"""``iotrial fleet``: trials on many hosts. Each subcommand is one file in ``iotrial.cli.fleet``, imported
when it runs."""

from __future__ import annotations

import click

from iotrial.cli import fleet
from iotrial.cli.groups import LazyGroup
from iotrial.errors import RequestError

#: one-line help of each subcommand, in the order in which a new user meets them
SECTIONS = {
    "Commands": {
        "run": ("Run a study on every host: one trial per host, one verdict over all.", ""),
        "list": ("List the fleets of the store, newest last.", ""),
        "report": ("Report the combined verdict of a fleet (the newest, if none is named).", ""),
        "resume": ("Resume a fleet that was stopped.", ""),
    },
}
#: subcommands of earlier versions
GONE = ("keys", "scheduler", "worker", "clean")
INSTEAD = "start the cluster with dask-ssh, or as docs/fleet.md shows, then `iotrial fleet run STUDY --scheduler ADDRESS`"


class _Fleet(LazyGroup):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in GONE:
            raise RequestError(
                f"`iotrial fleet {cmd_name}` is gone: a fleet is your own Dask cluster", hint=INSTEAD
            )
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Fleet, package=fleet, sections=SECTIONS, what="part of fleet")
def command() -> None:
    pass
