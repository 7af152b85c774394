"""The manual page in man(7) macros, generated from the click commands.

There is one page for all verbs, so that a search in it finds every option. The study options that `plan` and
`run` share are described once. ``scripts/manual`` writes the page into the wheel's data, and a test compares
it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import click

from iotrial import __version__
from iotrial.cli import cli

DATE = "2026-11-22"  # date of the last change to text that is not taken from the commands
#: where shells look for completion scripts below share/, by shell
COMPLETIONS = {
    "bash": "bash-completion/completions/iotrial",
    "zsh": "zsh/site-functions/_iotrial",
    "fish": "fish/vendor_completions.d/iotrial.fish",
}
SHARED = ("plan", "run")
_WIDTH = 64  # of a source line, before hyphens are escaped

#: exit statuses; each error class defines its own (``iotrial.errors``)
STATUSES: tuple[tuple[str, str], ...] = (
    ("0", "Finished, with any verdict; of `ci`: no benchmark is slower."),
    ("1", "The operation failed: lab, probe, store, or a file that cannot be written."),
    ("2", "The request is invalid or cannot be met here; nothing was changed."),
    ("3", "The trial is invalid: a control failed, or no run used the device under test."),
    ("4", "A --fail-if condition was met, a benchmark of `ci` is slower, or a guard stopped the trial."),
    (
        "5",
        "A change could not be undone; its journal entry is kept, and `iotrial restore` tries again. Or the "
        "undo journal was lost or damaged while the trial ran.",
    ),
    (
        "6",
        "No answer: the command fails, every block is void, no comparison has an interval yet, or no run could feel any "
        "setting. Of `ci`: a benchmark has no answer, and none is slower.",
    ),
    ("128 + N", "Ended by signal N (130: Ctrl-C), after all changes were undone."),
)


_ENVIRONMENT = (
    ("IOTRIAL_STORE", "The file of stored trials, instead of trials.db in the state folder."),
    ("IOTRIAL_GUESTS", "The folder for kernels and tools of guests."),
    (
        "XDG_STATE_HOME",
        "The state folder is $XDG_STATE_HOME/iotrial; if this is not set, /var/lib/iotrial for root and "
        "~/.local/state/iotrial for others.",
    ),
    ("NO_COLOR", "If set, text is not coloured, bold or dim."),
    ("TERM", "With dumb, a running trial prints plain lines instead of a live table."),
    ("COLUMNS", "Width of tables if the terminal does not report its own."),
)
_FILES = (
    ("trials.db", "Stored trials (SQLite, append-only)."),
    ("trials.standing.json", "Progress of the running trial, written between its blocks."),
    ("trials.analysed", "Cached analyses of finished trials; may be deleted."),
    ("journal/", "Undo journal: changes of a trial that are not undone yet."),
    ("reports/", "HTML reports."),
    ("fleets/", "Fleets that this machine coordinates."),
    ("fleet/", "What this machine measured as a host of a fleet."),
)
_EXAMPLES = (
    ("Run a study of the catalogue:", "iotrial run files/permissions"),
    (
        "Compare only two mount options, with a wider margin:",
        "iotrial run mount/atime --set atime=relatime,noatime --margin 5%",
    ),
    (
        "In a script: fail if the setting makes the work slower:",
        "iotrial run study.toml --fail-if slower --json >trial.json",
    ),
    ("Check what a published table can show:", "iotrial audit results.csv"),
)


def manual() -> str:
    """Return the whole page."""
    context = click.Context(cli, info_name="iotrial")
    verbs = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    commands = {name: verb for name, verb in verbs.items() if verb is not None and not verb.hidden}
    shared = _shared(commands)
    lines = [
        f'.TH IOTRIAL 1 "{DATE}" "iotrial {__version__}" "User Commands"',
        ".SH NAME",
        r"iotrial \- storage tuning on trial",
        ".SH SYNOPSIS",
        ".B iotrial",
        ".I VERB",
        r"[\fIOPTION\fR ...] [\fIARGUMENT\fR ...]",
        ".SH DESCRIPTION",
        *_paragraphs(cli.help or ""),
        ".PP",
        *_words(
            "STUDY is the name of a shipped study (files/permissions) or a TOML file. TRIAL is the number "
            "of a stored trial, its id or an unambiguous beginning of it, or last. Results go to standard "
            "output, progress and messages to standard error. With --json standard output is one JSON "
            "document, and an error is one on standard error: "
            '{"error": {"code", "message", "hint"}}.'
        ),
        ".SH VERBS",
    ]
    for name, command in commands.items():
        lines += _verb(name, command, shared if name in SHARED else ())
        if isinstance(command, click.Group):
            for part in command.list_commands(context):
                own = command.get_command(context, part)
                lines += _verb(f"{name} {part}", own, ()) if own is not None else ()
    lines += [".SH OPTIONS OF A STUDY", "These options are the same for", r"\fBplan\fR and \fBrun\fR."]
    lines += _options([p for p in commands["run"].params if p.name in shared])
    lines.append(".SH EXIT STATUS")
    lines += [
        part for status, text in STATUSES for part in (".TP", rf"\fB{_escaped(status)}\fR", *_words(text))
    ]
    lines.append(".SH ENVIRONMENT")
    lines += [
        part for name, text in _ENVIRONMENT for part in (".TP", rf"\fB{_escaped(name)}\fR", *_words(text))
    ]
    lines += [".SH FILES", "In the state folder:"]
    lines += [part for name, text in _FILES for part in (".TP", rf"\fI{_escaped(name)}\fR", *_words(text))]
    lines.append(".SH EXAMPLES")
    for number, (text, command_line) in enumerate(_EXAMPLES):
        lines += [
            *([".PP"] if number else []),
            *_words(text),
            ".PP",
            ".RS 4",
            ".nf",
            rf"\fB{_escaped(command_line)}\fR",
            ".fi",
            ".RE",
        ]
    lines += [".SH SEE ALSO", r"\fBfio\fR(1),", r"\fBsqlite3\fR(1),", r"\fBstrace\fR(1),", r"\fBmount\fR(8)"]
    return "\n".join(lines) + "\n"


def _shared(commands: dict[str, click.Command]) -> frozenset[str]:
    """Return the names of the options that plan and run share, without those that every verb has."""
    common = [{p.name or "" for p in commands[verb].params if isinstance(p, click.Option)} for verb in SHARED]
    return frozenset(common[0] & common[1] - {"as_json"})


def _verb(name: str, command: click.Command, elsewhere: Iterable[str]) -> Iterator[str]:
    yield f".SS {_escaped(name)}"
    yield " ".join([rf"\fBiotrial {_escaped(name)}\fR", *_usage(command)])
    yield ".PP"
    yield from _paragraphs(command.help or "")
    if command.epilog:
        yield from (".PP", _escaped(command.epilog))
    own = [p for p in command.params if p.name not in elsewhere]
    yield from _options(own)
    if elsewhere:
        yield from (".PP", "It also takes the options of a study, below.")


def _usage(command: click.Command) -> Iterator[str]:
    """Yield the usage line's arguments. Not taken from click: its format changes from version to version."""
    if any(isinstance(param, click.Option) for param in command.params):
        yield "[\\fIOPTION\\fR ...]"
    for param in command.params:
        if isinstance(param, click.Argument):
            name = rf"\fI{_escaped(_value(param))}\fR" + (" ..." if param.nargs == -1 else "")
            yield name if param.required else f"[{name}]"


