"""Click groups with lazily imported commands: each is a module of a package, and listing them imports none."""

from __future__ import annotations

import difflib
import importlib
import os
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import click
from click.shell_completion import CompletionItem

#: set if a shell has started this process for its completions (``iotrial.cli.shells``)
COMPLETING = "_IOTRIAL_COMPLETE"


class LazyGroup(click.Group):
    """A group that finds its commands in the modules of ``package``; each module holds one named ``command``.

    ``sections``: by heading, the one-line help and an example of each command, in the order in which a new user meets them.
    A command that is not in it is imported for its own. ``what`` is the noun used in messages.
    """

    def __init__(
        self,
        *args: Any,
        package: ModuleType,
        sections: Mapping[str, Mapping[str, tuple[str, str]]],
        what: str = "verb",
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self._package, self._sections, self._what = package, sections, what
        listed = [one for section in sections.values() for one in section.items()]
        self._short_helps = {name: text for name, (text, _) in listed}
        self._examples = {name: example for name, (_, example) in listed if example}

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = {module.name.rstrip("_") for module in pkgutil.iter_modules(self._package.__path__)}
        return [
            *(name for name in self._short_helps if name in found),
            *sorted(found - set(self._short_helps)),
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for name in (cmd_name, cmd_name + "_") if cmd_name.isidentifier() else ():
            module_name = f"{self._package.__name__}.{name}"
            if COMPLETING in os.environ:
                from iotrial.cli.suggestions import indexed_command, with_suggestions

                if (indexed := indexed_command(module_name, cmd_name)) is not None:
                    return with_suggestions(indexed)
            try:
                with _one_thread_for_algebra():
                    module = importlib.import_module(module_name)
            except ModuleNotFoundError as error:
                if error.name != module_name:
                    raise
                continue
            command: click.Command = module.command
            command.short_help = self._short_helps.get(cmd_name, command.short_help)
            command.help = command.help or command.short_help
            if cmd_name in self._examples:
                command.epilog = f"Example: {self._examples[cmd_name]}"
            return command
        near = difflib.get_close_matches(cmd_name, self.list_commands(ctx), n=1)
        if near:
            ctx.fail(f'no {self._what} is called "{cmd_name}"; did you mean "{near[0]}"?')
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands as click does, but without importing them; a long help text is wrapped, not cut."""
        described = dict(self._described(ctx))
        width = max(map(len, described))
        for heading, section in self._sections.items():
            with formatter.section(heading):
                named = [(f"{name:<{width}}", described.pop(name)) for name in section if name in described]
                formatter.write_dl(named)
        if described:
            with formatter.section("More"):
                formatter.write_dl(list(described.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Complete command names as click does, but without importing the commands."""
        commands = [
            CompletionItem(name, help=short_help)
            for name, short_help in self._described(ctx)
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def _described(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        for name in self.list_commands(ctx):
            if name in self._short_helps:
                yield name, self._short_helps[name]
            elif (command := self.get_command(ctx, name)) is not None and not command.hidden:
                yield name, command.get_short_help_str(400)


@contextmanager
def _one_thread_for_algebra() -> Iterator[None]:
    """Make OpenBLAS, if numpy is imported inside, compute in the calling thread, unless the environment sets its threads.

    For our small matrices its threads cost more than they save, and after a call they spin for a while on processors that
    the next timed run needs. The variable is removed again: commands on trial must not inherit it.
    """
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]
