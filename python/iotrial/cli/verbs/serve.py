"""``iotrial serve``: the store in a browser of this machine."""

from __future__ import annotations

import json

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell


@click.command("serve", short_help="Show stored trials as pages in a browser.")
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=8137,
    show_default=True,
    help="0: any free one.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="A loopback address; no other is taken.",
)
@click.option("--all-users", is_flag=True, help="Answer every user of this machine, not only you.")
@click.option(
    "--full-speed",
    is_flag=True,
    help="Do not stand back for other work: where nothing is measured on this machine.",
)
@json_option
def command(port: int, host: str, all_users: bool, full_speed: bool, as_json: bool) -> None:
    """Show stored trials as pages on this machine, until interrupted. Nothing can be changed there.

    A running trial is followed live; nothing is analysed while one runs.
    """
    from iotrial.errors import RequestError
    from iotrial.paths import store_path
    from iotrial.serve.address import listening, loopback, url_of

    listener = listening(loopback(host), port)
    from iotrial.serve.app import application
    from iotrial.serve.connection import serve_forever
    from iotrial.serve.quiet import stand_back
    from iotrial.serve.whose import can_tell, trusted

    if not all_users and not can_tell():
        raise RequestError(
            "this kernel does not tell whose a connection is",
            hint="--all-users answers every user of this machine",
        )

    path = store_path().absolute()
    address = url_of(listener)

    def ready() -> None:
        if as_json:
            facts = {"address": address, "port": listener.getsockname()[1], "store": str(path)}
            click.echo(json.dumps({"schema": 1, "serve": facts}))
        else:
            tell(address)
            tell("iotrial: Ctrl-C ends it", err=True)

    app = application(path, aside=not full_speed)
    if not full_speed:
        stand_back()
    serve_forever(listener, app, ready, users=None if all_users else trusted())
