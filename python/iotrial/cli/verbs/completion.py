"""``iotrial completion``: print the completion script of a shell."""

from __future__ import annotations

from typing import Annotated

import click
from msgspec import Meta

from iotrial.cli.options import json_option
from iotrial.cli.output import tell
from iotrial.cli.shells import SHELLS, script
from iotrial.documents import JsonDocument, json_text


class Completion(JsonDocument, frozen=True):
    """iotrial completion SHELL --json"""

    shell: Annotated[str, Meta(extra_json_schema={"enum": list(SHELLS)})]
    script: str


@click.command("completion")
@click.argument("shell", type=click.Choice(list(SHELLS)))
@json_option
def command(shell: str, as_json: bool) -> None:
    """Print the script that completes studies, trials, factors, levels and files.

    bash: put it in ~/.local/share/bash-completion/completions/iotrial; zsh: as _iotrial into a folder of $fpath;
    fish: in ~/.config/fish/completions/iotrial.fish.
    """
    if as_json:
        click.echo(json_text(Completion(shell, script(shell))))
    else:
        tell(script(shell).rstrip("\n"))
