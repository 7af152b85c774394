"""The truth suite's own modules are tested, and used, here: they lie beside the benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "truth"))
