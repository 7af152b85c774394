"""The progress file of a running trial, next to the store."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import stat
from pathlib import Path

import jsonschema
import pytest

from iotrial.report.progress import (
    EffectLine,
    Progress,
    progress_path,
    read_progress,
    remove_progress,
    write_progress,
)
from values import replace

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "standing.schema.json").read_text())
LINE = EffectLine(
    "cache warm",
    "mode",
    "0444",
    "0777",
    1.001,
    0.99,
    None,
    34,
    before_low=0.9,
    before_high=1.1,
    before_blocks=16,
)
PROGRESS = Progress(
    7,
    "files/permissions",
    30.5,
    300.0,
    {"cache warm": 34, "cache cold \x1b[2J": 33},
    1,
    2,
    (LINE, replace(LINE, condition="cache cold", verdict="equivalent", crossed=True, null=0.0, unit="KiB")),
    activity="",
    margin=0.03,
    conditions=2,
    conditions_decided=1,
    upcoming="cache warm: block 35, mode 0444 first",
    outlook_s=None,
)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = progress_path(tmp_path / "trials.db")
    write_progress(path, PROGRESS)
    assert path == tmp_path / "trials.standing.json"
    assert read_progress(path) == PROGRESS
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_it_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_progress(tmp_path / "s.json", PROGRESS)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "s.json").stat().st_mode) == 0o600


def test_a_reader_sees_the_old_or_the_new_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_progress(path, PROGRESS)
    with path.open() as reader:
        write_progress(path, replace(PROGRESS, void=9))
        assert json.load(reader)["void"] == 1
    found = read_progress(path)
    assert found is not None
    assert found.void == 9


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("precious")
    (tmp_path / "s.json").symlink_to("other")
    (tmp_path / f".s.json.{os.getpid()}").symlink_to("other")
    write_progress(tmp_path / "s.json", PROGRESS)
    assert (tmp_path / "other").read_text() == "precious"
    assert not (tmp_path / "s.json").is_symlink()
    assert read_progress(tmp_path / "s.json") == PROGRESS


def test_nothing_is_raised_where_it_cannot_be_written(tmp_path: Path) -> None:
    write_progress(tmp_path / "missing" / "s.json", PROGRESS)
    (tmp_path / "folder").mkdir()
    write_progress(tmp_path / "folder", PROGRESS)
    remove_progress(tmp_path / "folder")
    remove_progress(tmp_path / "missing")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_a_write_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_progress(path, PROGRESS)
    pid = os.fork()
    if pid == 0:  # a file size limit acts like a full disk
        status = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
            write_progress(path, replace(PROGRESS, void=9))
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert read_progress(path) == PROGRESS
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]


def test_a_number_that_is_none_becomes_null(tmp_path: Path) -> None:
    line = replace(LINE, low=-math.inf, high=math.nan)
    write_progress(tmp_path / "s.json", replace(PROGRESS, effects=(line,), outlook_s=math.inf))
    found = read_progress(tmp_path / "s.json")
    assert found is not None
    assert (found.effects[0].low, found.effects[0].high, found.outlook_s) == (None, None, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        "{}",
        '{"what": "iotrial standing", "schema": 2}',
        '{"what": "iotrial standing", "schema": 1}',
        '{"what": "iotrial standing", "schema": 1, "blocks": {}, "effects": {}}',
        "\x00\xff",
    ],
)
def test_what_is_damaged_or_foreign_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(text)
    assert read_progress(tmp_path / "s.json") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trial", "7"),
        ("trial", True),
        ("void", -1),
        ("elapsed_s", None),
        ("elapsed_s", 10**400),
        ("outlook_s", "soon"),
        ("study", 1),
        ("blocks", {"a": 1.5}),
        ("effects", [1]),
        ("effects", [{}]),
    ],
)
def test_a_field_of_another_kind_makes_it_none(name: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_progress(path, PROGRESS)
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    assert read_progress(path) is None


def test_what_is_no_file_is_none_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read_progress(tmp_path / "fifo") is None
    assert read_progress(tmp_path) is None
    assert read_progress(tmp_path / "missing") is None
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 40)
    assert read_progress(tmp_path / "huge") is None
