"""``iotrial fleet worker``: have this machine measure for a fleet."""

from __future__ import annotations

import click

from iotrial.cli.output import tell


@click.command("worker", short_help="Have this machine measure for a fleet.")
@click.argument("address")
@click.option("--keys", required=True, metavar="FOLDER", help="Keys that `iotrial fleet keys` made.")
@click.option("--name", metavar="NAME", help="The host's name in the fleet (default: the machine's).")
@click.option(
    "--bind",
    metavar="HOST",
    help="Address of this machine to be reached at (default: the one that reaches ADDRESS).",
)
def command(address: str, keys: str, name: str | None, bind: str | None) -> None:
    """Have this machine measure for the fleet whose scheduler is at ADDRESS, until interrupted.

    Whoever holds the client's key of the fleet can have programs run here, as you: start it as the user who may measure.
    """
    from pathlib import Path

    from iotrial.fleet.agent import Agent
    from iotrial.fleet.engine import address_of, host_name
    from iotrial.fleet.serving import serve_worker

    def said(text: str) -> None:
        if text:
            tell(f"iotrial: {text}", err=True)

    agent = Agent(host_name(name))
    serve_worker(address_of(address, "ADDRESS"), Path(keys).expanduser(), agent, bind, said)
