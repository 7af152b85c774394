"""What the program would otherwise find out at each start: the index of the shipped studies (``study.catalogue``), and
the options of each verb for shell completion (``cli.suggestions``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from zlib import crc32

import click

from iotrial.cli import cli
from iotrial.cli.options import OwnCommand
from iotrial.report.safety import worst
from iotrial.study.catalogue import CATALOGUE, look_up, names


def catalogue_index() -> str:
    """Return what is listed of each study, and the checksum of the file that it is from."""
    index = {}
    for name in names():
        study = look_up(name)
        index[name] = {
            "crc32": crc32((CATALOGUE / f"{name}.toml").read_bytes()),
            "title": study.title,
            "question": study.question,
            "time_s": study.budget.time_s,
            "safety": worst(study).value,
        }
    return json.dumps(index, indent=0, ensure_ascii=False) + "\n"


def options_index() -> str:
    """Return the parameters of each command, by its module."""
    return json.dumps(dict(_commands(cli, click.Context(cli))), indent=0) + "\n"


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, object]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, click.Context(command, parent=context))
        else:
            assert command.callback is not None
            params = [_param(param) for param in command.params]
            yield command.callback.__module__, {"own": isinstance(command, OwnCommand), "params": params}


def _param(param: click.Parameter) -> dict[str, object]:
    """Return the arguments of ``click.Option`` or ``click.Argument``."""
    found: dict[str, object] = {"param_decls": [*param.opts, *param.secondary_opts], "nargs": param.nargs}
    if isinstance(param.type, click.Choice):
        found["type"] = [*param.type.choices]
    if isinstance(param, click.Option):
        found["param_decls"] = [*param.opts, param.name]
        found |= {"multiple": param.multiple, "is_flag": param.is_flag, "help": param.help}
        if isinstance(param.flag_value, str):  # its value may be left out
            found["flag_value"] = param.flag_value
    return found
