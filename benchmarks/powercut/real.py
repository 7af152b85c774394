"""What do real stores lose at a power cut, at their default settings and at a common faster one? As root.

    python benchmarks/powercut/real.py [--points N] [--time DURATION] [STORE...]

Prints a Markdown table. Needs what Debian calls postgresql, mariadb-server-core, redis-server, etcd-server, python3-lmdb,
python3-plyvel and git; DuckDB where its Python module is found. What is not installed is left out.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from planted import powercut

PYTHON = "/usr/bin/python3"
CLIENT = f"{PYTHON} {Path(__file__).with_name('real_client.py').resolve()}"
PG = "/usr/lib/postgresql/15/bin"


@dataclass(frozen=True)
class Store:
    """``levels``: the default first. ``{x}`` in commands is the level. ``promise``: what its documentation says of it."""

    name: str
    levels: tuple[str, ...]
    promise: tuple[str, ...]
    work: str
    dump: str
    server: str = ""
    prepare: str = ""
    ready: str = ""
    user: str = ""
    needs: str = ""
    count: int = 80


def embedded(name: str, levels: tuple[str, ...], promise: tuple[str, ...], needs: str = "") -> Store:
    return Store(
        name,
        levels,
        promise,
        f"{CLIENT} {name} work {{dir}} '{{x}}' 80",
        f"{CLIENT} {name} dump {{dir}} '{{x}}' 0",
        needs=needs,
    )


def served(name: str, levels: tuple[str, ...], promise: tuple[str, ...], server: str, **more: str) -> Store:
    client, dump = (
        f"{CLIENT} {name} {verb} {{port}} '{{x}}' {count}" for verb, count in (("work", 80), ("dump", 0))
    )
    return Store(name, levels, promise, client, dump, server, **more)


STORES = (
    embedded(
        "sqlite",
        ("delete full", "wal normal", "wal full", "delete extra"),
        (
            "durable, but the deletion of the journal is not synced",
            "the last commits may be lost",
            "durable",
            "durable",
        ),
    ),
    served(
        "postgresql",
        ("on", "off"),
        ("durable", "the last commits may be lost"),
        f"{PG}/postgres -D {{dir}}/pg -p {{port}} -k {{dir}} -c synchronous_commit={{x}} -c listen_addresses=127.0.0.1",
        prepare=f"{PG}/initdb -D {{dir}}/pg -A trust -N",
        ready=f"{PG}/pg_isready -q -h 127.0.0.1 -p {{port}}",
        user="postgres",
        needs=f"{PG}/postgres",
    ),
    served(
        "mariadb",
        ("1", "0"),
        ("durable", "up to a second may be lost"),
        "mariadbd --no-defaults --datadir={dir}/db --port={port} --bind-address=127.0.0.1 --socket={dir}/s "
        "--pid-file={dir}/p --innodb-flush-log-at-trx-commit={x} --skip-grant-tables --user=root",
        prepare="mkdir {dir}/db && mariadb-install-db --no-defaults --user=root --datadir={dir}/db "
        "--skip-test-db && mkdir -p {dir}/db/test",
        needs="mariadb-install-db",
    ),
    served(
        "redis",
        ("no", "everysec", "always"),
        ("everything since the last snapshot may be lost", "up to a second may be lost", "durable"),
        "sh -c 'if [ {x} = no ]; then set -- --appendonly no; else set -- --appendonly yes --appendfsync {x}; fi; "
        'exec redis-server --port {port} --dir {dir} --bind 127.0.0.1 "$@"\'',
        needs="redis-server",
    ),
    served(
        "etcd",
        ("false", "true"),
        ("durable", "data may be lost"),
        "etcd --data-dir {dir}/e --listen-client-urls http://127.0.0.1:{port} "
        "--advertise-client-urls http://127.0.0.1:{port} "
        "--listen-peer-urls http://127.0.0.1:1 --initial-advertise-peer-urls http://127.0.0.1:1 "
        "--initial-cluster default=http://127.0.0.1:1 --unsafe-no-fsync={x} --log-level=error",
        ready="etcdctl --endpoints=127.0.0.1:{port} endpoint health",
        needs="etcd",
    ),
    embedded("leveldb", ("async", "sync"), ("the last writes may be lost", "durable"), needs="plyvel"),
    embedded("lmdb", ("sync", "nosync"), ("durable", "the database may be corrupt"), needs="lmdb"),
    embedded("duckdb", ("default",), ("durable",), needs="duckdb"),
    replace(
        embedded(
            "git", ("default", "all"), ("packs are synced, loose objects are not", "durable"), needs="git"
        ),
        prepare="git init -q {dir}",
    ),
    embedded("maildir", ("default",), ("none stated",)),
    embedded("dbm-dumb", ("sync",), ("none stated",)),
    embedded("shelve-gnu", ("sync",), ("none stated",), needs="dbm.gnu"),
)


def installed(store: Store) -> bool:
    if not store.needs or shutil.which(store.needs):
        return True
    return (
        subprocess.run([PYTHON, "-c", f"import {store.needs}"], capture_output=True, check=False).returncode
        == 0
    )


def examined(store: Store, level: str, points: int, limit: str) -> dict:
    options = (
        ("--prepare", store.prepare),
        ("--ready", store.ready),
        ("--user", store.user),
        ("--dump", store.dump),
    )
    client = (("--client", store.work),) if store.server else ()
    words = [
        word for name, line in (*options, *client) if line for word in (name, line.replace("{x}", level))
    ]
    own = (store.server or store.work).replace("{x}", level)
    return powercut(words, [own], points=points, limit=limit, seed=7)


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
