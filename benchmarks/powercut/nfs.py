"""What does an NFS client lose when the server's power is cut?

    python benchmarks/powercut/nfs.py [--drawn N] [--files N] [--guests FOLDER] [--on FOLDER]

Two guests: one serves an ext4 file system on a disk that logs, by the kernel's NFS 4.2, exported `sync` or `async`; the other
writes files with fsync, and each is marked in the log when its command has ended. After each cut the server's disk is
recovered here. Prints a Markdown table. As root.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from laboratory import SIZES, Tally, counted, lab

from iotrial.guest.initramfs import Needs
from iotrial.guest.link import needs_of
from iotrial.guest.machine import DiskImage
from iotrial.guest.place import GuestPlace
from iotrial.guest.protocols import PROTOCOLS
from iotrial.guest.share import Share
from iotrial.lab.journal import Journal
from iotrial.lab.target import Target
from iotrial.powercut.disk import CutDisk, logged
from iotrial.powercut.log import WriteLog
from iotrial.powercut.record import BEGUN
from iotrial.powercut.recover import Findings
from iotrial.runner.guest import GuestSpec
from iotrial.runner.guests import Guests
from iotrial.study.model import LinkSpec
from truth import HEAD, row

LINK = LinkSpec(1e9, 100e-6)
NEEDS = Needs(
    modules=frozenset({"ext4"}),
    packages=frozenset({"e2fsprogs", "coreutils"}),
    programs=frozenset({"mkfs.ext4", "dd"}),
)
BYTES = 20_000
ROOT = "/run/iotrial/lab"


def serve_and_write(disk: CutDisk, export: str, files: int, store: Path, folder: Path) -> None:
    """Serve a new file system of a guest to another one, which writes files; then both are killed."""
    needs = needs_of(LINK) | NEEDS | PROTOCOLS["nfs4"].needs
    spec = GuestSpec(folder, [DiskImage("lab", SIZES["ext4"], disk.path)], needs, name="server", link=LINK)
    guests = Guests(spec, store=store)
    try:
        server = guests.start(lambda _: None)
        try:
            assert guests.link is not None
            share = Share(guests.link)
            share.want("export", export)
            target = Target(server)
            target.call("mkdir", path="/run/iotrial", mode="0755")
            place = GuestPlace(
                "lab", target, Journal(folder / "journal"), mount_point=ROOT, filesystem="ext4",
                size_bytes=SIZES["ext4"], share=share,
            )  # fmt: skip
            place.open()
            target.call("sync")
            disk.mark(BEGUN)
            for number in range(files):
                argv = [
                    "dd",
                    "if=/dev/urandom",
                    f"of={ROOT}/f{number}",
                    f"bs={BYTES}",
                    "count=1",
                    "conv=fsync",
                ]
                done = guests.link.client.run(argv)
                if done.exit_status != 0:
                    raise RuntimeError(done.stderr)
                disk.mark(f"f{number}")
            server.kill()
        finally:
            server.close()
    finally:
        guests.kill()
        guests.hang_up()
        guests.close()


def check(root: Path, acknowledged: Sequence[str]) -> Findings:
    """Look for each acknowledged file, with its size and other bytes than zeros in each sector."""
    lost = [name for name in acknowledged if name != BEGUN and not _whole(root / name)]
    return Findings(lost=tuple(lost))


def _whole(path: Path) -> bool:
    if not path.exists():
        return False
    found = path.read_bytes()
    return len(found) == BYTES and all(found[at : at + 512].strip(b"\0") for at in range(0, BYTES, 512))


def cut(export: str, *, files: int, drawn: int, store: Path, folder: Path, memory: Path) -> Tally:
    """Record with one export option, and check its states."""
    log = memory / export
    with lab() as target:
        with logged(target, SIZES["ext4"], log) as disk:
            serve_and_write(disk, export, files, store, folder)
        with WriteLog(log) as read:
            return counted(target, read, "ext4", check, drawn=drawn, fsck_every=20)


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--drawn", type=int, default=500)
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--guests", type=Path, help="where kernels and tools of guests are kept")
    parser.add_argument("--on", type=Path, default=Path("/var/tmp"), help="folder for temporary files")
    given = parser.parse_args()
    print(HEAD)
    with (
        tempfile.TemporaryDirectory(dir=given.on) as folder,
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
    ):
        store = given.guests or Path(folder) / "guests"
        store.mkdir(exist_ok=True)
        for export in ("sync", "async"):
            tally = cut(
                export, files=given.files, drawn=given.drawn, store=store, folder=Path(folder), memory=Path(memory)
            )  # fmt: skip
            print(row("ext4", f"NFS 4.2, exported {export}", tally), flush=True)
            for verdict, example in tally.examples.items():
                print(f"<!-- {verdict}: {example} -->", flush=True)


if __name__ == "__main__":
    main()
