"""Clients of well-known stores for ``iotrial powercut --store``: STORE work|dump PLACE [PRAGMA=VALUE...].

PLACE is the port of a server on 127.0.0.1, or the folder of SQLite. ``work`` puts values of a few keys in turn, and prints
what is acknowledged; ``dump`` prints what is there. ``stores`` passes this file's text to the system's Python, whose user may
not be able to read it; so it needs nothing but the standard library.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

#: how many values are put, of how many keys. With the pause they take some seconds: some stores sync once a second.
COUNT, KEYS, PAUSE_S = 300, 17, 0.008


def _say(*words: str) -> None:
    os.write(1, (" ".join(words) + "\n").encode())


def _each(put: Callable[[str, str], object]) -> None:
    for number in range(COUNT):
        key, value = f"k{number % KEYS}", f"v{number}"
        _say("begins", key, value)
        put(key, value)
        _say("acknowledged", key, value)
        time.sleep(PAUSE_S)


def _all(pairs: Iterable[tuple[str, str]]) -> None:
    for key, value in pairs:
        _say(key, value)


def sqlite(verb: str, folder: str, *pragmas: str) -> None:
    """One table; each put is a transaction. ``pragmas``: such as "journal_mode=wal"."""
    db = sqlite3.connect(f"{folder}/db", isolation_level=None)
    for pragma in pragmas:
        db.execute(f"PRAGMA {pragma}")
    if verb == "work":
        db.execute("CREATE TABLE t (k PRIMARY KEY, v)")
        _each(lambda key, value: db.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (key, value)))
        return
    ((said,),) = db.execute("PRAGMA integrity_check")
    if said != "ok":
        sys.exit(f"integrity_check: {said}")
    if db.execute("SELECT 1 FROM sqlite_master").fetchone():
        _all(db.execute("SELECT k, v FROM t"))


class _Program:
    """The command-line program of a server, which prints "done" after each statement. It ends at the first error."""

    def __init__(self, argv: list[str], done: str) -> None:
        self._name, self._done = argv[0], done
        self._program = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def run(self, statement: str) -> list[list[str]]:
        """Return the rows of a statement, as words."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(f"{statement}\n{self._done}\n")
        self._program.stdin.flush()
        rows: list[list[str]] = []
        for line in self._program.stdout:
            if line.strip() == "done":
                return rows
            rows.append(line.replace("|", " ").split())
        return sys.exit(f"{self._name} ended with status {self._program.wait()} at: {statement}")


def _sql(verb: str, program: _Program, create: str, put: str) -> None:
    if verb == "work":
        program.run(create)
        _each(lambda key, value: program.run(put.format(key=key, value=value)))
    else:
        program.run(create)  # a cut may have come before the table
        _all((key, value) for key, value in program.run("SELECT k, v FROM t;"))


def postgresql(verb: str, port: str) -> None:
    """One table; each put is a transaction of psql."""
    argv = ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", port, "-d", "postgres"]
    put = "INSERT INTO t VALUES ('{key}', '{value}') ON CONFLICT (k) DO UPDATE SET v = excluded.v;"
    create = "SET client_min_messages = warning; CREATE TABLE IF NOT EXISTS t (k text PRIMARY KEY, v text);"
    _sql(verb, _Program(argv, "\\echo done"), create, put)


def mariadb(verb: str, port: str) -> None:
    """One InnoDB table; each put is a transaction."""
    name = "mariadb" if shutil.which("mariadb") else "mysql"
    argv = [name, "--no-defaults", "-NB", "--unbuffered", "-h", "127.0.0.1", "-P", port, "test"]
    create = "CREATE TABLE IF NOT EXISTS t (k varchar(9) PRIMARY KEY, v varchar(9)) ENGINE=InnoDB;"
    _sql(verb, _Program(argv, "SELECT 'done';"), create, "REPLACE INTO t VALUES ('{key}', '{value}');")


class _Redis:
    """A connection with the protocol of Redis."""

    def __init__(self, port: str) -> None:
        self._stream = socket.create_connection(("127.0.0.1", int(port))).makefile("rwb")

    def ask(self, *words: str) -> Any:
        """Send a command, and return its answer: a string, a list, or None."""
        encoded = [word.encode() for word in words]
        self._stream.write(
            b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in encoded)
        )
        self._stream.flush()
        return self._answer()

    def _answer(self) -> Any:
        line = self._stream.readline().decode().strip()
        kind, rest = line[:1], line[1:]
        if kind == "$":
            return None if rest == "-1" else self._stream.read(int(rest) + 2)[:-2].decode()
        if kind == "*":
            return [self._answer() for _ in range(int(rest))]
        if kind not in ("+", ":"):
            sys.exit(f"redis said: {line or 'nothing'}")
        return rest


def redis(verb: str, port: str) -> None:
    """Each put is a SET."""
    server = _Redis(port)
    if verb == "work":
        _each(lambda key, value: server.ask("SET", key, value))
    else:
        _all((key, server.ask("GET", key)) for key in server.ask("KEYS", "*"))


def etcd(verb: str, port: str) -> None:
    """Each put is a request to the JSON gateway."""

    def ask(what: str, **fields: str) -> dict[str, Any]:
        body = json.dumps({name: base64.b64encode(value.encode()).decode() for name, value in fields.items()})
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/kv/{what}", body.encode())
        with urllib.request.urlopen(request, timeout=45) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    if verb == "work":
        _each(lambda key, value: ask("put", key=key, value=value))
        return
    pairs = ask("range", key="k", range_end="l").get("kvs", [])
    _all((base64.b64decode(one["key"]).decode(), base64.b64decode(one["value"]).decode()) for one in pairs)


STORES: dict[str, Callable[..., None]] = {
    "sqlite": sqlite,
    "postgresql": postgresql,
    "mariadb": mariadb,
    "redis": redis,
    "etcd": etcd,
}

if __name__ == "__main__":
    STORES[sys.argv[1]](*sys.argv[2:])
