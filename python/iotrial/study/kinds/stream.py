"""Workload kind ``stream``: sequential reading and writing with the exact meaning of dd and hdparm, inside the probe."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from iotrial.study.kinds.contract import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    SYNCED_RESPONSE,
    FileSetKeys,
    KeyProblem,
    ResponseSpec,
    WorkloadKind,
    check_file_set,
    rate_response,
    time_response,
)
from iotrial.study.model import StreamWork, Work
from iotrial.study.wire import Duration, Line, Share, Size

#: what direct I/O is aligned to at least; many devices want 4096
SECTOR_BYTES = 512
#: each is a thread with a block, and what it writes, in memory
MOST_STREAMS = 64
_SHARE = re.compile(r"zeros|random|(?:100|[1-9]?[0-9]) % random")


class StreamKeys(FileSetKeys):
    """Keys of ``kind = "stream"``."""

    operation: Literal["read", "write", "rewrite", "copy"] = Field(
        description="what is done; a rewrite is of what was there in full before, a copy stays inside the file system"
    )
    on: Literal["file", "device"] = Field(
        "file", description="one file of the lab, or the lab's own block device, which is only read"
    )
    position: Share = Field(
        0.0, ge=0, le=0.99, description="share of the device before what is read: 0 % to 99 %"
    )
    within: Share = Field(
        0.0,
        ge=0,
        le=1,
        description="blocks are drawn at random from so much of the device behind the position, the same ones at each; "
        "0: they are read in order",
    )
    lead_in: Size = Field(
        0,
        ge=0,
        le=1 << 30,
        description="bytes of the device that are read before the time begins, in whole blocks, so that a disk's arm is "
        "where the work is and not where the run before has left it",
    )
    streams: int = Field(
        1,
        ge=1,
        le=MOST_STREAMS,
        description="how many readers or writers there are at once, started together",
    )
    shared: bool = Field(
        False,
        description="all streams on one file: each reads or copies all of it, or writes a part; false: a file each",
    )
    copy_with: Literal["read-write", "copy-file-range"] = Field(
        "read-write",
        description="the calls of a copy: read and write by block (dd, cp), or copy_file_range, for which a file system may "
        "share blocks",
    )
    block_size: Size = Field(1 << 20, ge=1, le=1 << 30, description="bytes of one read or write (dd: bs)")
    volume: Size = Field(
        0,
        ge=0,
        le=1 << 44,
        description="bytes in all (dd: bs times count); 0: the file's size, or the whole device",
    )
    time: Duration = Field(
        0.0, ge=0, le=3600, description="end with the block that passes this time (hdparm: 3 s); 0: no limit"
    )
    pause: Duration = Field(
        0.0, ge=0, le=60, description="sync(2) and so long a pause before (hdparm: 3 s); 0: neither"
    )
    direct: bool = Field(False, description="past the page cache (O_DIRECT)")
    sync: Literal["none", "sync", "dsync"] = Field(
        "none", description="O_SYNC or O_DSYNC: every write waits for the disk (dd: oflag)"
    )
    flush: Literal["none", "fsync", "fdatasync"] = Field(
        "none", description="after the last write, inside the time (dd: conv)"
    )
    truncate: bool = Field(
        True, description="empty the file before, outside the time; false: dd's conv=notrunc"
    )
    data: Line = Field(
        "zeros", description='what is written: "zeros", "random", or a share such as "50 % random"'
    )
    as_published: bool = Field(
        False,
        description="start on whatever is cached, and do with each block what the original does besides (dd: read "
        "/dev/zero or write /dev/null; hdparm: touch every sector)",
    )
    files: int = Field(
        0,
        ge=0,
        le=2 * MOST_STREAMS,
        description="how many files one run works on; 0: as many as its streams need (a copy needs one more for each)",
    )
    pool: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="how many files there are to draw from; left out: no more than one run works on",
    )
    size: Size = Field(64 << 20, ge=0, le=1 << 44, description="size of the file")


def build(keys: StreamKeys) -> StreamWork:
    """The work of these keys; KeyProblem where neither dd nor hdparm could do it."""
    files = keys.files or _needed(keys)
    pool = keys.pool if "pool" in keys.model_fields_set else files
    check_file_set(keys.model_copy(update={"files": files, "pool": pool}))
    if files < _needed(keys):
        raise KeyProblem(f"so many streams need {_needed(keys)} files, found {files}", "files")
    _check_of_streams(keys)
    if keys.replicates != 1:
        raise KeyProblem("a stream is done once in a run", "replicates", hint="a larger volume takes longer")
    _check_of_writing(keys)
    if keys.direct and keys.block_size % SECTOR_BYTES:
        message = (
            f"past the cache only whole sectors of {SECTOR_BYTES} bytes can be moved, found {keys.block_size}"
        )
        raise KeyProblem(message, "block_size")
    if keys.on == "file" and (keys.position or keys.within):
        name = "position" if keys.position else "within"
        raise KeyProblem(f'"{name}" is of a device', name, hint='on = "device"')
    if keys.lead_in and (keys.on == "file" or keys.lead_in % keys.block_size):
        raise KeyProblem("only of a device can whole blocks lead in", "lead_in", hint='on = "device"')
    if keys.within and not keys.volume:
        raise KeyProblem("how many blocks are drawn is not said", "volume")
    if keys.on == "device" and keys.operation != "read":
        raise KeyProblem("the lab's device is only read", "on", hint='write to a file: on = "file"')
    if (
        keys.operation in ("read", "copy")
        and keys.volume % keys.block_size
        and keys.on == "file"
        and keys.volume != keys.size
    ):
        raise KeyProblem("a volume to be read is whole blocks, or all of the file", "volume")
    if keys.on == "file" and keys.operation != "read" and not (keys.volume or keys.size):
        raise KeyProblem("nothing is to be written", "volume")
    on_file = keys.on == "file"
    return StreamWork(
        operation=keys.operation,
        on=keys.on,
        position=keys.position,
        within=keys.within,
        lead_in_bytes=keys.lead_in,
        streams=keys.streams,
        shared=keys.shared,
        copy_with=keys.copy_with,
        block_size_bytes=keys.block_size,
        volume_bytes=keys.volume,
        time_s=keys.time,
        pause_s=keys.pause,
        direct=keys.direct,
        sync=keys.sync,
        flush=keys.flush,
        truncate=keys.truncate,
        data=keys.data,
        as_published=keys.as_published,
        files=files if on_file else 1,
        pool=pool if on_file else 1,
        contiguous=keys.contiguous,
        size_bytes=keys.size if on_file else 0,  # nothing of it is read
        content=keys.content,
        directories=keys.directories,
    )


def _needed(keys: StreamKeys) -> int:
    """How many files the streams work on: as the probe counts them."""
    apart = 1 if keys.shared else keys.streams
    return apart + keys.streams if keys.operation == "copy" else apart


def _check_of_streams(keys: StreamKeys) -> None:
    if keys.on == "device" and (keys.streams > 1 or keys.shared):
        raise KeyProblem("the lab's device is read by one stream", "streams")
    if keys.copy_with != "read-write":
        if keys.operation != "copy":
            raise KeyProblem('"copy_with" is of a copy', "copy_with")
        if keys.direct:
            raise KeyProblem("copy_file_range goes through the cache", "direct")
        if keys.as_published:
            raise KeyProblem("copy_file_range goes without reading and writing", "as_published")


def _check_of_writing(keys: StreamKeys) -> None:
    if not _SHARE.fullmatch(keys.data):
        message = f'wanted "zeros", "random", or a share such as "50 % random", found "{keys.data}"'
        raise KeyProblem(message, "data")
    if keys.operation != "read" and keys.time:
        raise KeyProblem("only reading can end with a time", "time")
    if keys.as_published and keys.data != "zeros":
        raise KeyProblem("as published it is written from /dev/zero, which has zeros only", "data")
    not_of = {
        "read": ("sync", "flush", "truncate", "data"),
        "write": (),
        "rewrite": ("truncate",),
        "copy": ("data",),
    }
    for name in not_of[keys.operation]:
        if getattr(keys, name) != StreamKeys.model_fields[name].default:
            raise KeyProblem(f'"{name}" is of writing', name)


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run of this work measures. A reading that ends with a time has no time that could differ."""
    assert isinstance(work, StreamWork)
    first = (_RATE,) if work.time_s else (_WALL, _RATE)
    return (
        *first,
        *CPU_RESPONSES,
        *DEVICE_RESPONSES,
        *((SYNCED_RESPONSE,) if work.operation != "read" else ()),
    )


