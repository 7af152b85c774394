"""A Debian with systemd, udev, tuned and cron in QEMU, with this iotrial in it: for tests that boot, kill and cut the power.

The root file system is made with mmdebstrap once per session, in the session's folder; each test boots a copy. Commands run
through a small agent on a virtio port, so neither a network nor a login is needed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

from iotrial.probe.binary import find_binary

REPOSITORY = Path(__file__).parents[2]
#: Debian with the Python that the packages of this one are compiled for
SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}
PACKAGES = (
    "systemd", "systemd-sysv", "udev", "dbus", "procps", "kmod", "mount", "util-linux", "e2fsprogs", "python3", "tuned",
    "cron", "linux-image-cloud-amd64",
)  # fmt: skip
#: seconds in which a boot must end, by accelerator; where KVM is there but boots nothing, the guest is emulated
BOOT_S = {"kvm": 40, "tcg": 300}
CPUS = {"kvm": "host", "tcg": "max"}
KERNEL = (
    "root=LABEL=root rw console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on audit=0 "
    "systemd.show_status=0 systemd.mask=apt-daily.timer systemd.mask=apt-daily-upgrade.timer"
)
FSTAB = (
    "# static file system information\n"
    "LABEL=root\t/\text4\terrors=remount-ro\t0\t1\n"
    "LABEL=data   /srv/data  ext4  defaults,nofail  0  2   # the database\n"
)
AGENT = """\
import json, subprocess, sys
port = open("/dev/virtio-ports/agent", "r+b", buffering=0)
def say(text):
    left = text.encode() + b"\\n"
    while left:
        left = left[port.write(left):]
say('{"ready": true}')
held = b""
while True:
    held += port.read(65536) or sys.exit(0)
    while b"\\n" in held:
        line, _, held = held.partition(b"\\n")
        done = subprocess.run(["/bin/sh", "-c", json.loads(line)["run"]], capture_output=True, text=True, errors="replace")
        say(json.dumps({"status": done.returncode, "out": done.stdout, "err": done.stderr}))
