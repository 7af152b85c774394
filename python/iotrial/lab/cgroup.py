"""Where this machine keeps control groups for memory: version 1 or 2, and where a group of the lab's own can be made.

Version 1 (Documentation/admin-guide/cgroup-v1/memory.rst): below the probe's own group, whose limits stay in force. Version 2
(Documentation/admin-guide/cgroup-v2.rst): a group with processes can have no groups with a memory limit below it, so beside
the probe's own; refused where that has a limit, because the work would escape it. No controller is switched on for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.errors import UnsupportedLevel
from iotrial.lab.target import Target

PREFIX = "iotrial-lab-"
#: version 1 shows no limit as the largest multiple of a page that a long holds
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Home:
    """The probe's own group (``folder``), and where groups of the lab are made (``parent``)."""

    version: int
    folder: str
    parent: str

    @property
    def limit_file(self) -> str:
        """The file of a group that holds its limit in bytes."""
        return "memory.limit_in_bytes" if self.version == 1 else "memory.max"

    def group(self, trial: str, value: str) -> str:
        """The group of a trial for a limit (bytes as text, or "none")."""
        return f"{self.parent}/{PREFIX}{trial[:8] or '0'}-{value}"

    def limit(self, target: Target, group: str) -> str:
        """The limit of a group, "none" where there is none."""
        text = target.read(f"{group}/{self.limit_file}").strip()
        return "none" if text == "max" or (text.isdigit() and int(text) >= UNLIMITED) else text


def find(target: Target, *, anywhere: bool = False) -> Home:
    """The group that the probe is in. Raises UnsupportedLevel where no group for memory can be made near it; with
    ``anywhere`` that is not looked at."""
    own = {}
    for line in target.read("/proc/self/cgroup").split("\n"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        own[2 if number == "0" and not controllers else 1, controllers] = path
    mounts = _mounts(target)
    for (version, controllers), path in own.items():
        if version == 1 and "memory" in controllers.split(",") and 1 in mounts:
            folder = _below(*mounts[1], path)
            return Home(1, folder, folder)
    if (2, "") not in own or 2 not in mounts:
        raise UnsupportedLevel("knob memory.limit: no control groups for memory are mounted here")
    point, root = mounts[2]
    folder = _below(point, root, own[2, ""])
    parent = folder if folder == point else folder.rpartition("/")[0]
    if not anywhere:
        _check_version_2(target, folder, parent)
    return Home(2, folder, parent)


def _check_version_2(target: Target, folder: str, parent: str) -> None:
    enabled = (target.read_or_none(f"{parent}/cgroup.subtree_control") or "").split()
    if "memory" not in enabled:
        raise UnsupportedLevel(
            f"knob memory.limit: the memory controller is not on for the groups in {parent}",
            hint="run iotrial in a scope of systemd's: `sudo systemd-run --scope -p MemoryAccounting=yes iotrial run ...`",
        )
    limit = target.read_or_none(f"{folder}/memory.max")
    if folder != parent and limit not in (None, "max"):
        raise UnsupportedLevel(
            f"knob memory.limit: {folder} has a limit of its own ({limit} bytes), which the work would escape",
            hint="run iotrial where no limit is set",
        )


def _mounts(target: Target) -> dict[int, tuple[str, str]]:
    """Version to mount point and the group that is its root."""
    found: dict[int, tuple[str, str]] = {}
    for line in target.read("/proc/self/mountinfo").split("\n"):
        fields, _, rest = line.partition(" - ")
        words, kind = fields.split(" "), rest.split(" ")
        if len(words) < 6 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            found[2] = (words[4], words[3])
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found[1] = (words[4], words[3])
    return found


def _below(point: str, root: str, path: str) -> str:
    """The folder of a group, in a mount that shows the groups from ``root`` on."""
    if root != "/" and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    return f"{point}/{path.strip('/')}".rstrip("/")
