"""A traced command is said to rewrite the files whose earlier content it reads and which it changes, and no others.

Expected are the files that strace sees a read of and that differ afterwards, or those of the script.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from probe_client import Probe


def rewritten(probe: Probe, folder: Path, argv: list[str], **more: object) -> set[str]:
    step: dict[str, Any] = {"name": "work", "argv": argv}
    answer = probe("command", steps=[step], cwd=str(folder), touches=[str(folder)], **more)
    assert answer["verified"], answer["failures"]
    assert answer["touched"]["complete"]
    return {str(Path(path).relative_to(folder)) for path in answer["touched"]["rewritten"]}


def in_python(folder: Path, code: str) -> list[str]:
    return [sys.executable, "-c", f"import mmap, os, subprocess\nos.chdir({str(folder)!r})\n{code}"]


@pytest.fixture
def files(folder: Path) -> Path:
    (folder / "below").mkdir()
    for name in ("state", "other", "below/state"):
        (folder / name).write_bytes(b"earlier " * 1000)
    return folder


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("f = open('state', 'r+b'); f.read(9); f.write(b'now')", {"state"}),
        ("a = open('state').read(); open('new', 'w').write(a); os.rename('new', 'state')", {"state"}),
        ("a = open('state').read(); os.unlink('state'); open('state', 'w').write(a)", {"state"}),
        ("a = open('state').read(); open('state', 'a').write('now')", {"state"}),
        ("a = open('state').read(); os.truncate('state', 10)", {"state"}),
        ("a = open('state').read(); os.rename('state', 'old'); open('state', 'w').write(a)", {"state"}),
        ("subprocess.run(['sh', '-c', 'read a < state; echo $a > state'])", {"state"}),
        (
            "f = open('state', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[9] = m[0] + 1",
            {"state"},
        ),
        (
            "d = os.open('below', os.O_RDONLY); f = os.open('state', os.O_RDWR, dir_fd=d); "
            "os.pread(f, 9, 0); os.pwrite(f, b'now', 0)",
            {"below/state"},
        ),
        (
            "d = os.open('below', os.O_RDONLY); a = os.read(os.open('state', os.O_RDONLY, dir_fd=d), 9); "
            "os.write(os.open('new', os.O_WRONLY | os.O_CREAT, dir_fd=d), a); "
            "os.rename('new', 'state', src_dir_fd=d, dst_dir_fd=d)",
            {"below/state"},
        ),
        # output that is only written, though it is there already
        ("open('state', 'w').write('now')", set()),
        ("open('state', 'a').write('now')", set()),
        ("f = open('state', 'r+b'); f.write(b'now')", set()),
        ("open('new', 'w').write('now'); os.rename('new', 'state')", set()),
        # what it wrote itself
        ("open('state', 'w').write('now'); open('state').read()", set()),
        ("open('new', 'w').write('now'); open('new').read(); open('new', 'a').write('more')", set()),
        (
            "f = open('new', 'w+b'); f.truncate(9000); m = mmap.mmap(f.fileno(), 0); m[9] = m[0] + 1",
            set(),
        ),
        # what it only read
        ("open('state', 'r+b').read(); open('other', 'w').write('now')", set()),
        ("f = open('state', 'r+b'); m = mmap.mmap(f.fileno(), 0); a = m[:]", set()),
        # what is gone afterwards is rewritten by nobody
        ("open('state').read(); os.unlink('state')", set()),
    ],
)
def test_files_read_and_changed_are_named_and_no_others(
    probe: Probe, files: Path, code: str, expected: set[str]
) -> None:
    assert rewritten(probe, files, in_python(files, code)) == expected


def test_files_made_for_this_run_are_not_named(probe: Probe, files: Path) -> None:
    began = time.time_ns()
    shutil.copy(files / "other", files / "state")
    command = in_python(files, "open('state', 'r+b').read(); open('other', 'r+b').read(); "
                        "[open(a, 'a').write('now') for a in ('state', 'other')]")  # fmt: skip
    assert rewritten(probe, files, command, touches_since_ns=began) == {"other"}


def _seen_by_strace(folder: Path, argv: list[str]) -> set[str]:
    """Return the files of a folder that a command read or mapped, by strace, and that differ afterwards."""

    def contents() -> dict[str, tuple[int, str]]:
        return {
            str(path.relative_to(folder)): (path.stat().st_ino, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in folder.rglob("*")
            if path.is_file()
        }

    before = contents()
    calls = "trace=read,pread64,readv,mmap"
    done = subprocess.run(
        ["strace", "-f", "-y", "-e", calls, *argv], cwd=folder, capture_output=True, text=True, check=True
    )
    read = set(re.findall(rf"(?:read\w*\(|, )\d+<{re.escape(str(folder))}/([^>]+)>.*= (?!0$|-)", done.stderr))
    after = contents()
    return {path for path in read if path in before and path in after and after[path] != before[path]}


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("kind", ["git", "sqlite", "make", "sed"])
def test_programs_with_state_rewrite_what_strace_sees(probe: Probe, folder: Path, kind: str) -> None:
    if not shutil.which({"sqlite": "sqlite3"}.get(kind, kind)):
        pytest.skip(f"needs {kind}")
    (folder / "text").write_text("1\n" * 100)
    rule = "-include text.d\nout: text\n\tcp text out\n\techo 'out: text #' $$$$ >text.d\n"
    (folder / "Makefile").write_text(rule)
    prepare, argv, expected = {
        "git": (
            "git init -q .; git add text; git -c user.name=a -c user.email=b commit -qm 1; echo 2 >text",
            ["git", "-c", "safe.directory=*", "add", "text"],
            ".git/index",
        ),
        "sqlite": (
            "sqlite3 data 'create table t(a); insert into t values (1)'",
            ["sqlite3", "data", "update t set a = a + 1"],
            "data",
        ),
        "make": ("make -s; rm out", ["make", "-s"], "text.d"),
        "sed": (":", ["sed", "-i", "s/1/2/", "text"], "text"),
    }[kind]
    subprocess.run(["sh", "-c", prepare], cwd=folder, check=True)
    copy = folder.with_name(folder.name + "-copy")
    shutil.copytree(folder, copy, symlinks=True)
    try:
        found = _seen_by_strace(copy, argv)
    finally:
        shutil.rmtree(copy)
    assert found == {expected}
    assert rewritten(probe, folder, argv) == found
