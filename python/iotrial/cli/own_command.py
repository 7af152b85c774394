"""The options of the verbs that run a command of the user's own, or replay what one did: ``try`` and ``best``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from iotrial.cli.options import compared, in_group, named_value, where, with_options, yes_option
from iotrial.cli.output import tell, warn
from iotrial.cli.run_request import RunRequest, quantity_of, request_of
from iotrial.errors import RequestError, UnknownName
from iotrial.patterns import PatternError
from iotrial.report.notation import counted
from iotrial.runner.quick_study import Printed, Replayed, Wish
from iotrial.study.input_files import checksum_of
from iotrial.study.places import IN_PLACE
from iotrial.terminal import escape
from iotrial.traces.reading import ReplayNeeds, replay_needs
from iotrial.units import format_bytes, format_duration, parse_duration, parse_size
from iotrial.workloads.command import ANY_EXIT, STDOUT
from iotrial.workloads.output import pattern_of

ORIGIN = "the command line"
LEAST_IMAGE = 512 << 20
IMAGE = "image"
#: labs of a replay
REPLAY_LABS = (IN_PLACE, IMAGE)
#: room for the name and the inode of a file
_BYTES_PER_FILE = 4096
#: fewer do not give a verdict
_FEWEST_REPLAYS = 10
#: options that only a command has, by the name of their value
_OF_A_COMMAND = {
    "parameters": "-L",
    "commands": "--command",
    "prepare": "--prepare",
    "cleanup": "--cleanup",
    "shell": "--shell",
    "responses": "--response",
    "units": "--unit",
    "better": "--better",
    "expect_exit": "--expect-exit",
    "ignore_failure": "--ignore-failure",
    "stdout": "--output",
}

command_group = in_group("The command")
replay_group = in_group("A replay instead of a command")
plan_option = where(
    "--plan", "--dry-run", "plan", is_flag=True, help="Only show what would be run and changed."
)
save_option = click.option(
    "--save", metavar="FILE", help="Write the study to this file (TOML), for `iotrial run`."
)


parameter_option = compared(
    "-L",
    "--parameter-list",
    "parameters",
    nargs=2,
    multiple=True,
    metavar="NAME LEVEL,LEVEL",
    help="Put each of these in place of {NAME} in the command.",
)
level_option = compared(
    "--level",
    "levels",
    multiple=True,
    metavar="'NAME: KNOB=VALUE ...'",
    help="Compare whole settings: each --level sets several knobs at once (may be repeated). A knob that one of them "
    "does not name keeps today's value.",
)

#: on the command and where it runs
own_command_options = with_options(
    parameter_option,
    level_option,
    command_group("--prepare", metavar="LINE", help="Run this line by sh before each run, untimed."),
    command_group("--cleanup", metavar="LINE", help="Run this line by sh after each run, untimed."),
    command_group(
        "--shell",
        metavar="SHELL",
        help="Run the command by this shell. A command of one word with blanks in it is run by sh.",
    ),
    command_group(
        "--output",
        "stdout",
        metavar="pipe|null|inherit|FILE",
        help="Where what it prints goes: through a pipe that is emptied (the default); null: to /dev/null, which some "
        "programs notice (GNU grep then stops at the first match of each file); inherit: where iotrial prints; or to a "
        "file, which is emptied before each run.",
    ),
    command_group(
        "--response",
        "responses",
        multiple=True,
        metavar="NAME=regex:...|json:...",
        help="Judge by a number that the command prints: a regular expression with one group, or a path in JSON.",
    ),
    command_group(
        "--unit",
        "units",
        multiple=True,
        metavar="NAME=UNIT",
        help="Unit of a response, such as 1/s or ms.",
    ),
    command_group(
        "--better",
        "better",
        multiple=True,
        metavar="NAME=higher|lower",
        help="Which way a response is better.",
    ),
    command_group(
        "--expect-exit",
        type=click.IntRange(0, 255),
        default=0,
        metavar="N",
        help="Exit status that means success (0).",
    ),
    command_group("-i", "--ignore-failure", is_flag=True, help="Every exit status means success."),
    replay_group(
        "--replay",
        metavar="TRACE",
        help="Instead of a command, replay the file operations that `iotrial record` recorded, on files made for it.",
    ),
    replay_group(
        "--timing",
        type=click.Choice(["closed", "flat-out", "open"]),
        help="closed (default): with the recorded pauses; flat-out: without pauses; open: each operation at its recorded "
        "time.",
    ),
    where(
        "--in",
        "on",
        metavar="FOLDER",
        help="Work in this folder, and set what holds it: its mount, file system and disk (default: the current one). "
        "A replay makes its files there, in a new folder that is removed at the end.",
    ),
    where(
        "--copy-from",
        metavar="FOLDER",
        help="Work on a copy of this folder, in a lab on an image: for settings that a file system in use cannot have. "
        "The command is started in the copy, and finds it as {dir}.",
    ),
    where("--size", metavar="SIZE", help="Size of the image (default: twice the data, at least 512 MiB)."),
    where(
        "--cache",
        type=click.Choice(["as-is", "cold", "cold-data", "cold-system", "warm"]),
        default="as-is",
        help="State of the page cache before each run. cold: in place cold-data, the data of the files that the command "
        "reads are evicted, names and inodes stay in memory; cold-system: all caches of the machine are dropped.",
    ),
    yes_option,
)


#: options of ``run`` that these verbs have too, with the same meaning
_SHARED = (
    "on", "copy_from", "size", "time", "margin", "alpha", "blocks", "seed", "precise", "no_stop", "no_controls", "yes",
    "fewer",
)  # fmt: skip


def own_request(values: dict[str, Any]) -> RunRequest:
    """Convert the options to typed values."""
    if values["copy_from"] and not values["size"]:
        values["size"] = f"{_room_for(Path(values['copy_from'])) >> 20} MiB"
    return request_of({"no_account": True, **{name: values[name] for name in _SHARED if name in values}})


def wish_of(settings: tuple[str, ...], after: tuple[str, ...], values: dict[str, Any]) -> Wish:
    """Return what the user typed. Raises RequestError for a response or a trace that cannot be read."""
    if values["replay"] is not None:
        return _wish_of_replay(settings, after, values)
    for name in ("timing", "lab"):
        if values[name] is not None:
            raise _only_for(f"--{name}", "a replay", hint=_COPY if name == "lab" else None)
    units = dict(named_value("--unit", text, "UNIT", "tps=1/s") for text in values["units"])
    better = dict(named_value("--better", text, "higher|lower", "tps=higher") for text in values["better"])
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
            raise UnknownName("--response", name, [one.name for one in printed], where=option)
    commands = tuple((line,) for line in values.get("commands", ()))
    return Wish(
        settings=settings,
        parameters=values["parameters"],
        commands=(*((after,) if after else ()), *commands),
        shell=values["shell"],
        cache=values["cache"],
        prepare=values["prepare"],
        cleanup=values["cleanup"],
        printed=tuple(printed),
        expect_exit=ANY_EXIT if values["ignore_failure"] else values["expect_exit"],
        stdout=_stdout_of(values["stdout"] or "pipe"),
        margin=values["margin"],
        time=values["time"],
        lab=IMAGE if values["copy_from"] else IN_PLACE,
        levels=values["levels"],
        today=values.get("today", False),
    )


_COPY = "--copy-from FOLDER puts a copy of your files into a lab"


def _only_for(option: str, what: str, hint: str | None = None) -> RequestError:
    return RequestError(f"{option} is only for {what}", hint=hint)


def _stdout_of(text: str) -> str:
    """Return where output goes, a file by its absolute path. Raises RequestError for a file that cannot be one."""
    if text in STDOUT or text.startswith("{"):
        return text
    path = Path(text).expanduser().absolute()
    if path.is_dir() or not path.parent.is_dir() or (path.exists() and not path.is_file()):
        raise RequestError(
            f'--output "{text}": not a regular file in a folder that exists',
            hint=f"{', '.join(STDOUT)}, or the path of a file",
        )
    return str(path)


def _wish_of_replay(settings: tuple[str, ...], after: tuple[str, ...], values: dict[str, Any]) -> Wish:
    """Return the wish for a replay. Names on standard error what the trace lacks, and if it is too long for the time."""
    if after:
        raise _only_for("--replay", "a trial without a command")
    for name, option in _OF_A_COMMAND.items():
        if values.get(name):
            raise _only_for(option, "a command")
    lab = values["lab"] or IN_PLACE
    if values["copy_from"]:
        raise _only_for("--copy-from", "a command", hint=f"--lab {IMAGE} replays on a new file system")
    if lab not in REPLAY_LABS:
        raise RequestError(
            f'--lab "{lab}": a replay can be {" or ".join(REPLAY_LABS)}', hint=f"--lab {IMAGE}"
        )
    trace = Path(values["replay"]).expanduser()
    needs = replay_needs(trace)
    _tell_limits(trace, needs, values)
    size_bytes = quantity_of("--size", values["size"], parse_size) or _room_for_replay(needs)
    found = trace.resolve()
    return Wish(
        settings=settings,
        parameters=(),
        commands=(),
        cache=values["cache"],
        margin=values["margin"],
        time=values["time"],
        lab=lab,
        size=f"{max(1, size_bytes >> 20)} MiB" if lab == IMAGE else None,
        levels=values["levels"],
        today=values.get("today", False),
        replay=Replayed(found.name, str(found.parent), checksum_of(found), values["timing"] or "closed"),
    )


def _tell_limits(trace: Path, needs: ReplayNeeds, values: dict[str, Any]) -> None:
    """Name on standard error what the trace lacks, if its files are large, and if there is no time for several replays."""
    if needs.lost:
        warn(
            f"{escape(trace)}: {counted(needs.lost, 'operation')} could not be recorded, so the replay lacks them; record "
            f"again with a larger --buffer"
        )
    if not needs.complete:
        warn(f"{escape(trace)}: the recording was cut off, and so is the replay")
    if (data := _data_of_replay(needs)) > LEAST_IMAGE:
        tell(
            f"note: the files of the replay take {format_bytes(data)}, and are made before the first run",
            err=True,
            fold=6,
        )
    time_s = quantity_of("--time", values["time"], parse_duration) or 0.0
    lasts_s = needs.duration_ns / 1e9
    if values["timing"] != "flat-out" and lasts_s * _FEWEST_REPLAYS > time_s:
        tell(
            f"note: the recording took {format_duration(lasts_s)}, and a replay with its pauses takes as long; for a "
            f"verdict give --time at least {format_duration(lasts_s * _FEWEST_REPLAYS)}, or use --timing flat-out",
            err=True,
            fold=6,
        )


def _data_of_replay(needs: ReplayNeeds) -> int:
    """Return the bytes of the files of a replay, with what it adds to them."""
    return needs.stored_bytes + needs.growth_bytes + needs.files * _BYTES_PER_FILE


def _room_for_replay(needs: ReplayNeeds) -> int:
    """Return the size of an image for a replay: twice its data."""
    return max(LEAST_IMAGE, 2 * _data_of_replay(needs))


def _check_expression(text: str, expression: str) -> None:
    """Raise RequestError for what is no regular expression with one group."""
    try:
        groups = pattern_of(expression).groups
    except PatternError as error:
        raise RequestError(
            f'--response "{text}": not a regular expression: {error}',
            hint=error.hint or "such as --response 'tps=regex:tps = ([0-9.]+)'",
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
