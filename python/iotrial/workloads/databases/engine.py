"""The interface of a database engine. Everything here is untimed except the client process of a run."""

from __future__ import annotations

import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar

from iotrial.errors import LabError, MissingTool
from iotrial.study import server
from iotrial.study.server import Server
from iotrial.study.work import LabContext, minimal_environment
from iotrial.workloads.databases import rows
from iotrial.workloads.served import own_folder

if TYPE_CHECKING:
    from iotrial.workloads.database import DatabaseWork


FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/bin"
MOST_OUTPUT = 1000
#: in the database's folder while its log is on the log place
LOG_MOVED = "log-moved"


class Engine(ABC):
    """One database engine.

    ``needed`` and ``package``: its programs, and the Debian package of all of them. ``separator``: between
    the columns that the client prints. ``elsewhere``: glob patterns of folders, relative to /, in which
    Debian installs programs outside PATH. ``own_bytes``: size of a database without rows. ``passes``: number
    of warm-up tests before a warm one.
    """

    name: ClassVar[str]
    needed: ClassVar[tuple[str, ...]]
    package: ClassVar[str]
    separator: ClassVar[str] = "|"
    elsewhere: ClassVar[tuple[str, ...]] = ()
    own_bytes: ClassVar[int] = 0
    passes: ClassVar[int] = 1
    #: files, relative to the database's folder, that a server without power leaves to keep a second one away
    stale: ClassVar[tuple[str, ...]] = ()
    #: signal that ends its server at once, without writing anything to the database
    ends_with: ClassVar[signal.Signals] = signal.SIGKILL
    #: options with which the client prints each result at once, even into a pipe; they follow its first argument
    unbuffered: ClassVar[tuple[str, ...]] = ()
    #: the meaning of each word of ``commit``
    commits: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def create(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        """Create a database in an existing folder owned by the user. Raises LabError."""

    @abstractmethod
    def filling(self, work: DatabaseWork) -> str:
        """Return the SQL that creates and fills the table and leaves no deferred work."""

    @abstractmethod
    def client_argv(self, work: DatabaseWork, lab: LabContext, folder: str) -> list[str]:
        """Return the client's argv. It reads SQL from standard input, prints only rows, and exits at the first error."""

    def server(self, work: DatabaseWork, lab: LabContext, folder: str) -> Server | None:
        """Return the server of a database in a folder, or None for an engine without one."""
        return None

    def before(self, work: DatabaseWork) -> str:
        """Return SQL to put before the client's SQL."""
        return ""

    def opened(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        """Called when the first server has started, before there is a table."""

    def begun(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        """Called just after the server has started: wait for its background work to finish."""

    def integrity(self) -> str:
        """Return SQL that checks the table; ``complaint`` parses its output."""
        return ""

    def complaint(self, line: str) -> str | None:
        """Return what a line of the check's output complains of, or None."""
        return None

    def index_query(self) -> str:
        """Return SQL that prints 1 if the index exists and is usable."""
        raise NotImplementedError

    def tidy(self) -> str:
        """Return SQL to run after deleting rows, to restore the table's initial state."""
        return ""

    def drop_index(self) -> str:
        """Return SQL that drops the index."""
        return f"DROP INDEX {rows.INDEX};\n"

    # common to all engines

    def log_folder(self, work: DatabaseWork, lab: LabContext, folder: str) -> str | None:
        """Return the folder of the write-ahead log.

        None: where the engine itself puts it, because the study has no place for a log, or the engine no folder.
        """
        if lab.log is None:
            return None
        return _on_log_place(lab, folder) if work.separate_log else f"{folder}/log"

    def move_log(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        """Move the log of a stopped database to where the work wants it. Raises LabError.

        The data stay where they are: with a database for each place of the log, their places on the disk would
        differ too. The copy at the old place stays, so that the same blocks are in use.
        """
        wanted, mark = self.log_folder(work, lab, folder), f"{folder}/{LOG_MOVED}"
        moved = lab.target.exists(mark)
        if wanted is None or moved == work.separate_log:
            return
        source = f"{folder}/log" if work.separate_log else _on_log_place(lab, folder)
        own_folder(lab, wanted, mode="0700")
        self.run(lab, ["cp", "-rT", "--preserve=mode", source, wanted], cwd=folder)
        self.use_log(lab, folder, wanted)
        if moved:
            lab.target.call("remove", path=mark)
        else:
            lab.target.call("mkdir", path=mark, mode="0755")
        for changed in (lab.root, wanted):
            lab.target.call("syncfs", path=changed)

    def use_log(self, lab: LabContext, folder: str, log: str) -> None:
        """Make a stopped database use the log in another folder, if its server does not get it at each start."""

    def temporary_folder(self, work: DatabaseWork, lab: LabContext, folder: str) -> str | None:
        """Return the folder of temporary files on the log place; None if they are with the data. Raises LabError."""
        if not work.separate_temporary:
            return None
        if lab.log is None:
            raise LabError(
                f'database {self.name}: separate_temporary = true needs a second place; the study has no [[place]] "log"',
                hint='add one with name = "log" and holds = "files"',
            )
        return f"{_on_log_place(lab, folder)}-temporary"

    def program(self, name: str, chosen: str | None = None) -> str:
        """Return the path of a program of this engine, in the user's folder or where Debian installs it.

        Raises MissingTool.
        """
        if chosen is not None:
            folder = Path(chosen) if Path(chosen).is_dir() else Path(chosen).parent
            found = shutil.which(name, path=f"{folder}:{folder.parent}/scripts")
            if found is None:
                raise MissingTool(f"{name} is not in {folder}", hint="give the folder of the programs (bin)")
            return found
        folders = [
            folder
            for pattern in self.elsewhere
            for folder in sorted(map(str, Path("/").glob(pattern)), key=_version, reverse=True)
        ]
        found = shutil.which(name, path=":".join([*folders, FOLDERS]))
        if found is None:
            raise MissingTool.program(f"database {self.name}", name, self.package)
        return found

    def installed(self) -> Mapping[str, str]:
        """Return its programs with their Debian package; installed programs by path."""
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
        """Run one of its programs as the owner of the database. Raises LabError with the program's output."""
        done = lab.target.run(
            argv,
            environment=minimal_environment(),
            cwd=cwd,
            stdin=stdin,
            timeout_s=timeout_s,
            user=lab.user,
        )
        if done.exit_status != 0:
            output = (done.stderr + done.stdout).strip()[-MOST_OUTPUT:]
            raise LabError(f"database {self.name}: {argv[0]} ended with status {done.exit_status}: {output}")
        return done.stdout

    def ask(
        self, work: DatabaseWork, lab: LabContext, folder: str, sql: str, *, timeout_s: float = 3600.0
    ) -> str:
        """Return what the client prints for some SQL."""
        argv = self.client_argv(work, lab, folder)
        return self.run(lab, argv, cwd=folder, stdin=self.before(work) + sql, timeout_s=timeout_s)

    def fill(self, work: DatabaseWork, lab: LabContext, folder: str) -> None:
        """Create the table, then do and undo once what runs do, so that the first run finds the same state as the others."""
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
        """Return SQL that deletes what a run has inserted."""
        return f"DELETE FROM {rows.TABLE} WHERE id > {work.rows};\n{self.tidy()}"


def _on_log_place(lab: LabContext, folder: str) -> str:
    """Return a folder on the log place: one for each database, as places of data may share the log place."""
    return f"{lab.log}/{PurePath(lab.root).name}-{PurePath(folder).name}"


def _version(folder: str) -> tuple[float, str]:
    number = next((part for part in folder.split("/") if part.replace(".", "", 1).isdigit()), "0")
    return float(number), folder
