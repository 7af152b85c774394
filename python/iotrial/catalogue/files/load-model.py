"""Loads a large file of weights in one of several ways, and prints how long that took and a checksum, as JSON.

    python3 load-model.py WAY FILE

The file is taken as tensors of 16 MiB. A read takes a whole tensor into the program's own memory; a mapping is used where it
is. One byte of each page of each tensor goes into the checksum, so every page is touched, in the order of the file.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial

WAYS = (
    "mmap",
    "mmap-sequential",  # posix_fadvise
    "mmap-willneed",  # madvise, once for the whole file
    "mmap-populate",
    "mmap-prefetch",  # a second process reads the file into the page cache meanwhile
    "read",
    "read-4",  # four threads, each takes the next tensor
    "read-dontcache",  # preadv2 with RWF_DONTCACHE, Linux 6.14
    "direct",
    "direct-4",
)
TENSOR = 16 << 20
RWF_DONTCACHE = 0x80


def touch(memory: mmap.mmap, at: int) -> int:
    """Return the checksum of one byte of each page of a tensor."""
    return zlib.crc32(memory[at : at + TENSOR : mmap.PAGESIZE])


def take(file: int, into: memoryview, at: int, flags: int = 0) -> None:
    done = 0
    while done < len(into):
        count = os.preadv(file, [into[done:]], at + done, flags)
        if count == 0:
            raise EOFError(f"found {at + done} bytes")
        done += count


def prefetch(path: str, tensors: range, size: int) -> None:
    """Read the file into the page cache and drop what was read."""
    file = os.open(path, os.O_RDONLY)
    room = memoryview(bytearray(TENSOR))
    for at in tensors:
        take(file, room[: size - at], at)


def by_mapping(way: str, file: int, size: int, tensors: range) -> list[int]:
    flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if way == "mmap-populate" else 0)
    memory = mmap.mmap(file, size, flags, mmap.PROT_READ)
    if way == "mmap-willneed":
        memory.madvise(mmap.MADV_WILLNEED)
    return [touch(memory, at) for at in tensors]


def by_reading(way: str, file: int, size: int, tensors: range) -> list[int]:
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def load(at: int, flags: int) -> int:
        take(file, memoryview(memory)[at : at + TENSOR], at, flags)
        return touch(memory, at)

    one = partial(load, flags=RWF_DONTCACHE if way == "read-dontcache" else 0)
    if not way.endswith("-4"):
        return [one(at) for at in tensors]
    with ThreadPoolExecutor(4) as readers:
        return list(readers.map(one, tensors))


def main() -> None:
    way, path = sys.argv[1:]
    if way not in WAYS:
        sys.exit(f"expected one of {', '.join(WAYS)}, found {way}")
    began = time.perf_counter()
    file = os.open(path, os.O_RDONLY | (os.O_DIRECT if way.startswith("direct") else 0))
    size = os.fstat(file).st_size
    tensors = range(0, size, TENSOR)
    if way == "mmap-sequential":
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    other = os.fork() if way == "mmap-prefetch" else None
    if other == 0:
        prefetch(path, tensors, size)
        os._exit(0)
    how = by_mapping if way.startswith("mmap") else by_reading
    sums = how(way, file, size, tensors)
    took = time.perf_counter() - began
    if other is not None and os.waitpid(other, 0)[1]:
        sys.exit("the process that reads ahead failed")
    print(json.dumps({"seconds": took, "checksum": f"{zlib.crc32(repr(sums).encode()):08x}"}))


main()
