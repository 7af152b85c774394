"""What every engine says of itself. All that is done here is untimed but the client's process of a run."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar

from iotrial.errors import LabError, MissingTool
from iotrial.study import server
from iotrial.study.server import Server
from iotrial.study.work import LabContext, minimal_environment
from iotrial.workloads.databases import rows

if TYPE_CHECKING:
    from iotrial.workloads.database import DatabaseWork


FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/bin"
MOST_SAID = 1000


class Engine(ABC):
    """One kind of database.

    ``needed`` and ``package``: its programs, and the Debian package of all of them. ``separator``: between the columns that
    the client prints. ``elsewhere``: patterns of folders, below /, in which Debian keeps programs that are in no PATH.
    ``own_bytes``: what a database without rows takes. ``passes``: how often a test is done before one that is warm.
    """

    name: ClassVar[str]
    needed: ClassVar[tuple[str, ...]]
    package: ClassVar[str]
    separator: ClassVar[str] = "|"
    elsewhere: ClassVar[tuple[str, ...]] = ()
    own_bytes: ClassVar[int] = 0
    passes: ClassVar[int] = 1

    @abstractmethod
    def create(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        """Make a database in a folder that is there and the user's own. Raises LabError."""

    @abstractmethod
    def filling(self, work: DatabaseWork) -> str:
        """The SQL that makes the table and its rows, and leaves nothing to be done later."""

    @abstractmethod
    def client_argv(self, work: DatabaseWork, lab: LabContext, folder: str) -> list[str]:
        """The client: it reads SQL from standard input, prints rows and nothing else, and fails at the first error."""

    def server(self, work: DatabaseWork, lab: LabContext, folder: str) -> Server | None:
        """The server of a database in a folder; None for an engine that has none."""
        return None

    def before(self, work: DatabaseWork) -> str:
        """What the client's SQL begins with."""
        return ""

    def opened(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:  # noqa: B027
        """When its first server has come up, before there is a table."""

    def begun(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:  # noqa: B027
        """Just after the server has come up: wait for what it goes on doing by itself."""

    def index_query(self) -> str:
        """SQL that prints 1 where the index is there and can be used."""
        raise NotImplementedError

    def tidy(self) -> str:
        """SQL after rows were deleted, so that the table is as it was."""
        return ""

    def drop_index(self) -> str:
        """SQL that takes the index away."""
        return f"DROP INDEX {rows.INDEX};\n"

    # what all have in common

    def log_folder(self, lab: LabContext, folder: str) -> str | None:
        """Where it writes ahead, in the place for logs; None where the study has none, or the engine no such folder."""
        return None if lab.log is None else f"{lab.log}/{PurePath(folder).name}"

    def program(self, name: str, chosen: str | None = None) -> str:
        """Where a program of this engine is: in the folder that the user has chosen, or where Debian puts it.

        Raises MissingTool.
        """
        if chosen is not None:
            folder = Path(chosen) if Path(chosen).is_dir() else Path(chosen).parent
            found = shutil.which(name, path=f"{folder}:{folder.parent}/scripts")
            if found is None:
                raise MissingTool(f"{name} is not in {folder}", hint="name the folder of the programs (bin)")
            return found
        folders = [
            folder
            for pattern in self.elsewhere
            for folder in sorted(map(str, Path("/").glob(pattern)), key=_version, reverse=True)
        ]
        found = shutil.which(name, path=":".join([*folders, FOLDERS]))
        if found is None:
            raise MissingTool(f"{name} is not installed", hint=f"apt-get install {self.package}")
        return found

    def installed(self) -> Mapping[str, str]:
        """Its programs, with the Debian package: those that are there by their paths."""
        found = {}
        for name in self.needed:
            try:
                found[self.program(name)] = self.package
            except MissingTool:
                found[name] = self.package
        return found

    def run(
        self, lab: LabContext, argv: Sequence[str], *, cwd: str, stdin: str = "", timeout_s: float = 3600.0
    ) -> str:
        """Run one of its programs as the user whose database it is. Raises LabError with what it said."""
        done = lab.target.call(
            "run",
            argv=list(argv),
            environment=minimal_environment(),
            cwd=cwd,
            stdin=stdin,
            timeout_s=timeout_s,
            user=None if lab.user is None else dict(lab.user),
        )
        if done["exit"] != 0:
            said = (str(done["stderr"]) + str(done["stdout"])).strip()[-MOST_SAID:]
            raise LabError(f"database {self.name}: {argv[0]} ended with status {done['exit']}: {said}")
        return str(done["stdout"])

    def ask(
        self, work: DatabaseWork, lab: LabContext, folder: str, sql: str, *, timeout_s: float = 3600.0
    ) -> str:
        """What the client prints for some SQL."""
        argv = self.client_argv(work, lab, folder)
        return self.run(lab, argv, cwd=folder, stdin=self.before(work) + sql, timeout_s=timeout_s)

    def fill(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        """Make the table; and do once, and undo, what runs do, so that the first of them finds what all others find."""
        serving = self.server(work, lab, folder)
        if serving is not None:
            server.start(lab.target, serving, lab.user)
        try:
            self.opened(work, lab, folder)
            self.ask(work, lab, folder, self.filling(work))
            self.ask(work, lab, folder, rows.index_sql() + self.drop_index())
            more = rows.insert_sql(work.rows + 1, work.rows + work.changed, at_once=True)
            self.ask(work, lab, folder, more + self.deletion(work))
        finally:
            if serving is not None:
                server.stop(lab.target, serving)

    def deletion(self, work: DatabaseWork) -> str:
        """SQL that takes away what a run has inserted."""
        return f"DELETE FROM {rows.TABLE} WHERE id > {work.rows};\n{self.tidy()}"


def _version(folder: str) -> tuple[float, str]:
    number = next((part for part in folder.split("/") if part.replace(".", "", 1).isdigit()), "0")
    return float(number), folder
