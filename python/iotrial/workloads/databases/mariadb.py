"""MariaDB: mariadb-install-db, a server for each run, its own client. Tables are InnoDB."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from iotrial.errors import LabError
from iotrial.polling import attempts
from iotrial.study.server import Server
from iotrial.study.work import LabContext, minimal_environment
from iotrial.workloads.databases import rows
from iotrial.workloads.databases.engine import Engine

if TYPE_CHECKING:
    from iotrial.workloads.database import DatabaseWork


LOAD = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_BUFFER_POOL_LOAD_STATUS';\n"
LOADED_WITHIN_S = 600.0
PAUSE_S = 0.05
DATABASE = "iotrial"


class MariaDb(Engine):
    """A server that refuses to run as root. Deleted rows are purged before it shuts down, not by the next run's server."""

    name = "mariadb"
    needed: ClassVar[tuple[str, ...]] = ("mariadbd", "mariadb-install-db", "mariadb")
    package = "mariadb-server-core mariadb-client-core"
    separator = "\t"
    own_bytes = 160 << 20
    stale = ("s", "pid")
    unbuffered = ("--unbuffered",)
    commits = {
        "1": "the log is written and flushed at each commit (innodb_flush_log_at_trx_commit)",
        "2": "written at each commit, flushed once a second",
        "0": "written and flushed once a second",
    }

    def create(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        self.run(lab, ["mkdir", "-m", "0700", f"{folder}/tmp"], cwd=folder)
        installer = self.program("mariadb-install-db", lab.program)
        server = self.program("mariadbd", lab.program)
        argv = [
            installer,
            "--no-defaults",
            f"--datadir={folder}/data",
            "--auth-root-authentication-method=normal",
        ]
        base = PurePath(server).parent.parent
        self.run(
            lab, [*argv, "--skip-test-db", f"--basedir={base}", *self._log(work, lab, folder)], cwd=folder
        )

    def fill(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        # The dump of cached pages exists before the first run, whichever arm that is.
        super().fill(replace(work, buffer_dump=True), lab, folder)

    def opened(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        argv = self.client_argv(work, lab, folder)
        self.run(lab, argv[:-1], cwd=folder, stdin=f"CREATE DATABASE {DATABASE};\n")

    def filling(self, work: DatabaseWork) -> str:
        columns = rows.columns_sql("seq", "CONCAT('entry number ', seq)")
        return (
            f"{rows.create_sql('BIGINT', ' ENGINE=InnoDB')}\n"
            f"INSERT INTO {rows.TABLE} SELECT {columns} FROM seq_1_to_{work.rows};\nANALYZE TABLE {rows.TABLE};\n"
        )

    def client_argv(self, work: DatabaseWork, lab: LabContext, folder: str) -> list[str]:
        argv = [
            self.program("mariadb", lab.program),
            "--no-defaults",
            "--batch",
            "--skip-column-names",
            "--user=root",
        ]
        if work.connection == "loopback":
            return [*argv, "--protocol=TCP", "--host=127.0.0.1", f"--port={lab.port}", DATABASE]
        return [*argv, f"--socket={folder}/s", DATABASE]

    def server(self, work: DatabaseWork, lab: LabContext, folder: str) -> Server:
        dump = "ON" if work.buffer_dump else "OFF"
        over = work.connection == "loopback"
        program = self.program("mariadbd", lab.program)
        return Server(
            name=self.name,
            argv=(
                program,
                "--no-defaults",
                f"--basedir={PurePath(program).parent.parent}",
                f"--datadir={folder}/data",
                f"--tmpdir={self.temporary_folder(work, lab, folder) or f'{folder}/tmp'}",
                f"--socket={folder}/s",
                f"--pid-file={folder}/pid",
                *(("--bind-address=127.0.0.1", f"--port={lab.port}") if over else ("--skip-networking",)),
                "--skip-name-resolve",
                "--skip-log-bin",
                f"--innodb-buffer-pool-size={work.buffer_bytes}",
                f"--innodb-flush-log-at-trx-commit={work.commit or (1 if work.durable else 2)}",
                "--innodb-fast-shutdown=0",
                "--innodb-stats-auto-recalc=OFF",
                f"--innodb-buffer-pool-dump-at-shutdown={dump}",
                f"--innodb-buffer-pool-load-at-startup={dump}",
                "--innodb-buffer-pool-dump-pct=100",
                *(("--large-pages",) if work.huge_pages else ()),
                *self._log(work, lab, folder),
            ),
            ready={"socket": f"{folder}/s"},
            environment=minimal_environment(),
            cwd=folder,
            timeout_s=120.0,
            stop_timeout_s=120.0,
        )

    def _log(self, work: DatabaseWork, lab: LabContext, folder: str) -> tuple[str, ...]:
        size, log = "--innodb-log-file-size=33554432", self.log_folder(work, lab, folder)
        return (size,) if log is None else (size, f"--innodb-log-group-home-dir={log}")

    def begun(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        for _ in attempts(LOADED_WITHIN_S, PAUSE_S):
            output = self.ask(work, lab, folder, LOAD)
            if not work.buffer_dump or any(word in output for word in ("completed", "Cannot open")):
                return
        raise LabError(f"database {self.name}: its buffer pool was not loaded in time: {output.strip()}")

    def integrity(self) -> str:
        return f"CHECK TABLE {rows.TABLE} EXTENDED;\n"

    def complaint(self, line: str) -> str | None:
        words = line.split(self.separator)
        if len(words) == 4 and words[1] == "check" and (words[2], words[3]) != ("status", "OK"):
            return line
        return None

    def index_query(self) -> str:
        return f"SELECT count(*) > 0 FROM {rows.TABLE} FORCE INDEX ({rows.INDEX}) WHERE account = 7;\n"

    def drop_index(self) -> str:
        return f"DROP INDEX {rows.INDEX} ON {rows.TABLE};\n"
