"""Stores for the tests of serve's pages."""

from __future__ import annotations

import sys
from pathlib import Path

from values import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from store_examples import filled, header

from iotrial.store import Store
from iotrial.store.model import TrialState

INTEL = {
    "processor": "Intel Xeon",
    "processors": 4,
    "memory_bytes": 8 << 30,
    "kernel": "6.12.9",
    "system": "Debian 12",
}
EPYC = {
    "processor": "AMD EPYC",
    "processors": 2,
    "memory_bytes": 24 << 30,
    "kernel": "6.1.0",
    "system": "Debian 12",
}


def three_trials(path: Path) -> Path:
    """Create a store with three trials of one study: two machines, three dates, one interrupted."""
    with Store.open(path) as store:
        for n, host in enumerate((EPYC, INTEL, EPYC)):
            of = replace(header(f"{n}" * 32), host=host, started=f"2024-0{n + 1}-01T12:00:00Z")
            filled(store, of)
        store.set_state("2" * 32, TrialState.INTERRUPTED, "by <hand>")
    return path