def cache_of(work: Work) -> str | None:
    """Reading and copying begin on a cold cache unless they are to begin as published."""
    assert isinstance(work, StreamWork)
    return "cold" if work.operation in ("read", "copy") and not work.as_published else None


_WALL = time_response(
    "wall",
    "time from the first block to the last, with the flush and the close of a file; of several streams from the first "
    "start to the last end",
)
_RATE = rate_response("rate", "bytes/s", "bytes moved by that time; of a copy, bytes that were copied")

_OPTIONS = (
    *(
        "position",
        "within",
        "block_size",
        "volume",
        "streams",
        "shared",
        "copy_with",
        "direct",
        "sync",
        "flush",
        "truncate",
    ),
    "data",
)
KIND = WorkloadKind(
    name="stream",
    work=StreamWork,
    summary="Sequential reading and writing with the exact meaning of dd and hdparm, inside the probe.",
    keys=StreamKeys,
    build=build,
    responses=responses,
    documented=(_WALL, _RATE, *CPU_RESPONSES, *DEVICE_RESPONSES, SYNCED_RESPONSE),
    notes="A reading that ends with a time (`time`) has no `wall`. The knob work.option varies "
    + ", ".join(_OPTIONS[:-1])
    + f" and {_OPTIONS[-1]}.",
    options=_OPTIONS,
    cache=cache_of,
)
