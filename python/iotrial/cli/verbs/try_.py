"""``iotrial try``: put settings on trial with a command of the user's, without a study file."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from iotrial.cli.finish import Outputs, refuse_missing_folder, write_report
from iotrial.cli.options import AFTER, GroupedCommand, in_group
from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell
from iotrial.cli.planned_changes import intent_lines
from iotrial.cli.run_request import narrowed, quantity_of, request_of, resolve_study
from iotrial.cli.trial_run import run_trial
from iotrial.errors import RequestError
from iotrial.runner.planning import default_folder
from iotrial.runner.quick_study import Printed, Wish, study_text
from iotrial.study.reader import read_study
from iotrial.units import parse_duration, parse_margin

ORIGIN = "the command line"
LEAST_IMAGE = 512 << 20

compared = in_group("What is compared")
command_group = in_group("The command")
where = in_group("Where it runs")
sure = in_group("How long, how sure")


class TryCommand(GroupedCommand):
    """A command that keeps what stands after ``--`` apart: there begins the user's own command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[AFTER] = args[:at], tuple(args[at + 1 :])
        try:
            return super().parse_args(ctx, list(_parameters_apart(args)))
        except click.NoSuchOption as error:
            first = next((place for place, word in enumerate(args) if _begins_command(word)), None)
            if (
                AFTER in ctx.meta
                or first is None
                or not any(word.startswith(error.option_name) for word in args[first:])
            ):
                raise
            raise RequestError(
                "no command given: it comes after two dashes",
                hint=f"iotrial try {shlex.join([*args[:first], '--', *args[first:]])}",
            ) from error

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


def _begins_command(word: str) -> bool:
    """Return whether a word of a command line without ``--`` looks like a program: a name that is in the PATH."""
    return "=" not in word and not word.startswith("-") and shutil.which(word) is not None


def _parameters_apart(args: list[str]) -> Iterator[str]:
    """Yield the arguments, with NAME=LEVEL,LEVEL after ``-L`` as two words: it is written like a setting."""
    before = ""
    for word in args:
        name, equals, levels = word.partition("=")
        if before in ("-L", "--parameter-list") and name and equals:
            yield from (name, levels)
        else:
            yield word
        before = word


