"""`iotrial knobs` lists what `try` accepts, with today's values: compared with the kernel's own files and findmnt."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import program
from iotrial.knobs.filesystem import MountOption
from iotrial.knobs.sysctl import Sysctl
from iotrial.runner.quick_study import known_settings, setting_of


def listed(folder: Path) -> dict[str, dict[str, object]]:
    done = program.iotrial("knobs", "--in", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    return {one["name"]: one for one in json.loads(done.stdout)["settings"]}


def test_every_sysctl_is_listed_with_the_value_of_the_kernel() -> None:
    found = listed(Path.cwd())
    there = {key: Path("/proc/sys") / key.replace(".", "/") for key in Sysctl.ALLOWED}
    values = {key: path.read_text().split()[0] for key, path in there.items() if path.exists()}
    assert len(values) > 10
    assert {key: found[key]["today"] for key in values} == values


def test_the_disk_and_the_mount_of_the_folder_are_shown(disk_folder: Path) -> None:
    found = listed(disk_folder)
    text = subprocess.run(
        ["findmnt", "-no", "OPTIONS,FSTYPE", "-T", str(disk_folder)], check=True, capture_output=True, text=True
    ).stdout  # fmt: skip
    options, kind = text.split()
    assert found["mount.atime"]["today"] in (*options.split(","), "strictatime")
    number = disk_folder.stat().st_dev
    node = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if kind == "ext4" and (node / "queue").exists():
        assert found["block.read_ahead_kb"]["today"] == (node / "queue/read_ahead_kb").read_text().strip()
    named = {name.rpartition(",")[2] for name in found if name.startswith("mount.option=")}
    assert named == {option for option, kinds in MountOption.ALLOWED.items() if kind in kinds}


def test_every_listed_name_is_one_that_try_takes() -> None:
    found = listed(Path.cwd())
    assert len(found) > 40
    for name in found:
        assert setting_of(name if "=" in name else f"{name}=1").values
    assert not {name for name in found if name.startswith(("guest.", "nas.", "raid.", "link."))}
    assert set(found) - {name for name in found if "=" in name} <= set(known_settings())
    assert all(one["safety"] and one["consequence"] for one in found.values())
