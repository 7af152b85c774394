"""A fleet over a network of namespaces: keys, a scheduler on the middle host, workers, and the rows they
collected."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
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


class Fleet:
    """A network with keys, a scheduler on the middle host, and a small study."""

    def __init__(self, net: Network, folder: Path) -> None:
        self.net = net
        self.middle = net.middle
        self.keys = str(folder / "keys")
        self.study = str(folder / "small.toml")
        Path(self.study).write_text(STUDY)
        make_keys(self.keys)
        self.scheduler = self.middle.start(
            "fleet", "scheduler", "--bind", "10.77.0.1:8786", "--keys", self.keys
        )
        eventually("the scheduler listens", lambda: "tls://10.77.0.1:8786" in self.scheduler.said)

    def worker(self, host: Host, keys: str | None = None) -> Started:
        return host.start("fleet", "worker", "10.77.0.1", "--keys", keys or self.keys, "--name", host.name)

    def run(self, *words: str) -> Started:
        reached = ("--fleet", "tls://10.77.0.1:8786", "--keys", self.keys)
        return self.middle.start("run", self.study, "--no-stop", "--no-account", *words, *reached)

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
        store = host.state / "fleet" / self.id / "trials.db"
        return rows(store, f"{query}{', slot' if table == 'run' else ''}")

    def blocks(self, host: str) -> int:
        return len(self.held(host, "block_end"))

    def same(self, host: Host) -> bool:
        """Return whether the coordinator has exactly the finished blocks of the host's own store; check that
        there are some."""
        assert self.held(host.name, "block_end")
        return all(plain(self.held(host.name, table)) == plain(self.own(host, table)) for table in ROWS)


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


def make_keys(folder: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "iotrial", "fleet", "keys", folder], check=True, capture_output=True
    )


def journal(host: Host) -> list[str]:
    folder = host.state / "journal"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
