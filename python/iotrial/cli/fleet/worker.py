"""``iotrial fleet worker``: run this machine as a worker of a fleet."""

from __future__ import annotations

import click

from iotrial.cli.fleet_run import keys_of
from iotrial.cli.output import tell
from iotrial.fleet.agent import Agent
from iotrial.fleet.engine import Place, address_of, greet_standard_output, host_name, serve_worker
from iotrial.fleet.keys import STDIN, Part


@click.command("worker")
@click.argument("address")
@click.option(
    "--keys",
    required=True,
    metavar="FOLDER",
    help="Folder with the keys from `iotrial fleet keys`; `-` reads them from standard input, and closing it "
    "stops the program.",
)
@click.option("--name", metavar="NAME", help="The host's name in the fleet (default: the machine's).")
@click.option(
    "--bind",
    metavar="HOST[:PORT]",
    help="Address of this machine to listen on (default: the one that reaches ADDRESS, any free port).",
)
@click.option(
    "--contact",
    metavar="ADDRESS",
    help="Address where the scheduler reaches this worker, if different: the other end of a tunnel.",
)
def command(address: str, keys: str, name: str | None, bind: str | None, contact: str | None) -> None:
    """Run this machine as a host of the fleet with the scheduler at ADDRESS, until interrupted.

    Anyone who holds a key of the fleet can run programs here, as you: start it as the user who may measure.
    """

    def report(text: str) -> None:
        if text:
            tell(f"iotrial: {text}", err=True)

    agent = Agent(host_name(name))
    place = Place(
        address_of(address, "ADDRESS"), bind, None if contact is None else address_of(contact, "--contact")
    )
    if keys == STDIN:
        greet_standard_output()
    serve_worker(place, keys_of(keys, Part.WORKER), agent, report, from_stdin=keys == STDIN)
