"""Says on every command that an earlier trial was cut off and left something to put back."""

from __future__ import annotations

import fcntl
import os
import sys

from iotrial.paths import state_folder


def mention_leftovers() -> None:
    """One line on standard error, where the journal has entries and no conductor is at work. Never fails."""
    try:
        entries = [path for path in (state_folder() / "journal").iterdir() if path.suffix == ".entry"]
        if not entries or _at_work():
            return
    except OSError:
        return
    print(
        f"iotrial: an earlier trial was cut off and left {len(entries)} to put back; run `iotrial restore`",
        file=sys.stderr,
    )


def _at_work() -> bool:
    """Whether somebody holds the machine's lock (the journal of a running trial is full by right)."""
    descriptor = os.open("/run/lock/iotrial.lock", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
