"""Energy from a meter: areas under known curves, timestamps, unusable files, and the assignment to runs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from datetime import timedelta, timezone
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from store_examples import header, planned_runs

from iotrial.audits.importers.contract import source_of
from iotrial.audits.importers.meter import read_meter
from iotrial.cli import cli
from iotrial.errors import IotrialError, RequestError
from iotrial.stats.scatter import Readings, energies_j
from iotrial.store import Store
from iotrial.store.event_records import energy_texts, with_energy
from iotrial.store.model import Event, TrialState
from iotrial.store.packed import read_packed
from values import replace

START = 1_772_359_200.0  # 2026-03-01T10:00:00Z, by date -d


def readings(*pairs: tuple[float, float]) -> Readings:
    return Readings(np.array([START + at for at, _ in pairs]), np.array([watts for _, watts in pairs]))


def spans(*pairs: tuple[float, float]) -> list[tuple[float, float]]:
    return [(START + start, START + end) for start, end in pairs]


def test_constant_power_is_watts_times_seconds_wherever_a_run_begins() -> None:
    of = readings(*((0.5 * i, 12.0) for i in range(21)))
    assert energies_j(of, spans((0, 10), (0.1, 0.2), (3.3, 7.9))) == pytest.approx([120, 1.2, 55.2], rel=1e-5)


def test_power_that_rises_evenly_gives_the_area_of_the_triangle() -> None:
    of = readings((0, 0.0), (1, 10.0), (2, 20.0), (3, 30.0))
    # the area below 10 t from a to b is 5 (b^2 - a^2)
    assert energies_j(of, spans((0, 3), (0.5, 2.5), (1, 2))) == pytest.approx([45, 30, 15], abs=1e-4)


def test_a_run_that_is_not_covered_or_holds_a_gap_is_told_nothing_of() -> None:
    of = readings((0, 5.0), (1, 5.0), (2, 5.0), (20, 5.0), (21, 5.0), (22, 5.0))
    assert energies_j(of, spans((-1, 1), (21, 23), (1.5, 2.5), (10, 11), (0.2, 1.9), (20.5, 21.5))) == (
        None,
        None,
        None,
        None,
        pytest.approx(8.5),
        pytest.approx(5.0),
    )


def read(text: str, **asked: object) -> Readings:
    return read_meter(source_of(text.encode(), name="meter.csv"), **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        f"time,watts\n{START},5\n{START + 1},6.5\n",
        "Timestamp;Power\n2026-03-01T10:00:00Z;5\n2026-03-01T10:00:01Z;6.5 W\n",
        "time\tW\n2026-03-01 11:00:00+01:00\t5.0\n2026-03-01 05:00:01-05:00\t6.5\n",
        "# a meter\nother,time,watts\nx,2026-03-01T10:00:00.000Z,5\ny,2026-03-01T10:00:01.000Z,6.5\n",
    ],
)
def test_times_are_unix_seconds_or_say_their_distance_from_utc(text: str) -> None:
    found = read(text)
    assert found.at_s.tolist() == [START, START + 1]
    assert found.watts.tolist() == [5.0, 6.5]


def test_a_time_of_day_alone_is_refused_unless_its_zone_is_said() -> None:
    text = "time,watts\n2026-03-01 11:00:00,5\n2026-03-01 11:00:01,5\n"
    with pytest.raises(RequestError, match="has no UTC offset"):
        read(text)
    found = read(text, zone=timezone(timedelta(hours=1)))
    assert found.at_s.tolist() == [START, START + 1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a table"),
        ("time,watts\n", "not a table"),
        (f"time,watts\n{START},5\n", "at least 2"),
        (f"time,watts\n{START},5\n{START},5\n", "reading 2 is not later"),
        (f"time,watts\n{START + 1},5\n{START},5\n", "reading 2 is not later"),
        (f"time,watts\n{START},five\n{START + 1},5\n", "expected watts"),
        (f"time,watts\n{START},-5\n{START + 1},5\n", "expected watts"),
        (f"time,watts\n{START},1e9\n{START + 1},5\n", "expected watts"),
        (f"time,watts\n{START},nan\n{START + 1},5\n", "expected watts"),
        (f"time,watts\n{START * 1000:.0f},5\n{START * 1000 + 1:.0f},5\n", "not a plausible time"),
        ("time,watts\nyesterday,5\ntoday,5\n", "expected a time"),
        ("time,watts\n0001-01-01T00:00:00Z,5\n9999-12-31T23:59:59-10:00,5\n", "not a plausible time"),
        (f"when,watts\n{START},5\n{START + 1},5\n", "one column of time"),
        (f"time,watts,power\n{START},5,5\n{START + 1},5,5\n", "one column of watts"),
        ("time,watts\n\x1b[31m,5\n\x1b[31m,5\n", "expected a time"),
    ],
)
def test_what_is_no_such_table_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        read(text)


@given(st.text(alphabet='0123456789T:-+.,;\nZ eE"watimes#=', max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read(f"time,watts\n{text}")
    except IotrialError:
        return
    assert np.isfinite(found.at_s).all()
    assert (np.diff(found.at_s) > 0).all()
    assert (found.watts >= 0).all()


def stored(path: Path, *, clock: bool = True) -> None:
    """Store a trial whose runs last one second each and start two seconds apart."""
    with Store.open(path) as store:
        store.create_trial(header())
        number = 0
        for runs, end in planned_runs(header()):
            for run in runs:
                told = {"clock": {"unix_s": START + 2 * number, "lasted_s": 1.0}} if clock else {}
                store.append_run(header().id, replace(run, checks=told))
                number += 1
            store.end_block(header().id, end)
        store.set_state(header().id, TrialState.DONE)


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IOTRIAL_STORE", str(tmp_path / "store"))
    return tmp_path


def meter(at: Path, text: str, *options: str) -> tuple[int, str, BaseException | None]:
    (at / "meter.csv").write_text(text)
    result = CliRunner().invoke(cli, ["meter", "last", str(at / "meter.csv"), *options])
    return result.exit_code, result.output, result.exception


def power(offset: float = 0.0, watts: float = 20.0) -> str:
    rows = [f"{START + offset + i / 4:.2f},{watts}" for i in range(400)]
    return "time,watts\n" + "\n".join(rows) + "\n"


def test_runs_get_the_energy_of_their_own_time_and_keep_it_when_packed(at: Path) -> None:
    stored(at / "store")
    status, output, error = meter(at, power(), "--json")
    assert (status, error) == (0, None), output
    schema = Path(__file__).parents[2] / "schemas" / "meter.schema.json"
    jsonschema.validate(json.loads(output), json.loads(schema.read_text()))
    facts = json.loads(output)["meter"]
    assert facts["runs"] == facts["with_energy"] > 4
    assert facts["joules"] == pytest.approx(20.0 * facts["runs"])
    with Store.open(at / "store") as store:
        runs = store.data("last").runs
        assert [run.evidence["energy_metered"] for run in runs] == pytest.approx([20.0] * len(runs))
        packed = io.BytesIO()
        store.pack("last", packed)
    packed.seek(0)
    with Store.open(at / "other") as other:
        other.unpack(read_packed(packed, "packed"), source="packed")
        assert other.data("last").runs == runs


def test_a_second_import_counts_instead_of_the_first(at: Path) -> None:
    stored(at / "store")
    meter(at, power())
    meter(at, power(watts=30.0))
    with Store.open(at / "store") as store:
        assert {run.evidence["energy_metered"] for run in store.data("last").runs} == {30.0}


def test_an_import_that_is_cut_off_leaves_the_one_before_it_as_it_is(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(at / "store")
    meter(at, power())

    def cut_off(joules: Sequence[float | None]) -> Iterator[str]:
        yield next(energy_texts(joules))
        raise OSError("the disk is full")

    monkeypatch.setattr("iotrial.cli.verbs.meter.energy_texts", cut_off)
    status, _, _ = meter(at, power(watts=30.0))
    assert status != 0
    with Store.open(at / "store") as store:
        assert {run.evidence["energy_metered"] for run in store.data("last").runs} == {20.0}


def test_a_clock_that_is_behind_is_put_right_by_a_shift(at: Path) -> None:
    stored(at / "store")
    status, _, error = meter(at, power(offset=-3600))
    assert isinstance(error, RequestError)
    assert "no run of trial 1 lies within" in str(error)
    status, output, _ = meter(at, power(offset=-3600), "--shift", "3600")
    assert status == 0
    assert "energy of" in output


def test_a_trial_that_does_not_know_the_time_of_day_is_refused(at: Path) -> None:
    stored(at / "store", clock=False)
    _, _, error = meter(at, power())
    assert isinstance(error, RequestError)
    assert "have no time of day" in str(error)


def test_a_meter_slower_than_the_runs_is_told_of(at: Path) -> None:
    stored(at / "store")
    rows = "\n".join(f"{START + 10 * i},20" for i in range(-1, 60))
    status, output, _ = meter(at, f"time,watts\n{rows}\n")
    assert status == 0
    assert "is that of its neighbours" in output


def test_events_of_another_shape_say_nothing() -> None:
    runs = tuple(run for found, _ in planned_runs(header()) for run in found)
    for text in (
        "", "[]", "{}", '{"first": "0", "joules": [1]}', '{"first": 0, "joules": 1}', '{"first": 0, "joules": ["x"]}',
        '{"first": 0, "joules": [NaN]}', '{"first": 0, "joules": [-1]}', '{"first": 0, "joules": [true]}',
        '{"first": -1, "joules": [1]}', '{"first": 0, "joules": [1e400]}', '{"first": 0, "joules": [1' + "0" * 400 + "]}",
        "[" * 100_000,
    ):  # fmt: skip
        assert with_energy(runs, [Event("2026-03-01T10:00:00Z", "energy", text)]) == runs
    whole = [Event("2026-03-01T10:00:00Z", "energy", text) for text in energy_texts([1.5] * len(runs))]
    assert {run.evidence["energy_metered"] for run in with_energy(runs, whole)} == {1.5}
