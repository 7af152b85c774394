"""The ways of files/load-model and the interfaces of block/interfaces: what each asks of the kernel, by strace and fio."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from iotrial.study import catalogue
from iotrial.workloads.fio import FioWork

SCRIPT = catalogue.CATALOGUE / "files" / "load-model.py"
MIB = 1 << 20
#: two whole tensors and a part of one
SIZE = 40 * MIB
TENSORS = [(0, 16 * MIB), (16 * MIB, 16 * MIB), (32 * MIB, 8 * MIB)]
READ = r"preadv2\(\d+, .*iov_len=(\d+).*\], 1, (\d+), (\w+)\)"
#: what strace prints, by way
CALLS = {
    "mmap": [],
    "mmap-sequential": [r"fadvise64\(\d+, 0, 0, POSIX_FADV_SEQUENTIAL\) = 0"],
    "mmap-willneed": [rf"madvise\(0x\w+, {SIZE}, MADV_WILLNEED\) = 0"],
    "mmap-populate": [rf"mmap\(NULL, {SIZE}, PROT_READ, MAP_SHARED\|MAP_POPULATE, \d+, 0\)"],
    "mmap-prefetch": [],
    "read": [],
    "read-4": [],
    "read-dontcache": [],
    "direct": [r"openat\(AT_FDCWD, \S+, O_RDONLY\|O_DIRECT\|O_CLOEXEC\)"],
    "direct-4": [r"openat\(AT_FDCWD, \S+, O_RDONLY\|O_DIRECT\|O_CLOEXEC\)"],
}
FILE_MAPPED = rf"mmap\(NULL, {SIZE}, PROT_READ, MAP_SHARED(\|MAP_POPULATE)?, \d+, 0\)"
OWN_MEMORY = rf"mmap\(NULL, {SIZE}, PROT_READ\|PROT_WRITE, MAP_PRIVATE\|MAP_ANONYMOUS, -1, 0\)"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "weights"
    path.write_bytes(os.urandom(SIZE))
    return path


def loaded(way: str, path: Path, *prefix: str) -> subprocess.CompletedProcess[str]:
    argv = [*prefix, sys.executable, "-I", "-S", "-", way, str(path)]
    return subprocess.run(argv, input=SCRIPT.read_text(), capture_output=True, text=True, check=False)


def test_the_ways_are_the_levels_of_the_study() -> None:
    levels = catalogue.find("files/load-model").factor("way").levels
    assert [level.label for level in levels] == list(CALLS)


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("way", CALLS)
def test_each_way_gets_every_page_by_its_own_calls(way: str, weights: Path, tmp_path: Path) -> None:
    log = tmp_path / "strace"
    watched = "--trace=openat,mmap,madvise,fadvise64,preadv,preadv2,pread64,read"
    done = loaded(way, weights, "strace", "-f", "-qq", watched, "-o", str(log))
    if way == "read-dontcache" and "Operation not supported" in done.stderr:
        pytest.skip("this file system or kernel has no RWF_DONTCACHE")
    if way.startswith("direct") and "Invalid argument" in done.stderr:
        pytest.skip("this file system has no direct reads")
    assert done.returncode == 0, done.stderr
    data = weights.read_bytes()
    sums = [zlib.crc32(data[at : at + size : os.sysconf("SC_PAGESIZE")]) for at, size in TENSORS]
    found = json.loads(done.stdout)
    assert found["checksum"] == f"{zlib.crc32(repr(sums).encode()):08x}"
    assert found["seconds"] > 0

    text = log.read_text()
    calls = [line.split(maxsplit=1) for line in text.splitlines()]
    main = calls[0][0]
    for wanted in CALLS[way]:
        assert re.search(wanted, text), (way, wanted)
    reads = [(pid, re.match(READ, call)) for pid, call in calls if call.startswith("preadv")]
    by = {pid for pid, _ in reads}
    if way.startswith("mmap"):
        assert re.search(FILE_MAPPED, text)
        assert not re.search(OWN_MEMORY, text)
        # only the second process reads
        assert len(reads) == (3 if way == "mmap-prefetch" else 0)
        assert main not in by
    else:
        assert re.search(OWN_MEMORY, text)
        assert not re.search(FILE_MAPPED, text)
        assert len(reads) == 3
        assert (main in by) == (not way.endswith("-4"))


def test_an_unknown_way_ends_with_the_known_ones(weights: Path) -> None:
    done = loaded("fastest", weights)
    assert done.returncode == 1
    assert "mmap-populate" in done.stderr


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
@pytest.mark.parametrize(
    ("level", "options"),
    [
        ("io_uring 32", {"ioengine": "io_uring", "iodepth": "32"}),
        ("libaio 32", {"ioengine": "libaio", "iodepth": "32"}),
        ("pread", {"ioengine": "psync"}),
        ("8 preads", {"ioengine": "psync", "numjobs": "8"}),
        ("io_uring 1", {"ioengine": "io_uring", "iodepth": "1"}),
        ("io_uring 8", {"ioengine": "io_uring", "iodepth": "8"}),
        ("io_uring 128", {"ioengine": "io_uring", "iodepth": "128"}),
        ("registered 32", {"ioengine": "io_uring", "iodepth": "32", "fixedbufs": "1", "registerfiles": "1"}),
        ("polled 32", {"ioengine": "io_uring", "iodepth": "32", "sqthread_poll": "1"}),
    ],
)
def test_fio_gets_the_lines_of_each_interface(level: str, options: dict[str, str]) -> None:
    study = catalogue.find("block/interfaces")
    value = study.factor("interface").level(level).settings[0].value
    for workload in study.workloads:
        assert isinstance(workload.work, FioWork)
        job = workload.work.job.replace("{interface}", value).replace("{direct}", "1")
        done = subprocess.run(
            ["fio", "--showcmd", "-"], input=job, capture_output=True, text=True, check=True, timeout=20
        )
        given = dict(re.findall(r"--(\w+)=(\S+)", done.stdout))
        assert {name: given.get(name) for name in options} == options
        assert {name for name in given if name in ("fixedbufs", "sqthread_poll", "numjobs")} <= set(options)
