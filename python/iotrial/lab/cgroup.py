"""Memory control groups: which version (1 or 2) this machine uses, and where the lab can create its groups.

Version 1 (Documentation/admin-guide/cgroup-v1/memory.rst): below the probe's own group, so that its limits still apply.
Version 2 (Documentation/admin-guide/cgroup-v2.rst): a group that contains processes cannot have child groups with a
memory limit, so the lab's groups are siblings of the probe's own. Refused if the probe's group has a limit, because the
work would escape it. No controller is enabled for this.
"""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.errors import UnsupportedLevel
from iotrial.lab.target import Target, unescape

PREFIX = "iotrial-lab-"
#: version 1 shows "no limit" as the largest multiple of the page size that fits a long
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Home:
    """The probe's own group (``folder``), and the parent of the lab's groups (``parent``)."""

    version: int
    folder: str
    parent: str

    @property
    def limit_file(self) -> str:
        """The name of the file in a group that holds its limit in bytes."""
        return "memory.limit_in_bytes" if self.version == 1 else "memory.max"

    def group(self, trial: str, value: str) -> str:
        """Return the path of a trial's group for a limit (bytes as text, or "none")."""
        return f"{self.parent}/{PREFIX}{trial[:8] or '0'}-{value}"

    def limit(self, target: Target, group: str) -> str:
        """Return the limit of a group in bytes as text, or "none"."""
        text = target.read(f"{group}/{self.limit_file}").strip()
        return "none" if text == "max" or (text.isdigit() and int(text) >= UNLIMITED) else text


def find(target: Target, *, anywhere: bool = False) -> Home:
    """Find the group that the probe is in. Raises UnsupportedLevel if no memory group can be created near it.

    ``anywhere`` skips that check for version 2.
    """
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
            f"knob memory.limit: the memory controller is not enabled for the groups in {parent}",
            hint="run iotrial in a scope of systemd's: `sudo systemd-run --scope -p MemoryAccounting=yes iotrial run ...`",
        )
    limit = target.read_or_none(f"{folder}/memory.max")
    if folder != parent and limit not in (None, "max"):
        raise UnsupportedLevel(
            f"knob memory.limit: {folder} has its own limit ({limit} bytes), which the work would escape",
            hint="run iotrial where no limit is set",
        )


def _mounts(target: Target) -> dict[int, tuple[str, str]]:
    """Map each version to its mount point and the group that is the root of the mount."""
    found: dict[int, tuple[str, str]] = {}
    for line in target.read("/proc/self/mountinfo").split("\n"):
        fields, _, rest = line.partition(" - ")
        words, kind = fields.split(" "), rest.split(" ")
        if len(words) < 6 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            found[2] = (unescape(words[4]), unescape(words[3]))
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found[1] = (unescape(words[4]), unescape(words[3]))
    return found


def _below(point: str, root: str, path: str) -> str:
    """Return the directory of a group in a mount of the group ``root``."""
    if root != "/" and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    return f"{point}/{path.strip('/')}".rstrip("/")
