"""Minimal studies that together use every knob that ships.

Studies whose runs are mostly killed have no accounted repetitions, which would only repeat the same transitions. The
others have them.
"""

from __future__ import annotations

import tomllib

from study_texts import reading

SETTINGS = """
[study]
name = "settings"
account = false
question = "Do settings matter?"
[lab]
kind = "image"
size = "16 MiB"
[budget]
time = "10 min"
blocks = 2
[[factor]]
name = "queue"
knob = "block.scheduler"
reference = "plain"
levels = [
  { label = "plain", set = { "block.scheduler" = "none", "block.nr_requests" = "64" } },
  { label = "tuned", set = { "block.scheduler" = "mq-deadline", "block.nr_requests" = "128" } },
]
[[factor]]
name = "ahead"
knob = "block.read_ahead_kb"
levels = ["512"]
role = "condition"
[[factor]]
name = "throttle"
knob = "block.wbt_lat_usec"
levels = ["1000"]
role = "condition"
[[factor]]
name = "pressure"
knob = "sysctl"
key = "vm.vfs_cache_pressure"
levels = ["50"]
role = "condition"
[[factor]]
name = "expire"
knob = "sysctl"
key = "vm.dirty_expire_centisecs"
levels = ["1500"]
role = "condition"
""" + reading()

MOUNTS = """
[study]
name = "mounts"
account = false
question = "Do mount options matter?"
[lab]
kind = "image"
size = "16 MiB"
[budget]
time = "10 min"
blocks = 2
[[factor]]
name = "mount"
knob = "mount.atime"
reference = "a"
levels = [
  { label = "a", set = { "mount.atime" = "strictatime", "mount.option" = "commit=30", "file.mode" = "0444" } },
  { label = "b", set = { "mount.atime" = "noatime", "mount.option" = "default", "file.mode" = "0777" } },
]
[[factor]]
name = "size"
knob = "file.size"
levels = ["1 KiB", "8 KiB"]
role = "condition"
[[factor]]
name = "readonly"
knob = "mount.readonly"
levels = ["ro"]
role = "condition"
[[factor]]
name = "cache"
knob = "cache.state"
levels = ["cold", "warm"]
role = "condition"
[[factor]]
name = "user"
knob = "process.user"
levels = ["unprivileged"]
role = "condition"
""" + reading(files=8, cache=None)

FORMATS = """
[study]
name = "formats"
question = "Does making the file system matter?"
[lab]
kind = "image"
size = "16 MiB"
[budget]
time = "10 min"
blocks = 2
[design]
repeats = 2
[[factor]]
name = "format"
knob = "mkfs.option"
levels = ["default", "-b 1024"]
plot = "whole"
[[factor]]
name = "kind"
knob = "filesystem.type"
levels = ["ext4"]
role = "condition"
""" + reading(cache="warm")

FOLDER = """
[study]
name = "folder"
question = "Does a folder of the user's stay as it is?"
[lab]
kind = "directory"
[budget]
time = "10 min"
blocks = 3
[[factor]]
name = "link"
knob = "file.link"
levels = ["regular", "symlink-chain", "hardlink"]
[[factor]]
name = "atime"
knob = "file.atime_state"
levels = ["stale"]
role = "condition"
""" + reading(files=6, cache="warm")

COMMANDS = """
[study]
name = "commands"
question = "Does what a command starts end with it?"
[lab]
kind = "directory"
[budget]
time = "10 min"
blocks = 3
[[factor]]
name = "nap"
knob = "command.argument"
placeholder = "{nap}"
levels = ["0.01", "0.02"]
[[factor]]
name = "variable"
knob = "environment.variable"
variable = "ARM"
levels = ["one"]
role = "condition"
[[workload]]
name = "nap"
kind = "command"
files = 2
cache = "as-is"
argv = ["sh", "-c", "sleep {nap}; echo {dir} >/dev/null"]
"""

