"""``iotrial fleet clean``: remove the files that earlier builds copied to hosts over SSH."""

from __future__ import annotations

from typing import Annotated

import click
from msgspec import Meta

from iotrial.cli.options import json_option
from iotrial.cli.output import tell
from iotrial.documents import Count, JsonDocument, JsonObject, json_text
from iotrial.errors import IotrialError
from iotrial.fleet.ssh import clean_hosts, ssh_ways


class Host(JsonObject, frozen=True):
    """One host."""

    name: str
    removed: Annotated[
        Count | None, Meta(description="how many bundles were there; null where it is not known")
    ] = None
    problem: Annotated[str | None, Meta(description="why nothing could be removed")] = None


class Cleaned(JsonDocument, frozen=True):
    """iotrial fleet clean --json"""

    hosts: list[Host]


@click.command("clean")
@click.option(
    "--hosts", metavar="HOSTS", required=True, help="Host names separated by commas, as for `run --hosts`."
)
@click.option(
    "--ssh-config",
    metavar="FILE",
    envvar="IOTRIAL_SSH_CONFIG",
    help="ssh configuration file instead of your own (default: $IOTRIAL_SSH_CONFIG).",
)
@json_option
def command(hosts: str, ssh_config: str | None, as_json: bool) -> int:
    """Remove files that earlier versions of iotrial copied to hosts by SSH: the folder ~/.cache/iotrial there.

    Hosts now need iotrial installed, and nothing is copied. Their measurements, in their state folders, are kept.
    """
    found = clean_hosts(ssh_ways(hosts, ssh_config))
    failed = {name: one for name, one in found.items() if isinstance(one, IotrialError)}
    if as_json:
        rows = [
            Host(name, problem=one.message) if isinstance(one, IotrialError) else Host(name, one)
            for name, one in found.items()
        ]
        click.echo(json_text(Cleaned(rows)))
    else:
        for name, one in found.items():
            if isinstance(one, IotrialError):
                tell(one.message, err=True)
                if one.hint:
                    tell(f"hint: {one.hint}", err=True)
            else:
                tell(f"host {name}: {'removed' if one else 'nothing to remove'}")
    return 1 if failed else 0
