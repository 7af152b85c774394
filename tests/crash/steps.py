"""Numbered steps of a run at which a kill could leave something behind, so that each can be tried.

A step is the moment before and after each system call that changes the undo journal (opening, syncing and renaming
a draft, removing an entry, syncing the folder), and around each request to the probe that changes something: before
it is sent, after it was sent, after it was answered. Steps of the store are the moments before and after each run is
added.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iotrial import durable
from iotrial.lab import journal
from iotrial.probe import client
from iotrial.store import database

#: read-only verbs
LOOKING = frozenset(
    {
        "hello", "read", "stat", "statfs", "list", "readlink", "time", "loop_free", "loop_status", "get_mode", "get_link",
        "get_size", "get_atime_state", "atimes", "residency", "fileset_verify",
    }
)  # fmt: skip


class Steps:
    """Counts the steps of this process, and kills it at one of them."""

    def __init__(self, die_at: int | None, kinds: frozenset[str]) -> None:
        self.names: list[str] = []
        self._die_at = die_at
        self._kinds = kinds

    def step(self, kind: str, name: str) -> None:
        if kind not in self._kinds:
            return
        self.names.append(name)
        if len(self.names) - 1 == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Hook into the journal, the probe and the store of this process."""
        self._journal()
        self._probe()
        self._store()

    def _journal(self) -> None:
        class WatchedOs:
            def __getattr__(inner, name: str) -> Any:
                return getattr(os, name)

            def open(inner, path: Any, flags: int, *mode: int) -> int:
                if flags & os.O_CREAT:
                    self.step("journal", f"before opening {Path(path).name}")
                return os.open(path, flags, *mode)

            def fsync(inner, descriptor: int) -> None:
                what = Path(f"/proc/self/fd/{descriptor}").readlink().name
                self.step("journal", f"before syncing {what}")
                os.fsync(descriptor)
                self.step("journal", f"after syncing {what}")

        journal.os = durable.os = WatchedOs()  # type: ignore[attr-defined]
        journal.Path = self._watched_path()  # type: ignore[attr-defined, misc]
        original = journal.Journal.__init__

        def begin(inner: journal.Journal, folder: Path) -> None:
            original(inner, journal.Path(folder))

        journal.Journal.__init__ = begin  # type: ignore[method-assign]

    def _store(self) -> None:
        step = self.step
        original = database.Store.append_run

        def append_run(store: database.Store, trial: str, run: Any) -> None:
            step("store", "before adding a run")
            original(store, trial, run)
            step("store", "after adding a run")

        database.Store.append_run = append_run  # type: ignore[method-assign]

    def _watched_path(self) -> type:
        step = self.step

        class WatchedPath(type(Path())):  # type: ignore[misc]
            def rename(inner, target: Any) -> Any:
                step("journal", f"before renaming {inner.name}")
                done = super().rename(target)
                step("journal", f"after renaming {inner.name}")
                return done

            def unlink(inner, missing_ok: bool = False) -> None:
                step("journal", f"before removing {inner.name}")
                super().unlink(missing_ok=missing_ok)
                step("journal", f"after removing {inner.name}")

        return WatchedPath

    def _probe(self) -> None:
        step = self.step
        original: Callable[..., dict[str, Any]] = client.Probe.call
        send: Callable[..., None] = client.Probe._send

        def call(probe: client.Probe, verb: str, **fields: object) -> dict[str, Any]:
            if verb in LOOKING:
                return original(probe, verb, **fields)
            step("verb", f"before {verb}")
            answer = original(probe, verb, **fields)
            step("verb", f"after {verb}")
            return answer

        def sent(probe: client.Probe, line: bytes, verb: str) -> None:
            send(probe, line, verb)
            if verb not in LOOKING:
                step("verb", f"after sending {verb}")

        client.Probe.call = call  # type: ignore[method-assign]
        client.Probe._send = sent  # type: ignore[method-assign]
