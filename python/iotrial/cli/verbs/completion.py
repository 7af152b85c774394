"""``iotrial completion``: the script by which a shell completes command lines of this program."""

from __future__ import annotations

import json

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.shells import SHELLS, script


@click.command("completion")
@click.argument("shell", type=click.Choice(list(SHELLS)))
@json_option
def command(shell: str, as_json: bool) -> None:
    """Print the script that completes studies, trials, factors, levels and files in bash, zsh or fish.

    \b
    bash: iotrial completion bash > ~/.local/share/bash-completion/completions/iotrial
    zsh:  iotrial completion zsh > ~/.zfunc/_iotrial   (with ~/.zfunc in fpath before compinit)
    fish: iotrial completion fish > ~/.config/fish/completions/iotrial.fish
    """
    if as_json:
        click.echo(json.dumps({"schema": 1, "shell": shell, "script": script(shell)}, indent=1))
    else:
        click.echo(script(shell), nl=False)
