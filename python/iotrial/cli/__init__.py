"""The command line. One file a verb in ``iotrial.cli.verbs``; heavy imports wait until a verb runs.

Data goes to standard output, progress and logs to standard error. Exit status: 0 done (whatever the
verdict), 1 the work failed, 2 the request was wrong, 3 the trial is invalid, 4 ``--fail-if`` met, 5
restore incomplete, 128 + signal.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

import click

from iotrial import __version__
from iotrial.cli import verbs
from iotrial.cli.errors import report_error
from iotrial.cli.leftovers import mention_leftovers
from iotrial.cli.output import tell
from iotrial.cli.streams import OutputError, output_failed, set_up
from iotrial.conduct.signals import Stopped, end_at_once
from iotrial.errors import IotrialError
from iotrial.legible import shown_lines

#: in the order in which a new user meets them
ORDER = (
    "list",
    "show",
    "plan",
    "run",
    "resume",
    "continue",
    "report",
    "compare",
    "refine",
    "audit",
    "trials",
    "fleet",
    "serve",
    "export",
    "import",
    "meter",
    "knobs",
    "doctor",
    "restore",
    "completion",
)

#: set where a shell has started this process for its completions (``iotrial.cli.shells``)
COMPLETING = "_IOTRIAL_COMPLETE"


class Verbs(click.Group):
    """Finds its commands in the folder ``verbs``; each module there holds one named ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        import pkgutil

        found = {module.name.rstrip("_") for module in pkgutil.iter_modules(verbs.__path__)}
        return [*(name for name in ORDER if name in found), *sorted(found - set(ORDER))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for name in (cmd_name, cmd_name + "_") if cmd_name.isidentifier() else ():
            try:
                module = importlib.import_module(f"iotrial.cli.verbs.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"iotrial.cli.verbs.{name}":
                    raise
                continue
            command: click.Command = module.command
            if COMPLETING in os.environ:
                from iotrial.cli.suggestions import attach

                attach(command)
            return command
        import difflib

        near = difflib.get_close_matches(cmd_name, self.list_commands(ctx), n=1)
        if near:
            ctx.fail(f'there is no verb "{cmd_name}"; did you mean "{near[0]}"?')
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, but a sentence that is too long for its line is wrapped, not cut."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, verb.get_short_help_str(400)) for name, verb in found if verb and not verb.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # which click would make a plain failure
            raise Stopped(signal.SIGPIPE) from None


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="iotrial")
def cli() -> None:
    """Puts storage tuning on trial: does this setting make this work faster, on this machine, by how much,
    and how sure are we?

    Start with `iotrial run files/permissions`; `iotrial list` shows what else there is.
    """


def main() -> None:
    """Entry point of the program."""
    end_at_once()
    set_up()
    try:
        status = _status()
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        # Whoever read is gone; what is still in the buffers must not be tried again at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        status = 128 + signal.SIGPIPE
    except OutputError as error:  # what was still in the buffers
        report_error(error.code, error.message, error.hint, as_json="--json" in sys.argv[1:])
        status = error.exit_status
    if status == 0 and output_failed():
        status = OutputError.exit_status
    sys.exit(status)


def _status() -> int:
    """Do what the command line asks; its exit status."""
    as_json = "--json" in sys.argv[1:]
    if COMPLETING in os.environ:
        from iotrial.cli import shells

        shells.register()
    elif not as_json and "restore" not in sys.argv[1:2]:
        mention_leftovers()
    try:
        status = cli.main(prog_name="iotrial", standalone_mode=False)
    except click.exceptions.Abort:
        return 128 + signal.SIGINT
    except click.exceptions.NoArgsIsHelpError as error:
        tell(error.format_message(), err=True)  # which is the help
        return 2
    except click.ClickException as error:
        hint = _where_to_look(error)
        if as_json:
            report_error("bad_request", error.format_message(), hint, as_json=True)
        else:
            # as error.show() does, which would print what was typed as it is
            context = getattr(error, "ctx", None)
            if context is not None:
                click.echo(context.get_usage(), err=True)
            click.echo(f"Error: {shown_lines(error.format_message())}", err=True)
            tell(f"hint: {hint}", err=True)
        return 2
    except IotrialError as error:
        report_error(error.code, error.message, error.hint, as_json=as_json)
        return error.exit_status
    except Stopped as stopped:
        return 128 + stopped.number
    return status if isinstance(status, int) else 0


def _where_to_look(error: click.ClickException) -> str:
    """What shows how it should have been said."""
    context = getattr(error, "ctx", None)
    if context is None or context.parent is None:
        return "`iotrial --help` shows the verbs"
    return f"`iotrial {context.info_name} --help` shows what it takes"
