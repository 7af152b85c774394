"""The command list is printed without importing the commands, so its text must match their own help exactly."""

from __future__ import annotations

import os
import subprocess
import sys

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


_THREADS = """
import os, sys
import os
import subprocess
import sys

import click
from iotrial.cli import cli
cli.get_command(click.Context(cli), "run")
assert "numpy" in sys.modules
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.parametrize(
    ("given", "threads"),
    [
        (None, "1 None"),
        pytest.param("2", "2 2", marks=pytest.mark.skipif(os.cpu_count() == 1, reason="one CPU")),
    ],
)
def test_linear_algebra_has_no_threads_of_its_own_unless_the_user_asks_and_commands_do_not_inherit_that(
    given: str | None, threads: str
) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if given is not None:
        environment["OPENBLAS_NUM_THREADS"] = given
    found = subprocess.run(
        [sys.executable, "-c", _THREADS], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    assert found.stdout.strip() == threads
