"""Show what a study that is not shipped will do, and ask for consent before running somebody else's commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from iotrial.cli.output import confirmed, tell
from iotrial.cli.planned_changes import intent_lines, runs_commands, typed_intent_lines
from iotrial.errors import RequestError
from iotrial.ownership import other_writer
from iotrial.runner.planning import look_at_disks
from iotrial.study.catalogue import is_shipped
from iotrial.study.places import IN_PLACE
from iotrial.terminal import escape

if TYPE_CHECKING:
    from iotrial.runner.resolve import Resolved
    from iotrial.study.model import Study


def show_intent(resolved: Resolved, folder: str, disks: Sequence[Mapping[str, object]]) -> None:
    """Print every planned change and command to standard error. ``disks``: the disks that places are created
    on."""
    for line in intent_lines(resolved, folder, disks):
        tell(line, err=True)


def seek_consent(resolved: Resolved, folder: str, *, trust: bool, yes: bool) -> None:
    """Show what a study that is not shipped will do, or any in place. If it is not the user's own, ask whether its
    commands may run; if it changes settings of the machine in use, ask whether it may (``yes``: it may).

    Raises RequestError without consent; nothing has been changed by then.
    """
    if is_shipped(resolved.study) and resolved.lab != IN_PLACE:
        return
    if resolved.study.quick:
        for line in typed_intent_lines(resolved, folder):
            tell(line, err=True)
    else:
        show_intent(resolved, folder, look_at_disks(resolved))
    ask_consent(resolved.study, trust=trust)
    if resolved.lab == IN_PLACE and resolved.changes and not yes:
        agree("Make these changes?", "--yes")


def agree(question: str, option: str) -> None:
    """Ask about what is shown above. Raises RequestError without a "yes" on the terminal."""
    if not confirmed(question):
        raise RequestError(
            f"not agreed to, so nothing was changed: {question}",
            hint=f"read what is listed above; to agree, type yes on a terminal, or add {option}",
        )


def ask_consent(study: Study, *, trust: bool) -> None:
    """Ask for consent to the commands of an untrusted study: ``--trust``, or "yes" typed on a terminal.

    Raises RequestError without it. The user's own studies need none, nor does a study that runs no commands:
    knobs have allow-lists.
    """
    if study.trusted or trust or not runs_commands(study):
        return
    agree(f"{_why_asked(study)}. Run its commands?", "--trust")


def _why_asked(study: Study) -> str:
    """Describe the study, and name another user who could have written its file."""
    path = Path(study.origin)
    other = other_writer(path) if path.suffix == ".toml" and path.exists() else None
    return escape(f"study {study.name} comes from elsewhere" + (f" ({other})" if other else ""))
