"""What a study that does not ship is about to do, shown before it does it; and consent to the commands of somebody else's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iotrial.cli.output import tell
from iotrial.cli.planned_changes import intent_lines, runs_commands
from iotrial.conduct.start import look_at_disks
from iotrial.errors import RequestError
from iotrial.ownership import other_writer
from iotrial.study.catalogue import is_shipped
from iotrial.terminal import escape

if TYPE_CHECKING:
    from iotrial.conduct.resolve import Resolved
    from iotrial.study.model import Study


def show_intent(resolved: Resolved, folder: str, disks: Sequence[Mapping[str, object]]) -> None:
    """Every change and every command, on standard error. ``disks``: those that places are made on."""
    for line in intent_lines(resolved, folder, disks):
        tell(line, err=True)


def seek_consent(resolved: Resolved, folder: str, *, trust: bool) -> None:
    """Show what a study that does not ship is about to do; where it is not the user's own, ask whether its commands may run.

    RequestError without consent; nothing has been changed by then.
    """
    if is_shipped(resolved.study):
        return
    show_intent(resolved, folder, look_at_disks(resolved))
    ask_consent(resolved.study, trust=trust)


def ask_consent(study: Study, *, trust: bool) -> None:
    """Consent to the commands of a study from elsewhere: ``--trust``, or "yes" on a terminal. RequestError without it.

    None is needed for the user's own, nor where no command is run: knobs have allow-lists.
    """
    if study.trusted or trust or not runs_commands(study):
        return
    answer = ""
    if sys.stdin.isatty() and sys.stderr.isatty():
        tell(f"{_why_asked(study)}. Run its commands?", err=True)
        click.echo("Type yes: ", err=True, nl=False)
        answer = sys.stdin.buffer.readline(64).decode("utf-8", "replace")
    if answer.strip() != "yes":
        raise RequestError(
            f"{_why_asked(study)}: its commands run only with your consent; nothing was changed",
            hint="read the commands above; if you trust them, add --trust",
        )


def _why_asked(study: Study) -> str:
    """The study, and who else could have written it."""
    path = Path(study.origin)
    other = other_writer(path) if path.suffix == ".toml" and path.exists() else None
    return escape(f"study {study.name} comes from elsewhere" + (f" ({other})" if other else ""))
