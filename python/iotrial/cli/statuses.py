"""Exit statuses, for the manual and whoever else tells of them; the errors themselves know theirs (``iotrial.errors``)."""

from __future__ import annotations

STATUSES: tuple[tuple[str, str], ...] = (
    ("0", "Done, whatever the verdict."),
    ("1", "The work failed: the lab, the probe, the store, a file that cannot be written."),
    ("2", "The request was wrong, or cannot be met here; nothing was changed."),
    ("3", "The trial is invalid: one of its controls failed, or no run used the device under test."),
    ("4", "A --fail-if condition was met."),
    (
        "5",
        "Something could not be put back; its journal entry is kept, and `iotrial restore` tries again. "
        "Or the undo journal was lost or damaged while the trial ran.",
    ),
    ("128 + N", "Ended by signal N (130 by Ctrl-C), after everything was put back."),
)
