"""Command-line options shared by several verbs. ``iotrial.cli.run_request`` converts them to typed values."""

from __future__ import annotations

import math
import shlex
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import click

from iotrial.errors import RequestError

F = TypeVar("F", bound=Callable[..., Any])

OTHERS = "Output and other options"
#: key in click's ``meta`` for the words after ``--``, the user's own command
AFTER = "iotrial.command"


class Number(click.FloatRange):
    """A number within bounds. Nan is in no range, but click's comparisons let it pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return super().convert(value, param, ctx)


#: a number of blocks (``store.event_records.MOST_BLOCKS``)
COUNT = click.IntRange(1, 1_000_000)
#: an error level
LEVEL = Number(0, 0.5, min_open=True)


class GroupedOption(click.Option):
    """An option of ``GroupedCommand``; ``group`` is the heading in its help."""

    def __init__(self, *names: Any, group: str = OTHERS, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.group = group


class GroupedCommand(click.Command):
    """A command with its options under headings in the help, in order of first appearance; options without one come last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if isinstance(param, click.Option) and record is not None:
                groups.setdefault(getattr(param, "group", OTHERS), []).append(record)
        for title in sorted(groups, key=lambda title: title == OTHERS):
            with formatter.section(title):
                formatter.write_dl(groups[title])


class OwnCommand(GroupedCommand):
    """A verb that takes a command of the user's: the words after ``--``."""

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
                hint=f"iotrial {ctx.info_name} {shlex.join([*args[:first], '--', *args[first:]])}",
            ) from error

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        replays = any(param.name == "replay" for param in self.params)
        own = "(-- COMMAND... | --replay TRACE)" if replays else "-- COMMAND..."
        return [*super().collect_usage_pieces(ctx), own]


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


def in_group(title: str) -> Callable[..., Callable[[F], F]]:
    """Return ``click.option`` for options under this heading."""
    return partial(click.option, cls=GroupedOption, group=title)


def named_value(option: str, text: str, form: str, example: str) -> tuple[str, str]:
    """Split NAME=VALUE. Raises RequestError, with the ``form`` of values and an ``example`` of both."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (equals and name and value):
        raise RequestError(f'{option} "{text}": expected NAME={form}', hint=f"for example {option} {example}")
    return name, value


def refuse_together(**given: object) -> None:
    """Raise RequestError if more than one of these options is given."""
    names = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if len(names) > 1:
        raise RequestError(f"{' and '.join(names)} exclude each other")


def with_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds options to a command, in this order."""

    def added(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return added


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on standard output."
)
markdown_option = click.option(
    "--markdown",
    metavar="FILE",
    help="Write a Markdown report, e.g. for a pull request (-: standard output, instead of text).",
)
#: of all verbs that write files which the user names
force_option = click.option("--force", is_flag=True, help="Replace existing files.")
#: of the verbs that write a page only on request
page_option = click.option("--html", metavar="FILE", help="Write an HTML page to this file.")
#: of the verbs that measure
html_option = click.option(
    "--html", metavar="FILE", help="File for the HTML report (default: in the state folder)."
)
#: of the verbs that go on with a trial
trust_option = click.option("--trust", is_flag=True, help="Allow an untrusted study to use a shell or root.")
fail_option = click.option(
    "--fail-if",
    type=click.Choice(["slower", "inconclusive"]),
    multiple=True,
    help="Exit with status 4 if a main effect is slower (or probably slower), or undecided.",
)
full_report = click.option("--full", is_flag=True, help="Print everything instead of one screen.")


compared = in_group("What is compared")
where = in_group("Where it runs")
sure = in_group("How long, how sure")
_trusted = in_group("Trust")
yes_option = where("--yes", is_flag=True, help="Change the settings that are listed, without asking.")
no_controls_option = sure(
    "--no-controls", is_flag=True, help="Run without control arms; the verdict says so."
)


