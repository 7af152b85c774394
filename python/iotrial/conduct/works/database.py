"""One test on one table of a database, by the engine's own client as a process of the command job."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from iotrial.conduct.engines import Engine, engine, rows
from iotrial.conduct.works.contract import (
    Asked,
    Measured,
    Situation,
    WorkDriver,
    minimal_environment,
    to_take_off,
)
from iotrial.errors import LabError, NoSpace
from iotrial.lab.server import Server
from iotrial.study.kinds.database import INSERTS, rows_touched
from iotrial.study.model import DatabaseWork
from iotrial.units import format_bytes

#: of what a client prints, at most what the probe keeps
MOST_OUTPUT_BYTES = 16 << 20
#: made when a database has been filled: one that was begun and never finished has none
FILLED = "filled"


class Database(WorkDriver[DatabaseWork]):
    """Workload kind ``database``."""

    verb = "command"
    work = DatabaseWork
    starts_programs = True
    accountable = True

    def never_root(self, work: DatabaseWork) -> bool:
        return True

    def fields(self, work: DatabaseWork, asked: Asked) -> dict[str, object]:
        assert asked.at is not None
        kind, folder = engine(work.engine), _folder(work, asked.at)
        return {
            "steps": [{"name": work.test, "argv": kind.client_argv(work, asked.at, folder)}],
            "environment": {**minimal_environment(), **asked.environment},
            "cwd": folder,
            "stdin": kind.before(work) + _sql(work),
            "timeout_s": work.timeout_s,
            "expect_exit": 0,
            "keep_output": MOST_OUTPUT_BYTES,
        }

    def measured(self, work: DatabaseWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        spun_wall, _ = to_take_off(answer, asked.stretched)
        wall = answer["wall_ns"] / 1e9 - (0.0 if asked.stretched == "rate" else spun_wall)
        return Measured({"rate": rows_touched(work) / wall})

    def reads_bytes(self, work: DatabaseWork, size: int, files: int) -> int:
        if work.buffer_dump:
            return 0  # it has read its pages back before the time
        return 1 if work.test in INSERTS else rows_touched(work) * rows.LEAST_ROW_BYTES

    def summary(self, work: DatabaseWork) -> str:
        words = [f"{work.engine}: {work.test}"]
        if work.test not in ("count", "index"):
            words.append(f"{work.changed:,} rows beside" if work.test in INSERTS else f"{work.changed:,} of")
        words.append(f"{work.rows:,} rows with {format_bytes(work.buffer_bytes)} of cache")
        options = [
            "" if work.durable else "not durable",
            "huge pages" * work.huge_pages,
            "buffer dump" * work.buffer_dump,
        ]
        over = "over loopback" if work.connection == "loopback" else ""
        return ", ".join([" ".join(words), *filter(None, [*options, over])])

    def writes(self, work: DatabaseWork) -> bool:
        return False  # not to the files of its set

    def leaves_dirty(self, work: DatabaseWork) -> bool:
        return True

    def on_files(self, work: DatabaseWork) -> bool:
        return False

    def as_root(self, work: DatabaseWork) -> bool:
        return False

    def programs(self, work: DatabaseWork) -> Mapping[str, str]:
        return engine(work.engine).installed()

    def check_program(self, work: DatabaseWork, path: str) -> None:
        for name in engine(work.engine).needed:
            engine(work.engine).program(name, path)

    def own_bytes(self, work: DatabaseWork, settings: Mapping[str, str]) -> int:
        return engine(work.engine).own_bytes + (work.rows + work.changed) * rows.MOST_ROW_BYTES

    def may_read_warm(self, work: DatabaseWork) -> bool:
        return work.rows * rows.MOST_ROW_BYTES > work.buffer_bytes and work.engine != "sqlite"

    # around a run

    def has_own_data(self, work: DatabaseWork) -> bool:
        return True

    def provide(self, work: DatabaseWork, at: Situation) -> None:
        folder = _folder(work, at)
        if at.target.exists(f"{folder}/{FILLED}"):
            return
        kind = engine(work.engine)
        at.target.call("mkdir", path=at.own, mode="0755")
        self._check_room(work, at)
        for own in (folder, kind.log_folder(at, folder)):
            if own is None:
                continue
            at.target.call("remove", path=own, recursive=True)
            at.target.call("mkdir", path=own, mode="0700")
            if at.user is not None:
                done = at.target.run(["chown", f"{at.user['uid']}:{at.user['gid']}", own])
                if done.exit_status != 0:
                    raise LabError(f"database {work.engine}: giving {own} to its user: {done.stderr.strip()}")
        kind.create(work, at, folder)
        kind.fill(work, at, folder)
        at.target.call("mkdir", path=f"{folder}/{FILLED}", mode="0755")
        at.target.call("syncfs", path=at.root)

    def _check_room(self, work: DatabaseWork, at: Situation) -> None:
        wanted = self.own_bytes(work, {})
        free = int(at.target.call("statfs", path=at.root)["available_bytes"])
        if free < wanted:
            raise NoSpace(
                f"{work.engine}, {work.rows:,} rows: wanted {wanted >> 20} MiB free in the lab, found {free >> 20}",
                hint="make the lab larger (--size), or the rows fewer",
            )

    def server(self, work: DatabaseWork, at: Situation) -> Server | None:
        return engine(work.engine).server(work, at, _folder(work, at))

    def begun(self, work: DatabaseWork, at: Situation) -> None:
        engine(work.engine).begun(work, at, _folder(work, at))

    def warm(self, work: DatabaseWork, state: str) -> int:
        return engine(work.engine).passes if state == "warm" else 0

    def settle(self, work: DatabaseWork, at: Situation, answer: Mapping[str, Any]) -> str | None:
        kind, folder = engine(work.engine), _folder(work, at)
        if answer["failures"]:
            # Told already; and who knows what it has half done: the database is made anew for the next run.
            at.target.call("remove", path=f"{folder}/{FILLED}")
            return None
        used = answer.get("servers", {}).get(kind.name, {})
        if work.huge_pages and not used.get("huge_bytes"):
            return f"{work.engine}: asked for huge pages, and has none"
        wrong = _wrong(kind, work, at, folder, str(answer["output"] or ""))
        if wrong is not None:
            at.target.call("remove", path=f"{folder}/{FILLED}")
        undo = {"index": kind.drop_index()}.get(
            work.test, kind.deletion(work) if work.test in INSERTS else ""
        )
        if undo:
            kind.ask(work, at, folder, undo)
            at.target.call("syncfs", path=at.root)
        return wrong


def _folder(work: DatabaseWork, at: Situation) -> str:
    """A database for each program and number of rows: other keys change nothing that stands on the disk."""
    chosen = at.program
    mark = f"-{hashlib.sha256(chosen.encode()).hexdigest()[:8]}" if chosen else ""
    return f"{at.own}/{work.engine}-{work.rows}{mark}"


def _sql(work: DatabaseWork) -> str:
    last = work.rows + work.changed
    match work.test:
        case "count":
            return f"SELECT count(*) FROM {rows.TABLE};\n"
        case "index":
            return rows.index_sql()
        case "fetch":
            return f"SELECT * FROM {rows.TABLE} WHERE id <= {work.changed} ORDER BY id;\n"
        case _:
            return rows.insert_sql(work.rows + 1, last, at_once=work.test == "insert-bulk")


def _wrong(kind: Engine, work: DatabaseWork, at: Situation, folder: str, said: str) -> str | None:
    """In words what differs from what must have come of the test; None where nothing does."""
    first, last = work.rows + 1, work.rows + work.changed
    match work.test:
        case "count":
            wanted, found = f"{work.rows}\n", said
        case "fetch":
            wanted, found = rows.lines(1, work.changed, kind.separator), said
        case "index":
            wanted, found = "1\n", kind.ask(work, at, folder, kind.index_query())
        case _:
            sums = f"SELECT count(*) FROM {rows.TABLE};\nSELECT sum(amount) FROM {rows.TABLE} WHERE id > {work.rows};\n"
            wanted = f"{last}\n{rows.amounts(first, last)}\n"
            found = kind.ask(work, at, folder, sums)
    if found == wanted:
        return None
    wanted, found = (f"{text[:60]!r} ({len(text)} bytes)" for text in (wanted, found))
    return f"{work.engine}, {work.test}: wanted the answer {wanted}, found {found}"


DRIVER = Database()
