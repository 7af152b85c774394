"""Databases that workloads of kind ``database`` are done in: how each is made, served, asked and put back."""

from __future__ import annotations

from iotrial.conduct.engines.contract import Engine
from iotrial.conduct.engines.mariadb import MariaDb
from iotrial.conduct.engines.postgresql import PostgreSql
from iotrial.conduct.engines.sqlite import Sqlite

__all__ = ["Engine", "engine"]

_ENGINES: dict[str, Engine] = {found.name: found for found in (Sqlite(), MariaDb(), PostgreSql())}


def engine(name: str) -> Engine:
    """The engine of this name, as studies write it."""
    return _ENGINES[name]
