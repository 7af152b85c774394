"""Database engines for workloads of kind ``database``: how each is created, served, queried and restored."""

from __future__ import annotations

from iotrial.workloads.databases.engine import Engine
from iotrial.workloads.databases.mariadb import MariaDb
from iotrial.workloads.databases.postgresql import PostgreSql
from iotrial.workloads.databases.sqlite import Sqlite

__all__ = ["Engine", "engine"]

_ENGINES: dict[str, Engine] = {found.name: found for found in (Sqlite(), MariaDb(), PostgreSql())}


def engine(name: str) -> Engine:
    """Return the engine of this name, as written in studies."""
    return _ENGINES[name]
