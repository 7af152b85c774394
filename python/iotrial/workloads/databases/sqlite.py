"""SQLite, by its own command-line program.

It is a small C program, so the time is almost entirely the engine's. Python, which has the same library built
in, takes longer to start than many tests last, and the user nobody may not be allowed to access it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from iotrial.study.work import LabContext
from iotrial.workloads.databases import rows
from iotrial.workloads.databases.engine import Engine

if TYPE_CHECKING:
    from iotrial.workloads.database import DatabaseWork


class Sqlite(Engine):
    """A single file; the client contains the engine."""

    name = "sqlite"
    needed: ClassVar[tuple[str, ...]] = ("sqlite3",)
    package = "sqlite3"
    commits = {
        "full": "synchronous = FULL: the journal and the database are synced at each commit",
        "extra": "EXTRA: and the folder after the journal is deleted",
        "normal": "NORMAL: synced at fewer moments; with WAL only at checkpoints",
        "off": "OFF: never synced",
    }

    def create(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        """Nothing to do: the file is created with the table."""

    def filling(self, work: DatabaseWork) -> str:
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {work.rows})"
        columns = rows.columns_sql("i", "'entry number ' || i")
        return f"{rows.create_sql('INTEGER')}\n{numbers} INSERT INTO {rows.TABLE} SELECT {columns} FROM n;\n"

    def client_argv(self, work: DatabaseWork, lab: LabContext, folder: str) -> list[str]:
        return [
            self.program("sqlite3", lab.program),
            "-batch",
            "-bail",
            "-init",
            "/dev/null",
            f"{folder}/data.sqlite",
        ]

    def log_folder(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        """No separate folder: the journal is next to the database file."""

    def before(self, work: DatabaseWork) -> str:
        synchronous = work.commit or ("full" if work.durable else "off")
        settings = (
            f"PRAGMA cache_size = -{work.buffer_bytes >> 10};\nPRAGMA synchronous = {synchronous.upper()};\n"
        )
        if not work.journal:
            return settings
        # it prints the mode, which is no result of the test
        return f".output /dev/null\nPRAGMA journal_mode = {work.journal.upper()};\n.output\n{settings}"

    def index_query(self) -> str:
        return f"SELECT count(*) > 0 FROM {rows.TABLE} INDEXED BY {rows.INDEX} WHERE account = 7;\n"
