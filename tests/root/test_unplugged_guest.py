"""A disk that is unplugged while it is on trial, on a Debian in QEMU: the trial ends, and everything else is put back."""

from __future__ import annotations

import time

import pytest
from systemd_guest import Guest

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.alone]

FOLDER = "/mnt/spare"
TWO = "block.read_ahead_kb=128,1024 vm.swappiness=60,10"
WITHOUT_END = "--blocks 1000 --no-stop --time 2h --yes"
STUDY = """
[study]
name = "unplugged"
question = "Does the mode matter?"
[lab]
kind = "image"
filesystem = "ext4"
size = "64 MiB"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0777", "0444"]
[[factor]]
name = "swappiness"
knob = "sysctl"
key = "vm.swappiness"
levels = ["10"]
role = "condition"
[[workload]]
name = "read"
kind = "files"
files = 5
operations = ["open", "read-to-end", "close"]
"""
#: trials on the disk, by verb; where ``try`` sets nothing of the disk, its command fails
TRIALS = {
    "try": f"cd {FOLDER} && iotrial try vm.swappiness=60,10 --no-controls {WITHOUT_END} -- cat file",
    "live": f"iotrial live {TWO} --metric psi:io --in {FOLDER} --window 2s --washout 500ms {WITHOUT_END}",
    "run": f"iotrial run /run/unplugged.toml --on {FOLDER} --no-controls {WITHOUT_END}",
}
RUNS = (
    "import sqlite3; "
    "store = sqlite3.connect('file:/var/lib/iotrial/trials.db?mode=ro', uri=True); "
    "print(*store.execute('SELECT count(*) FROM run WHERE').fetchone())"
)


def runs(guest: Guest, where: str = "1") -> int:
    """Return how many runs are stored."""
    *_, found = guest.run(f'python3 -c "{RUNS.replace("WHERE", f"WHERE {where}")}" 2>&1', status=None).split()
    return int(found) if found.isdecimal() else 0


@pytest.mark.parametrize("kind", ["virtio", "scsi", "scsi deleted"])
def test_a_disk_that_is_unplugged_ends_its_trial_and_all_else_is_put_back(guest: Guest, kind: str) -> None:
    """``scsi deleted``: by the guest itself, through sysfs."""
    guest.run(f"cat > /run/unplugged.toml <<'END'\n{STUDY}END")
    assert guest.read("/proc/sys/vm/swappiness") == "60"
    problems = []
    for verb, words in TRIALS.items():
        disk = guest.plug(kind.split()[0])
        guest.run(
            f"mkfs.ext4 -q /dev/{disk} && mkdir -p {FOLDER} && mount /dev/{disk} {FOLDER} && "
            f"head -c 524288 /dev/urandom > {FOLDER}/file && sync; rm -rf /var/lib/iotrial /run/ended"
        )
        guest.run(f"({words}; echo $? > /run/ended) > /run/said 2>&1 < /dev/null &")
        late = time.monotonic() + 200
        while runs(guest) < 4:
            assert time.monotonic() < late, guest.read("/run/said")
            assert guest.run("cat /run/ended", status=None).startswith("cat:"), guest.read("/run/said")
            time.sleep(0.5)
        if kind == "scsi deleted":
            guest.run(f"echo 1 > /sys/block/{disk}/device/delete")
        else:
            guest.control("device_del", id="spare")
        guest.wait_until(f"test -e /sys/block/{disk} || echo gone", "gone")
        guest.wait_until("test -e /run/ended && echo ended", "ended", 120)
        status, said = guest.read("/run/ended"), guest.read("/run/said")
        print(f"--- {kind}, {verb}: status {status}\n{said[-1500:]}")
        why = (
            "the lab has failed" if verb == "run" else f"the device {disk} is gone"
        )  # a lab has a loop device
        if status != "1" or why not in said or "Traceback" in said:
            problems.append(f"{verb}: status {status}")
        if runs(guest, "failure IS NOT NULL"):
            problems.append(f"{verb}: failed runs count against a setting")
        guest.wait_until("cat /proc/sys/vm/swappiness", "60", 30)
        restored = guest.run("iotrial restore; echo status $?", status=None)
        print(restored)
        if not restored.endswith("status 0"):
            problems.append(f"{verb}: restore: {restored}")
        left = guest.run(
            "find /var/lib/iotrial/journal /run/iotrial -type f; pgrep -a ioprobe; pgrep -af iotrial.live; losetup -nO NAME",
            status=None,
        )
        left = "\n".join(
            line for line in left.splitlines() if "No such file" not in line and "pgrep" not in line
        )
        if left:
            problems.append(f"{verb}: left: {left}")
        guest.run(f"umount -l {FOLDER}")
        if kind == "scsi deleted":
            guest.control("device_del", id="spare")
        time.sleep(2)
        guest.control("blockdev-del", **{"node-name": f"spare-{kind.split()[0]}"})
    assert problems == []
