"""Whole trials of kind ``boot``: guests boot from each file system, cold from the disk and warm without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import failures_of, iotrial, run_json, stored_runs, write_study

pytestmark = pytest.mark.root

STUDY = """
[study]
name = "boots"
question = "Does a system boot faster from another file system?"
account = false
[lab]
kind = "image"
size = "512 MiB"
[budget]
blocks = 1
[[factor]]
name = "root"
knob = "work.option"
option = "root"
levels = ["ext4", "xfs", "btrfs"]
[[factor]]
name = "cache"
knob = "cache.state"
levels = ["cold", "warm"]
role = "condition"
[[workload]]
name = "boot"
kind = "boot"
[[response]]
name = "wall"
primary = true
[[response]]
name = "kernel_time"
[[response]]
name = "init_time"
[[response]]
name = "device_read_bytes"
"""


@pytest.mark.long
def test_a_guest_boots_from_each_file_system_cold_and_warm(
    state: Path, guests: Path, disk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    study = write_study(disk_folder, STUDY)
    run_json(study, "--on", str(disk_folder), "--no-stop", "--no-controls", "--time", "10min")
    assert failures_of(state) == []
    [kernel] = guests.glob("trees/*/boot/vmlinuz-6.12*-cloud-amd64")
    runs = stored_runs(state)
    assert len(runs) == 6
    for run in runs:
        found = run["responses"]
        # both are parts of the time from power-on; the guest's clock starts later, in the kernel
        assert found["kernel_time"] > 0
        assert found["init_time"] > 0
        assert found["kernel_time"] + found["init_time"] < found["wall"]
        if "cache=cold" in run["condition"]:
            assert found["device_read_bytes"] >= kernel.stat().st_size
        else:  # although a boot takes seconds, in which the kernel may reclaim pages that nothing holds
            assert found["device_read_bytes"] == 0
            assert run["checks"].get("void") is None
    assert "The guest that boots is emulated" in iotrial("report", "last", "--full").stdout.replace("\n", " ")


def test_a_boot_that_takes_too_long_is_a_failed_run(
    state: Path, guests: Path, disk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    text = STUDY.replace('kind = "boot"', 'kind = "boot"\ntimeout = "300 ms"').replace(
        '"xfs", "btrfs"', '"xfs"'
    )
    study = write_study(disk_folder, text.replace('["cold", "warm"]', '["cold"]'))
    iotrial("run", study, "--on", str(disk_folder), "--no-stop", "--no-controls", check=None)
    assert failures_of(state)
    assert all("did not end in time" in failure for failure in failures_of(state))
