"""Clients of real stores, for real.py: STORE work|dump FOLDER-OR-PORT LEVEL COUNT. Runs in the system's Python."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator

Pairs = Iterator[tuple[str, str]]


def say(*words: str) -> None:
    os.write(1, (" ".join(words) + "\n").encode())


def each(count: int, put: Callable[[str, str], object]) -> None:
    """Put values of 17 keys in turn, and say what is done."""
    for number in range(count):
        key, value = f"k{number % 17}", f"v{number}"
        say("begins", key, value)
        put(key, value)
        say("acknowledged", key, value)


def all_of(pairs: Pairs) -> None:
    for key, value in pairs:
        say(key, value)


def sqlite(verb: str, folder: str, level: str, count: int) -> None:
    import sqlite3

    journal, synchronous = level.split()
    db = sqlite3.connect(f"{folder}/db", isolation_level=None)
    db.execute(f"PRAGMA journal_mode={journal}")
    db.execute(f"PRAGMA synchronous={synchronous}")
    if verb == "dump":
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        all_of(
            db.execute("SELECT * FROM t")
            if db.execute("SELECT 1 FROM sqlite_master").fetchone()
            else iter(())
        )
        return
    db.execute("CREATE TABLE t (k PRIMARY KEY, v)")
    each(count, lambda k, v: db.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (k, v)))


def by_program(argv: list[str], verb: str, count: int, put: str, table: str, select: str) -> None:
    """Work through the store's own command-line program, which answers "done" after each statement."""
    program = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert program.stdin
    assert program.stdout

    def done(statement: str, echo: str) -> list[str]:
        program.stdin.write(f"{statement}\n{echo}\n")
        program.stdin.flush()
        lines = []
        while (line := program.stdout.readline()) and line.strip() != "done":
            lines.append(line.strip())
        assert line, program.wait()
        return lines

    echo = "\\echo done" if "psql" in argv[0] else "SELECT 'done';"
    done(table, echo)
    if verb == "dump":
        all_of(
            tuple(line.replace("|", " ").split())
            for line in done(select, echo)
            if " " in line or "|" in line or "\t" in line
        )
    else:
        each(count, lambda k, v: done(put.format(k=k, v=v), echo))
    program.stdin.close()
    program.wait()


def postgresql(verb: str, port: str, level: str, count: int) -> None:
    argv = [
        "/usr/lib/postgresql/15/bin/psql",
        "-X",
        "-At",
        "-q",
        "-h",
        "127.0.0.1",
        "-p",
        port,
        "-d",
        "postgres",
    ]
    put = "INSERT INTO t VALUES ('{k}', '{v}') ON CONFLICT (k) DO UPDATE SET v = excluded.v;"
    by_program(
        argv,
        verb,
        count,
        put,
        "CREATE TABLE IF NOT EXISTS t (k text PRIMARY KEY, v text);",
        "SELECT * FROM t;",
    )


def mariadb(verb: str, port: str, level: str, count: int) -> None:
    argv = ["mariadb", "--no-defaults", "-N", "-B", "--unbuffered", "-h", "127.0.0.1", "-P", port, "test"]
    table = "CREATE TABLE IF NOT EXISTS t (k varchar(9) PRIMARY KEY, v varchar(9)) ENGINE=InnoDB;"
    by_program(argv, verb, count, "REPLACE INTO t VALUES ('{k}', '{v}');", table, "SELECT * FROM t;")


def redis(verb: str, port: str, level: str, count: int) -> None:
    with (
        socket.create_connection(("127.0.0.1", int(port))) as connection,
        connection.makefile("rwb") as stream,
    ):

        def ask(*words: str) -> object:
            stream.write(
                f"*{len(words)}\r\n".encode() + b"".join(f"${len(w)}\r\n{w}\r\n".encode() for w in words)
            )
            stream.flush()
            return answer()

        def answer() -> object:
            head = stream.readline().strip()
            if head[:1] == b"$":
                return None if head == b"$-1" else stream.read(int(head[1:]) + 2)[:-2].decode()
            if head[:1] == b"*":
                return [answer() for _ in range(int(head[1:]))]
            assert head[:1] != b"-", head
            return head.decode()

        if verb == "dump":
            all_of((key, str(ask("GET", key))) for key in ask("KEYS", "*"))  # type: ignore[attr-defined]
        else:
            each(count, lambda k, v: ask("SET", k, v))


