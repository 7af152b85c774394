"""Knobs of the work itself: arguments, environment, workload keys, sizes, user, priorities and processor."""

from __future__ import annotations

from collections.abc import Mapping

from iotrial.knobs.declaration import (
    Consequence,
    Declaration,
    Scope,
    Stage,
    at_risk,
    harmless,
    not_judged,
    trade_off,
)
from iotrial.study.model import Setting
from iotrial.study.programs import PROGRAM_KNOB

FILE_SIZE, RECORD_SIZE = "matrix.file_size", "matrix.record_size"
SMALLEST_RECORD, LARGEST_RECORD = 8, 1 << 30
LARGEST_FILE = 1 << 40


class CommandArgument(Declaration):
    """Text that replaces a placeholder in a command's argument list."""

    name = "command.argument"
    title = "text that replaces a placeholder in the command's arguments"
    stage = Stage.WORK
    option = "placeholder"
    open_levels = "any text"
    consequence = not_judged(
        "iotrial does not know what this argument means to the program, or how it affects data in a power cut"
    )


class EnvironmentVariable(Declaration):
    """A variable in the environment of the command."""

    name = "environment.variable"
    title = "an environment variable of the command"
    stage = Stage.WORK
    option = "variable"
    open_levels = "any text"
    consequence = not_judged(
        "iotrial does not know what this variable means to the program, or how it affects data in a power cut"
    )


class WorkOption(Declaration):
    """A key of the workload itself, such as the block size of a stream. The workload kind defines which keys can be varied
    and which values are valid."""

    name = "work.option"
    title = "another value for a key of the workload (block_size, direct, data ... of a stream)"
    stage = Stage.WORK
    option = "option"
    open_levels = "any value that a study file may have for that key"
    consequence = not_judged("iotrial does not know how this key of the work affects data in a power cut")
    consequences: Mapping[str, Consequence] = {
        **dict.fromkeys(
            (
                "block", "block_size", "buffer_dump", "clients", "count", "data", "delay", "direct", "load", "operations",
                "order", "position", "rows", "truncate", "volume",
            ),
            harmless("what the work does and how much, not a setting to keep"),
        ),
        "durable=true": harmless("a committed transaction is on the disk"),
        # SQLite: synchronous = OFF; MariaDB: innodb_flush_log_at_trx_commit = 2; PostgreSQL: synchronous_commit = off
        "durable=false": at_risk(
            "committed transactions may be lost in a power cut; SQLite may lose the whole database, MariaDB and "
            "PostgreSQL stay consistent"
        ),
        # https://www.sqlite.org/pragma.html, innodb_flush_log_at_trx_commit, synchronous_commit and fsync of PostgreSQL
        **dict.fromkeys(
            ("commit=full", "commit=extra", "commit=1", "commit=on"),
            harmless("a committed transaction is on the disk"),
        ),
        "commit=normal": at_risk(
            "with a write-ahead log, committed transactions may be lost in a power cut; the database stays consistent"
        ),
        "commit=off": at_risk(
            "committed transactions may be lost in a power cut; SQLite may lose the whole database, PostgreSQL stays "
            "consistent"
        ),
        **dict.fromkeys(
            ("commit=0", "commit=2"),
            at_risk("committed transactions of the last second may be lost in a power cut"),
        ),
        "commit=no-fsync": at_risk("nothing is ever flushed: a power cut may corrupt the whole database"),
        **dict.fromkeys(
            ("journal=delete", "journal=truncate", "journal=persist", "journal=wal"),
            harmless("a transaction that a power cut interrupts is undone"),
        ),
        **dict.fromkeys(
            ("journal=memory", "journal=off"),
            at_risk("a transaction that is interrupted, even by the end of the program, may corrupt the database"),
        ),
    }  # fmt: skip

    def consequence_of(self, setting: Setting) -> Consequence:
        key = dict(setting.options).get("option", "")
        by_value = self.consequences.get(f"{key}={setting.value.strip()}")
        return by_value or self.consequences.get(key, self.consequence)


class ProcessUser(Declaration):
    """The user that does the work: root, or one without privileges (``nobody``)."""

    name = "process.user"
    title = "user who does the work: self, root, or unprivileged (the user nobody)"
    stage = Stage.WORK
    LEVELS = ("self", "root", "unprivileged")
    consequence = harmless("the same work by another user")


class CacheState(Declaration):
    """The state of the cache when the timed part begins."""

    name = "cache.state"
    title = "what is cached before the timed part"
    stage = Stage.CACHE
    scope = Scope.FILES
    consequence = harmless("affects only how warm the caches are at the start of a run")


class ProcessNice(Declaration):
    """Nice value of the work, set by setpriority(2)."""

    name = "process.nice"
    title = "niceness of the work: -20 (first) to 19 (last)"
    stage = Stage.WORK
    open_levels = "-20 to 19"
    consequence = trade_off("other processes get more or less CPU time")


class ProcessIoPriority(Declaration):
    """I/O priority of the work, set by ioprio_set(2). Only bfq and mq-deadline use it."""

    name = "process.io_priority"
    title = "I/O priority of the work (used by mq-deadline and bfq)"
    stage = Stage.WORK
    consequence = trade_off("other processes wait more or less for the disk")


class ProcessCpu(Declaration):
    """CPU affinity of the work, set by sched_setaffinity(2)."""

    name = "process.cpu"
    title = "CPU that the work is pinned to: its number, or any"
    stage = Stage.WORK
    open_levels = "any, or the number of a CPU"
    consequence = trade_off("the work cannot move to an idle CPU")


class ProgramPath(Declaration):
    """The programs of a work that takes them from a path given by the user: a database, a web server."""

    name = PROGRAM_KNOB
    title = "folder of the work's programs, to compare versions (only on the command line)"
    stage = Stage.WORK
    open_levels = "absolute paths, by --set program=PATH,PATH"
    consequence = not_judged(
        "iotrial does not know how another version of the program affects data in a power cut"
    )


class MatrixFileSize(Declaration):
    """Size of the file that the tests work on."""

    name = FILE_SIZE
    title = "file size of a matrix workload, a multiple of its record size"
    stage = Stage.WORK
    open_levels = "8 B to 1 TiB"
    consequence = harmless("a size of the work")


class MatrixRecordSize(Declaration):
    """Bytes that each call of a test reads or writes."""

    name = RECORD_SIZE
    title = "record size of a matrix workload: what each call reads or writes"
    stage = Stage.WORK
    open_levels = "8 B to 1 GiB"
    consequence = harmless("a size of the work")
