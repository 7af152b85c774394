"""The store of trials: SQLite, append-only, durable at every commit."""

from iotrial.store.database import Store
from iotrial.store.liveness import ProcessIdentity, identity, is_alive

__all__ = ["ProcessIdentity", "Store", "identity", "is_alive"]
