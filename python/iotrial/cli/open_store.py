"""The store as verbs that only read it open it: with a word where it is not what it should be."""

from __future__ import annotations

from iotrial.cli.output import warn
from iotrial.errors import RequestError
from iotrial.paths import store_path
from iotrial.store import Store


def store_to_read(*, needed: bool) -> Store | None:
    """The store, unchanged whatever is found; None where there is none (``needed``: RequestError).

    What must be known of the whole file goes to standard error.
    """
    path = store_path()
    if not path.exists():
        if needed:
            raise RequestError("there are no trials yet", hint="start with `iotrial run files/permissions`")
        return None
    store = Store.open(path, read_only=True)
    for warning in store.warnings:
        warn(warning)
    return store
