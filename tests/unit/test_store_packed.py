"""Packed trials: they unpack unchanged, contain nothing about their user, and are marked where they are imported."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_examples import filled, header, planned_runs

from iotrial.errors import RequestError
from iotrial.report.jsonreport import report_json
from iotrial.report.opening import document_of
from iotrial.store import Store
from iotrial.store.model import TrialHeader, TrialState
from iotrial.store.packed import read_packed
from iotrial.store.packed.privacy import Privacy, visible
from iotrial.store.packed.reading import open_packed
from values import replace

ID = "0123456789abcdef"


def packed(store: Store, ref: str | int = "last") -> bytes:
    file = io.BytesIO()
    store.pack(ref, file)
    return file.getvalue()


def taken_in(data: bytes) -> Store:
    store = Store.in_memory()
    store.unpack(read_packed(io.BytesIO(data), "x.iotrial"), source="x.iotrial")
    return store


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(data).splitlines()]


@pytest.fixture
def store() -> Store:
    return Store.in_memory()


def test_an_imported_trial_is_reported_as_it_was_where_it_was_measured(store: Store) -> None:
    filled(store)
    there = report_json(document_of(store, "last"))
    here = report_json(document_of(taken_in(packed(store)), "last"))
    trial = here["trial"]
    assert isinstance(trial, dict)
    assert str(trial.pop("imported")).startswith('from "x.iotrial", SHA-256 ')
    assert there["trial"].pop("imported") is None  # type: ignore[attr-defined]
    text = json.dumps(there)
    assert '"path": "/x"' in text  # in the facts of the lab, which keep no folder
    text = re.sub(r": `iotrial continue 1 [^`]*`", "", text)  # an imported trial cannot be continued
    assert json.dumps(here) == text.replace('"path": "/x"', '"path": "x"')


def test_an_import_is_exported_as_it_came_byte_by_byte(store: Store) -> None:
    filled(store)
    first = packed(store)
    assert packed(taken_in(first)) == first


def test_the_digest_is_that_of_all_bytes_before_the_end_record(store: Store) -> None:
    filled(store, blocks=2)
    whole = gzip.decompress(packed(store))
    body, _, last = whole.rstrip(b"\n").rpartition(b"\n")
    # 2 blocks with 2 arms each, and 2 controls in the first
    assert json.loads(last)["end"] == {
        "states": 2,
        "runs": 6,
        "block_ends": 2,
        "events": 1,
        "sha256": hashlib.sha256(body + b"\n").hexdigest(),
    }


def test_a_study_from_elsewhere_is_never_trusted(store: Store) -> None:
    assert filled(store).study.trusted
    assert not taken_in(packed(store)).find("last").header.study.trusted
    # nor if its packed file says so
    *body, _ = (
        gzip.decompress(packed(store))
        .replace(b'"trusted":false', b'"trusted":true')
        .splitlines(keepends=True)
    )
    end = lines(packed(store))[-1]["end"] | {"sha256": hashlib.sha256(b"".join(body)).hexdigest()}
    forged = gzip.compress(b"".join([*body, json.dumps({"end": end}).encode(), b"\n"]))
    assert not taken_in(forged).find("last").header.study.trusted


def test_what_identifies_the_user_stays_at_home(store: Store) -> None:
    home = str(Path.home())
    folder = "/mnt/anna/lab"
    of = header(
        argv=[
            "iotrial",
            "run",
            "/home/anna/mine.toml",
            "--on",
            "/mnt/anna",
            "--place",
            "ssd=/mnt/anna/ssd",
            "--erase=disk=SERIAL-77",
            "--html=/home/anna/x.html",
            "--full",
        ],
        folder=folder,
        pid=4194301,
        pid_started="a-boot-id/17",
        asked=["f"],
        places={"ssd": {"folder": "/srv/anna"}, "disk": {"disk": "SERIAL-77", "discard_contents": False}},
    )
    of = replace(of, study=replace(of.study, origin="/home/anna/mine.toml", text="# one\r\n# two\x1b[2J\n"))
    of = replace(of, host={**of.host, "fio": "fio 3.36 of /opt/anna/bin/fio"})
    store.create_trial(of)
    (runs, end), *_ = planned_runs(of, 1)
    for record in runs:
        failure = (
            f"cat ended with status 1: {folder}/s0/f1: no such file\x1b[31m, see {home}/notes, /srv/anna/s0"
        )
        store.append_run(ID, replace(record, failure=failure))
    store.end_block(ID, end)
    store.set_state(ID, TrialState.FAILED, f"writing {home}/.local/x: no space")
    text = gzip.decompress(packed(store)).decode()
    for secret in (
        "/home/anna",
        "/mnt/anna",
        "/srv/anna",
        "/opt/anna",
        "SERIAL-77",
        home,
        "4194301",
        "a-boot-id",
        "\x1b",
        "\\u001b",
        "\\r",
    ):
        assert secret not in text.replace('"pattern"', ""), secret
    back = taken_in(packed(store)).data("last")
    assert back.trial.header.options == {
        "argv": ["iotrial", "run", "mine.toml", "--full"],
        "asked": ["f"],
    }
    assert back.trial.header.study.origin == "mine.toml"
    assert (
        back.runs[0].failure
        == "cat ended with status 1: LAB/s0/f1: no such file\\u{1b}[31m, see ~/notes, ssd/s0"
    )
    assert back.trial.reason == "writing ~/.local/x: no space"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\r\nb\tc", "a\nb\tc"),
        ("\x9b31m", "\\u{9b}31m"),
        ("\u202eevil", "\\u{202e}evil"),
        ("\ud800", "\\u{d800}"),
        ("Zürich 日本", "Zürich 日本"),
    ],
)
def test_what_would_steer_a_terminal_is_written_as_an_escape(text: str, expected: str) -> None:
    assert visible(text) == expected


def test_a_folder_is_replaced_as_a_whole_name_only(store: Store) -> None:
    privacy = Privacy(header(folder="/lab"), home="/home/a")
    assert privacy._cleaned("/lab/x /laboratory /home/ab /home/a/b") == "LAB/x /laboratory /home/ab ~/b"


def test_a_running_trial_is_not_exported_and_an_interrupted_one_is(store: Store) -> None:
    store.create_trial(header())
    with pytest.raises(RequestError, match="still running"):
        packed(store)
    store.set_state(ID, TrialState.INTERRUPTED, "SIGINT")
    assert taken_in(packed(store)).find(1).state is TrialState.INTERRUPTED


def test_a_trial_whose_conductor_was_killed_is_exported_as_interrupted(store: Store) -> None:
    store.create_trial(header(pid=2**22 + 1, pid_started="boot/1"))
    back = taken_in(packed(store)).find(1)
    assert (back.state, back.reason) == (TrialState.INTERRUPTED, store.find(1).reason)


def test_a_resumed_trial_keeps_its_attempts_gaps_and_duration(tmp_path: Path) -> None:
    of = header()
    blocks = list(planned_runs(of, 2))
    with Store.open(tmp_path / "trials.db") as store:
        store.create_trial(of)
        for record in (*blocks[0][0], blocks[1][0][0]):
            store.append_run(ID, record)
        store.end_block(ID, blocks[0][1])
        store.set_state(ID, TrialState.INTERRUPTED)
        store.set_state(ID, TrialState.RUNNING)
        store.append_run(ID, blocks[1][0][1])
        store.end_block(ID, blocks[1][1])
        store.set_state(ID, TrialState.DONE)
        there, data = store.data("last"), packed(store)
    here = taken_in(data).data("last")
    assert (here.runs, here.ends, here.blocks) == (there.runs, there.ends, there.blocks)
    assert [end.gap for end in here.ends] == [False, True]
    assert here.trial.duration_s == there.trial.duration_s


def test_the_same_trial_is_imported_once_and_says_its_number(store: Store) -> None:
    filled(store)
    data = packed(store)
    with pytest.raises(RequestError, match="as number 1"):
        store.unpack(read_packed(io.BytesIO(data), "x"), source="x")
    assert len(store.trials()) == 1


def test_an_import_that_fails_at_its_end_leaves_nothing(tmp_path: Path, store: Store) -> None:
    filled(store)
    data = gzip.decompress(packed(store))
    broken = gzip.compress(data.replace(b'"throttled"', b'"x"').replace(b"throttled", b"slept"), mtime=0)
    with Store.open(tmp_path / "trials.db") as target:
        with pytest.raises(RequestError, match="digest"):
            target.unpack(read_packed(io.BytesIO(broken), "x"), source="x")
        tables = ("trial", "state", "run", "block_end", "event")
        rows = [target._connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables]
        assert rows == [0] * 5
        assert filled(target).id == ID  # and the store still works


def test_an_import_waits_for_no_running_trial(store: Store) -> None:
    filled(store)
    data = packed(store)
    other = Store.in_memory()
    other.create_trial(header("ffffffffffffffff"))
    with pytest.raises(RequestError, match="is running"):
        other.unpack(read_packed(io.BytesIO(data), "x"), source="x")


def test_a_pipe_and_a_folder_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "missing", tmp_path / "nul\0"):
        with pytest.raises(RequestError, match=r"regular file|cannot be read"), open_packed(path):
            pass


_word = st.text(st.characters(categories=["L", "N", "P", "Zs"]), max_size=20)
_number = st.floats(0, 1e18)
_facts = st.dictionaries(
    _word, st.none() | st.booleans() | _word | st.integers(-(2**63) + 1, 2**63 - 1), max_size=4
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(_number, _number, st.none() | st.text(max_size=30), _facts), min_size=4, max_size=4),
    _facts,
    st.text(max_size=40),
    st.sampled_from(["done", "invalid", "failed", "interrupted"]),
    st.integers(0, 2**128 - 1),
)
def test_any_trial_survives_packing_twice(
    numbers: list[tuple[float, float, str | None, dict[str, object]]],
    host: dict[str, object],
    text: str,
    state: str,
    seed: int,
) -> None:
    """Every trial that a conductor can store, with any text, can be exported, and its import is equal."""
    store = Store.in_memory()
    of: TrialHeader = replace(header(), host=host, seed=f"{seed:032x}")
    store.create_trial(of)
    (runs, end), *_ = planned_runs(of, 1)
    for record, (wall, other, failure, checks) in zip(runs, numbers, strict=True):
        responses = {"wall": wall, "read_time": other}
        store.append_run(
            ID,
            replace(
                record, responses=responses, evidence={"x": -other}, failure=_storable(failure), checks=checks
            ),
        )
    store.end_block(ID, end)
    store.note(ID, "host", _storable(text) or "")
    store.set_state(ID, TrialState(state), _storable(text))
    first = packed(store)
    there, here = store.data(1), taken_in(first).data(1)
    assert packed(taken_in(first)) == first
    assert here.ends == there.ends
    assert [(r.responses, r.evidence, r.slot, r.arm, r.files) for r in here.runs] == [
        (r.responses, r.evidence, r.slot, r.arm, r.files) for r in there.runs
    ]


def _storable(text: str | None) -> str | None:
    """Replace lone surrogates, which SQLite rejects. A conductor never has any: the probe speaks UTF-8."""
    return None if text is None else text.encode("utf-8", "replace").decode()
