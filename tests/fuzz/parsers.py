"""Fuzz targets: every parser of external text, as a function of bytes that must return for any input.

A parser must refuse input with an error of ``iotrial.errors`` (or ``UnitError``); any other exception escapes and is
a finding. Accepted input is checked too, where an invariant is known. A test replays the same functions on the kept
cases, and a coverage-guided fuzzer (``fuzz.py``) drives them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from iotrial.audits.audit import audit as audited
from iotrial.audits.claims import parse_claim
from iotrial.audits.importers import formats
from iotrial.audits.importers import read as read_foreign
from iotrial.audits.importers.contract import ReadOptions, source_of
from iotrial.cli.run_request import _pairs, _seed
from iotrial.errors import IotrialError, TargetError
from iotrial.lab.journal import Journal
from iotrial.lab.target import MountInfo, parse_mountinfo
from iotrial.probe.client import answer_of
from iotrial.report.audit.blocks import audit_markdown, audit_text
from iotrial.report.audit.jsonaudit import audit_json
from iotrial.store import Store, records
from iotrial.store.model import TrialHeader, TrialState
from iotrial.store.packed import read_packed
from iotrial.store.packed.reading import COUNTS
from iotrial.study import trust
from iotrial.study.catalogue import names, text
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.locator import Locator
from iotrial.study.reader import read_study
from iotrial.units import (
    UnitError,
    format_size,
    parse_alpha,
    parse_duration,
    parse_fraction,
    parse_margin,
    parse_size,
)
from iotrial.workloads.fio_job import JobProblem, beyond_the_lab, jobs_of, options_of
from iotrial.workloads.fio_result import picked, result_of

Parser = Callable[[bytes], None]


def _text(data: bytes) -> str:
    """Decode the bytes. Invalid UTF-8 becomes lone surrogates, as in arguments and file names."""
    return data.decode("utf-8", "surrogateescape")


def study(data: bytes) -> None:
    """A study file. An accepted one goes through the store's form without loss."""
    try:
        found = read_study(_text(data), "study.toml", trusted=False)
    except IotrialError:
        return
    trust.demands(found)
    assert study_from_json(json.loads(json.dumps(study_to_json(found)))) == found


def locator(data: bytes) -> None:
    """Line numbers in a document that need not be TOML at all."""
    content = _text(data)
    line = Locator(content).line("factor", 0, "levels", 1)
    assert line is None or 1 <= line <= content.count("\n") + 1


def units(data: bytes) -> None:
    """Sizes, durations, margins."""
    content = _text(data)
    for parse in (parse_size, parse_duration, parse_margin, parse_alpha, parse_fraction):
        try:
            found = parse(content)
        except UnitError:
            continue
        if parse is parse_size:
            assert parse_size(format_size(int(found))) == found
        assert 0 <= found < float("inf")


def codec(data: bytes) -> None:
    """A study in the store's form. An accepted one survives the round trip."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return
    try:
        found = study_from_json(content)
    except IotrialError:
        return
    trust.demands(found)
    assert study_from_json(study_to_json(found)) == found


def options(data: bytes) -> None:
    """``--set``, ``--condition`` and ``--seed``."""
    content = _text(data)
    for parse in (lambda: _pairs("--set", tuple(content.split("\n"))), lambda: _seed(content)):
        try:
            parse()
        except (IotrialError, click.UsageError):
            continue


def mountinfo(data: bytes) -> None:
    """Lines of /proc/self/mountinfo: a mount point may have any name."""
    for line in _text(data).split("\n"):
        try:
            assert isinstance(parse_mountinfo(line), MountInfo)
        except TargetError:
            continue


def journal(data: bytes) -> None:
    """An entry of the undo journal, damaged or forged."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        (Path(folder) / "000001.entry").write_bytes(data)
        try:
            for entry in Journal(Path(folder)).pending():
                assert isinstance(entry.target, str)
        except IotrialError:
            return


def answer(data: bytes) -> None:
    """A line of the probe's answer."""
    try:
        found = answer_of(data, verb="read", number=1)
    except IotrialError:
        return
    assert isinstance(found, dict)


def record(data: bytes) -> None:
    """Rows of the store with JSON edited by hand."""
    content = _text(data)
    number = 1.0
    run = ("c", 0, 0, "a", "treatment", content, number, None, content, content, content, content, content)
    header = ("id", content, "0" * 32, 1, 0.05, 0.03, "2026-01-01", content, content, content, "0.1")
    for parse in (lambda: records.run_of(run), lambda: records.header_of(header)):
        try:
            parse()
        except IotrialError:
            continue


def packed(data: bytes) -> None:
    """A packed trial: the raw bytes, and as lines with a valid signature. An accepted one can be imported into a store."""
    for content in (data, gzip.compress(_signed(data), 1)):
        try:
            with Store.in_memory() as store:
                store.unpack(read_packed(io.BytesIO(content), "packed"), source="packed")
        except IotrialError:
            continue


