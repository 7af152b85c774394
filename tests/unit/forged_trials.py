"""Forged packed trials: any line changed, with digest and counts recomputed to match."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from functools import cache
from typing import Any

import pytest
from store_examples import filled, header

from iotrial.errors import RequestError
from iotrial.store import Store
from iotrial.store.packed import read_packed

Lines = list[dict[str, Any]]
COUNTED = {"state": "states", "run": "runs", "block_end": "block_ends", "event": "events"}


@cache
def sound() -> bytes:
    store = Store.in_memory()
    filled(store, header(controls=True, time_s=60.0, argv=["iotrial", "run", "x"], asked=["f"]), blocks=2)
    file = io.BytesIO()
    store.pack(1, file)
    return file.getvalue()


def sound_lines() -> Lines:
    return [json.loads(line) for line in gzip.decompress(sound()).splitlines()]


def signed(lines: Lines, *, counts: bool = True) -> bytes:
    """Return a file with these lines and a matching digest (and counts), as a forger would make it."""
    if counts and "end" in lines[-1]:
        kinds = [next(iter(line), "") for line in lines]
        lines[-1]["end"].update({name: kinds.count(kind) for kind, name in COUNTED.items()})
    *body, last = lines
    raw = "".join(json.dumps(line) + "\n" for line in body).encode()
    if isinstance(last.get("end"), dict):
        last["end"]["sha256"] = hashlib.sha256(raw).hexdigest()
    return gzip.compress(raw + json.dumps(last).encode() + b"\n", mtime=0)


def read(data: bytes) -> Store:
    store = Store.in_memory()
    store.unpack(read_packed(io.BytesIO(data), "x.iotrial"), source="x.iotrial")
    return store


def refused(data: bytes) -> str:
    with pytest.raises(RequestError) as caught:
        read(data)
    assert "x.iotrial" in caught.value.message
    return caught.value.message


def first(lines: Lines, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(line[kind] for line in lines if kind in line)
    return found


def study(lines: Lines) -> dict[str, Any]:
    found: dict[str, Any] = first(lines, "trial")["study"]["study"]
    return found
