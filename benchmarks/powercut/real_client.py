"""Clients of real stores, for real.py: STORE work|dump FOLDER-OR-PORT LEVEL COUNT. Runs in the system's Python."""

from __future__ import annotations

import os
import subprocess
import sys
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


def leveldb(verb: str, folder: str, level: str, count: int) -> None:
    import plyvel

    db = plyvel.DB(f"{folder}/db", create_if_missing=True, paranoid_checks=True)
    if verb == "dump":
        all_of((key.decode(), value.decode()) for key, value in db)
    else:
        each(count, lambda k, v: db.put(k.encode(), v.encode(), sync=level == "sync"))


def rocksdb(verb: str, folder: str, level: str, count: int) -> None:
    from rocksdict import Options, Rdict, WriteOptions

    # keys and values as they are: else the module has a file of its own, which it does not sync
    db, options = Rdict(f"{folder}/db", Options(raw_mode=True)), WriteOptions()
    options.sync = level == "sync"
    db.set_write_options(options)
    if verb == "dump":
        all_of((key.decode(), value.decode()) for key, value in db.items())
    else:
        each(count, lambda key, value: db.put(key.encode(), value.encode()))


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


def dpkg(verb: str, folder: str, level: str, count: int) -> None:
    """Install newer and newer versions of a few packages; a package is a file with its version."""
    root, admin = f"{folder}/root", f"{folder}/root/var/lib/dpkg"

    def run(*words: str) -> str:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{words[0]} ended with {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    if verb == "dump":
        listed = run(
            "dpkg-query", f"--admindir={admin}", "-W", "-f=${Package} ${Version} ${db:Status-Status}\n"
        )
        for name, version, status in map(str.split, listed.splitlines()):
            with open(f"{root}/opt/{name}") as file:
                content = file.read()
            # one that is marked as not installed is in flight: then its file may be the old or the new one
            whole = status != "installed" or content == version
            say(name, content or "empty" if whole else f"{content!r}-but-installed")
        return
    os.makedirs(f"{admin}/info")
    for empty in ("status", "available"):
        open(f"{admin}/{empty}", "w").close()
    os.sync()
    options = ["--force-unsafe-io"] if level == "unsafe-io" else []
    for number in range(count // 2):
        name, version = f"p{number % 5}", f"{number}"
        os.makedirs(f"/dev/shm/{number}/DEBIAN")
        os.makedirs(f"/dev/shm/{number}/opt")
        with open(f"/dev/shm/{number}/opt/{name}", "w") as file:
            file.write(version)
        with open(f"/dev/shm/{number}/DEBIAN/control", "w") as file:
            file.write(
                f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: n <e@x>\nDescription: d\n"
            )
        run("dpkg-deb", "-b", f"/dev/shm/{number}", f"/dev/shm/{number}.deb")
        say("begins", name, version)
        run(
            "dpkg",
            f"--root={root}",
            "--log=/dev/null",
            "--force-not-root",
            *options,
            "-i",
            f"/dev/shm/{number}.deb",
        )
        say("acknowledged", name, version)


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
