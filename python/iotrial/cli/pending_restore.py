"""Warn on every command if an interrupted trial left changes to restore, or settings were not kept in time."""

from __future__ import annotations

import json
import os
from pathlib import Path

from iotrial.cli.output import tell
from iotrial.paths import journal_mark, state_folder

#: the records of ``iotrial apply``, which only root can list
_APPLIED = Path("/var/lib/iotrial/applied")
#: states of records that wait for nothing (``tune.applied.Record.unkept``)
_SETTLED = ("kept", "reverted")


def mention_overdue() -> None:
    """Print one line to standard error if settings were applied, not kept in time, and not taken back. Never fails."""
    try:
        if all(_is_settled(path) for path in _APPLIED.iterdir() if path.suffix == ".json"):
            return
    except OSError:
        return
    from iotrial.tune.applied import Records  # every command comes here, but hardly any gets this far
    from iotrial.tune.machine import Machine

    machine = Machine()
    found, damaged = Records(machine).read()
    for damage in damaged:
        tell(f"iotrial: {damage}; run `iotrial revert`", err=True)
    for short in [record.short for record in found if record.is_due(machine)]:
        tell(f"iotrial: the settings of trial {short} were not kept in time; run `iotrial revert`", err=True)


def _is_settled(path: Path) -> bool:
    """Return whether a record says that its settings were kept or taken back. False if it cannot be read."""
    try:
        record, _ = json.JSONDecoder().raw_decode(path.read_text())  # its checksum follows
        return record["state"] in _SETTLED
    except (OSError, ValueError, LookupError, TypeError):
        return False


def mention_leftovers() -> None:
    """Print one line to standard error if the journal has entries or cannot be read, and no trial is running.
    Never fails."""
    folder = state_folder() / "journal"
    try:
        entries = sum(path.suffix == ".entry" for path in folder.iterdir()) if folder.exists() else 0
        what = f"an earlier trial was cut off and left {entries} to undo" if entries else ""
        if not entries and os.path.lexists(journal_mark(folder)):
            what = (
                f"an earlier trial was cut off, and its entries were removed from the undo journal {folder}"
            )
    except OSError as error:
        what = f"the undo journal {folder} cannot be read: {error.strerror}"
    if not what:
        return
    from iotrial.lab.lock import is_held_here  # every command comes here, but hardly any gets this far

    if is_held_here():  # a running trial has journal entries: nothing to warn about
        return
    tell(f"iotrial: {what}; run `iotrial restore`", err=True)
