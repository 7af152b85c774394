"""Studies with places, assembled from parts."""

from __future__ import annotations

from collections.abc import Sequence

from iotrial.study.model import Study
from iotrial.study.reader import read_study
from iotrial.study.select import select

HEAD = """
[study]
name = "places"
question = "Is one place as fast as another?"
[lab]
kind = "image"
size = "64 MiB"
[[workload]]
name = "read"
kind = "files"
files = 4
operations = ["open", "read-to-end", "close"]
"""
DEVICE = """
[[factor]]
name = "device"
knob = "lab.device"
levels = ["ssd", "disk", "tape"]
default = ["ssd", "disk"]
"""
PLACES = """
[[place]]
name = "ssd"
text = "the solid-state disk"
[[place]]
name = "disk"
size = "100 MiB"
filesystem = "xfs"
[[place]]
name = "tape"
"""
MODE = """
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
"""
LOG = """
[[factor]]
name = "log"
knob = "filesystem.log"
levels = ["internal", "external"]
"""


def read(*parts: str) -> Study:
    return read_study("".join((HEAD, *parts)), "places.toml", trusted=True)


def chosen(*parts: str, **sets: Sequence[str]) -> Study:
    return select(read(*parts), sets=sets)
