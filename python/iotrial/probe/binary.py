"""Find the probe binary: by environment variable, next to the interpreter (if installed), or in a source tree."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from pathlib import Path

from iotrial.errors import ProbeError


def find_binary() -> Path:
    """Return the path of ``ioprobe``: ``$IOTRIAL_PROBE``, the scripts folder of this Python, or the build of a checkout.

    Raises ProbeError if there is none.
    """
    named = os.environ.get("IOTRIAL_PROBE")
    if named:
        if os.access(named, os.X_OK):
            return Path(named)
        raise ProbeError(f"IOTRIAL_PROBE names {named}, which cannot be executed")
    checkout = Path(__file__).resolve().parents[3]
    candidates = [
        Path(sysconfig.get_path("scripts")) / "ioprobe",
        Path(sys.executable).parent / "ioprobe",
        checkout / "target" / f"{platform.machine()}-unknown-linux-gnu" / "release" / "ioprobe",
    ]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    raise ProbeError(
        "the probe (ioprobe) is not installed",
        hint="run `make build` in the source tree, or install the package again",
    )
