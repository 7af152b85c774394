"""Streams in studies: keys that neither dd nor hdparm could follow, the cold start, keys that a factor varies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iotrial.errors import StudyError
from iotrial.stats.spec import stretched_response
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.model import Study
from iotrial.study.reader import read_study
from iotrial.study.schema import Problem
from iotrial.study.work import JobContext, varied
from iotrial.workloads.stream import StreamWork
from values import check_limits

HEAD = """
[study]
name = "s"
question = "?"
[[factor]]
name = "mode"
knob = "%s"
levels = ["cold", "warm"]
[[workload]]
name = "w"
kind = "stream"
"""


def study(keys: str, knob: str = "file.mode") -> Study:
    return read_study(HEAD % knob + keys, "x.toml", trusted=False)


def work(keys: str) -> StreamWork:
    found = study(keys).workload("w").work
    assert isinstance(found, StreamWork)
    return found


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("", 'lacks "operation"'),
        ('operation = "append"', "expected"),
        ('operation = "read"\ndata = "random"', '"data" is only for writing'),
        ('operation = "read"\nflush = "fsync"', '"flush" is only for writing'),
        ('operation = "read"\nsync = "dsync"', '"sync" is only for writing'),
        ('operation = "read"\ntruncate = false', '"truncate" is only for writing'),
        ('operation = "write"\ntime = "3 s"', '"time" is only for a read'),
        ('operation = "write"\non = "device"', "the lab's device is only read"),
        ('operation = "write"\nsize = "0 B"', "there is nothing to write"),
        ('operation = "write"\ndata = "50% random"', "expected"),
        ('operation = "write"\ndata = "101 % random"', "expected"),
        ('operation = "write"\ndata = "050 % random"', "expected"),
        ('operation = "write"\ndata = "random"\nas_published = true', "only zeros"),
        ('operation = "write"\ndirect = true\nblock_size = "16535 B"', "whole sectors"),
        ('operation = "read"\nvolume = "1500 B"\nblock_size = "1 KiB"', "whole blocks"),
        ('operation = "read"\nreplicates = 2', "runs once per run"),
        ('operation = "read"\nblocksize = "1 KiB"', "block_size"),
    ],
)
def test_what_no_original_could_do_is_refused_when_it_is_read(keys: str, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        study(keys)
    assert message in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("keys", "cache"),
    [
        ('operation = "read"', "cold"),
        ('operation = "read"\non = "device"', "cold"),
        ('operation = "read"\nas_published = true', None),
        ('operation = "read"\ncache = "warm"', "warm"),
        ('operation = "write"', None),
    ],
)
def test_reading_begins_cold_unless_it_is_to_begin_as_published(keys: str, cache: str | None) -> None:
    assert study(keys).workload("w").cache == cache


def test_a_factor_of_the_cache_takes_the_place_of_the_cold_start() -> None:
    assert study('operation = "read"', knob="cache.state").workload("w").cache is None


def test_a_reading_that_ends_with_a_time_is_judged_by_its_rate() -> None:
    whole, timed = study('operation = "read"'), study('operation = "read"\ntime = "3 s"')
    assert [r.name for r in whole.responses][:2] == ["wall", "rate"]
    assert "wall" not in [r.name for r in timed.responses]
    main = stretched_response(timed.responses)
    assert main is not None
    assert (main.name, main.unit, main.better.value, main.primary) == ("rate", "bytes/s", "higher", True)


HDPARM = 'operation = "read"\non = "device"\nblock_size = "2 MiB"\ntime = "3 s"\npause = "3 s"\ndirect = true'


@pytest.mark.parametrize(
    "keys", [HDPARM, 'operation = "write"\ndata = "7 % random"\nvolume = "3 MiB"\nsync = "sync"']
)
def test_a_stream_is_stored_and_comes_back_the_same(keys: str) -> None:
    found = study(keys)
    again = study_from_json(json.loads(json.dumps(study_to_json(found))))
    assert again == found
    check_limits(again, origin="stored")


def asked_of_the_probe(keys: str, **asked: Any) -> dict[str, object]:
    found = work(keys)
    return found.probe_job(JobContext(**asked))


def test_the_keys_of_hdparm_are_what_the_probe_is_asked() -> None:
    fields = asked_of_the_probe(HDPARM, device="loop7")
    wanted = {
        "device": "loop7",
        "block_size": 2 << 20,
        "seconds": 3.0,
        "pause_s": 3.0,
        "direct": True,
        "evict": True,
    }
    assert {name: fields[name] for name in wanted} == wanted
    assert "data" not in fields
    published = asked_of_the_probe(f"{HDPARM}\nas_published = true", device="loop7")
    assert (published["evict"], published["beside"]) == (False, True)


def test_a_stream_of_a_device_needs_a_lab_that_has_one() -> None:
    assert work(HDPARM).labs() == {"image", "device", "guest"}
    plain = work('operation = "read"')
    assert "directory" in plain.labs()


@pytest.mark.parametrize("stretched", ["rate", "wall"])
def test_the_rate_holds_the_slow_down_only_where_it_is_meant_to(stretched: str) -> None:
    found = work('operation = "read"')
    answer = {
        "bytes": 1000, "wall_ns": 1_060_000_000, "spun": {"wall_ns": 60_000_000, "cpu_ns": 0}, "start_resident": 0,
        "short_block": 0, "operations": {},
    }  # fmt: skip
    numbers = found.measured(answer, JobContext(stretched)).numbers
    assert numbers["rate"] == pytest.approx(1000 / 1.06 if stretched == "rate" else 1000)


# Keys that a factor varies.


def test_a_key_is_varied_as_a_study_file_would_write_it() -> None:
    base = work('operation = "write"\nvolume = "3 MiB"')
    other = varied(base, {"block_size": "64 KiB", "direct": "true", "data": "50 % random"})
    assert other == work(
        'operation = "write"\nvolume = "3 MiB"\nblock_size = "64 KiB"\ndirect = true\ndata = "50 % random"'
    )
    assert varied(base, {}) is base


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operation": "read"}, 'no option of stream is called "operation"'),
        ({"size": "1 MiB"}, 'no option of stream is called "size"'),
        ({"direct": "yes"}, "expected true or false"),
        ({"block_size": "4096"}, "block_size"),
        ({"flush": "often"}, "flush"),
        ({"direct": "true", "block_size": "1000 B"}, "whole sectors"),
    ],
)
def test_a_key_that_cannot_be_varied_so_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(Problem, match=message):
        varied(work('operation = "write"'), options)


def test_other_kinds_have_no_key_to_vary() -> None:
    text = HEAD.replace("stream", "files") % "file.mode" + 'operations = ["stat"]'
    found = read_study(text, "x.toml", trusted=False).workload("w").work
    with pytest.raises(Problem, match='no option of files is called "buffer"'):
        varied(found, {"buffer": "1 KiB"})