PLACES = """
[study]
name = "places"
account = false
question = "Do two places and the log beside them go again?"
[lab]
kind = "image"
size = "16 MiB"
[budget]
time = "10 min"
blocks = 2
[[place]]
name = "one"
[[place]]
name = "other"
[[place]]
name = "beside"
holds = "files"
[[factor]]
name = "device"
knob = "lab.device"
levels = ["one", "other"]
[[factor]]
name = "log"
knob = "filesystem.log"
levels = ["external"]
role = "condition"
""" + reading()

QUEUE = """
[study]
name = "queue"
question = "Do many settings of one device matter?"
[lab]
kind = "image"
size = "16 MiB"
[budget]
time = "10 min"
blocks = 2
[[factor]]
name = "queue"
knob = "block.nomerges"
reference = "plain"
levels = [
  { label = "plain", set = [
    { knob = "block.nomerges", level = "0" },
    { knob = "block.max_sectors_kb", level = "256" },
    { knob = "block.rq_affinity", level = "1" },
    { knob = "block.add_random", level = "0" },
    { knob = "block.rotational", level = "1" },
    { knob = "block.stable_writes", level = "0" },
    { knob = "block.write_cache", level = "write back" },
    { knob = "bdi.max_ratio", level = "100" },
    { knob = "bdi.min_ratio", level = "0" },
    { knob = "bdi.strict_limit", level = "0" },
    { knob = "memory.huge_pages", level = "madvise" },
  ] },
  { label = "tuned", set = [
    { knob = "block.nomerges", level = "2" },
    { knob = "block.max_sectors_kb", level = "128" },
    { knob = "block.rq_affinity", level = "2" },
    { knob = "block.add_random", level = "1" },
    { knob = "block.rotational", level = "0" },
    { knob = "block.stable_writes", level = "1" },
    { knob = "block.write_cache", level = "write through" },
    { knob = "bdi.max_ratio", level = "20" },
    { knob = "bdi.min_ratio", level = "5" },
    { knob = "bdi.strict_limit", level = "1" },
    { knob = "memory.huge_pages", level = "always" },
  ] },
]
[[factor]]
name = "bytes"
knob = "sysctl"
key = "vm.dirty_bytes"
levels = ["268435456"]
role = "condition"
[[factor]]
name = "attribute"
knob = "file.attribute"
levels = ["no-atime"]
role = "condition"
[[factor]]
name = "nice"
knob = "process.nice"
levels = ["5"]
role = "condition"
[[factor]]
name = "class"
knob = "process.io_priority"
levels = ["idle"]
role = "condition"
[[factor]]
name = "core"
knob = "process.cpu"
levels = ["0"]
role = "condition"
""" + reading()

KINDS = """
[study]
name = "kinds"
question = "Do other file systems go as well?"
[lab]
kind = "image"
size = "16 MiB"
[budget]
time = "10 min"
blocks = 2
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[factor]]
name = "kind"
knob = "filesystem.type"
levels = ["xfs", "btrfs"]
role = "condition"
""" + reading()

LAID = """
[study]
name = "laid"
account = false
question = "Are files in pieces, on a file system in use, taken away again?"
[lab]
kind = "image"
size = "64 MiB"
[budget]
time = "10 min"
blocks = 2
[[factor]]
name = "laid"
reference = "whole"
levels = [
  { label = "whole", set = { "file.fragmentation" = "0 %", "file.defragment" = "untouched", "file.rewritten" = "0 %" } },
  { label = "pieces", set = { "file.fragmentation" = "50 %", "file.defragment" = "rewritten", "file.rewritten" = "50 %" } },
]
[[factor]]
name = "use"
knob = "filesystem.age"
levels = ["30 %"]
role = "condition"
[[factor]]
name = "trim"
knob = "filesystem.trim"
levels = ["fstrim"]
role = "condition"
[[factor]]
name = "size"
knob = "file.size"
levels = ["64 KiB"]
role = "condition"
""" + reading(files=4)

