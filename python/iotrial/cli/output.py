"""Print text, warnings, errors and questions to the terminal, with all control characters escaped. Every verb prints
through this module.

An error is a message with a hint, or one JSON object, on standard error. Continuation lines of a message are
indented, so that no part of it can pass for a separate line.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import TextIO

import click

from iotrial.terminal import escape, escape_lines

#: a narrower column is worse than none
_LEAST = 30
#: of the continuation lines of an error
_INDENT = 4
_COMMAND = re.compile(r"`[^`]*`")
#: in place of the blanks of a command while lines are broken
_GLUE = "\ue000"


def tell(text: str, *, err: bool = False, fold: int | None = None) -> None:
    """Print text. Line breaks are kept, all other control characters are escaped.

    ``fold``: on a terminal, wrap lines that are too wide between words, and indent continuation lines to this
    column. Not for text that users may want to copy, such as a command.
    """
    file = sys.stderr if err else sys.stdout
    print(_escaped(text, file, fold), file=file, flush=True)


def _escaped(text: str, file: TextIO, column: int | None) -> str:
    """Escape all control characters but line breaks, and wrap the lines to a terminal if ``column`` is given."""
    text = escape_lines(text)
    if column is None or not file.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(folded(line, width, column) for line in text.split("\n"))


def folded(line: str, width: int, column: int) -> str:
    """Wrap one line to ``width`` columns, between words. Continuation lines begin at ``column`` if that
    leaves enough room. A `command` stays on one line if it fits."""
    if len(line) <= width:
        return line
    indent = " " * (column if width - column >= _LEAST else 4)
    whole = _COMMAND.sub(
        lambda command: (
            command[0].replace(" ", _GLUE) if len(command[0]) < width - len(indent) else command[0]
        ),
        line,
    )
    return textwrap.fill(
        whole, max(width, _LEAST), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ).replace(_GLUE, " ")


def warn(text: str) -> None:
    """Print a one-line warning to standard error, with control characters escaped."""
    tell(f"iotrial: warning: {escape(text)}", err=True)


def confirmed(question: str) -> bool:
    """Ask on a terminal, and return whether the answer is yes; without a terminal it is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    tell(question, err=True)
    click.echo("Type yes: ", err=True, nl=False)
    return sys.stdin.buffer.readline(64).decode("utf-8", "replace").strip() == "yes"


def report_error(code: str, message: str, hint: str | None, *, as_json: bool) -> None:
    """Print an error. ``code`` is one of the codes in ``iotrial.errors``."""
    if as_json:
        from iotrial.documents import Error, Failure, json_text  # `--help` needs none of it

        print(json_text(Failure(Error(code, message, hint)), indent=None), file=sys.stderr)
        return
    for text in (f"iotrial: {message}", *([f"hint: {hint}"] if hint else [])):
        set_in = text.replace("\n", f"\n{' ' * _INDENT}")
        print(_escaped(set_in, sys.stderr, _INDENT), file=sys.stderr)
