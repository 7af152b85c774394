"""System calls in a guest, whose kernel, and perhaps processor, is another: counted, followed and recorded.

IOTRIAL_GUEST_ARCHITECTURE=aarch64 and a probe for it in IOTRIAL_PROBE run these for arm64; see docs/install.md.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iotrial.guest import cpio, qemu
from iotrial.guest.architecture import GUEST
from iotrial.guest.cpio import File
from iotrial.guest.initramfs import Needs, write
from iotrial.guest.packages import Packages
from iotrial.guest.tools import MERGED, Tools
from iotrial.lab.target import Target
from iotrial.probe.binary import find_binary
from iotrial.runner.guest import DEFAULT_KERNEL, Guest, GuestSpec

NEEDS = Needs(
    packages=frozenset({"coreutils", "strace"}),
    programs=frozenset({"cat", "cp", "dd", "ln", "mkdir", "mv", "rm", "strace", "truncate"}),
)
BLOCKS = 25
COPY = ["dd", "if=/data/known", "of=/data/copy", "bs=4k", "conv=fsync"]
DIRECT = ["dd", "if=/data/known", "of=/dev/null", "bs=4k", "iflag=direct"]
#: reading a folder fails, after it has been opened
FOLDER = ["dd", "if=/data", "of=/dev/null", "iflag=directory"]


@pytest.fixture(scope="module")
def target(guests: Path, disk_folder: Path) -> Iterator[Target]:
    with Guest(GuestSpec(disk_folder, needs=NEEDS), store=guests) as guest, guest.start() as probe:
        target = Target(probe)
        run(target, ["mkdir", "/data"], cwd="/")
        run(target, ["dd", "if=/dev/urandom", "of=/data/known", "bs=4k", f"count={BLOCKS}"])
        yield target


def run(target: Target, argv: list[str], **fields: Any) -> dict[str, Any]:
    """Run a command in the guest, which must end well."""
    steps = [{"name": "it", "argv": argv}]
    answer = target.call("command", **{"steps": steps, "stdout": "null", "cwd": "/data", **fields})
    assert answer["verified"], answer["failures"]
    return dict(answer)


def printed(target: Target, argv: list[str]) -> str:
    answer = run(target, argv, stdout="pipe", keep_output=1 << 20)
    return str(answer["steps"][0]["printed"]["stdout"])


def test_the_guest_has_the_processor_that_was_asked_for(target: Target) -> None:
    assert GUEST.debian in printed(target, ["cat", "/proc/version"])


@pytest.mark.parametrize("argv", [COPY, FOLDER, ["cat", "known", "/nowhere"], ["mv", "copy", "moved"]])
def test_every_call_is_counted_as_strace_counts_it(target: Target, argv: list[str]) -> None:
    run(target, argv if argv[0] != "mv" else COPY, expect_exit=-1)  # all that it reads is cached then
    counted = run(target, argv, account=True, expect_exit=-1)["account"]
    if argv[0] == "mv":
        run(target, ["mv", "moved", "copy"])
    assert counted["lost"] == 0
    traced = ["strace", "-f", "-o", "/data/trace", *argv]
    run(target, traced, expect_exit=-1)
    trace = target.read("/data/trace")
    calls = Counter(re.findall(r"^\d+ +(\w+)\(", trace, re.MULTILINE))
    calls -= Counter(["exit_group", "exit"])  # they do not return
    failed = Counter(re.findall(r"^\d+ +(\w+)\(.* = -1 E", trace, re.MULTILINE))
    found = counted["calls"]
    assert {name: call["count"] for name, call in found.items()} == dict(calls)
    assert {name: sum(call["errors"].values()) for name, call in found.items() if call["errors"]} == dict(
        failed
    )


def test_the_files_that_a_command_uses_are_seen(target: Target) -> None:
    touched = run(target, ["cp", "known", "other"], touches=["/data"])["touched"]
    assert touched["complete"]
    assert touched["inside"]["opened"] == 2
    assert touched["inside"]["read"] == BLOCKS * 4096
    run(target, ["rm", "other"])


# A recording needs the first PID namespace, and the probe of a guest has one of its own. So here a script is init.
# Its end is a panic, which ends the guest.
_RECORDED = f"""#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /data
dd if=/dev/urandom of=/data/known bs=4k count={BLOCKS} 2>/dev/null
each() {{
    name=$1
    shift
    /ioprobe record --output /tmp/trace --under /data -- "$@" >/tmp/out 2>&1 || cat /tmp/out
    echo "$name: $(/ioprobe trace summary /tmp/trace)"
}}
each COPY {" ".join(COPY)}
each DIRECT {" ".join(DIRECT)}
each FOLDER {" ".join(FOLDER)}
"""


@pytest.fixture(scope="module")
def recorded(guests: Path, disk_folder: Path) -> dict[str, Any]:
    """Return the summaries of recordings that were made in a guest, by name."""
    packages = Packages(guests)
    kernel = packages.kernel(DEFAULT_KERNEL)
    tools = Tools(packages.tree({"coreutils", "dash", "mount"}))
    init = disk_folder / "init"
    init.write_text(_RECORDED)
    entries = {
        **MERGED,
        **tools.entries(["cat", "dd", "mount", "sh"]),
        "/init": File(init, 0o755),
        "/ioprobe": File(find_binary()),
    }
    archive, root = disk_folder / "recording.cpio", disk_folder / "no-root"
    write(archive, cpio.archive(entries, ("/proc", "/sys", "/dev", "/data", "/tmp")))
    root.write_bytes(bytes(4096))
    argv = qemu.boot_command(str(kernel.image), str(archive), str(root), memory_mib=512)
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
    )
    found = dict(re.findall(r"^([A-Z]+): (\{.*\})\r?$", done.stdout, re.MULTILINE))
    assert set(found) == {"COPY", "DIRECT", "FOLDER"}, done.stdout + done.stderr
    return {name: json.loads(text) for name, text in found.items()}


def test_operations_are_recorded_with_their_sizes(recorded: dict[str, Any]) -> None:
    summary = recorded["COPY"]
    assert (summary["complete"], summary["lost"]) == (True, 0)
    calls = {one["call"]: one["operations"] for one in summary["calls"]}
    assert calls["write"] == BLOCKS
    assert calls["fsync"] == 1
    assert summary["write"]["bytes"] == summary["read"]["bytes"] == BLOCKS * 4096
    assert summary["opens"]["truncate"] == 1


def test_a_trace_has_the_same_open_flags_from_every_processor(recorded: dict[str, Any]) -> None:
    """The bit of O_DIRECT on x86-64 is that of O_DIRECTORY on arm64."""
    assert recorded["DIRECT"]["opens"]["direct"] == 1
    assert recorded["FOLDER"]["opens"]["direct"] == 0
    assert recorded["FOLDER"]["opens"]["operations"] == 1
