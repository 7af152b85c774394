"""How a store of many hosts grows, and what it costs to sum them up: so many simulated hosts with so many blocks each.

    python benchmarks/fleet_scale.py [--hosts 10,100,1000] [--blocks 1000] [--folder FOLDER] [--write BENCHMARKS.md]

Every host has a trial of its own: one study of two levels, a seed of its own, controls, and rows as wide as real ones (responses,
evidence and checks of a real run of the catalogue, the time drawn). Batches of finished blocks are added as they would come in, hosts in
turn, by ``add_share``. Then ``iotrial fleet report`` is run on the store, in processes of its own: anew, and once more.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "truth"))
from marked import put

from iotrial.design.plan import Plan
from iotrial.store import Store
from iotrial.store.model import BlockEnd, RunRecord, TrialHeader, TrialState
from iotrial.store.packed import open_packed, read_packed
from iotrial.study.reader import read_study

REAL = Path(__file__).parents[1] / "docs" / "catalogue" / "files" / "permissions.iotrial"
STUDY = """\
[study]
name = "fleet/example"
question = "Is b faster than a?"
[lab]
kind = "directory"
[[factor]]
name = "f"
knob = "mount.atime"
levels = ["a", "b"]
[[workload]]
name = "w"
kind = "files"
operations = ["open", "read", "close"]
"""
BATCH = 20  # blocks a batch
SPREAD, NOISE, STRETCH = 0.03, 0.08, 1.06
FLEET = "f1ee7" + "0" * 27
Block = tuple[tuple[RunRecord, ...], BlockEnd]
