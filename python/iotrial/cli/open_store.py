"""Open the store for verbs that only read it, and print its warnings."""

from __future__ import annotations

from iotrial.cli.output import warn
from iotrial.errors import RequestError
from iotrial.paths import store_path
from iotrial.store import Store


def store_to_read(*, needed: bool) -> Store | None:
    """Open the store read-only. Return None if there is none (with ``needed``: raise RequestError).

    Warnings about the whole file go to standard error.
    """
    path = store_path()
    if not path.exists():
        if needed:
            raise RequestError(
                "the store has no trials yet", hint="start with `iotrial run files/permissions`"
            )
        return None
    store = Store.open(path, read_only=True)
    for warning in store.warnings:
        warn(warning)
    return store
