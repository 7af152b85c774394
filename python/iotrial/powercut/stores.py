"""Stores that ``iotrial powercut --store`` knows: how each is prepared and started, and what must be installed.

Their clients are in ``clients``.
"""

from __future__ import annotations

import base64
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iotrial.errors import RequestError
from iotrial.powercut import clients
from iotrial.powercut.service import DIR, PORT


@dataclass(frozen=True, slots=True)
class Store:
    """``package``: what Debian calls it. ``server``: its words; none if it is a library. ``prepare`` and ``ready``: lines
    for a shell. ``user``: who runs it. ``folders``: where its programs may be besides the usual places.
    """

    package: str
    server: tuple[str, ...] = ()
    prepare: str = ""
    ready: str = ""
    user: str = ""
    programs: tuple[str, ...] = ()
    folders: str = ""


def _etcd() -> tuple[str, ...]:
    client, peer = "http://127.0.0.1:{port}", "http://127.0.0.1:1"
    urls = {
        "listen-client": client,
        "advertise-client": client,
        "listen-peer": peer,
        "initial-advertise-peer": peer,
    }
    words = [word for name, url in urls.items() for word in (f"--{name}-urls", url)]
    return (
        "etcd",
        "--data-dir",
        "{dir}/etcd",
        *words,
        "--initial-cluster",
        f"default={peer}",
        "--log-level=error",
    )


STORES: Mapping[str, Store] = {
    "sqlite": Store("python3"),
    "postgresql": Store(
        "postgresql",
        ("postgres", "-D", "{dir}/pg", "-p", PORT, "-k", DIR, "-c", "listen_addresses=127.0.0.1"),
        "initdb -D {dir}/pg -A trust -N",
        "pg_isready -q -h 127.0.0.1 -p {port}",
        user="postgres",
        programs=("postgres", "initdb", "psql", "pg_isready"),
        folders="usr/lib/postgresql/*/bin",
    ),
    "mariadb": Store(
        "mariadb-server-core mariadb-client-core",
        (
            *("mariadbd", "--no-defaults", "--user=root", "--datadir={dir}/db", "--socket={dir}/socket"),
            *("--pid-file={dir}/pid", "--port={port}", "--bind-address=127.0.0.1", "--skip-grant-tables"),
        ),
        "mkdir {dir}/db && mariadb-install-db --no-defaults --user=root --datadir={dir}/db --skip-test-db"
        " && mkdir -p {dir}/db/test",
        programs=("mariadbd", "mariadb-install-db", "mariadb"),
    ),
    "redis": Store(
        "redis-server",
        ("redis-server", "--port", PORT, "--dir", DIR, "--bind", "127.0.0.1"),
        programs=("redis-server",),
    ),
    "etcd": Store(
        "etcd-server etcd-client",
        _etcd(),
        ready="etcdctl --endpoints=127.0.0.1:{port} endpoint health",
        programs=("etcd", "etcdctl"),
    ),
}  # fmt: skip


def commands_of(name: str, options: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the commands of a store by what they are for, as ``Service`` has them.

    ``options`` are added to those of its server, or are the pragmas of SQLite. Raises RequestError if a program of it is
    missing.
    """
    store = STORES[name]
    found = {program: _program(name, program) for program in store.programs}

    def line(text: str) -> tuple[str, ...]:
        for program in sorted(found, key=len, reverse=True):
            text = " ".join(found[program] if word == program else word for word in text.split(" "))
        return ("sh", "-c", text) if text else ()

    place, pragmas = (PORT, ()) if store.server else (DIR, tuple(options))
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
    text = base64.b64encode(Path(clients.__file__).read_bytes()).decode()  # it has no braces
    client: tuple[str, ...] = (python, "-I", "-c", f"import base64; exec(base64.b64decode('{text}'))", name)
    path = ":".join(dict.fromkeys(str(Path(one).parent) for one in found.values()))
    if path:
        client = ("env", f"PATH={path}:/usr/local/bin:/usr/bin:/bin", *client)
    server = (found[store.server[0]], *store.server[1:], *options) if store.server else ()
    return {
        "server": server,
        "client": (*client, "work", place, *pragmas),
        "dump": (*client, "dump", place, *pragmas),
        "prepare": line(store.prepare),
        "ready": line(store.ready),
    }


def _program(name: str, program: str) -> str:
    store = STORES[name]
    versions = map(str, Path("/").glob(store.folders)) if store.folders else ()
    newest = sorted(versions, key=lambda one: (len(one), one), reverse=True)
    path = ":".join([*newest, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])
    where = shutil.which(program, path=path) or shutil.which(program)
    if where is None:
        raise RequestError(
            f"--store {name}: {program} is not installed",
            hint=f"on Debian and Ubuntu: apt install {store.package}",
        )
    return where
