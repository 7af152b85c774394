"""Run commands with counted system calls, for tests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import traced
from probe_client import Probe

PYTHON = [sys.executable, "-I", "-S"]


def account(probe: Probe, argv: Sequence[str], **fields: Any) -> dict[str, Any]:
    steps = [{"name": "it", "argv": list(argv)}]
    # as under strace here: some programs look at what their output is
    found = probe("command", steps=steps, account=True, stdout="null", **fields)["account"]
    assert found["lost"] == 0
    return found["calls"]


class Known:
    """Cache of strace results by command, so that strace runs once per command."""

    def __init__(self) -> None:
        self._run: set[tuple[str, ...]] = set()
        self._counts: dict[tuple[str, ...], traced.Counts] = {}
        self._errors: dict[tuple[str, ...], dict[str, dict[str, int]]] = {}

    def run_before(self, probe: Probe, argv: Sequence[str]) -> None:
        """Run a command once, so that the counted run finds all its files in the cache."""
        if tuple(argv) not in self._run:
            account(probe, argv)
            self._run.add(tuple(argv))

    def counts(self, argv: list[str], folder: Path) -> traced.Counts:
        """Return calls and errors by name, as counted by strace."""
        if tuple(argv) not in self._counts:
            self._counts[tuple(argv)] = traced.counted(argv, folder)
        return self._counts[tuple(argv)]

    def errors(self, argv: list[str], folder: Path) -> dict[str, dict[str, int]]:
        """Return errors by name of the call and of the error, as reported by strace."""
        if tuple(argv) not in self._errors:
            self._errors[tuple(argv)] = traced.errors(argv, folder)
        return self._errors[tuple(argv)]
