"""A Dask cluster over a network of namespaces, with TLS: a scheduler on the middle host, a worker per host, and
the rows that a fleet collected."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from namespaces import Host, Network, Started, eventually

STUDY = """\
[study]
name = "small"
question = "Does the mode change how fast a file is read?"
margin = "5 %"
[lab]
kind = "directory"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
reference = "0777"
[[workload]]
name = "reads"
kind = "files"
files = 20
size = "4 KiB"
operations = ["open", "read", "close"]
cache = "warm"
"""
ROWS = {
    "run": "condition, block, slot, arm, kind, treatment, started_s, failure, responses, evidence, histograms, files",
    "block_end": "condition, block, round, controls, void, void_level, gap",
}
ADDRESS = "tls://10.77.0.1:8786"


class Fleet:
    """A network with keys, a scheduler on the middle host, and a small study."""

    def __init__(self, net: Network, folder: Path) -> None:
        self.net = net
        self.middle = net.middle
        self.keys = make_keys(folder / "keys")
        self.study = str(folder / "small.toml")
        Path(self.study).write_text(STUDY)
        self.start_scheduler()

    def start_scheduler(self) -> None:
        self.scheduler = self.middle.python(
            "distributed.cli.dask_scheduler", "--host", ADDRESS, "--no-dashboard", *tls(self.keys)
        )
        eventually(
            "the scheduler listens",
            lambda: "Scheduler at:" in self.scheduler.said,
            said=lambda: self.scheduler.said,
        )

    def worker(self, host: Host, *more: str, keys: Path | None = None) -> Started:
        return host.python(
            "distributed.cli.dask_worker", ADDRESS, "--nthreads", "1", "--no-dashboard",
            "--local-directory", str(host.folder), *tls(keys or self.keys), *more,
        )  # fmt: skip

    def workers(self) -> None:
        """Start a worker on each host, and wait until the scheduler has them: a run takes those that it finds."""
        for one in [self.worker(host) for host in self.net.hosts.values()]:
            eventually("the worker joins", partial(self._joined, one), said=partial(getattr, one, "said"))

    @staticmethod
    def _joined(worker: Started) -> bool:
        return "Registered to" in worker.said

    def run(self, *words: str, host: Host | None = None, keys: Path | None = None) -> Started:
        return (host or self.middle).start(
            "fleet", "run", self.study, "--no-stop", "--no-account", "--scheduler", ADDRESS,
            *client(keys or self.keys), *words,
        )  # fmt: skip

    def resume(self) -> Started:
        return self.middle.start("fleet", "resume", "--json")

    @property
    def id(self) -> str:
        (path,) = (self.middle.state / "fleets").glob("*.json")
        return path.stem

    def held(self, host: str, table: str) -> list[tuple[Any, ...]]:
        """Return the rows of a host's trial in the coordinator's store."""
        query = (
            f"SELECT {ROWS[table]} FROM {table} WHERE trial = (SELECT number FROM trial WHERE "
            "json_extract(options, '$.fleet.host') = ?) ORDER BY condition, block"
        )
        return rows(self.middle.state / "trials.db", f"{query}{', slot' if table == 'run' else ''}", host)

    def own(self, host: Host, table: str) -> list[tuple[Any, ...]]:
        """Return the rows of finished blocks in the host's own store."""
        finished = "(condition, block) IN (SELECT condition, block FROM block_end)"
        query = f"SELECT {ROWS[table]} FROM {table} WHERE {finished} ORDER BY condition, block"
        return rows(self._store(host), f"{query}{', slot' if table == 'run' else ''}")

    def _store(self, host: Host) -> Path:
        found = list((self.middle.state / "fleets").glob("*.json"))
        return host.state / "fleet" / (found[0].stem if found else "none") / "trials.db"

    def states(self, host: Host) -> list[str]:
        """Return the states that the host's own trial has had."""
        return [state for (state,) in rows(self._store(host), "SELECT state FROM state ORDER BY sequence")]

    def measuring(self, *hosts: Host) -> bool:
        """Return whether each has finished a block."""
        return all(self.own(host, "block_end") for host in hosts or self.net.hosts.values())

    def same(self, host: Host) -> bool:
        """Return whether the coordinator has exactly the finished blocks of the host's own store; check that
        there are some."""
        assert self.held(host.name, "block_end")
        return all(plain(self.held(host.name, table)) == plain(self.own(host, table)) for table in ROWS)


def restored(host: Host) -> bool:
    """Return whether no iotrial runs there any more; check that nothing is left to restore."""
    if host.processes("iotrial"):
        return False
    folder = host.state / "journal"
    assert not folder.is_dir() or not list(folder.iterdir())
    return True


def kill(host: Host, *words: str) -> None:
    """Kill all processes there whose command line has these words at once."""
    found = host.processes(*words)
    assert found
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def plain(found: list[tuple[Any, ...]]) -> list[list[Any]]:
    """Parse JSON texts, so that 1e-05 and 1e-5 compare equal."""
    return [
        [json.loads(cell) if isinstance(cell, str) and cell[:1] in "[{" and cell else cell for cell in row]
        for row in found
    ]


def rows(store: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    if not store.exists():
        return []
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=30)
    try:
        return connection.execute(query, values).fetchall()
    except sqlite3.OperationalError:  # the tables are just being created
        return []
    finally:
        connection.close()


def make_keys(folder: Path) -> Path:
    """Make an authority, and one certificate that it signed, as docs/fleet.md shows."""
    folder.mkdir()
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -noenc -keyout ca-key.pem -out ca.pem -days 2 -subj /CN=authority && "
        "openssl req -newkey rsa:2048 -noenc -keyout key.pem -out request.pem -subj /CN=fleet && "
        "openssl x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -out cert.pem -days 2",
        shell=True, cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder


def tls(keys: Path) -> tuple[str, ...]:
    """Return the options of Dask's scheduler and worker."""
    return (
        "--tls-ca-file",
        f"{keys}/ca.pem",
        "--tls-cert",
        f"{keys}/cert.pem",
        "--tls-key",
        f"{keys}/key.pem",
    )


def client(keys: Path) -> tuple[str, ...]:
    """Return the options of ``iotrial fleet run``."""
    return ("--tls-ca", f"{keys}/ca.pem", "--tls-cert", f"{keys}/cert.pem", "--tls-key", f"{keys}/key.pem")
