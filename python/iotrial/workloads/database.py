"""Workload kind ``database``: one test on one table, in SQLite, MariaDB or PostgreSQL, by the engine's own client.

The table is created and filled before the first run on a place, from closed forms, so that query results can
be checked against known values. A server is started for each run and stopped after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from iotrial.errors import LARGER_LAB, NoSpace, unknown
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Duration, Line, Problem, Size
from iotrial.study.work import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    SYNCED_RESPONSE,
    Damage,
    HasCheck,
    HasServer,
    JobContext,
    LabContext,
    Measured,
    Recovered,
    ResponseSpec,
    Work,
    minimal_environment,
    only_for,
    printed_by,
    rate_response,
    time_response,
    to_take_off,
)
from iotrial.units import format_bytes
from iotrial.workloads.databases import Engine, engine, rows
from iotrial.workloads.databases.recovered import acknowledged_rows, find_damage
from iotrial.workloads.served import own_folder

if TYPE_CHECKING:
    from iotrial.study.server import Server

#: maximum client output that the probe keeps
MOST_OUTPUT_BYTES = 16 << 20
#: created when a database has been filled; missing if its creation did not finish
FILLED = "filled"
ENGINES = {
    "sqlite": "embedded in its command-line program, which is both client and engine",
    "mariadb": "a server, started in the lab's folder for each run",
    "postgresql": "likewise",
}
TESTS = {
    "count": "count all rows (SELECT count(*))",
    "index": "create an index over three columns; dropped after the run",
    "insert-bulk": "insert `changed` rows in one transaction, a hundred per statement; deleted after the run",
    "insert-small": "insert `changed` rows, one per statement and transaction; deleted after the run",
    "fetch": "fetch `changed` rows with all columns",
    "update": "change a number in `changed` rows, in one transaction; undone after the run",
    "delete": "delete `changed` rows in one transaction; inserted again after the run",
    "sort": "sort all rows by their text, without an index",
}
INSERTS = frozenset({"insert-bulk", "insert-small"})
#: tests of all rows; the others are of `changed` rows
OF_ALL = frozenset({"count", "index", "sort"})
#: the client's output is kept in memory: this many rows fit
MOST_FETCHED = 220_000
MOST_CHANGED = 500_000
SMALLEST_BUFFER = 8 << 20

_WALL = time_response("wall", "time of the client process from start to end, including connection and result")
_RATE = rate_response("rate", "1/s", "rows that the test is about, per second")
_SERVER = (  # not stretchable: the slowdown applies to another process
    *(
        time_response(name, text, stretchable=False)
        for name, text in (
            ("server_cpu", "processor time of all processes of the server"),
            ("server_user", "of this, in user mode, in ticks of 10 ms"),
            ("server_sys", "of this, in the kernel, in ticks of 10 ms"),
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


class DatabaseWork(HasCheck, HasServer, Work, frozen=True, kw_only=True):
    """One test on a table of a database in the lab."""

    kind = "database"
    about = (
        "One test on one table of a database, by the engine's own client program. The table (a number as "
        "primary key, three integers, a text) is created and filled before the first run on a place, with "
        "computed values; changes of a run are undone after it, untimed, and results are checked."
    )
    vocabulary = {"engine": ENGINES, "test": TESTS}
    documented = (_WALL, _RATE, *CPU_RESPONSES, *_SERVER, *DEVICE_RESPONSES, SYNCED_RESPONSE)
    options = (
        *(
            "test",
            "rows",
            "changed",
            "buffer",
            "durable",
            "commit",
            "journal",
            "huge_pages",
            "buffer_dump",
            "connection",
        ),
        *("separate_log", "separate_temporary"),
    )
    unstretchable = "the server's counters, since the server is not the process that is slowed down"
    verb = "command"
    starts_programs = True
    accountable = True

    engine: Annotated[
        Literal["sqlite", "mariadb", "postgresql"],
        Meta(
            description=(
                "database engine (Debian packages: sqlite3; mariadb-server-core and mariadb-client-core; "
                "postgresql)"
            )
        ),
    ]
    test: Annotated[Line, Meta(description="what a run does")] = "count"
    rows: Annotated[int, Meta(ge=1000, le=1_000_000_000, description="rows of the table before a run")] = (
        200_000
    )
    changed: Annotated[
        int,
        Meta(
            ge=1,
            le=MOST_CHANGED,
            description="rows that a run inserts, fetches, updates or deletes (only those tests)",
        ),
    ] = 2000
    buffer_bytes: Annotated[
        Size,
        Meta(
            ge=SMALLEST_BUFFER,
            le=1 << 44,
            description="the engine's own cache: cache_size of SQLite, the InnoDB buffer pool, shared_buffers",
        ),
    ] = 128 << 20
    durable: Annotated[
        bool,
        Meta(
            description=(
                "whether a commit waits for the disk: synchronous = FULL or OFF (SQLite), "
                "innodb_flush_log_at_trx_commit = 1 or 2, synchronous_commit = on or off"
            )
        ),
    ] = True
    commit: Annotated[
        Line,
        Meta(
            description=(
                "how a commit is made durable, instead of `durable`: synchronous = off, normal, full or extra "
                "(SQLite); innodb_flush_log_at_trx_commit = 0, 1 or 2; on or off (synchronous_commit) or no-fsync "
                "(PostgreSQL)"
            )
        ),
    ] = ""
    journal: Annotated[
        Literal["", "delete", "truncate", "persist", "memory", "wal", "off"],
        Meta(description="journal_mode of SQLite; empty: its default, delete"),
    ] = ""
    huge_pages: Annotated[
        bool,
        Meta(
            description=(
                "server cache in reserved huge pages (vm.nr_hugepages); the run fails if it gets none. "
                "Not with SQLite. Transparent huge pages: knob memory.huge_pages"
            )
        ),
    ] = False
    buffer_dump: Annotated[
        bool,
        Meta(description=("MariaDB saves its list of cached pages at shutdown and reloads them at start")),
    ] = False
    connection: Annotated[
        Literal["socket", "loopback"],
        Meta(description="Unix socket, or TCP over 127.0.0.1"),
    ] = "socket"
    separate_log: Annotated[
        bool,
        Meta(
            description=(
                "write-ahead log (PostgreSQL) or redo log (MariaDB) on the place `log`, if the study has one "
                'that `holds = "files"`; false: with the data. Not with SQLite'
            )
        ),
    ] = True
    separate_temporary: Annotated[
        bool,
        Meta(description="temporary files of sorts and index builds on the place `log`. Only MariaDB"),
    ] = False
    timeout_s: Annotated[
        Duration, Meta(gt=0, le=86400, description="timeout of a test; then the run fails")
    ] = 600.0

    def check(self) -> None:
        if self.test not in TESTS:
            message, hint = unknown("test", self.test, TESTS)
            raise Problem(message, "test", hint=hint)
        if self.commit and self.commit not in engine(self.engine).commits:
            message, hint = unknown(f"commit of {self.engine}", self.commit, engine(self.engine).commits)
            raise Problem(message, "commit", hint=hint)
        if self.journal and self.engine != "sqlite":
            raise only_for("journal", "SQLite")
        if self.engine == "sqlite":
            for key, plain in (("huge_pages", False), ("connection", "socket"), ("separate_log", True)):
                if getattr(self, key) != plain:
                    raise only_for(key, "an engine with a server")
        for key in ("buffer_dump", "separate_temporary"):
            if getattr(self, key) and self.engine != "mariadb":
                raise only_for(key, "MariaDB")
        most = min(self.rows, MOST_FETCHED) if self.test == "fetch" else self.rows
        if self.test in ("fetch", "update", "delete") and self.changed > most:
            raise Problem(f"expected at most {most:,} rows, found {self.changed:,}", "changed")

    def responses(self) -> tuple[ResponseSpec, ...]:
        server = () if self.engine == "sqlite" else _SERVER
        return (_WALL, _RATE, *CPU_RESPONSES, *server, *DEVICE_RESPONSES, SYNCED_RESPONSE)

    def rows_touched(self) -> int:
        """Return how many rows the test is about."""
        return self.rows if self.test in OF_ALL else self.changed

    def described(self) -> str:
        words = [f"{self.engine}: {self.test}"]
        if self.test not in OF_ALL:
            words.append(
                f"{self.changed:,} rows added to" if self.test in INSERTS else f"{self.changed:,} of"
            )
        words.append(f"{self.rows:,} rows with {format_bytes(self.buffer_bytes)} of cache")
        options = [
            f"journal {self.journal}" if self.journal else "",
            f"commit {self.commit}" if self.commit else "" if self.durable else "not durable",
            "huge pages" * self.huge_pages,
            "buffer dump" * self.buffer_dump,
            "" if self.separate_log else "log with the data",
            "temporary files apart" * self.separate_temporary,
        ]
        over = "over loopback" if self.connection == "loopback" else ""
        return ", ".join([" ".join(words), *filter(None, [*options, over])])

    def probe_job(self, context: JobContext) -> dict[str, object]:
        assert context.lab is not None
        kind, folder = engine(self.engine), _folder(self, context.lab)
        return {
            "steps": [{"name": self.test, "argv": kind.client_argv(self, context.lab, folder)}],
            "environment": {**minimal_environment(), **context.environment},
            "cwd": folder,
            "stdin": kind.before(self) + _sql(self),
            "timeout_s": self.timeout_s,
            "expect_exit": 0,
            "keep_output": MOST_OUTPUT_BYTES,
        }

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        spun_wall, _ = to_take_off(answer, context.stretched)
        wall = answer["wall_ns"] / 1e9 - (0.0 if context.stretched == "rate" else spun_wall)
        return Measured({"rate": self.rows_touched() / wall})

    def reads_bytes(self, size: int, files: int) -> int:
        if self.buffer_dump:
            return 0  # the server has loaded its pages before the timed part
        return 1 if self.test in INSERTS else self.rows_touched() * rows.LEAST_ROW_BYTES

    def may_read_warm(self) -> bool:
        return self.rows * rows.MOST_ROW_BYTES > self.buffer_bytes and self.engine != "sqlite"

    def writes(self) -> bool:
        return False  # not to the files of its set

    def leaves_dirty(self) -> bool:
        return True

    def own_bytes(self, settings: Mapping[str, str]) -> int:
        return engine(self.engine).own_bytes + (self.rows + self.changed) * rows.MOST_ROW_BYTES

    def on_files(self) -> bool:
        return False

    def as_root(self) -> bool:
        return False

    def never_root(self) -> bool:
        return True

    def needed_programs(self) -> Mapping[str, str]:
        return engine(self.engine).installed()

    def check_program(self, path: str) -> None:
        for name in engine(self.engine).needed:
            engine(self.engine).program(name, path)

    # after a power cut

    def checks(self) -> bool:
        return self.test in INSERTS

    def acknowledging(self, job: Mapping[str, Any], marks: str) -> dict[str, Any]:
        kind, first, last = engine(self.engine), self.rows + 1, self.rows + self.changed
        if self.test == "insert-bulk":
            every = [(f"{first}-{last}", rows.insert_sql(first, last, at_once=True))]
        else:
            every = [(str(i), rows.insert_sql(i, i, at_once=False)) for i in range(first, last + 1)]
        # one transaction after the other: the next is sent when the commit of the one before is acknowledged
        dialog = [sql + rows.acknowledgement(item) for item, sql in every]
        dialog[0] = kind.before(self) + dialog[0]
        steps = [
            {**step, "argv": [*step["argv"][:2], *kind.unbuffered, *step["argv"][2:]]}
            for step in job["steps"]
        ]
        return {**job, "steps": steps, "dialog": dialog, "acknowledge": marks}

    def items(self, acknowledged: Sequence[str]) -> int:
        return len(acknowledged_rows(acknowledged))

    def damage(self, recovered: Recovered) -> Damage:
        lab = recovered.lab
        return find_damage(engine(self.engine), self, lab, _folder(self, lab), recovered.acknowledged)

    # around a run

    def has_own_data(self) -> bool:
        return True

    def provide(self, lab: LabContext) -> None:
        folder, kind = _folder(self, lab), engine(self.engine)
        temporary = kind.temporary_folder(self, lab, folder)
        if not lab.target.exists(f"{folder}/{FILLED}"):
            # the same database for all: its log is moved afterwards
            plain = replace(self, separate_log=self.engine == "sqlite", separate_temporary=False)
            lab.target.call("mkdir", path=lab.own, mode="0755")
            self._check_room(lab)
            own_folder(lab, folder, mode="0700")
            if (log := kind.log_folder(plain, lab, folder)) is not None:
                own_folder(lab, log, mode="0700")
            kind.create(plain, lab, folder)
            kind.fill(plain, lab, folder)
            lab.target.call("mkdir", path=f"{folder}/{FILLED}", mode="0755")
            lab.target.call("syncfs", path=lab.root)
        kind.move_log(self, lab, folder)
        if temporary is not None and not lab.target.exists(temporary):
            own_folder(lab, temporary, mode="0700")

    def _check_room(self, lab: LabContext) -> None:
        wanted = self.own_bytes({})
        free = int(lab.target.call("statfs", path=lab.root)["available_bytes"])
        if free < wanted:
            raise NoSpace(
                f"{self.engine}, {self.rows:,} rows: expected {wanted >> 20} MiB free in the lab, found {free >> 20}",
                hint=LARGER_LAB,
            )

    def settle(self, lab: LabContext, answer: Mapping[str, Any]) -> str | None:
        kind, folder = engine(self.engine), _folder(self, lab)
        if answer["failures"]:
            # The failure is already reported, and the database may be half changed: recreate it for the next run.
            lab.target.call("remove", path=f"{folder}/{FILLED}")
            return None
        used = answer.get("servers", {}).get(kind.name, {})
        if self.huge_pages and not used.get("huge_bytes"):
            return f"{self.engine}: huge pages were requested, but not allocated"
        wrong = _wrong(kind, self, lab, folder, printed_by(answer))
        if wrong is not None:
            lab.target.call("remove", path=f"{folder}/{FILLED}")
        if undo := _undo(kind, self):
            kind.ask(self, lab, folder, undo)
            lab.target.call("syncfs", path=lab.root)
        return wrong

    def started_servers(self, lab: LabContext) -> tuple[Server, ...]:
        server = engine(self.engine).server(self, lab, _folder(self, lab))
        return () if server is None else (server,)

    def begun(self, lab: LabContext) -> None:
        engine(self.engine).begun(self, lab, _folder(self, lab))

    def takes_program(self) -> bool:
        return True

    def warm(self, state: str) -> int:
        return engine(self.engine).passes if state == "warm" else 0


def _folder(work: DatabaseWork, lab: LabContext) -> str:
    """Return the database folder: one per program and number of rows."""
    chosen = lab.program
    mark = f"-{hashlib.sha256(chosen.encode()).hexdigest()[:8]}" if chosen else ""
    return f"{lab.own}/{work.engine}-{work.rows}{mark}"


def _sql(work: DatabaseWork) -> str:
    last = work.rows + work.changed
    match work.test:
        case "count":
            return f"SELECT count(*) FROM {rows.TABLE};\n"
        case "index":
            return rows.index_sql()
        case "fetch":
            return f"SELECT * FROM {rows.TABLE} WHERE id <= {work.changed} ORDER BY id;\n"
        case "update":
            return rows.update_sql(work.changed, 1)
        case "delete":
            return rows.delete_sql(work.changed)
        case "sort":
            return rows.sort_sql()
        case _:
            return rows.insert_sql(work.rows + 1, last, at_once=work.test == "insert-bulk")


def _undo(kind: Engine, work: DatabaseWork) -> str:
    """Return SQL that restores the table after a run; empty if the test changes nothing."""
    match work.test:
        case "index":
            return kind.drop_index()
        case "update":
            return rows.update_sql(work.changed, -1) + kind.tidy()
        case "delete":
            return rows.insert_sql(1, work.changed, at_once=True) + kind.tidy()
        case _:
            return kind.deletion(work) if work.test in INSERTS else ""


def _wrong(kind: Engine, work: DatabaseWork, lab: LabContext, folder: str, output: str) -> str | None:
    """Describe how the result differs from the known result of the test; None if it does not."""
    first, last = work.rows + 1, work.rows + work.changed
    match work.test:
        case "count" | "sort":
            wanted, found = f"{work.rows}\n", output
        case "fetch":
            wanted, found = rows.lines(1, work.changed, kind.separator), output
        case "index":
            wanted, found = "1\n", kind.ask(work, lab, folder, kind.index_query())
        case "update":
            query = f"SELECT sum(amount) FROM {rows.TABLE} WHERE id <= {work.changed};\n"
            wanted = f"{rows.amounts(1, work.changed) + work.changed}\n"
            found = kind.ask(work, lab, folder, query)
        case "delete":
            wanted = f"{work.rows - work.changed}\n"
            found = kind.ask(work, lab, folder, f"SELECT count(*) FROM {rows.TABLE};\n")
        case _:
            sums = f"SELECT count(*) FROM {rows.TABLE};\nSELECT sum(amount) FROM {rows.TABLE} WHERE id > {work.rows};\n"
            wanted = f"{last}\n{rows.amounts(first, last)}\n"
            found = kind.ask(work, lab, folder, sums)
    if found == wanted:
        return None
    wanted, found = (f"{text[:60]!r} ({len(text)} bytes)" for text in (wanted, found))
    return f"{work.engine}, {work.test}: expected the answer {wanted}, found {found}"


WORK = DatabaseWork
