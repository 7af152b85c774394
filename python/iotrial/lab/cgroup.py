"""Control groups: which version (1 or 2) this machine uses, and where the lab can create its groups.

Version 1 (Documentation/admin-guide/cgroup-v1/memory.rst): below the probe's own group, so that its limits still apply.
Version 2 (Documentation/admin-guide/cgroup-v2.rst): a group that contains processes cannot have child groups with a
memory limit, so the lab's groups are siblings of the probe's own. Refused if the probe's group has a limit, because the
work would escape it. No controller is enabled for this, except in a guest.

Limits of I/O exist in version 2 only here. The work and its neighbour have a group each, next to the probe's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.errors import UnsupportedLevel
from iotrial.lab.target import Target, unescape

PREFIX = "iotrial-lab-"
#: where a guest mounts version 2
MOUNT_POINT = "/sys/fs/cgroup"
#: the property of a systemd unit that enables a controller
ACCOUNTING = {"memory": "MemoryAccounting", "io": "IOAccounting"}
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


@dataclass(frozen=True, slots=True)
class Groups:
    """The probe's own group, and those that the work and its neighbour join for a run."""

    home: str
    work: str
    neighbour: str


def unified(target: Target, knob: str) -> str:
    """Return where version 2 with the io controller is mounted. Raises UnsupportedLevel, naming the knob."""
    mount = _mounts(target).get(2)
    hint = "use a guest, which has it: --lab guest"
    if mount is None:
        raise UnsupportedLevel(f"knob {knob}: no control groups of version 2 are mounted here", hint=hint)
    controllers = (target.read_or_none(f"{mount[0]}/cgroup.controllers") or "").split()
    if "io" not in controllers:
        raise UnsupportedLevel(
            f"knob {knob}: the control groups of version 2 in {mount[0]} have no io controller", hint=hint
        )
    return mount[0]


def groups_of(target: Target, knob: str, trial: str) -> Groups:
    """Return the groups of a trial, which may not exist yet. Raises UnsupportedLevel as ``unified`` does, and where the io
    controller is not enabled."""
    folder = own_group(target, unified(target, knob))
    parent = folder.rpartition("/")[0] if folder != _mounts(target)[2][0] else folder
    _check_enabled(target, parent, "io", knob)
    base = f"{parent}/{PREFIX}{trial[:8] or '0'}"
    return Groups(folder, f"{base}-work", f"{base}-neighbour")


def own_group(target: Target, point: str) -> str:
    """Return the probe's own group of version 2, mounted at ``point``."""
    lines = target.read("/proc/self/cgroup").split("\n")
    own = next(line.removeprefix("0::") for line in lines if line.startswith("0::"))
    return _below(point, _mounts(target)[2][1], own)


def mount_in_guest(target: Target) -> None:
    """Mount version 2 in a guest, which mounts no control groups by itself, and enable the controllers for I/O.

    Dirty pages are charged to a group only with the memory controller.
    """
    if 2 in _mounts(target):
        return
    target.call("mount", source="cgroup2", target=MOUNT_POINT, type="cgroup2")
    for controller in ("io", "memory"):
        target.write(f"{MOUNT_POINT}/cgroup.subtree_control", f"+{controller}")


def _check_enabled(target: Target, parent: str, controller: str, knob: str) -> None:
    enabled = (target.read_or_none(f"{parent}/cgroup.subtree_control") or "").split()
    if controller not in enabled:
        raise UnsupportedLevel(
            f"knob {knob}: the {controller} controller is not enabled for the groups in {parent}",
            hint="run iotrial in a scope of systemd's: `sudo systemd-run --scope -p "
            f"{ACCOUNTING[controller]}=yes iotrial run ...`",
        )


def _check_version_2(target: Target, folder: str, parent: str) -> None:
    _check_enabled(target, parent, "memory", "memory.limit")
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
