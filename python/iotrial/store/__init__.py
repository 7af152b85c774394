"""The store of trials: SQLite, append-only, durable at every commit.

Names are imported on first use: a list of trials needs few of the modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iotrial.store.database import Store
    from iotrial.store.states import ProcessIdentity, identity, is_alive

__all__ = ["ProcessIdentity", "Store", "identity", "is_alive"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    module = import_module("iotrial.store.database" if name == "Store" else "iotrial.store.states")
    return getattr(module, name)