def foreign(data: bytes) -> None:
    """Foreign results in any format they may pass for: read, audited, and reported in every form."""
    try:
        source = source_of(data, name="foreign")
    except IotrialError:
        return
    for form in (None, *formats()):
        try:
            dataset = read_foreign([source], ReadOptions(), form=form)
            found = audited(dataset)
        except IotrialError:
            continue
        assert all(math.isfinite(one.value) for one in dataset.observations)
        for line in (audit_text(found, None) + audit_markdown(found, None)).splitlines():
            assert "\x1b" not in line
        json.dumps(audit_json(found, None), allow_nan=False)


def claim(data: bytes) -> None:
    """A published number, as written on the command line or in a table."""
    try:
        found = parse_claim(_text(data))
    except IotrialError:
        return
    assert found.group
    assert math.isfinite(found.number)


def _signed(lines: bytes) -> bytes:
    """Add the matching end record to the lines, so that a fuzzer gets past the digest."""
    kept = [line for line in lines.split(b"\n") if line and not line.startswith(b'{"end"')]
    body = b"".join(line + b"\n" for line in kept)
    counts = {
        name: sum(line.startswith(b'{"%s"' % kind.encode()) for line in kept) for kind, name in COUNTS.items()
    }
    end = {"end": {**counts, "sha256": hashlib.sha256(body).hexdigest()}}
    return body + json.dumps(end, separators=(",", ":")).encode() + b"\n"


def _packed_seed() -> bytes:
    """Return the lines of a small valid trial."""
    found = read_study(text("files/permissions"), "seed", trusted=True)
    header = TrialHeader("0" * 32, found, "0" * 32, False, 0.05, 0.03, "2026-01-01T00:00:00", {}, {}, {}, "0")
    file = io.BytesIO()
    with Store.in_memory() as store:
        store.create_trial(header)
        store.set_state(header.id, TrialState.INTERRUPTED, "a reason")
        store.pack("last", file)
    return gzip.decompress(file.getvalue())


HERE = Path(__file__).parent
_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def fio_job(data: bytes) -> None:
    """A fio job file. An accepted one has a job, and each of its options is checked for trust."""
    content = _text(data)
    try:
        assert jobs_of(content)
        reasons = list(beyond_the_lab(content))
    except JobProblem:
        return
    assert len(reasons) <= len(options_of(content))


def fio_result(data: bytes) -> None:
    """fio's output, and a path in it."""
    path, _, output = _text(data).partition("\n")
    try:
        found = picked(result_of(output), path)
    except IotrialError:
        return
    assert math.isfinite(found)


PARSERS: dict[str, Parser] = {
    "study": study,
    "codec": codec,
    "locator": locator,
    "units": units,
    "options": options,
    "mountinfo": mountinfo,
    "journal": journal,
    "answer": answer,
    "record": record,
    "packed": packed,
    "foreign": foreign,
    "claim": claim,
    "fio_job": fio_job,
    "fio_result": fio_result,
}


def seeds(name: str) -> list[bytes]:
    """Return valid inputs that a fuzzer starts from, in addition to the kept cases."""
    studies = [text(known) for known in names()]
    if name in ("study", "locator"):
        return [content.encode() for content in studies]
    if name in ("codec", "record"):
        read = [read_study(content, "seed", trusted=True) for content in studies]
        return [json.dumps(study_to_json(found)).encode() for found in read]
    if name == "packed":
        return [_packed_seed()]
    if name == "foreign":
        folders = (HERE.parent / "data" / "audit", HERE.parents[1] / "docs" / "audits")
        return [
            file.read_bytes()
            for folder in folders
            for file in sorted(folder.glob("*.*"))
            if file.suffix != ".md"
        ]
    return [seed.encode() for seed in _SEEDS.get(name, ())]


_SEEDS = {
    "units": ("4 KiB", "1.5GiB", "1 h 30 min", "250 ms", "3 %", "0.03", ".5", "100 kB"),
    "options": ("size=4KiB,1MiB\nmode=0444", "0123456789abcdef0123456789abcdef", "42", "workload=all"),
    "mountinfo": (
        "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue",
        "24 1 0:22 / /proc rw shared:5 - proc proc rw",
    ),
    "journal": (
        '{"version": 1, "number": 1, "knob": "sysctl", "address": {"path": "/proc/sys/vm/swappiness"}, '
        '"original": "60", "ours": ["0", "10"], "identity": {}, "boot_id": "b", "trial": "t"}',
    ),
    "claim": (
        "noatime 53.67 % of strictatime",
        "0444 about 12 % faster than 0777 in md5sum where cache=cold, size=10 KiB",
        "x +25.2 %",
        "b 1.38 times a",
    ),
    "answer": (
        '{"id": 1, "ok": {"data": "12.3\\n"}}',
        '{"id": 1, "error": {"code": "os", "message": "read /nope", "errno": 2}}',
    ),
}
