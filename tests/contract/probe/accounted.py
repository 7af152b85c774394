"""Commands whose system calls the probe counts, for tests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from probe_client import Probe

PYTHON = [sys.executable, "-I", "-S"]


def account(probe: Probe, way: str, argv: Sequence[str], **fields: Any) -> dict[str, Any]:
    found = probe("command", steps=[{"name": "it", "argv": list(argv)}], account=way, **fields)["account"]
    assert (found["way"], found["lost"]) == (way, 0)
    return found["calls"]
