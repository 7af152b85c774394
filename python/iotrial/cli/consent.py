"""What a study from outside the catalogue is about to do, shown before it does it; and consent to a foreign one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from iotrial.cli.output import tell

if TYPE_CHECKING:
    from iotrial.conduct.resolve import Resolved


def show_intent(resolved: Resolved, folder: str, disks: Sequence[Mapping[str, object]]) -> None:
    """Every change and every command, on standard error. ``disks``: those that places are made on."""
    from iotrial.report.intent import intent_lines

    for line in intent_lines(resolved, folder, disks):
        tell(line, err=True)


def ask_consent(resolved: Resolved, *, trust: bool) -> None:
    """Consent to the commands of a packed trial, which somebody else wrote: ``--trust``, or "yes" on a terminal.

    RequestError without it; nothing has been changed by then. A study without commands needs none: its knobs
    have allow-lists.
    """
    from iotrial.errors import RequestError
    from iotrial.report.intent import runs_commands

    if trust or not runs_commands(resolved.study):
        return
    answer = ""
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.echo("These commands come from the packed trial. Run them? Type yes: ", err=True, nl=False)
        answer = sys.stdin.buffer.readline(64).decode("utf-8", "replace")
    if answer.strip() != "yes":
        raise RequestError(
            "the commands of a packed trial run only with your consent; nothing was changed",
            hint="read them above; if you trust them, say so with --trust",
        )
