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
from iotrial.cli.run_request import _pairs, seed_of
from iotrial.errors import IotrialError, TargetError
from iotrial.lab.journal import Journal
from iotrial.lab.target import MountInfo, parse_mountinfo
from iotrial.live.sources import MetricLost
from iotrial.live.sources import source_of as metric_of
from iotrial.live.sources.base import Reading
from iotrial.live.sources.exposed import Scrape, scrape_of, selector_of, taken
from iotrial.live.sources.followed_log import Lines, found_in, regex_of
from iotrial.live.sources.kernel import device_counters, stalled_us, ticks
from iotrial.live.sources.programs import number_of
from iotrial.live.sources.prometheus import mean_of_range, one_number, range_s
from iotrial.live.sources.prometheus import result_of as promql_result
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
from iotrial.study.reader import read_study
from iotrial.study.source import Locator
from iotrial.units import (
    UnitError,
    format_size,
    parse_alpha,
    parse_duration,
    parse_fraction,
    parse_margin,
    parse_size,
)
from iotrial.workloads.fio_job import (
    JobProblem,
    beyond_the_lab,
    entries_of,
    files_of,
    jobs_of,
    mapped,
    options_of,
)
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
    for parse in (lambda: _pairs("--set", tuple(content.split("\n"))), lambda: seed_of(content)):
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
    """A fio job file. An accepted one has a job, an entry in fio's result, and each of its options is checked for trust."""
    content = _text(data)
    try:
        assert entries_of(jobs_of(mapped(content)[0]))
        assert all(size >= 0 for size in files_of(content).values())
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


def metric(data: bytes) -> None:
    """What ``--metric`` says. A name is one that reports and labels can hold."""
    content = _text(data)
    range_s(content)
    try:
        found = metric_of(content, device="vda")
    except IotrialError:
        return
    assert found.name
    assert not set('\n,"') & set(found.name)


def exposed(data: bytes) -> None:
    """A selector, and the page of an endpoint in both formats: what was read has values, and grows at no negative rate."""
    head, _, body = data.partition(b"\n")
    try:
        selector = selector_of(_text(head))
    except IotrialError:
        return
    for content_type in ("text/plain", "application/openmetrics-text; version=1.0.0"):
        try:
            found = scrape_of(body, content_type, selector)
        except IotrialError:
            continue
        assert found.samples
        same = [Reading(1.0, found), Reading(2.0, Scrape(found.kind, dict(found.samples), found.started))]
        for take in (None, "rate", "mean", "p99"):
            try:
                value = taken(same, selector.name, take)
            except IotrialError:
                continue
            assert value == 0.0 or found.kind == "gauge"


def promql(data: bytes) -> None:
    """Answers of Prometheus."""
    try:
        found = promql_result(data, "here")
    except MetricLost:
        return
    for read in (one_number, mean_of_range):
        try:
            assert isinstance(read(found), float)
        except MetricLost:
            continue


def log_lines(data: bytes) -> None:
    """Lines of a log in pieces: what is found does not depend on where it was cut."""
    pattern = regex_of(r"took ([-+0-9.e]+)")
    cut = Lines()
    lines = Lines().split(data)
    assert lines == cut.split(data[: len(data) // 2]) + cut.split(data[len(data) // 2 :])
    try:
        found = found_in(lines, pattern, "x")
    except MetricLost:
        return
    assert len(found.values) == found.lines
    assert all(math.isfinite(value) for value in found.values)


def kernel_counters(data: bytes) -> None:
    """Files of the kernel, and the output of a command."""
    content = _text(data)
    for parse in (
        device_counters,
        ticks,
        lambda text: stalled_us(text, "some"),
        lambda text: number_of(text, "x"),
    ):
        try:
            parse(content)
        except MetricLost:
            continue


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
    "metric": metric,
    "exposed": exposed,
    "promql": promql,
    "log_lines": log_lines,
    "kernel_counters": kernel_counters,
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
    "metric": (
        "p99=promql:histogram_quantile(0.99, rate(d_bucket[$window]))@http://127.0.0.1:9090,unit=s,every=5s",
        'openmetrics:http://127.0.0.1:9100/metrics#x_total{a="b",c=~"d.*"}:rate,lower',
        "command:psql -Atc 'select 1',rate,higher",
        r"log:/var/log/app.log:took ([0-9.]+) ms:p99,unit=ms",
        "device:sda:latency,every=1s",
        "psi:io:full",
        "cpu",
    ),
    "exposed": (
        'x_total{a!="b"}\n# TYPE x_total counter\nx_total{a="1"} 5 1700000000000\nprocess_start_time_seconds 1.7e9\n',
        'd\n# TYPE d histogram\nd_bucket{le="0.1"} 1\nd_bucket{le="+Inf"} 2\nd_sum 3\nd_count 2\n',
        "x\n# TYPE x counter\nx_total 1.0\nx_created 5.0\n# EOF\n",
    ),
    "promql": (
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1.5,"0.25"]}]}}',
        '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"],[2,"NaN"]]}]}}',
        '{"status":"success","data":{"resultType":"scalar","result":[1.5,"+Inf"]}}',
        '{"status":"error","errorType":"bad_data","error":"parse error"}',
    ),
    "log_lines": ("a took 1.5e3 ms\nb took -2\r\nnothing\nto", "x" * 100),
    "kernel_counters": (
        "8 0 64 3 1 0 8 2 0 4 5 0 0 0 0 1 2",
        "some avg10=0.00 avg60=0.12 avg300=0.05 total=123456\nfull avg10=0.00 total=1",
        "cpu  10 20 30 400 50 6 7 8 0 0",
        "-1.5e-3",
    ),
    "answer": (
        '{"id": 1, "ok": {"data": "12.3\\n"}}',
        '{"id": 1, "error": {"code": "os", "message": "read /nope", "errno": 2}}',
    ),
}
