"""Workload kind ``boot``: what a guest's log tells, and the files that it boots from."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from iotrial.guest.bootable import SIZE_BYTES, _proto, said
from iotrial.study.work import JobContext, LabContext
from iotrial.workloads.boot import BootWork

LOG = """\
[    0.913526] platform regulatory.0: failed to load\r
[    2.104000] iotrial: root\r
[    3.250000][    T1] iotrial: ready\r
[    3.251000] sysrq: Resetting\r
"""


def answer(log: str, failures: int = 0) -> dict[str, object]:
    step = {"name": "boot", "printed": {"stdout": log, "stderr": "", "whole": True}}
    return {"failures": failures, "steps": [step]}


def test_times_of_kernel_and_init_are_those_of_the_log() -> None:
    assert said(LOG) == {"root": 2.104, "ready": 3.25}
    found = BootWork().measured(answer(LOG), JobContext())
    assert found.numbers == {"kernel_time": pytest.approx(2.104), "init_time": pytest.approx(1.146)}
    assert found.missing is None


@pytest.mark.parametrize(
    "log", ["", "[    1.0] Kernel panic - not syncing: VFS\n", LOG.replace("iotrial: ready", "")]
)
def test_a_guest_that_does_not_say_that_it_is_ready_has_failed(log: str) -> None:
    found = BootWork().measured(answer(log), JobContext())
    assert not found.numbers
    assert "did not say that it is ready" in str(found.missing)


def test_a_warm_run_holds_every_file_that_the_boot_reads() -> None:
    lab = LabContext(target=None, root="/lab", files="/lab/set")  # type: ignore[arg-type]
    work = BootWork(root="xfs")
    [step] = work.probe_job(JobContext(lab=lab))["steps"]  # type: ignore[misc]
    words = step["argv"]
    held = work.held(lab)
    assert {words[words.index(option) + 1] for option in ("-kernel", "-initrd")} < set(held)
    assert [path for path in held if any(f"filename={path}," in word for word in words)] == [held[2]]
    assert len(held) == 3


@pytest.mark.skipif(
    shutil.which("mkfs.xfs", path="/usr/sbin:/sbin:/usr/bin") is None, reason="xfsprogs is not installed"
)
def test_xfs_takes_over_folders_files_modes_and_links(tmp_path: Path) -> None:
    tree, image = tmp_path / "tree", tmp_path / "image"
    (tree / "etc" / "services").mkdir(parents=True)
    (tree / "etc" / "services" / "000.conf").write_bytes(b"x" * 1000)
    (tree / "init").write_text("#!/bin/sh\n")
    (tree / "init").chmod(0o755)
    (tree / "bin").symlink_to("usr/bin")
    (tmp_path / "proto").write_text("".join(f"{line}\n" for line in _proto(tree)))
    with image.open("wb") as file:
        file.truncate(SIZE_BYTES)
    subprocess.run(["/usr/sbin/mkfs.xfs", "-q", "-p", "proto", image], check=True, cwd=tmp_path)
    asked = ("path /etc/services/000.conf", "print core.size core.mode", "path /init", "print core.mode")
    asked += ("path /bin", "print core.size")
    words = [word for command in asked for word in ("-c", command)]
    said_by = subprocess.run(
        ["/usr/sbin/xfs_db", "-r", *words, str(image)], check=True, capture_output=True, text=True
    )
    printed = [line.partition(" = ")[2] for line in said_by.stdout.splitlines()]
    assert printed == ["1000", "0100644", "0100755", str(len("usr/bin"))]
