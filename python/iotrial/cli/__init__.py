"""The command line. Each verb is one file in ``iotrial.cli.verbs``; heavy imports are deferred until a verb
runs.

Data goes to standard output, progress and logs to standard error. Exit status: 0 done (whatever the verdict),
1 the work failed, 2 the request was wrong, 3 the trial is invalid, 4 ``--fail-if`` met, 5 restore incomplete,
128 + signal.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import click

from iotrial import __version__
from iotrial.cli import verbs
from iotrial.cli.groups import COMPLETING, LazyGroup
from iotrial.cli.output import report_error, tell
from iotrial.cli.pending_restore import mention_leftovers, mention_overdue
from iotrial.cli.streams import OutputError, output_failed, set_up
from iotrial.errors import IotrialError
from iotrial.runner.signals import Stopped, end_at_once
from iotrial.terminal import escape_lines

#: the verbs by what one wants, in the order in which a new user meets them: one line of help, and an example for those
#: without one in their own help
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Ask": {
        "try": ("Try settings with your own command or a replay of it, in place.", ""),
        "best": ("Find the best of many settings for a command or a replay.", ""),
        "live": ("Try settings under a service in use.", ""),
        "powercut": ("Cut a service's power: does it keep what it acknowledged?", ""),
        "ack": ("Print a line for powercut, in a client that is a shell script.", ""),
        "ci": ("Compare two builds of a program, for a CI job.", ""),
        "run": ("Run a study on this machine.", "iotrial run mount/atime --time 5m"),
        "plan": ("Show what a run would do and change.", "iotrial plan mount/atime"),
        "record": ("Record the file operations of a command or a process.", ""),
        "resume": ("Resume an interrupted trial.", "iotrial resume last"),
        "continue": ("Measure more blocks of a finished trial.", "iotrial continue last --time 5m"),
        "refine": ("Write a follow-up study for a trial.", "iotrial refine last --out next.toml"),
        "fleet": ("Run trials on the hosts of a Dask cluster: combined verdict.", "iotrial fleet list"),
    },
    "Look": {
        "report": ("Report a stored or packed trial.", "iotrial report last --full"),
        "trials": ("List stored trials, newest last.", "iotrial trials"),
        "compare": ("Compare trials side by side.", "iotrial compare 3 4"),
        "serve": ("Show stored trials in a web browser.", "iotrial serve"),
        "knobs": ("List the settings that can be tried, with today's values.", "iotrial knobs --in /srv"),
        "list": ("List the studies of the catalogue.", "iotrial list"),
        "show": ("Show a study, or what a recorded application did.", "iotrial show mount/atime"),
        "audit": (
            "Check what published or imported measurements can show.",
            "iotrial audit results.json",
        ),
    },
    "Keep": {
        "apply": ("Keep the settings that a trial found better.", "iotrial apply last --dry-run"),
        "keep": ("Keep what apply has set.", "iotrial keep last"),
        "applied": ("Show what is applied, and whether it still holds.", "iotrial applied"),
        "revert": ("Take back what apply has set.", "iotrial revert last"),
        "account": ("Show what was asked on this machine, and what may be kept.", "iotrial account"),
        "mcp": ("Let an agent try settings, within a policy.", "iotrial mcp --policy agents.toml"),
    },
    "Share": {
        "export": ("Export a stored trial to a file.", "iotrial export last mine.iotrial"),
        "import": ("Import a packed trial of another machine.", "iotrial import theirs.iotrial"),
        "meter": ("Add the readings of a power meter to a trial.", "iotrial meter last readings.csv"),
    },
    "Maintain": {
        "doctor": ("Check what this machine can measure, and how precisely.", "iotrial doctor"),
        "restore": ("Undo what a trial that was cut off left behind.", "iotrial restore"),
        "completion": ("Print the script for shell completion.", 'eval "$(iotrial completion bash)"'),
    },
}


class Verbs(LazyGroup):
    """The verbs: modules of ``iotrial.cli.verbs``."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would turn it into an ordinary failure
            raise Stopped(signal.SIGPIPE) from None


@click.group(
    cls=Verbs,
    package=verbs,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="iotrial")
def cli() -> None:
    """Measure whether a storage setting makes a workload faster on this machine, by how much, and how
    certain that is.

    Start with `iotrial try`: it compares settings with your own command, where your files are.

      iotrial try block.read_ahead_kb=128,1024 --cache cold -- grep -r error /var/log
    """


def main() -> None:
    """Run the program; the console entry point."""
    end_at_once()
    set_up()
    try:
        status = _status()
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        # The reader of the pipe is gone. Redirect both streams so that the interpreter does not flush their
        # buffers into the broken pipe again at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        status = 128 + signal.SIGPIPE
    except OutputError as error:  # from flushing the buffers
        report_error(error.code, error.message, error.hint, as_json="--json" in sys.argv[1:])
        status = error.exit_status
    if status == 0 and output_failed():
        status = OutputError.exit_status
    sys.exit(status)


def _status() -> int:
    """Run the command line and return its exit status."""
    as_json = "--json" in sys.argv[1:]
    if COMPLETING in os.environ:
        from iotrial.cli import shells  # only needed for shell completion

        shells.register()
    elif not as_json and "restore" not in sys.argv[1:2]:
        mention_leftovers()
        if not {"apply", "keep", "applied", "revert"} & set(sys.argv[1:2]):
            mention_overdue()
    try:
        status = cli.main(prog_name="iotrial", standalone_mode=False)
    except click.exceptions.Abort:
        return 128 + signal.SIGINT
    except click.exceptions.NoArgsIsHelpError as error:
        tell(error.format_message(), err=True)  # the message is the help text
        return 2
    except click.ClickException as error:
        hint = _where_to_look(error)
        if as_json:
            report_error("bad_request", error.format_message(), hint, as_json=True)
        else:
            # same as error.show(), which would print the user's input without escaping it
            context = getattr(error, "ctx", None)
            if context is not None:
                click.echo(context.get_usage(), err=True)
            click.echo(f"Error: {escape_lines(error.format_message())}", err=True)
            tell(f"hint: {hint}", err=True)
        return 2
    except IotrialError as error:
        report_error(error.code, error.message, error.hint, as_json=as_json)
        return error.exit_status
    except Stopped as stopped:
        return 128 + stopped.number
    return status if isinstance(status, int) else 0


def _where_to_look(error: click.ClickException) -> str:
    """Return a hint that names the help page for the failed command."""
    context = getattr(error, "ctx", None)
    if context is None or context.parent is None:
        return "`iotrial --help` lists the commands"
    return f"`iotrial {context.info_name} --help` shows its options"
