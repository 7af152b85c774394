"""Location of the memory cgroup, in v1 and v2 hierarchies, derived from /proc and /sys."""

from __future__ import annotations

from typing import Any

import pytest

from iotrial.errors import LabError, TargetError, UnsupportedLevel
from iotrial.lab import cgroup
from iotrial.lab.journal import Entry
from iotrial.lab.objects.cgroup import LabCgroup
from iotrial.lab.target import Target

V1 = {
    "/proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/user/1\n0::/",
    "/proc/self/mountinfo": (
        "30 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "31 20 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
    ),
}
V2 = {
    "/proc/self/cgroup": "0::/user.slice/session-1.scope",
    "/proc/self/mountinfo": "30 20 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate",
    "/sys/fs/cgroup/user.slice/cgroup.subtree_control": "memory pids",
    "/sys/fs/cgroup/user.slice/session-1.scope/memory.max": "max",
}


class Files:
    """Fake machine that consists of a few files."""

    name = "files"

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def call(self, verb: str, **fields: Any) -> dict[str, Any]:
        assert verb == "read", verb
        if fields["path"] not in self.files:
            raise TargetError("no such file", errno=2)
        return {"data": self.files[fields["path"]]}


def find(files: dict[str, str]) -> cgroup.Home:
    return cgroup.find(Target(Files(files)))


def test_version_1_is_below_the_own_group_so_that_its_limits_stay_in_force() -> None:
    home = find(V1)
    assert (home.version, home.folder) == (1, "/sys/fs/cgroup/memory/user/1")
    assert home.group("abcdef0123", "none") == "/sys/fs/cgroup/memory/user/1/iotrial-lab-abcdef01-none"
    assert home.limit_file == "memory.limit_in_bytes"


def test_version_2_is_beside_the_own_group_because_that_one_has_processes() -> None:
    home = find(V2)
    assert home.folder == "/sys/fs/cgroup/user.slice/session-1.scope"
    assert home.group("ab", "67108864") == "/sys/fs/cgroup/user.slice/iotrial-lab-ab-67108864"


def test_a_mount_that_shows_a_part_of_the_groups_is_read_from_its_root() -> None:
    inside = {
        "/proc/self/cgroup": "4:memory:/docker/f00/x",
        "/proc/self/mountinfo": "30 20 0:27 /docker/f00 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
    }
    assert find(inside).folder == "/sys/fs/cgroup/memory/x"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"/sys/fs/cgroup/user.slice/cgroup.subtree_control": "pids"}, "memory controller is not enabled"),
        ({"/sys/fs/cgroup/user.slice/session-1.scope/memory.max": "1048576"}, "would escape"),
        ({"/proc/self/mountinfo": ""}, "no control groups for memory"),
    ],
)
def test_where_no_group_can_be_made_it_is_said_why(changed: dict[str, str], words: str) -> None:
    with pytest.raises(UnsupportedLevel, match=words):
        find(V2 | changed)


@pytest.mark.parametrize(
    "path",
    ["/etc", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup/../../etc/iotrial-lab-0-none", "iotrial-lab-0-none", "",
     "/sys/fs/cgroup/iotrial-lab-0-none/..", "/sys/fs/cgroup/iotrial-lab-0-12x"],
)  # fmt: skip
def test_an_entry_that_names_no_group_of_a_lab_is_not_obeyed(path: str) -> None:
    entry = Entry(1, "lab.cgroup", {"path": path}, "absent", ("present",))
    with pytest.raises(LabError, match="not a control group of a lab"):
        LabCgroup().undo(Target(Files({})), entry, None)  # type: ignore[arg-type]
