"""Randomly changed packed trials: each ends in one of our errors, or in a trial that can be reported."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
from typing import Any

from forged_trials import read, signed, sound, sound_lines
from hypothesis import given, settings
from hypothesis import strategies as st

from iotrial.errors import IotrialError
from iotrial.report.jsonreport import report_json
from iotrial.report.opening import document_of


def _survives(data: bytes) -> None:
    try:
        store = read(data)
    except IotrialError:
        return
    try:
        report = report_json(document_of(store, 1))
    except IotrialError:
        return
    json.dumps(report, allow_nan=False).encode()


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_change_of_bytes_is_refused_or_harmless(draw: st.DataObject) -> None:
    data = bytearray(sound())
    for _ in range(draw.draw(st.integers(1, 4))):
        if not data:
            break
        at = draw.draw(st.integers(0, len(data) - 1))
        match draw.draw(st.sampled_from(["flip", "cut", "insert", "drop"])):
            case "flip":
                data[at] ^= 1 << draw.draw(st.integers(0, 7))
            case "cut":
                del data[max(at, 1) :]
            case "insert":
                data[at:at] = draw.draw(st.binary(min_size=1, max_size=8))
            case _:
                del data[at : at + draw.draw(st.integers(1, 8))]
    if bytes(data) != sound():
        _survives(bytes(data))


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_change_of_the_unpacked_bytes_that_is_signed_again_is_refused_or_harmless(
    draw: st.DataObject,
) -> None:
    body = bytearray(gzip.decompress(sound()).rpartition(b'{"end"')[0])
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(body) - 1))
        body[at : at + draw.draw(st.integers(0, 2))] = draw.draw(st.binary(max_size=2))
    end = {**sound_lines()[-1]["end"], "sha256": hashlib.sha256(body).hexdigest()}
    _survives(gzip.compress(bytes(body) + json.dumps({"end": end}).encode() + b"\n", mtime=0))


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(
        ["", "a", "b", "wall", "done", "running", "files", "command", "FilesWork", "log", "1e9"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def _places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in _places(part, (*path, key)))]


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_change_of_a_value_that_is_signed_again_is_refused_or_harmless(draw: st.DataObject) -> None:
    lines = sound_lines()
    for _ in range(draw.draw(st.integers(1, 2))):
        # half of the changes go to the trial's own record, which contains the study
        line = lines[1] if draw.draw(st.booleans()) else lines[draw.draw(st.integers(0, len(lines) - 2))]
        places = _places(line)[1:]
        if not places:
            continue
        *way, last = draw.draw(st.sampled_from(places))
        place: Any = line
        for part in way:
            place = place[part]
        match draw.draw(st.sampled_from(["replace", "replace", "drop", "double"])):
            case "replace":
                place[last] = draw.draw(_values)
            case "drop":
                del place[last]
            case _ if isinstance(place, list):
                place.append(copy.deepcopy(place[last]))
            case _:
                place[draw.draw(st.text(max_size=5))] = place[last]
    try:
        data = signed(lines)
    except UnicodeEncodeError:
        return
    _survives(data)