def time_option(default: str | None = None) -> Callable[[Any], Any]:
    return sure(
        "--time", metavar="DURATION", default=default, show_default=True, help="Time budget, such as 5m."
    )


def margin_option(default: str | None = None) -> Callable[[Any], Any]:
    return sure(
        "--margin",
        metavar="PERCENT",
        default=default,
        show_default=True,
        help="Smallest effect that matters.",
    )


seed_option = sure("--seed", metavar="N", help="A number, or the 32 digits of an earlier trial.")


def level_and_seed(function: Any) -> Any:
    """Add what a trial is drawn from and its error level."""
    return sure("--alpha", type=LEVEL, metavar="LEVEL", help="Error level of the whole trial (0.05).")(
        seed_option(function)
    )


no_stop_option = sure("--no-stop", is_flag=True, help="Use the whole budget, even if everything is decided.")
#: when a trial ends
stopping_options = with_options(
    sure("--blocks", type=COUNT, metavar="N", help="Maximum number of blocks per condition."),
    sure("--precise", is_flag=True, help="Measure the size of a large effect too."),
    no_stop_option,
)
#: of ``plan`` and ``run``
study_options = with_options(
    compared(
        "--set",
        "sets",
        multiple=True,
        metavar="FACTOR=LEVEL,LEVEL",
        help="Only these levels of a factor; +VALUE: one that the study does not have; program=PATH,PATH: programs by path.",
    ),
    compared(
        "--reference",
        "references",
        multiple=True,
        metavar="FACTOR=LEVEL",
        help="Compare the levels of a factor with this one, not with the study's reference.",
    ),
    compared(
        "--condition",
        "conditions",
        multiple=True,
        metavar="NAME=LEVEL,LEVEL",
        help="Run under these levels of a condition (or workload=...); NAME=all for all of them.",
    ),
    compared("--full", is_flag=True, help="All levels of all conditions, all workloads."),
    compared(
        "--like",
        metavar="FILE",
        help="Run the study and plan of a packed trial instead of STUDY (--seed: with another plan).",
    ),
    where("--lab", metavar="KIND", help="Kind of lab: directory, image, device, guest or in-place."),
    where("--disk", metavar="MODEL", help="Simulated disk of an image lab, or none (docs/labs.md)."),
    where("--device", metavar="PATH", help="Spare disk of a device lab; needs --erase."),
    where(
        "--erase",
        multiple=True,
        metavar="[PLACE=]NAME",
        help="Serial number or WWN of the disk: confirms that it may be overwritten.",
    ),
    where(
        "--discard-contents",
        is_flag=True,
        help="Allow a disk that holds data; one with signatures, mounts or users is still refused.",
    ),
    where(
        "--discard-contents-of",
        multiple=True,
        metavar="PLACE",
        help="The same, for the disk of a place.",
    ),
    where("--size", metavar="SIZE", help="Size of the lab, such as 24GiB, instead of the study's."),
    where("--on", metavar="FOLDER", help="Use the disk that this folder is on."),
    where(
        "--copy-from",
        metavar="FOLDER",
        help="Copy this folder into the lab; commands find the copy as {dir}.",
    ),
    where(
        "--place",
        "places",
        multiple=True,
        metavar="PLACE=FOLDER",
        help="Location of a place of the study: a folder, or a spare disk (needs --erase PLACE=NAME).",
    ),
    time_option(),
    margin_option(),
    level_and_seed,
    stopping_options,
    no_controls_option,
    sure(
        "--no-account",
        is_flag=True,
        help="Skip the extra, untimed repetitions that count system calls and requests.",
    ),
    sure(
        "--no-check",
        is_flag=True,
        help="Skip the power cuts after which a study looks for what was acknowledged.",
    ),
    _trusted(
        "--foreign", is_flag=True, help="Treat the study as somebody else's, although the file is yours."
    ),
    _trusted(
        "--trust",
        is_flag=True,
        help="Run the commands of an untrusted study, including shells and commands as root.",
    ),
    yes_option,
)