def _options(params: Sequence[click.Parameter]) -> Iterator[str]:
    for param in params:
        if isinstance(param, click.Option) and not param.hidden:
            takes = "" if param.is_flag else _value(param)
            yield ".TP"
            yield ", ".join(_name(f"{one} {takes}".rstrip()) for one in param.opts)
            default = f" Default: {param.default}." if param.show_default else ""
            yield from _words((param.help or "") + default)


def _value(param: click.Parameter) -> str:
    """Return the placeholder for the value of an option or argument."""
    if param.metavar:
        return param.metavar.removesuffix("...")
    if isinstance(param.type, click.Choice):
        return "|".join(str(choice) for choice in param.type.choices)
    return (param.name or "").upper()


def _name(written: str) -> str:
    """Format e.g. ``--set FACTOR=LEVEL``: the option in bold, its value in italics."""
    option, blank, value = written.partition(" ")
    return rf"\fB{_escaped(option)}\fR" + (rf" \fI{_escaped(value)}\fR" if blank else "")


def _paragraphs(text: str) -> Iterator[str]:
    """Format a click docstring as paragraphs; paragraphs that start with ``\\b`` keep their lines."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        lines = [line.strip() for line in paragraph.splitlines()]
        if lines[0] == "\b":
            yield from (".nf", *(_escaped(line) for line in lines[1:]), ".fi")
        else:
            yield from _words(" ".join(lines))


def _words(text: str) -> Iterator[str]:
    """Format running text with one sentence per line, as roff prefers."""
    for sentence in re.split(r"(?<=[.?!]) +(?=[A-Z])", " ".join(text.split())):
        plain = re.sub(r"`([^`]*)`", "\\1", sentence)
        yield from map(_escaped, textwrap.wrap(plain, _WIDTH, break_on_hyphens=False, break_long_words=False))


def _escaped(text: str) -> str:
    """Escape text for roff: no macros, no escapes, hyphens that can be copied."""
    text = text.replace("\\", "\x00").replace("-", "\\-").replace("\x00", "\\e")
    text = text.replace("^", "\\(ha").replace("~", "\\(ti").replace("`", "\\(ga").replace("'", "\\(aq")
    text = "".join(c if ord(c) < 128 else f"\\[u{ord(c):04X}]" for c in text)
    return "\\&" + text if text.startswith((".", "'")) else text
