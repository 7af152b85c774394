"""A study that uses every feature, for the tests of the reader and related code."""

from __future__ import annotations

from iotrial.study.model import Study
from iotrial.study.reader import read_study

WHOLE = '''\
[study]
name = "whole"                     # line 2
title = "Everything at once"
question = "Does it matter?"
why = """
Because.
[[factor]] is no header here.
"""
margin = "2 %"
alpha = 0.01

[lab]                              # line 12
kind = "image"
filesystem = "xfs"
size = "1 GiB"
mkfs_options = ["-m", "crc=1"]
mount_options = ["nodiscard"]

[budget]
time = "90 s"
blocks = 100

[[factor]]                         # line 23
name = "atime"
knob = "mount.atime"
levels = ["strictatime", "relatime", "noatime"]
reference = "relatime"
default = ["relatime", "noatime"]

[[factor]]                         # line 30
name = "tuning"
levels = [
  { label = "stock", set = { "block.read_ahead_kb" = 128 } },
  { label = "tuned", set = { "block.read_ahead_kb" = 4096, "block.add_random" = false } },
]

[[factor]]                         # line 37
name = "size"
knob = "file.size"
levels = ["64 B", "10 KiB", "1 MiB"]
role = "condition"
default = ["10 KiB"]

[[factor]]                         # line 44
name = "threads"
knob = "command.argument"
placeholder = "{threads}"
levels = [1, 2, { label = "many", value = 64 }]
role = "condition"

[[fixed]]                          # line 51
knob = "sysctl"
key = "vm.dirty_ratio"
level = 10

[[workload]]                       # line 56
name = "probe"
kind = "files"
files = 20
size = "4 KiB"
operations = ["open", "read-to-end", "close"]
cache = "warm"

[[workload]]                       # line 64
name = "sort"
kind = "command"
timeout = "5 min"
environment = { LC_ALL = "C" }
only = { size = ["10KiB", "1 MiB"] }
[[workload.step]]
name = "in"
argv = ["sort", "--parallel={threads}", "{file}"]
[[workload.step]]
name = "out"
argv = ["cat", "{files}"]

[[workload]]                       # line 77
name = "slow"
kind = "command"
argv = ["md5sum", "{file}"]
default = false

[[response]]                       # line 83
workload = "probe"
name = "read_to_end_time"
primary = true

[[response]]                       # line 88
name = "cpu"
better = "none"

[[claim]]                          # line 92
source = "a web page, 2009"
text = "noatime halves it"
factor = "atime"
level = "noatime"
ratio = 0.5
workload = "probe"
response = "read_to_end_time"
condition = { size = "10kib", workload = "probe" }

[[claim]]                          # line 102
source = "another"
text = "words only"
factor = "atime"
level = "strictatime"
reference = "noatime"
note = "never repeated"
'''


def whole() -> Study:
    """Return the study in ``WHOLE``."""
    return read_study(WHOLE, "whole.toml", trusted=False)


def changed(old: str, new: str) -> str:
    """Return ``WHOLE`` with one piece replaced, which must occur exactly once."""
    assert WHOLE.count(old) == 1, f"{old!r} is there {WHOLE.count(old)} times"
    return WHOLE.replace(old, new)
