"""Workload kind ``database``: one test on one table, in SQLite, MariaDB or PostgreSQL.

The table is made and filled before the first run on a place, from closed forms, so that answers can be checked against what
they must be. A server is started for each run and stopped after it.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import Literal

from pydantic import Field

from iotrial.study.kinds.contract import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    SYNCED_RESPONSE,
    KeyProblem,
    ResponseSpec,
    WorkloadKind,
    rate_response,
    time_response,
)
from iotrial.study.model import Better, DatabaseWork, Scale, Work
from iotrial.study.wire import Duration, Line, Size, Table

ENGINES = {
    "sqlite": "embedded in its own command-line program, which is the client and the engine in one",
    "mariadb": "a server that listens for the client, started in the lab's folder for each run",
    "postgresql": "likewise",
}
TESTS = {
    "count": "the number of all rows (SELECT count(*))",
    "index": "an index over three columns is made; dropped after the run",
    "insert-bulk": "`changed` rows are inserted in one transaction, a hundred by each statement; deleted after the run",
    "insert-small": "`changed` rows are inserted, each by a statement and a transaction of its own; deleted after the run",
    "fetch": "`changed` rows go to the client with all their columns",
}
INSERTS = frozenset({"insert-bulk", "insert-small"})
#: what a client may say is kept in memory: so many rows fit
MOST_FETCHED = 220_000
MOST_CHANGED = 500_000
SMALLEST_BUFFER = 8 << 20


class DatabaseKeys(Table):
    """Keys of ``kind = "database"``."""

    engine: Literal["sqlite", "mariadb", "postgresql"] = Field(description="whose database it is")
    test: Line = Field("count", description="what is done in a run")
    rows: int = Field(200_000, ge=1000, le=1_000_000_000, description="rows of the table before a run")
    changed: int = Field(
        2000, ge=1, le=MOST_CHANGED, description="rows that a run inserts or fetches (those tests alone)"
    )
    buffer: Size = Field(
        128 << 20,
        ge=SMALLEST_BUFFER,
        le=1 << 44,
        description="the engine's own cache: cache_size of SQLite, the InnoDB buffer pool, shared_buffers",
    )
    durable: bool = Field(
        True,
        description="a commit waits until it is on the disk: synchronous = FULL or OFF (SQLite), "
        "innodb_flush_log_at_trx_commit = 1 or 2, synchronous_commit = on or off",
    )
    huge_pages: bool = Field(
        False,
        description="the server's cache is made of huge pages that the machine has reserved (vm.nr_hugepages); "
        "a run that gets none has failed. Not with SQLite; transparent ones are the knob memory.huge_pages",
    )
    buffer_dump: bool = Field(
        False,
        description="MariaDB writes down at its end which pages it has cached, and reads them back when it starts: a "
        "restart does not empty its cache then",
    )
    connection: Literal["socket", "loopback"] = Field(
        "socket",
        description="how the client reaches a server: a Unix socket, or TCP over 127.0.0.1",
    )
    timeout: Duration = Field(
        600.0, gt=0, le=86400, description="longest time of a test; after it the run failed"
    )


def build(keys: DatabaseKeys) -> DatabaseWork:
    """The work of these keys; KeyProblem where they cannot work together."""
    if keys.test not in TESTS:
        near = difflib.get_close_matches(keys.test, TESTS, n=1, cutoff=0.4)
        hint = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(TESTS)}"
        raise KeyProblem(f'no test is called "{keys.test}"', "test", hint=hint)
    if keys.engine == "sqlite":
        for key, plain in (("huge_pages", False), ("connection", "socket")):
            if getattr(keys, key) != plain:
                raise KeyProblem(f"SQLite has no server, so {key} means nothing to it", key)
    if keys.buffer_dump and keys.engine != "mariadb":
        raise KeyProblem("only MariaDB keeps the list of its cached pages over a restart", "buffer_dump")
    if keys.test == "fetch" and keys.changed > min(keys.rows, MOST_FETCHED):
        raise KeyProblem(
            f"{keys.changed:,} rows cannot be fetched: there are {keys.rows:,}, and at most {MOST_FETCHED:,} are taken",
            "changed",
        )
    return DatabaseWork(
        engine=keys.engine,
        test=keys.test,
        rows=keys.rows,
        changed=keys.changed,
        buffer_bytes=keys.buffer,
        durable=keys.durable,
        huge_pages=keys.huge_pages,
        buffer_dump=keys.buffer_dump,
        connection=keys.connection,
        timeout_s=keys.timeout,
    )


def rows_touched(work: DatabaseWork) -> int:
    """How many rows a run counts, indexes, inserts or fetches."""
    return work.rows if work.test in ("count", "index") else work.changed


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run of this work measures."""
    assert isinstance(work, DatabaseWork)
    server = () if work.engine == "sqlite" else _SERVER
    return (_WALL, _RATE, *CPU_RESPONSES, *server, *DEVICE_RESPONSES, SYNCED_RESPONSE)


_WALL = time_response(
    "wall", "time of the client's process, from its start to its end: connection and answer included"
)
_RATE = rate_response("rate", "1/s", "rows counted, indexed, inserted or fetched a second")
_SERVER = (  # of another process than the one that is slowed down
    *(
        replace(time_response(name, text), stretchable=False)
        for name, text in (
            ("server_cpu", "processor time of all processes of the server"),
            ("server_user", "its part in user mode, in ticks of 10 ms"),
            ("server_sys", "its part in the kernel, in ticks of 10 ms"),
        )
    ),
    ResponseSpec(
        "server_resident_bytes",
        "bytes",
        Scale.LOG,
        Better.LOWER,
        "memory of the server, shared pages once",
        stretchable=False,
    ),
)

KIND = WorkloadKind(
    name="database",
    work=DatabaseWork,
    summary="One test on one table of a database, by the engine's own client program. The table (a number as primary key, "
    "three integers, a text) is made and filled before the first run on a place, from closed forms; what a run has changed "
    "is undone after it, outside the time, and answers are checked against what they must be.",
    keys=DatabaseKeys,
    build=build,
    responses=responses,
    documented=(_WALL, _RATE, *CPU_RESPONSES, *_SERVER, *DEVICE_RESPONSES, SYNCED_RESPONSE),
    vocabulary={"engine": ENGINES, "test": TESTS},
    options=("test", "rows", "changed", "buffer", "durable", "huge_pages", "buffer_dump", "connection"),
    takes_program=True,
    unstretchable="what is counted of the server, which is another process than the one that is slowed down",
    notes="A server is started for each run, after the lab is mounted and made cold, and stopped after it, in every arm "
    "alike; it runs as the invoking user, or as nobody where root typed the command. Cache states: `cold` empties the "
    "engine's cache and the kernel's; `warm` has the test done once before. Responses server_... are those of MariaDB and "
    "PostgreSQL. --set program=PATH,PATH compares two versions: folders of their programs.",
)
