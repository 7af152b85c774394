"""Forged entries in the undo journal, mounts with odd names, and folders owned by other users."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iotrial.errors import LabError, RequestError, TargetError
from iotrial.knobs.kernel_file import KernelFileKnob
from iotrial.lab import registry
from iotrial.lab.journal import Entry
from iotrial.lab.target import Target, parse_mountinfo
from iotrial.runner.planning import default_folder

JOURNALED = sorted(name for name, knob in registry.knobs().items() if isinstance(knob, KernelFileKnob))


class Untouchable:
    """Fake target on which any write fails the test."""

    name = "a kernel target"

    def call(self, verb: str, **fields: Any) -> dict[str, Any]:
        assert verb == "read", (verb, fields)
        return {"data": "ours"}


@pytest.mark.parametrize("name", JOURNALED)
@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/../kernel/core_pattern", "/proc/sys/vm/swappiness/",
        "/proc/sys/vm/swappiness\n", "/sys/block/vda/queue/scheduler", "/sys/block/loop0/queue/../../../../etc/passwd",
        "/sys/block/loop0/../vda/queue/scheduler", "/sys/block/loop0/queue/scheduler\0", "/sys/block/loop0/queue/io_poll",
        "/sys/block/loop0/bdi/read_ahead_kb", "/sys/class/bdi/7:0/max_ratio",
        "/sys/block/loop٣/queue/scheduler", "relative", "",
    ],
)  # fmt: skip
def test_an_entry_that_names_a_file_which_its_knob_never_turns_is_not_obeyed(name: str, path: str) -> None:
    entry = Entry(1, name, {"path": path}, original="root::0:0::/:/bin/sh", ours=("ours",))
    with pytest.raises(LabError, match="never sets"):
        registry.knob(name).undo(Target(Untouchable()), entry)


def test_an_entry_without_a_path_is_not_obeyed() -> None:
    with pytest.raises(LabError):
        registry.knob("sysctl").undo(Target(Untouchable()), Entry(1, "sysctl", {}, "1", ("ours",)))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (r"/mnt/a\040b", "/mnt/a b"),
        (r"/mnt/\134040", "/mnt/\\040"),
        (r"/mnt/\043", "/mnt/#"),
        ("/mnt/\u2028\x85", "/mnt/\u2028\x85"),
    ],
)
def test_a_mount_point_with_an_odd_name_is_read_as_the_kernel_meant_it(name: str, told: str) -> None:
    """seq_escape in the kernel's show_mountinfo writes blank, tab, newline, backslash and # as octal escapes."""
    line = f"36 35 98:0 / {name} rw,noatime master:1 - ext4 /dev/loop3 rw"
    assert parse_mountinfo(line).target == told
    target = Target(SimpleNamespace(name="x", call=lambda *_, **__: {"data": f"{line}\n"}))  # type: ignore[arg-type]
    found = target.mount_at(told)
    assert found is not None
    assert found.source == "/dev/loop3"


@pytest.mark.parametrize(
    "line", ["", "-", "36 35 98:0 / /mnt rw", "a b c d e f - x", "36 35 98:0 / - rw - ext4", " " * 100]
)
def test_a_line_that_is_none_of_mountinfo_is_an_error_that_shows_it(line: str) -> None:
    with pytest.raises(TargetError, match="mountinfo"):
        parse_mountinfo(line)


@pytest.mark.parametrize(("mode", "taken"), [(0o777, False), (0o1777, True), (0o755, True), (0o775, True)])
@pytest.mark.root
def test_root_works_in_no_folder_where_everybody_may_rename(
    tmp_path: Path, mode: int, *, taken: bool
) -> None:
    tmp_path.chmod(mode)
    resolved: Any = SimpleNamespace(root=True, lab="directory", sites=())
    if taken:
        assert default_folder(resolved, str(tmp_path)) == str(tmp_path)
    else:
        with pytest.raises(RequestError, match="everybody may rename"):
            default_folder(resolved, str(tmp_path))


@pytest.mark.root
def test_root_works_in_no_folder_of_a_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    resolved: Any = SimpleNamespace(root=True, lab="directory", sites=())
    monkeypatch.delenv("SUDO_UID", raising=False)
    with pytest.raises(RequestError, match="belongs to user 65534"):
        default_folder(resolved, str(folder))
    monkeypatch.setenv("SUDO_UID", "65534")
    assert default_folder(resolved, str(folder)) == str(folder)
