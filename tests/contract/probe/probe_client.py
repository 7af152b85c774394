"""An independent client of the probe, a small lab, and reference implementations shared by the tests.

The content generator is a second implementation, from its description in docs/probe-protocol.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contents

REPOSITORY = Path(__file__).resolve().parents[3]
BUILT = REPOSITORY / "target" / f"{platform.machine()}-unknown-linux-gnu" / "release" / "ioprobe"
BINARY = Path(os.environ.get("IOTRIAL_PROBE", BUILT))
NOBODY = 65534
MIB = 1 << 20
READING = ["open", "read", "read", "close"]


class ProbeError(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: str = error["code"]
        self.errno: int | None = error.get("errno")


class Probe:
    """A client that only speaks JSON lines over pipes."""

    def __init__(self, *arguments: str, prefix: tuple[str, ...] = (), **popen: Any) -> None:
        self.process = subprocess.Popen(
            [*prefix, str(BINARY), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **popen
        )
        self.last_id = 0

    def line(self, line: bytes) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        assert ready, f"no answer to {line[:200]!r} within a minute"
        answer = self.process.stdout.readline()
        assert answer, f"the probe ended with {self.process.wait()} on {line[:200]!r}"
        return json.loads(answer)

    def __call__(self, verb: str, **fields: Any) -> dict[str, Any]:
        self.last_id += 1
        answer = self.line(json.dumps({"id": self.last_id, "verb": verb, **fields}).encode())
        assert answer["id"] == self.last_id
        if "error" in answer:
            assert set(answer) == {"id", "error"}
            raise ProbeError(answer["error"])
        assert set(answer) == {"id", "ok"}
        return answer["ok"]

    def send(self, verb: str, **fields: Any) -> None:
        """Send a request without waiting for the answer."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"id": 0, "verb": verb, **fields}).encode() + b"\n")
        self.process.stdin.flush()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> int:
        assert self.process.stdin
        assert self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        status = self.process.wait(timeout=30)
        self.process.stdout.close()
        return status


class Lab:
    """An ext4 on a loop device over an image, mounted only in the probe's namespace."""

    def __init__(self, probe: Probe, folder: Path, **attach: Any) -> None:
        image = probe("image", folder=str(folder), size=64 * MIB, fill="write")["image"]
        self.probe = probe
        self.answer = probe("loop_attach", image=image, **{"direct_io": True, **attach})
        self.device: str = self.answer["device"]
        self.name: str = self.answer["name"]
        self.mounted = folder / "lab"
        self.mounted.mkdir()
        # 4 KiB blocks and few inodes leave space for files; lazy initialisation is off, so nothing runs in
        # the background.
        options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        made = probe("run", argv=["mkfs.ext4", "-q", "-b", "4096", "-N", "16384", "-E", options, self.device])
        assert made["exit"] == 0, made

    def mount(self, *options: str) -> None:
        self.probe("mount", source=self.device, target=str(self.mounted), type="ext4", options=list(options))

    def unmount(self) -> None:
        self.probe("unmount", target=str(self.mounted))

    def make_cold(self, *options: str) -> None:
        self.unmount()
        self.probe("evict_device", device=self.device)
        self.mount(*options)

    def take_down(self) -> None:
        self.unmount()
        self.probe("loop_detach", device=self.device)


def attached_over(name: str) -> list[str]:
    """Return the loop devices with an image in a folder of that name."""
    found = []
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if name in file.read_text():
                found.append(file.parts[3])
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def descriptors(probe: Probe) -> list[Path]:
    """Return the descriptors of the working process: the child of the guard, or process 1 of its namespace."""
    return list(Path(f"/proc/{inner(probe)}/fd").iterdir())


def inner(probe: Probe) -> int:
    pid = probe.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Wait for a condition. The kernel removes mounts and loop devices a moment after the process that held
    them is gone."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def rounding_ns(addends: int) -> int:
    """Return how far a total time may differ from the sum of this many parts.

    Each part and the total are rounded to a nanosecond separately, so half a nanosecond for each. (They could
    only be made to add up by reporting one of them a nanosecond wrong.)
    """
    return (addends + 1) // 2


def make_set(probe: Probe, folder: Path, name: str = "s", **fields: Any) -> Path:
    given = {"count": 20, "size": 100, "seed": 1, "content": "text", **fields}
    probe("fileset", set=name, dir=str(folder / name), **given)
    return folder / name


def processes_with(argument: str) -> list[int]:
    """Return the running processes that have exactly this argument."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if argument.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    return True


# Second implementation of the content generator, from its description.

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mixed(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def content(kind: str, seed: int, index: int, size: int) -> bytes:
    if kind == "zeros":
        return bytes(size)
    if kind in ("words", "c"):
        return (contents.words if kind == "words" else contents.c_source)(seed, index, size)
    key = mixed(seed ^ mixed((index + GOLDEN) & MASK))
    words = [mixed((key + (n + 1) * GOLDEN) & MASK) for n in range(size // 8 + 8)]
    if kind == "random":
        return b"".join(word.to_bytes(8, "little") for word in words)[:size]
    digits = "".join(f"{word:016x}"[::-1] for word in words)
    lines = [digits[at : at + 63] + "\n" for at in range(0, size, 64)]
    return "".join(lines).encode()[:size]
