"""``iotrial fleet``: trials on many hosts. One file a part in ``iotrial.cli.fleet``; heavy imports wait until one runs."""

from __future__ import annotations

import importlib
import pkgutil

import click

from iotrial.cli import fleet

#: in the order in which a new user meets them
ORDER = ("keys", "scheduler", "worker", "list", "report", "resume", "clean")


class Parts(click.Group):
    """Finds its commands in the folder ``fleet``; each module there holds one named ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = {module.name.rstrip("_") for module in pkgutil.iter_modules(fleet.__path__)}
        return [*(name for name in ORDER if name in found), *sorted(found - set(ORDER))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        names = {module.name.rstrip("_"): module.name for module in pkgutil.iter_modules(fleet.__path__)}
        command: click.Command = importlib.import_module(f"iotrial.cli.fleet.{names[cmd_name]}").command
        return command


@click.group(cls=Parts)
def command() -> None:
    """Trials on many hosts: keys, workers, and what all hosts say together."""
