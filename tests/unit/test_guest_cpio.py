"""The initramfs, checked with the cpio program and the kernel's format."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from iotrial.guest.cpio import Bytes, Entry, File, Link, archive


def entries(folder: Path) -> dict[str, Entry]:
    program = folder / "program"
    program.write_bytes(b"\x7fELF" + bytes(range(256)) * 5)
    return {
        "/init": File(program),
        "/etc/ünïcode": Bytes(b"abc", 0o600),
        "/usr/bin/sh": Bytes(b""),
        "/bin": Link("usr/bin"),
    }


@pytest.mark.skipif(shutil.which("cpio") is None, reason="needs cpio")
def test_the_cpio_program_unpacks_what_was_packed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    packed = b"".join(archive(entries(tmp_path), ["/dev", "/var/tmp"]))
    argv = ["cpio", "--extract", "--quiet", "--no-absolute-filenames"]
    subprocess.run(argv, cwd=tmp_path / "out", input=packed, check=True)
    out = tmp_path / "out"
    assert (out / "init").read_bytes() == (tmp_path / "program").read_bytes()
    assert (out / "init").stat().st_mode & 0o777 == 0o755
    assert (out / "etc/ünïcode").read_bytes() == b"abc"
    assert (out / "etc/ünïcode").stat().st_mode & 0o777 == 0o600
    assert (out / "bin").readlink() == Path("usr/bin")
    assert (out / "usr/bin/sh").read_bytes() == b""
    assert {path.name for path in out.iterdir()} == {"init", "etc", "usr", "bin", "dev", "var"}
    assert (out / "var/tmp").is_dir()


def test_a_member_is_laid_out_as_the_kernel_reads_it() -> None:
    """By hand from Documentation/driver-api/early-userspace/buffer-format.rst."""
    member, trailer = archive({"/ab": Bytes(b"hello", 0o644)})
    fields = [1, 0o100644, 0, 0, 1, 0, 5, 0, 0, 0, 0, 3, 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + b"ab\0"
    assert len(head) % 4 == 1
    assert member == head + bytes(3) + b"hello" + bytes(3)
    assert trailer[110:120] == b"TRAILER!!!"
    assert len(trailer) % 4 == 0


def test_the_same_files_make_the_same_bytes_and_folders_come_before_what_is_in_them(tmp_path: Path) -> None:
    wanted = entries(tmp_path)
    one, two = (list(archive(dict(order))) for order in (wanted.items(), reversed(wanted.items())))
    assert one == two
    names = [piece[110 : piece.index(b"\0", 110)].decode() for piece in one]
    assert names.index("usr") < names.index("usr/bin") < names.index("usr/bin/sh")
