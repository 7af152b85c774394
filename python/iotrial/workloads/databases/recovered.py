"""Looks for committed rows in a database after a power cut: starts it again, lets it recover, reads every row.

The rows before the run must be there too. Servers are started and killed by this process: the file system under them is
thrown away afterwards.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from iotrial.errors import LabError
from iotrial.polling import attempts
from iotrial.powercut.checking import run_as
from iotrial.study.server import Server
from iotrial.study.work import Damage, LabContext, minimal_environment
from iotrial.workloads.databases import rows
from iotrial.workloads.databases.engine import Engine

if TYPE_CHECKING:
    from iotrial.workloads.database import DatabaseWork

#: how long an engine may take to recover
STARTS_WITHIN_S = 40.0
_ENDS_WITHIN_S = 10.0
_LOOK_S = 0.02
_MOST_SAID = 300
_MOST_LISTED = 20


def acknowledged_rows(acknowledged: Sequence[str]) -> set[int]:
    """Return the rows in acknowledgements such as "1001" and "1001-2000"."""
    found: set[int] = set()
    for item in acknowledged:
        first, _, last = item.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def find_damage(
    kind: Engine, work: DatabaseWork, lab: LabContext, folder: str, acknowledged: Sequence[str]
) -> Damage:
    """Return the committed rows that are missing, and what else is wrong. Raises OSError, LabError."""
    wanted = acknowledged_rows(acknowledged)
    try:
        found = (
            _read_sqlite(Path(folder) / "data.sqlite")
            if kind.name == "sqlite"
            else _read_served(kind, work, lab, folder)
        )
    except _Broken as error:
        return Damage((), (str(error),))
    return _compared(found, work.rows, wanted)


class _Broken(Exception):
    """The engine does not start, or calls the database damaged."""


def _compared(found: Mapping[int, tuple[str, ...]], before: int, wanted: Collection[int]) -> Damage:
    wrong = [i for i, values in found.items() if values != tuple(map(str, rows.row(i)))]
    corrupt = [f"row {i} has other values" for i in wrong[:_MOST_LISTED]]
    gone = [i for i in range(1, before + 1) if i not in found]
    if gone:
        corrupt.append(
            f"{len(gone)} of the {before} rows from before the run are missing, the first: {gone[0]}"
        )
    lost = sorted(i for i in wanted if i not in found)
    return Damage(tuple(f"row {i}" for i in lost), tuple(corrupt))


def _read_sqlite(path: Path) -> dict[int, tuple[str, ...]]:
    import sqlite3  # not for those who only list or plan studies

    if not path.exists():
        raise _Broken(f"{path.name}: no such file")
    try:
        with closing(sqlite3.connect(path)) as connection:
            found = {
                int(one[0]): tuple(map(str, one))
                for one in connection.execute(f"SELECT * FROM {rows.TABLE}").fetchall()
            }
            [verdict, *_] = connection.execute("PRAGMA integrity_check").fetchone()
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:
        raise _Broken(f"SQLite: {error}") from error
    if verdict != "ok":
        raise _Broken(f"SQLite: integrity_check: {str(verdict)[:_MOST_SAID]}")
    return found


def _read_served(
    kind: Engine, work: DatabaseWork, lab: LabContext, folder: str
) -> dict[int, tuple[str, ...]]:
    server = kind.server(work, lab, folder)
    assert server is not None
    for name in kind.stale:  # left by the server that lost its power; it guards against a second one
        Path(folder, name).unlink(missing_ok=True)
    with _running(server, lab.user, kind.ends_with):
        done = run_as(
            kind.client_argv(work, lab, folder),
            cwd=folder,
            environment=minimal_environment(),
            stdin=kind.before(work) + f"SELECT * FROM {rows.TABLE} ORDER BY id;\n" + kind.integrity(),
            user=lab.user,
        )
    if done.returncode != 0:
        raise _Broken(f"{kind.name}: {(done.stderr + done.stdout).strip()[-_MOST_SAID:]}")
    found: dict[int, tuple[str, ...]] = {}
    for line in done.stdout.splitlines():
        values = tuple(line.split(kind.separator))
        if len(values) == len(rows.COLUMNS) + 2 and values[0].isdigit():
            found[int(values[0])] = values
        elif (wrong := kind.complaint(line)) is not None:
            raise _Broken(f"{kind.name}: {wrong[:_MOST_SAID]}")
    return found


@contextmanager
def _running(server: Server, user: Mapping[str, int] | None, end: signal.Signals) -> Iterator[None]:
    """Run a server until the block ends. Raises _Broken with its last words if it does not become ready."""
    other = user if user is not None and os.geteuid() == 0 else None
    process = subprocess.Popen(
        server.argv,
        cwd=server.cwd,
        env=dict(server.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        user=None if other is None else other["uid"],
        group=None if other is None else other["gid"],
        extra_groups=None if other is None else [],
    )
    try:
        for _ in attempts(STARTS_WITHIN_S, _LOOK_S):
            if _ready(server):
                break
            if process.poll() is not None:
                said = b"" if process.stdout is None else process.stdout.read()
                text = said.decode(errors="replace").strip()[-_MOST_SAID:]
                raise _Broken(f"{server.name} does not start: {text}")
        else:
            raise LabError(f"{server.name} was not ready {STARTS_WITHIN_S:g} s after a power cut")
        yield
    finally:
        _end(process, end)


def _ready(server: Server) -> bool:
    if (path := server.ready.get("socket")) is not None:
        return Path(str(path)).exists()
    file, text = Path(str(server.ready["file"])), str(server.ready["contains"])
    return file.exists() and text in file.read_text(errors="replace")


def _end(process: subprocess.Popen[bytes], end: signal.Signals) -> None:
    """End the server with all its processes, and wait until none is left."""
    group = process.pid
    if end is not signal.SIGKILL:
        process.send_signal(end)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_WITHIN_S)
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        process.wait()
        return
    process.wait()
    for _ in attempts(STARTS_WITHIN_S, _LOOK_S):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
