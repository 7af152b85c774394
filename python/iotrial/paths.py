"""Paths of persistent data: the state folder and the trial store in it.

The state folder is ``$XDG_STATE_HOME/iotrial``; for root ``/var/lib/iotrial``; else ``~/.local/state/iotrial``.
``$IOTRIAL_STORE`` overrides the file of the trials, ``$IOTRIAL_GUESTS`` the folder for kernels and tools of guests.
These are pure functions of an environment; they create nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def state_folder(environment: Mapping[str, str] | None = None, *, uid: int | None = None) -> Path:
    """Return the folder for undo journals, stored trials and downloaded guests.

    A relative ``XDG_STATE_HOME`` is ignored, as the XDG Base Directory Specification 0.8 requires.
    """
    environment = os.environ if environment is None else environment
    uid = os.geteuid() if uid is None else uid
    stated = Path(environment.get("XDG_STATE_HOME", ""))
    if stated.is_absolute():
        return stated / "iotrial"
    if uid == 0:
        return Path("/var/lib/iotrial")
    home = environment.get("HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home()
    return base / ".local" / "state" / "iotrial"


def store_path(environment: Mapping[str, str] | None = None, *, uid: int | None = None) -> Path:
    """Return the file of stored trials: ``$IOTRIAL_STORE``, else ``trials.db`` in the state folder."""
    environment = os.environ if environment is None else environment
    named = environment.get("IOTRIAL_STORE", "")
    if named:
        return Path(named).expanduser()
    return state_folder(environment, uid=uid) / "trials.db"


def guests_folder(environment: Mapping[str, str] | None = None, *, uid: int | None = None) -> Path:
    """Return the folder for kernels and tools of guests: ``$IOTRIAL_GUESTS``, else ``guest`` in the state folder."""
    environment = os.environ if environment is None else environment
    named = environment.get("IOTRIAL_GUESTS", "")
    return Path(named).expanduser() if named else state_folder(environment, uid=uid) / "guest"


def journal_mark(journal: Path) -> Path:
    """Return the marker file next to an undo journal that says that the journal has entries."""
    return journal.with_name(f"{journal.name}.open")
