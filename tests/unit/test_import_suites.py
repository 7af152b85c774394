"""Suites whose files hold each repeat; summaries in them are none."""

from __future__ import annotations

import json

import pytest

from iotrial.audits.importers import read
from iotrial.audits.importers.contract import ReadOptions, source_of
from iotrial.audits.model import Dataset
from iotrial.errors import RequestError

PHORONIX = """<?xml version="1.0"?>
<PhoronixTestSuite><Result><Title>SQLite</Title><Description>Threads: 1</Description><Scale>Seconds</Scale>
<Proportion>LIB</Proportion><Data>
<Entry><Identifier>ext4</Identifier><Value>2.5</Value><RawString>2.4:2.5:2.6</RawString></Entry>
<Entry><Identifier>xfs</Identifier><Value>3</Value><RawString></RawString></Entry>
</Data></Result></PhoronixTestSuite>
"""


def of(text: str) -> Dataset:
    return read([source_of(text.encode(), name="x.dat")], ReadOptions())


def test_google_benchmark_gives_its_iterations() -> None:
    rows = [
        {
            "name": "BM_a",
            "run_name": "BM_a",
            "run_type": "iteration",
            "repetition_index": at,
            "real_time": time,
            "time_unit": "us",
        }
        for at, time in enumerate((1.5, 1.25))
    ]
    rows.append(
        {
            "name": "BM_a_mean",
            "run_name": "BM_a",
            "run_type": "aggregate",
            "real_time": 9.0,
            "time_unit": "us",
        }
    )
    assert [(o.value, o.unit, o.run) for o in of(json.dumps({"context": {}, "benchmarks": rows})).observations] == [
        (1.5, "us", 0), (1.25, "us", 1),
    ]  # fmt: skip


def test_pytest_benchmark_needs_its_data() -> None:
    whole = {
        "machine_info": {},
        "benchmarks": [{"name": "test_a", "stats": {"mean": 2.0, "data": [1.5, 2.5]}}],
    }
    assert [o.value for o in of(json.dumps(whole)).observations] == [1.5, 2.5]
    del whole["benchmarks"][0]["stats"]["data"]  # type: ignore[index]
    with pytest.raises(RequestError, match="summaries") as refused:
        of(json.dumps(whole))
    assert "--benchmark-save-data" in str(refused.value.hint)


def test_phoronix_holds_repeats_in_its_raw_strings() -> None:
    data = of(PHORONIX)
    assert [(o.group, o.value) for o in data.observations] == [("ext4", 2.4), ("ext4", 2.5), ("ext4", 2.6)]
    assert data.unread == ("SQLite, xfs (no RawString)",)
    with pytest.raises(RequestError, match="entities"):
        of(PHORONIX.replace("<Phoronix", '<!DOCTYPE x [<!ENTITY a "b">]><Phoronix', 1))
    with pytest.raises(RequestError, match="not XML"):
        of(PHORONIX[:-30])
