"""Says on every command that an earlier trial was cut off and left something to put back."""

from __future__ import annotations

import sys

from iotrial.paths import state_folder


def mention_leftovers() -> None:
    """One line on standard error, where the journal has entries and no conductor is at work. Never fails."""
    try:
        entries = [path for path in (state_folder() / "journal").iterdir() if path.suffix == ".entry"]
    except OSError:
        return
    if not entries:
        return
    from iotrial.lab.lock import is_held

    if is_held():  # the journal of a running trial is full by right
        return
    print(
        f"iotrial: an earlier trial was cut off and left {len(entries)} to put back; run `iotrial restore`",
        file=sys.stderr,
    )
