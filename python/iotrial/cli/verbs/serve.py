"""``iotrial serve``: show the store in a browser on this machine."""

from __future__ import annotations

import secrets
from typing import Annotated

import click
from msgspec import Meta

from iotrial.cli.options import json_option
from iotrial.cli.output import tell
from iotrial.documents import JsonDocument, JsonObject, json_text
from iotrial.errors import MissingTool
from iotrial.paths import store_path


class Served(JsonObject, frozen=True, forbid_unknown_fields=False):
    """Where the pages are."""

    address: str
    port: Annotated[int, Meta(ge=1, le=65535)]
    store: Annotated[str, Meta(description="the file of trials that is shown")]


class Serving(JsonDocument, frozen=True):
    """iotrial serve --json, when it answers"""

    serve: Served


@click.command("serve")
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=8137,
    show_default=True,
    help="Port to listen on; 0: any free port.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Loopback address to listen on.",
)
@click.option("--all-users", is_flag=True, help="Serve every user of this machine: no token in the address.")
@click.option(
    "--full-speed",
    is_flag=True,
    help="Run at normal CPU priority: only where nothing is being measured.",
)
@json_option
def command(port: int, host: str, all_users: bool, full_speed: bool, as_json: bool) -> None:
    """Show stored trials in a web browser on this machine, until interrupted. The pages are read-only.

    A running trial is followed live; nothing is analysed while one runs. The address contains a token: anyone who has
    it can read the store.
    """
    try:
        from iotrial.web.app import application
        from iotrial.web.jobs import give_way
        from iotrial.web.server import bracketed, listen, loopback, serve_forever
    except ModuleNotFoundError as error:
        raise MissingTool(
            f"serve needs the Python package {error.name}", hint="pip install 'iotrial[serve]'"
        ) from error
    host = loopback(host)
    listener = listen(host, port)
    path = store_path().absolute()
    token = None if all_users else secrets.token_urlsafe(16)
    port = listener.getsockname()[1]
    address = f"http://{bracketed(host)}:{port}/" + (f"{token}/" if token else "")
    hosts = ["127.0.0.1", "localhost", "[::1]", bracketed(host)]
    app = application(path, hosts=hosts, token=token, background=not full_speed)
    if not full_speed:
        give_way()
    if as_json:
        click.echo(json_text(Serving(Served(address, port, str(path))), indent=None))
    else:
        tell(address)
        tell("iotrial: Ctrl-C ends it", err=True)
    serve_forever(listener, app)
