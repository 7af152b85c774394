"""``iotrial fleet scheduler``: run the scheduler that the hosts of a fleet join."""

from __future__ import annotations

import click

from iotrial.cli.fleet_run import keys_of
from iotrial.cli.output import tell
from iotrial.fleet.engine import address_of, serve_scheduler
from iotrial.fleet.keys import STDIN, Part


@click.command("scheduler")
@click.option(
    "--bind", required=True, metavar="ADDRESS", help="Address to listen on, such as tls://192.168.1.10:8786."
)
@click.option(
    "--keys",
    required=True,
    metavar="FOLDER",
    help="Folder with the keys from `iotrial fleet keys`; `-` means standard input, and the program stops when that ends.",
)
def command(bind: str, keys: str) -> None:
    """Run the scheduler of a fleet until interrupted. It answers only peers with a key of the same set."""

    def ready(address: str) -> None:
        tell(address)
        tell("iotrial: Ctrl-C ends it", err=True)

    where = address_of(bind, "--bind")
    serve_scheduler(where, keys_of(keys, Part.SCHEDULER), ready, from_stdin=keys == STDIN)
