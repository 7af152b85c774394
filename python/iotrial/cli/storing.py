"""The store as verbs that only read it open it: with a word where it is not what it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iotrial.cli.output import tell
from iotrial.legible import shown

if TYPE_CHECKING:
    from iotrial.store import Store


def store_to_read(*, needed: bool) -> Store | None:
    """The store, unchanged whatever is found; None where there is none (``needed``: RequestError).

    What must be known of the whole file goes to standard error.
    """
    from iotrial.errors import RequestError
    from iotrial.paths import store_path
    from iotrial.store import Store

    path = store_path()
    if not path.exists():
        if needed:
            raise RequestError("there are no trials yet", hint="start with `iotrial run files/permissions`")
        return None
    store = Store.open(path, read_only=True)
    for warning in store.warnings:
        warn(warning)
    return store


def warn(text: str) -> None:
    """A line on standard error that is no error, with nothing in it that a terminal would obey."""
    tell(f"iotrial: warning: {shown(text)}", err=True)