#: on the disk that holds the user's folder
IN_PLACE = """
[study]
name = "in-place"
question = "Is the disk in use as it was?"
[lab]
kind = "in-place"
[budget]
time = "60 s"
[[factor]]
name = "scheduler"
knob = "block.scheduler"
levels = ["none", "mq-deadline"]
[[factor]]
name = "ahead"
knob = "block.read_ahead_kb"
levels = ["16", "512"]
[[factor]]
name = "expire"
knob = "block.tunable"
key = "read_expire"
levels = ["100"]
role = "condition"
[[factor]]
name = "commit"
knob = "mount.option"
levels = ["default", "commit=30"]
[[factor]]
name = "atime"
knob = "mount.atime"
levels = ["noatime", "strictatime"]
role = "condition"
default = ["noatime"]
[[factor]]
name = "swap"
knob = "sysctl"
key = "vm.swappiness"
levels = ["10", "70"]
role = "condition"
default = ["10"]
[[workload]]
name = "write"
kind = "command"
argv = ["dd", "if=/dev/zero", "of={out}/file", "bs=4k", "count=2", "conv=fsync"]
"""

POWER = """
[study]
name = "power"
account = false
check = true
cut_points = 2
question = "Does a disk whose power is cut leave anything behind?"
[lab]
kind = "image"
size = "16 MiB"
[budget]
time = "10 min"
blocks = 1
[[factor]]
name = "barrier"
knob = "mount.option"
levels = ["default", "nobarrier"]
[[workload]]
name = "synced"
kind = "files"
files = 2
operations = ["create", "write-all", "fsync", "close", "unlink"]
cache = "as-is"
"""

ALL = {
    "settings": SETTINGS,
    "mounts": MOUNTS,
    "formats": FORMATS,
    "folder": FOLDER,
    "commands": COMMANDS,
    "in-place": IN_PLACE,
}
ALL["places"] = PLACES

#: these take some seconds per run, or have many steps
SLOW = {"kinds": KINDS, "queue": QUEUE, "laid": LAID, "power": POWER}

#: memory.limit moves the probe out of the caller's cgroup: killed and restored in contract/test_memory_limit.py;
#: also keys of the job itself, which leave nothing after the job,
#: knobs of a guest, which vanish with it, and io.*, which need version 2 of control groups: restored from the journal
#: in contract/test_guest_io_groups.py; block.encryption, which needs the device mapper: contract/test_guest_encryption.py;
#: memory.lru_gen, which this kernel may lack: contract/test_guest_lru_gen.py
ELSEWHERE = {
    "kernel.version", "guest.disk_aio", "guest.disk_cache", "guest.disk_format", "guest.disk_interface",
    "guest.memory", "guest.processors",
    "memory.limit", "memory.lru_gen", "matrix.file_size", "matrix.record_size", "work.option", "program.path",
    "raid.bitmap", "raid.chunk", "raid.level", "raid.maker", "raid.state", "raid.stripe_cache",
    "block.encryption", "io.cost.qos", "io.latency", "io.max", "io.weight",
    "guest.sysctl", "link.coalescing", "link.mtu", "link.offload", "link.rate", "link.ring",
    "nas.attribute_cache", "nas.close_to_open", "nas.connections", "nas.export", "nas.lookup_cache",
    "cpu.governor", "nas.protocol", "nas.read_ahead", "nas.threads", "nas.transfer",
}  # fmt: skip


def knobs_of(text: str) -> set[str]:
    """Return the names of all knobs that a study uses."""
    study = tomllib.loads(text)
    found = {"cache.state"} if any("cache" in w for w in study["workload"]) else set()
    for factor in study["factor"]:
        for level in factor["levels"]:
            if not isinstance(level, dict):
                found.add(factor["knob"])
            elif isinstance(level["set"], list):
                found |= {setting["knob"] for setting in level["set"]}
            else:
                found |= set(level["set"])
    return found
