"""What do real stores lose at a power cut, at their default settings and at a common faster one? As root.

    python benchmarks/powercut/real.py [--points N] [--time DURATION] [STORE...]

Prints a Markdown table. Needs what Debian calls postgresql, mariadb-server-core, redis-server, etcd-server, etcd-client,
python3-lmdb, python3-plyvel, dpkg and git; DuckDB and RocksDB where Python finds duckdb and rocksdict. What is not installed
is left out.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from planted import powercut

from iotrial.errors import RequestError
from iotrial.powercut.stores import commands_of

PYTHON = "/usr/bin/python3"
CLIENT = f"{PYTHON} {Path(__file__).with_name('real_client.py').resolve()}"


@dataclass(frozen=True)
class Store:
    """``levels``: the default first. ``{x}`` in commands is the level. ``promise``: what its documentation says of it."""

    name: str
    levels: tuple[str, ...]
    promise: tuple[str, ...]
    work: str = ""
    dump: str = ""
    prepare: str = ""
    needs: str = ""


def embedded(name: str, levels: tuple[str, ...], promise: tuple[str, ...], needs: str = "") -> Store:
    return Store(
        name,
        levels,
        promise,
        f"{CLIENT} {name} work {{dir}} '{{x}}' 80",
        f"{CLIENT} {name} dump {{dir}} '{{x}}' 0",
        needs=needs,
    )


#: of those that `--store` knows: the options of each level
OPTIONS = {
    "sqlite": {
        "delete full": "",
        "wal normal": "journal_mode=wal synchronous=normal",
        "wal full": "journal_mode=wal",
        "delete extra": "synchronous=extra",
    },
    "postgresql": {"on": "", "off": "-c synchronous_commit=off"},
    "mariadb": {"1": "", "0": "--innodb-flush-log-at-trx-commit=0"},
    "redis": {
        "no": "",
        "everysec": "--appendonly yes --appendfsync everysec",
        "always": "--appendonly yes --appendfsync always",
    },
    "etcd": {"false": "", "true": "--unsafe-no-fsync=true"},
}


def known(name: str, *promise: str) -> Store:
    return Store(name, tuple(OPTIONS[name]), promise)


STORES = (
    known(
        "sqlite",
        "durable, but the deletion of the journal is not synced",
        "the last commits may be lost",
        "durable",
        "durable",
    ),
    known("postgresql", "durable", "the last commits may be lost"),
    known("mariadb", "durable", "up to a second may be lost"),
    known("redis", "everything since the last snapshot may be lost", "up to a second may be lost", "durable"),
    known("etcd", "durable", "data may be lost"),
    embedded("leveldb", ("async", "sync"), ("the last writes may be lost", "durable"), needs="plyvel"),
    embedded("rocksdb", ("async", "sync"), ("the last writes may be lost", "durable"), needs="rocksdict"),
    embedded("lmdb", ("sync", "nosync"), ("durable", "the database may be corrupt"), needs="lmdb"),
    embedded("duckdb", ("default",), ("durable",), needs="duckdb"),
    replace(
        embedded(
            "git", ("default", "all"), ("packs are synced, loose objects are not", "durable"), needs="git"
        ),
        prepare="git init -q {dir}",
    ),
    embedded("dpkg", ("default", "unsafe-io"), ("durable", "files may be empty"), needs="dpkg"),
    embedded("maildir", ("default",), ("none stated",)),
    embedded("dbm-dumb", ("sync",), ("none stated",)),
    embedded("shelve-gnu", ("sync",), ("none stated",), needs="dbm.gnu"),
)


def installed(store: Store) -> bool:
    if store.name in OPTIONS:
        try:
            commands_of(store.name, [])
        except RequestError:
            return False
    elif store.needs and not shutil.which(store.needs):
        done = subprocess.run([PYTHON, "-c", f"import {store.needs}"], capture_output=True, check=False)
        return done.returncode == 0
    return True


def examined(store: Store, level: str, points: int, limit: str) -> dict:
    if store.name in OPTIONS:
        own = OPTIONS[store.name][level].split()
        return powercut(["--store", store.name], own, points=points, limit=limit, seed=7)
    lines = (("--prepare", store.prepare), ("--dump", store.dump))
    words = [word for name, line in lines if line for word in (name, line.replace("{x}", level))]
    return powercut(words, [store.work.replace("{x}", level)], points=points, limit=limit, seed=7)


def main() -> None:
    """Print a row for each store and level."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--time", default="4m")
    parser.add_argument("store", nargs="*")
    given = parser.parse_args()
    print(
        "| store | setting | promises | points | lost | corrupt | will not start | needs fsck | the least that shows it |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for store in STORES:
        if (given.store and store.name not in given.store) or not installed(store):
            continue
        for level, promise in zip(store.levels, store.promise, strict=True):
            found = examined(store, level, given.points, given.time)
            kinds = ("points", "lost", "corrupt", "not_started", "needs_fsck")
            totals = [sum(run[name] for run in found["runs"]) for name in kinds]
            least = "; ".join(
                f"{one['found'][0]} ({one['mistakes'][0][0] if one['mistakes'] else 'none'})"
                for one in found["examples"]
            )
            cells = (store.name, level, promise, *totals, least or found["problem"] or "–")
            print(f"| {' | '.join(' '.join(str(cell).split())[:160] for cell in cells)} |", flush=True)
            for one in found["examples"]:
                print(
                    "<!--",
                    one["kind"],
                    one["found"][:3],
                    one["writes"][:4],
                    one["mistakes"],
                    "-->",
                    file=sys.stderr,
                    flush=True,
                )


if __name__ == "__main__":
    main()
