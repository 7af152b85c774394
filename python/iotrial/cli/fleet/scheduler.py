"""``iotrial fleet scheduler``: where the hosts of a fleet report."""

from __future__ import annotations

import click

from iotrial.cli.output import tell


@click.command("scheduler", short_help="Run the scheduler at which hosts report.")
@click.option(
    "--bind", required=True, metavar="ADDRESS", help="Where it listens, such as tls://192.168.1.10:8786."
)
@click.option("--keys", required=True, metavar="FOLDER", help="Keys that `iotrial fleet keys` made.")
def command(bind: str, keys: str) -> None:
    """Run the scheduler of a fleet until interrupted. Only who has a key of the same set is answered."""
    from pathlib import Path

    from iotrial.fleet.engine import address_of
    from iotrial.fleet.serving import serve_scheduler

    def ready(address: str) -> None:
        tell(address)
        tell("iotrial: Ctrl-C ends it", err=True)

    serve_scheduler(address_of(bind, "--bind"), Path(keys).expanduser(), ready)