@click.command("try", cls=TryCommand, short_help="Try settings with your own command, in place.")
@click.argument("settings", nargs=-1, metavar="[KNOB=LEVEL,LEVEL]...")
@compared(
    "-L",
    "--parameter-list",
    "parameters",
    nargs=2,
    multiple=True,
    metavar="NAME LEVEL,LEVEL",
    help="Put each of these in place of {NAME} in the command.",
)
@compared(
    "--command",
    "commands",
    multiple=True,
    metavar="LINE",
    help="Compare the command with this one (a line for the shell; may be repeated).",
)
@command_group("--prepare", metavar="LINE", help="Run this line by sh before each run, untimed.")
@command_group("--cleanup", metavar="LINE", help="Run this line by sh after each run, untimed.")
@command_group(
    "--shell",
    metavar="SHELL",
    help="Run the command by this shell. A command of one word with blanks in it is run by sh.",
)
@command_group(
    "--response",
    "responses",
    multiple=True,
    metavar="NAME=regex:...|json:...",
    help="Judge by a number that the command prints: a regular expression with one group, or a path in JSON.",
)
@command_group(
    "--unit", "units", multiple=True, metavar="NAME=UNIT", help="Unit of a response, such as 1/s or ms."
)
@command_group(
    "--better", "better", multiple=True, metavar="NAME=higher|lower", help="Which way a response is better."
)
@command_group(
    "--expect-exit",
    type=click.IntRange(0, 255),
    default=0,
    metavar="N",
    help="Exit status that means success (0).",
)
@where(
    "--in",
    "on",
    metavar="FOLDER",
    help="Work in this folder, and set what holds it: its mount, its file system, its disk (default: the current one).",
)
@where(
    "--copy-from",
    metavar="FOLDER",
    help="Work on a copy of this folder, in a lab on an image: for settings that a file system in use cannot have. "
    "The command is started in the copy, and finds it as {dir}.",
)
@where("--size", metavar="SIZE", help="Size of that image (default: twice the data, at least 512 MiB).")
@where(
    "--cache",
    type=click.Choice(["as-is", "cold", "cold-data", "cold-system", "warm"]),
    default="as-is",
    help="State of the page cache before each run. cold: the files that the command reads are evicted; "
    "cold-system: all caches of the machine are dropped.",
)
@where("--yes", is_flag=True, help="Change the settings that are listed, without asking.")
@where("--plan", is_flag=True, help="Only show what would be run and changed.")
@sure("--time", metavar="DURATION", default="1 min", help="At most this long (1 min).")
@sure("--margin", metavar="PERCENT", default="5 %", help="Smallest effect that matters (5 %).")
@sure(
    "--alpha",
    type=click.FloatRange(0, 0.5, min_open=True),
    metavar="LEVEL",
    help="Error level, such as 0.05.",
)
@sure("--blocks", type=click.IntRange(1), metavar="N", help="At most this many blocks.")
@sure("--seed", metavar="N", help="A number, or the 32 digits of an earlier trial.")
@sure("--precise", is_flag=True, help="Measure the size of a large effect too.")
@sure("--no-stop", is_flag=True, help="Use all the time, even if everything is decided.")
@sure("--no-controls", is_flag=True, help="Run without control arms; the verdict says so.")
@click.option("--save", metavar="FILE", help="Write the study to this file (TOML), for `iotrial run`.")
@click.option("--html", metavar="FILE", help="Write an HTML report to this file.")
@click.option("--export-markdown", "markdown", metavar="FILE", help="Write a Markdown report.")
@click.option("--export-json", "json_file", metavar="FILE", help="Write the JSON report to this file.")
@click.option(
    "--fail-if",
    type=click.Choice(["slower", "inconclusive"]),
    multiple=True,
    help="Exit with status 4 if a setting is slower (also probably slower), or undecided.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, /, settings: tuple[str, ...], as_json: bool, **values: Any) -> int:
    """Does a setting make my command faster, on my files?

    The settings act on what holds the folder, and are put back. Each block runs the command once with each level, in
    random order, until the answer is known.

      iotrial try block.read_ahead_kb=128,1024 --cache cold -- grep -r error /var/log

      iotrial try -L level 1,9 -- gzip -{level} -c data.sql

      iotrial try vm.swappiness=10,60 --response 'tps=regex:tps = ([0-9.]+)' --unit tps=1/s -- pgbench -T 5
    """
    outputs = Outputs(
        as_json=as_json,
        html=values["html"],
        markdown=values["markdown"],
        json_file=values["json_file"],
        fail_if=values["fail_if"],
        page=False,
    )
    outputs.check()
    refuse_missing_folder(values["save"])
    quantity_of("--time", values["time"], parse_duration)
    quantity_of("--margin", values["margin"], parse_margin)
    if values["copy_from"] and not values["size"]:
        values["size"] = f"{_room_for(Path(values['copy_from'])) >> 20} MiB"
    text = study_text(_wish(settings, ctx.meta.get(AFTER, ()), values))
    study = read_study(text, ORIGIN, trusted=True)
    if values["save"]:
        write_report(text, Path(values["save"]))
    request = request_of({**_UNUSED, **{name: values[name] for name in _SHARED}})
    chosen = narrowed(study, request)
    if values["plan"]:
        resolved = resolve_study(chosen, request)
        for line in intent_lines(resolved, default_folder(resolved, request.on)):
            tell(line)
        return 0
    return run_trial(chosen, request, outputs)


_SHARED = (
    "on",
    "copy_from",
    "size",
    "time",
    "margin",
    "alpha",
    "blocks",
    "seed",
    "precise",
    "no_stop",
    "no_controls",
    "yes",
)
#: options of ``run`` that ``try`` does not have
_UNUSED: dict[str, Any] = {
    "sets": (),
    "conditions": (),
    "full": False,
    "lab": None,
    "disk": None,
    "no_account": True,
    "trust": False,
    "foreign": False,
    "like": None,
    "places": (),
    "device": None,
    "erase": (),
    "discard_contents": False,
    "discard_contents_of": (),
}


def _wish(settings: tuple[str, ...], after: tuple[str, ...], values: dict[str, Any]) -> Wish:
    units, better = _by_name("--unit", values["units"]), _by_name("--better", values["better"])
    printed = []
    for text in values["responses"]:
        name, equals, rest = text.partition("=")
        kind, colon, expression = rest.partition(":")
        if not (equals and colon and name and expression) or kind not in ("regex", "json"):
            raise RequestError(
                f'--response "{text}": expected NAME=regex:EXPRESSION or NAME=json:PATH',
                hint="such as --response 'tps=regex:tps = ([0-9.]+)'",
            )
        if kind == "regex":
            _check_expression(text, expression)
        printed.append(Printed(name, kind, expression, units.pop(name, None), better.pop(name, None)))
    for option, left in (("--unit", units), ("--better", better)):
        for name in left:
            raise RequestError(
                f"{option} {name}: no --response has that name", hint="name the response first"
            )
    commands = tuple((line,) for line in values["commands"])
    return Wish(
        settings=settings,
        parameters=values["parameters"],
        commands=(*((after,) if after else ()), *commands),
        shell=values["shell"],
        cache=values["cache"],
        prepare=values["prepare"],
        cleanup=values["cleanup"],
        printed=tuple(printed),
        expect_exit=values["expect_exit"],
        margin=values["margin"],
        time=values["time"],
        lab="image" if values["copy_from"] else "in-place",
    )


def _check_expression(text: str, expression: str) -> None:
    """Raise RequestError for what is no regular expression with one group."""
    try:
        groups = re.compile(expression).groups
    except re.error as error:
        raise RequestError(
            f'--response "{text}": not a regular expression: {error}',
            hint="such as --response 'tps=regex:tps = ([0-9.]+)'",
        ) from error
    if groups != 1:
        raise RequestError(
            f'--response "{text}": expected one group, ( and ), around the number, found {groups}',
            hint="such as --response 'tps=regex:tps = ([0-9.]+)'; write (?: for a group that is not the number",
        )


def _room_for(folder: Path) -> int:
    """Return the size of an image for a copy of a folder: twice what it takes there."""
    found = folder.expanduser().rglob("*")
    return max(LEAST_IMAGE, 2 * sum(path.lstat().st_blocks * 512 for path in found))


def _by_name(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise RequestError(f'{option} "{text}": expected NAME=VALUE', hint=f"such as {option} tps=1/s")
        found[name] = value
    return found
