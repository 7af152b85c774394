"""The command list is printed without importing the commands, so its text must match their own help exactly."""

from __future__ import annotations

import click
import pytest

from iotrial.cli import cli
from iotrial.cli.groups import LazyGroup
from iotrial.cli.verbs.fleet import command as fleet

GROUPS = {"iotrial": cli, "fleet": fleet}


@pytest.mark.parametrize("name", GROUPS)
def test_the_list_says_of_each_command_what_it_says_of_itself(name: str) -> None:
    group = GROUPS[name]
    assert isinstance(group, LazyGroup)
    context = click.Context(group)
    listed = dict(group._described(context))
    assert list(listed) == group.list_commands(context)
    for command_name, said in listed.items():
        command = group.get_command(context, command_name)
        assert command is not None
        assert command.get_short_help_str(400) == said
    assert set(group._short_helps) == set(listed), "a name that is no command, or a command without its line"
