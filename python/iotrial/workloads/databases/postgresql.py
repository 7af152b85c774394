"""PostgreSQL: initdb, a server for each run, psql."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, ClassVar

from iotrial.study.server import Server
from iotrial.study.work import LabContext, minimal_environment
from iotrial.workloads.databases import rows
from iotrial.workloads.databases.engine import Engine

if TYPE_CHECKING:
    from iotrial.workloads.database import DatabaseWork


#: part of the socket's name; no TCP port is opened
PORT = 5432


class PostgreSql(Engine):
    """A server that refuses to run as root. ANALYZE and VACUUM are run explicitly, not left to the background."""

    name = "postgresql"
    needed: ClassVar[tuple[str, ...]] = ("postgres", "initdb", "psql")
    package = "postgresql"
    elsewhere: ClassVar[tuple[str, ...]] = ("usr/lib/postgresql/*/bin",)
    own_bytes = 120 << 20
    stale = (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock", "data/postmaster.pid")
    # Killed, it would leave shared memory.
    ends_with = signal.SIGQUIT
    commits = {
        "on": "a commit waits until the log is flushed (synchronous_commit)",
        "off": "it does not wait; the log is written and flushed up to three times wal_writer_delay later",
        "no-fsync": "it waits until the log is written, and nothing is ever flushed (fsync = off)",
    }
    # The first connection after a start caches what it has looked up on disk; the second reads what later ones look up.
    passes = 2

    def create(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        log = self.log_folder(work, lab, folder)
        argv = [
            self.program("initdb", lab.program),
            "-D",
            f"{folder}/data",
            "-U",
            "iotrial",
            "-A",
            "trust",
            "-E",
            "UTF8",
        ]
        argv += ["--no-locale", "--no-sync", *([] if log is None else ["-X", log])]
        self.run(lab, argv, cwd=folder)

    def use_log(self, lab: LabContext, folder: str, log: str) -> None:
        self.run(lab, ["ln", "-sfn", log, f"{folder}/data/pg_wal"], cwd=folder)

    def filling(self, work: DatabaseWork) -> str:
        columns = rows.columns_sql("i", "'entry number ' || i")
        series = f"generate_series(1::bigint, {work.rows}) AS i"
        # Freeze the rows: otherwise the first reader would check their visibility and set hint bits.
        return (
            f"{rows.create_sql('BIGINT')}\nINSERT INTO {rows.TABLE} SELECT {columns} FROM {series};\n"
            f"VACUUM (FREEZE, ANALYZE) {rows.TABLE};\nCHECKPOINT;\n"
        )

    def client_argv(self, work: DatabaseWork, lab: LabContext, folder: str) -> list[str]:
        over = work.connection == "loopback"
        host, port = ("127.0.0.1", lab.port) if over else (folder, PORT)
        argv = [
            self.program("psql", lab.program),
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            host,
            "-p",
            str(port),
        ]
        return [*argv, "-U", "iotrial", "-d", "postgres"]

    def server(self, work: DatabaseWork, lab: LabContext, folder: str) -> Server:
        over = work.connection == "loopback"
        waits = work.commit != "off" if work.commit else work.durable
        settings = {
            "unix_socket_directories": folder,
            "listen_addresses": "127.0.0.1" if over else "",
            "shared_buffers": f"{work.buffer_bytes >> 10}kB",
            "synchronous_commit": "on" if waits else "off",
            "fsync": "off" if work.commit == "no-fsync" else "on",
            "huge_pages": "on" if work.huge_pages else "off",
            "autovacuum": "off",
        }
        return Server(
            name=self.name,
            argv=(
                self.program("postgres", lab.program),
                *("-D", f"{folder}/data", "-p", str(lab.port if over else PORT)),
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
            ),
            # It accepts connections before it can serve them; this line is written last.
            ready={"file": f"{folder}/data/postmaster.pid", "contains": "ready"},
            environment=minimal_environment(),
            cwd=folder,
            timeout_s=120.0,
            stop_signal="INT",
            stop_timeout_s=120.0,
        )

    def index_query(self) -> str:
        return (
            "SELECT CASE WHEN indisvalid AND indisready THEN 1 ELSE 0 END FROM pg_index "
            f"WHERE indexrelid = '{rows.INDEX}'::regclass;\n"
        )

    def tidy(self) -> str:
        return f"VACUUM {rows.TABLE};\n"
