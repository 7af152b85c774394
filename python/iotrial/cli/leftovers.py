"""Says on every command that an earlier trial was cut off and left something to put back."""

from __future__ import annotations

from iotrial.paths import state_folder


def mention_leftovers() -> None:
    """One line on standard error, where the journal has entries or cannot be read, and no trial is at work. Never fails."""
    folder = state_folder() / "journal"
    try:
        entries = sum(path.suffix == ".entry" for path in folder.iterdir())
        what = f"an earlier trial was cut off and left {entries} to put back" if entries else ""
    except FileNotFoundError:
        return
    except OSError as error:
        what = f"the undo journal {folder} cannot be read: {error.strerror}"
    if not what:
        return
    from iotrial.lab.lock import is_held_here

    if is_held_here():  # the journal of a running trial is full by right
        return
    from iotrial.cli.output import tell

    tell(f"iotrial: {what}; run `iotrial restore`", err=True)
