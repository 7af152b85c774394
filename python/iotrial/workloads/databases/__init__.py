"""Databases that workloads of kind ``database`` are done in: how each is made, served, asked and put back."""

from __future__ import annotations

from iotrial.workloads.databases.engine import Engine
from iotrial.workloads.databases.mariadb import MariaDb
from iotrial.workloads.databases.postgresql import PostgreSql
from iotrial.workloads.databases.sqlite import Sqlite

__all__ = ["Engine", "engine"]

_ENGINES: dict[str, Engine] = {found.name: found for found in (Sqlite(), MariaDb(), PostgreSql())}


def engine(name: str) -> Engine:
    """The engine of this name, as studies write it."""
    return _ENGINES[name]