"""
UNIT = """\
[Unit]
Description=Agent of the tests
After=multi-user.target
[Service]
ExecStart=/usr/bin/python3 /usr/local/sbin/agent.py
[Install]
WantedBy=multi-user.target
"""


def missing() -> str | None:
    """Return what this machine lacks for such a guest, in words."""
    for program in ("mmdebstrap", "qemu-system-x86_64", "mkfs.ext4"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if sys.version_info[:2] not in SUITES:
        return f"no Debian with Python {sys.version_info[0]}.{sys.version_info[1]} is known"
    return None


def build(folder: Path, *more: str) -> None:
    """Make kernel, initrd and root image in a folder, with more packages. Skips the test if they cannot be had."""
    tree = folder / "tree"
    suite = SUITES[sys.version_info[0], sys.version_info[1]]
    argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join((*PACKAGES, *more))}", suite, str(tree)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        shutil.rmtree(tree, ignore_errors=True)
        pytest.skip(f"mmdebstrap cannot make a Debian here: {done.stderr.strip()[-300:]}")
    modules = tree / "usr/lib/python3/dist-packages"
    _copy_requirements("iotrial", modules, set())
    shutil.copytree(
        REPOSITORY / "python/iotrial", modules / "iotrial", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy2(find_binary(), tree / "usr/local/bin/ioprobe")
    (tree / "usr/local/bin/iotrial").write_text('#!/bin/sh\nexec /usr/bin/python3 -m iotrial "$@"\n')
    (tree / "usr/local/bin/iotrial").chmod(0o755)
    (tree / "usr/local/sbin/agent.py").write_text(AGENT)
    (tree / "etc/systemd/system/agent.service").write_text(UNIT)
    wants = tree / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / "agent.service").symlink_to("../agent.service")
    (wants / "tuned.service").unlink(missing_ok=True)  # tests start it
    (tree / "opt/tests").mkdir(parents=True)
    names = (
        "root/apply_forged.py",
        "root/apply_killed.py",
        "root/live_service.py",
        "unit/report_fixtures.py",
        "values.py",
    )
    for name in names:
        shutil.copy2(REPOSITORY / "tests" / name, tree / "opt/tests")
    (tree / "etc/fstab").write_text(FSTAB)
    (tree / "srv/data").mkdir(parents=True)
    subprocess.run(
        ["chroot", str(tree), "python3", "-m", "compileall", "-q", "/usr/lib/python3/dist-packages/iotrial"],
        check=False,
    )
    (kernel,) = (tree / "boot").glob("vmlinuz-*")
    (initrd,) = (tree / "boot").glob("initrd.img-*")
    shutil.copy2(kernel, folder / "vmlinuz")
    shutil.copy2(initrd, folder / "initrd")
    for name, size, extra in (("root.img", "3G", ["-d", str(tree)]), ("data.img", "128M", [])):
        with (folder / name).open("wb") as file:
            file.truncate(int(size[:-1]) << (30 if size.endswith("G") else 20))
        label = name.partition(".")[0]
        subprocess.run(["mkfs.ext4", "-q", "-F", "-L", label, *extra, str(folder / name)], check=True)
    shutil.rmtree(tree)


def _copy_requirements(name: str, into: Path, seen: set[str]) -> None:
    """Copy what a distribution requires, without extras, into a folder of modules."""
    if name in seen:
        return
    seen.add(name)
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    if name != "iotrial":
        for file in found.files or ():
            source = Path(str(found.locate_file(file)))
            if ".." not in file.parts and source.is_file() and "__pycache__" not in file.parts:
                (into / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, into / file)
    for requirement in found.requires or ():
        required = re.match(r"[A-Za-z0-9._-]+", requirement)
        if required and "extra ==" not in requirement:
            _copy_requirements(required[0], into, seen)


_accelerators = ["kvm", "tcg"] if os.access("/dev/kvm", os.R_OK | os.W_OK) else ["tcg"]


class Guest:
    """One machine with its own disks, which can be booted again and again."""

    def __init__(self, made: Path, folder: Path) -> None:
        self.folder = folder
        self._made = made
        for name in ("root.img", "data.img"):
            subprocess.run(["cp", "--sparse=always", str(made / name), str(folder / name)], check=True)
        self._qemu: subprocess.Popen[bytes] | None = None
        self._port: socket.socket | None = None
        self._held = b""

    def boot(self, more_s: float = 0) -> None:
        """Start it and wait for its agent, so much longer than usual."""
        for accelerator in list(_accelerators):
            try:
                self._boot(accelerator, BOOT_S[accelerator] + more_s)
            except (ConnectionError, TimeoutError):
                self.cut_power()
                if accelerator == _accelerators[-1]:
                    raise
                _accelerators.remove(accelerator)
            else:
                return

    def _boot(self, accelerator: str, within_s: float) -> None:
        path = self.folder / "agent.sock"
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(1)
        listener.settimeout(within_s)
        argv = [
            "qemu-system-x86_64", "-nodefaults", "-no-reboot", "-display", "none",
            "-machine", f"q35,accel={accelerator}", "-cpu", CPUS[accelerator], "-smp", "1", "-m", "768M",
            "-kernel", str(self._made / "vmlinuz"), "-initrd", str(self._made / "initrd"), "-append", KERNEL,
            "-drive", f"file={self.folder}/root.img,format=raw,if=virtio",
            "-drive", f"file={self.folder}/data.img,format=raw,if=none,id=data",
            "-device", "virtio-blk-pci,drive=data,serial=DATA_DISK",
            "-device", "pcie-root-port,id=root1,chassis=1", "-device", "virtio-scsi-pci,id=scsi",  # of ``plug``
            "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={path}",
            "-device", "virtserialport,chardev=agent,name=agent",
            "-serial", f"file:{self.folder}/console",
            "-qmp", f"unix:{self.folder}/qmp.sock,server=on,wait=off",
        ]  # fmt: skip
        self._qemu = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
        try:
            self._port, _ = listener.accept()
        finally:
            listener.close()
        self._port.settimeout(within_s)
        self._held = b""
        assert self._answer() == {"ready": True}

    def _answer(self) -> dict[str, Any]:
        assert self._port is not None
        while b"\n" not in self._held:
            part = self._port.recv(65536)
            if not part:
                raise ConnectionError("the guest is gone")
            self._held += part
        line, _, self._held = self._held.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def begin(self, command: str) -> None:
        """Start a command without waiting for its end."""
        assert self._port is not None
        self._port.sendall(json.dumps({"run": command}).encode() + b"\n")

    def end(self, within_s: float = 180) -> tuple[int, str]:
        """Wait for the command; return its status and what it printed."""
        assert self._port is not None
        self._port.settimeout(within_s)
        done = self._answer()
        return done["status"], done["out"] + done["err"]

    def run(self, command: str, *, status: int | None = 0, within_s: float = 180) -> str:
        """Run a command in the guest's shell and return what it printed."""
        self.begin(command)
        found, text = self.end(within_s)
        assert status is None or found == status, f"{command}: status {found}\n{text}"
        return text.strip()

    def plug(self, kind: str) -> str:
        """Plug in a disk of 2 GiB, ``virtio`` or ``scsi``, and return its name.

        ``control("device_del", id="spare")`` unplugs it.
        """
        path = self.folder / "spare.img"
        path.write_bytes(b"")
        os.truncate(path, 2 << 30)
        self.control(
            "blockdev-add", **{"driver": "file", "node-name": f"spare-{kind}", "filename": str(path)}
        )
        driver, bus = {"virtio": ("virtio-blk-pci", "root1"), "scsi": ("scsi-hd", "scsi.0")}[kind]
        self.control("device_add", driver=driver, bus=bus, drive=f"spare-{kind}", id="spare", serial="SPARE")
        find = "lsblk -dno NAME,SERIAL | grep SPARE | cut -d ' ' -f 1"
        late = time.monotonic() + 60
        while not (name := self.run(find, status=None)):
            assert time.monotonic() < late, "the disk does not appear"
            time.sleep(0.5)
        return name

    def control(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Have QEMU carry out a command of its machine protocol (QMP), and return what it returns."""
        with socket.socket(socket.AF_UNIX) as port:
            port.settimeout(30)
            port.connect(str(self.folder / "qmp.sock"))
            with port.makefile("rw") as lines:
                lines.readline()  # its greeting
                for one in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                    lines.write(json.dumps(one) + "\n")
                    lines.flush()
                    answer: dict[str, Any] = {}
                    while "return" not in answer:  # events may come between
                        answer = json.loads(lines.readline())
                        assert "error" not in answer, answer
                found: dict[str, Any] = answer["return"]
                return found

    def read(self, path: str) -> str:
        return self.run(f"cat {path}")

    def settle(self) -> None:
        """Wait until the boot and its jobs have ended."""
        self.run("systemctl is-system-running --wait || true; udevadm settle")

    def reboot(self, more_s: float = 0) -> None:
        """Shut it down in order, and boot it again, which may take so much longer than usual."""
        with suppress(ConnectionError, OSError, TimeoutError):
            self.begin("systemctl poweroff")
            self.end(60)
        assert self._qemu is not None
        self._qemu.wait(60 + more_s)
        self._close()
        self.boot(more_s)
        self.settle()

    def cut_power(self) -> None:
        """Stop it at this instant: what it has not written to its disks is lost."""
        assert self._qemu is not None
        self._qemu.send_signal(signal.SIGKILL)
        self._qemu.wait(30)
        self._close()

    def _close(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None

    def close(self) -> None:
        """Stop it and remove its disks."""
        if self._qemu is not None and self._qemu.poll() is None:
            self.cut_power()
        self._close()
        for name in ("root.img", "data.img"):
            (self.folder / name).unlink(missing_ok=True)

    def wait_until(self, command: str, expected: str, within_s: float = 60) -> None:
        """Wait until a command prints a text."""
        late = time.monotonic() + within_s
        while (found := self.run(command, status=None)) != expected:
            assert time.monotonic() < late, f"{command}: {found!r}, not {expected!r}"
            time.sleep(0.5)