def etcd(verb: str, port: str, level: str, count: int) -> None:
    def ask(what: str, **fields: str) -> dict:
        body = json.dumps({name: base64.b64encode(value.encode()).decode() for name, value in fields.items()})
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/kv/{what}", body.encode())
        with urllib.request.urlopen(request, timeout=45) as answer:
            return json.load(answer)

    if verb == "dump":
        found = ask("range", key="k", range_end="l").get("kvs", [])
        all_of(tuple(base64.b64decode(one[name]).decode() for name in ("key", "value")) for one in found)
    else:
        each(count, lambda k, v: ask("put", key=k, value=v))


def leveldb(verb: str, folder: str, level: str, count: int) -> None:
    import plyvel

    db = plyvel.DB(f"{folder}/db", create_if_missing=True, paranoid_checks=True)
    if verb == "dump":
        all_of((key.decode(), value.decode()) for key, value in db)
    else:
        each(count, lambda k, v: db.put(k.encode(), v.encode(), sync=level == "sync"))


def lmdb(verb: str, folder: str, level: str, count: int) -> None:
    import lmdb as module

    env = module.open(f"{folder}/db", sync=level == "sync")

    def put(key: str, value: str) -> None:
        with env.begin(write=True) as txn:
            txn.put(key.encode(), value.encode())

    if verb == "dump":
        with env.begin() as txn:
            all_of((key.decode(), value.decode()) for key, value in txn.cursor())
    else:
        each(count, put)


def duckdb(verb: str, folder: str, level: str, count: int) -> None:
    import duckdb as module

    db = module.connect(f"{folder}/db")
    db.execute("CREATE TABLE IF NOT EXISTS t (k VARCHAR PRIMARY KEY, v VARCHAR)")
    if verb == "dump":
        all_of(iter(db.execute("SELECT * FROM t").fetchall()))
    else:
        each(count, lambda k, v: db.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (k, v)))


def git(verb: str, folder: str, level: str, count: int) -> None:
    def run(*words: str) -> str:
        options = ["-c", "user.name=n", "-c", "user.email=e", "-c", "gc.auto=0"]
        options += ["-c", "core.fsync=all"] if level == "all" else []
        done = subprocess.run(
            ["git", "-C", folder, *options, *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"git {words[0]} ended with {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    if verb == "dump":
        run("fsck", "--full", "--strict")
        if not run("branch", "--list").strip():
            return
        all_of((subject, subject) for subject in run("log", "--format=%s").split())
        return

    def commit(key: str, value: str) -> None:
        with open(f"{folder}/file", "w") as file:
            file.write(value)
        run("add", "file")
        run("commit", "-q", "-m", value)

    for number in range(count // 2):
        value = f"v{number}"
        say("begins", value, value)
        commit(value, value)
        say("acknowledged", value, value)


def maildir(verb: str, folder: str, level: str, count: int) -> None:
    import mailbox

    box = mailbox.Maildir(f"{folder}/mail")
    if verb == "dump":
        all_of((str(m["subject"]), m.get_payload().strip() or "empty") for m in box)
        return

    for number in range(count):
        say("begins", f"m{number}", f"v{number}")
        message = mailbox.MaildirMessage()
        message["subject"] = f"m{number}"
        message.set_payload(f"v{number}\n")
        box.add(message)
        box.flush()
        say("acknowledged", f"m{number}", f"v{number}")


def dbm(module: str, verb: str, folder: str, count: int) -> None:
    import importlib

    db = importlib.import_module(module).open(f"{folder}/db", "c")
    if verb == "dump":
        all_of((key.decode(), db[key].decode()) for key in db.keys())  # noqa: SIM118
        return

    def put(key: str, value: str) -> None:
        db[key] = value
        db.sync()

    each(count, put)


def main(store: str, verb: str, place: str, level: str, count: str) -> None:
    if store in ("dbm-dumb", "shelve-gnu"):
        dbm({"dbm-dumb": "dbm.dumb", "shelve-gnu": "dbm.gnu"}[store], verb, place, int(count))
    else:
        globals()[store](verb, place, level, int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
