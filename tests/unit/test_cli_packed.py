"""The verbs for packed trials: export, import, and those that must recognise an imported trial."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from store_examples import filled, header

from iotrial.cli import cli
from iotrial.cli.run_request import RunRequest, find_study
from iotrial.errors import RequestError, StoreError
from iotrial.store import Store
from iotrial.store.model import TrialState
from iotrial.store.packed import PackedError
from iotrial.study.catalogue import find
from iotrial.study.model import Setting
from iotrial.study.programs import PROGRAM_KNOB
from iotrial.study.select import select
from values import replace

Verb = Callable[..., object]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder, with a store of one trial."""
    monkeypatch.setenv("IOTRIAL_STORE", str(tmp_path / "state" / "trials.db"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    with Store.open(tmp_path / "state" / "trials.db") as store:
        filled(store)
    return work


@pytest.fixture
def verb(here: Path) -> Verb:
    return lambda *words: cli.main(list(words), prog_name="iotrial", standalone_mode=False)


def _elsewhere(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOTRIAL_STORE", str(here.parent / "elsewhere" / "trials.db"))


def test_export_names_the_file_by_number_and_study_and_replaces_nothing(
    here: Path, verb: Verb, capsys: pytest.CaptureFixture[str]
) -> None:
    verb("export", "--json")
    report = json.loads(capsys.readouterr().out)["exported"]
    file = here / "1-example.iotrial"
    assert report["file"] == "1-example.iotrial"
    assert report["bytes"] == file.stat().st_size
    end = json.loads(gzip.decompress(file.read_bytes()).splitlines()[-1])["end"]
    assert report["sha256"] == end["sha256"]
    file.write_bytes(b"precious")
    with pytest.raises(RequestError, match="already exists") as caught:
        verb("export")
    assert "--force" in (caught.value.hint or "")
    assert file.read_bytes() == b"precious"
    verb("export", "--force")
    assert file.stat().st_size == report["bytes"]
    assert [entry.name for entry in here.iterdir()] == ["1-example.iotrial"]


def test_export_to_standard_output_is_the_same_bytes(
    here: Path, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb("export", "1", "x.iotrial")
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out, flush=lambda: None))
    verb("export", "1", "-")
    assert out.getvalue() == (here / "x.iotrial").read_bytes()
    with pytest.raises(RequestError, match="exclude each other"):
        verb("export", "1", "-", "--json")


def test_a_trial_that_no_other_store_would_take_is_not_exported(here: Path, verb: Verb) -> None:
    with Store.open() as store:
        store.create_trial(header("fedcba9876543210", time_s=-1.0))
        store.set_state("fedcba9876543210", TrialState.DONE)
    with pytest.raises(StoreError, match="cannot be packed"):
        verb("export", "last")
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", ["../../evil", "x\0y", "\x1b[2J", "n" * 5000])
def test_a_name_in_a_store_of_somebody_else_leads_nowhere(here: Path, verb: Verb, name: str) -> None:
    of = header("c" * 16)
    with Store.open() as store:
        store.create_trial(replace(of, study=replace(of.study, name=name)))
        store.set_state(of.id, TrialState.DONE)
    with pytest.raises(StoreError, match="cannot be packed"):
        verb("export", "last")
    assert list(here.iterdir()) == []
    assert not (here.parent / "evil.iotrial").exists()


def test_an_import_is_stored_marked_and_not_resumed(
    here: Path, verb: Verb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verb("export", "1", "x.iotrial")
    _elsewhere(here, monkeypatch)
    capsys.readouterr()
    verb("import", "x.iotrial", "--json")
    report = json.loads(capsys.readouterr().out)["imported"]
    assert (report["number"], report["id"]) == (1, "0123456789abcdef")
    verb("trials")
    assert capsys.readouterr().out.rstrip().endswith("example  (imported)")
    verb("trials", "--json")
    assert json.loads(capsys.readouterr().out)["trials"][0]["imported"] == report["imported"]
    verb("report", "1")
    said = " ".join(capsys.readouterr().out.split())
    assert 'measured on another machine; imported from "x.iotrial"' in said
    with pytest.raises(RequestError, match="another machine") as caught:
        verb("resume", "1")
    assert "--like" in (caught.value.hint or "")
    with pytest.raises(RequestError, match="as number 1"):
        verb("import", "x.iotrial")
    with Store.open(read_only=True) as store:
        assert [event.kind for event in store.events(report["id"])] == ["host", "imported"]


def test_a_packed_trial_is_reported_from_its_file_without_being_stored(
    here: Path, verb: Verb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verb("export", "1", "x.iotrial")
    (here / "plain").write_bytes((here / "x.iotrial").read_bytes())
    capsys.readouterr()
    verb("report", "1", "--json")
    there = json.loads(capsys.readouterr().out)
    _elsewhere(here, monkeypatch)
    for name in ("x.iotrial", "./x.iotrial", "plain", str(here / "plain")):
        verb("report", name, "--json")
        report = json.loads(capsys.readouterr().out)
        assert report["trial"]["number"] == 0
        assert report["effects"] == there["effects"]
    assert not (here.parent / "elsewhere").exists()
    with pytest.raises(RequestError, match="no trials yet"):
        verb("report", "1")


def test_a_number_or_an_id_goes_before_a_file_of_that_name(
    here: Path, verb: Verb, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("1", "0123", "last"):
        (here / name).write_bytes(b"not a packed trial")
        verb("report", name, "--json")
        assert json.loads(capsys.readouterr().out)["trial"]["number"] == 1


@pytest.mark.parametrize("name", ["pipe", "missing.iotrial", "x\x1b[31m.iotrial", "text"])
def test_a_file_that_is_no_packed_trial_is_refused_by_every_verb(here: Path, verb: Verb, name: str) -> None:
    os.mkfifo(here / "pipe")
    (here / "text").write_text("hello")
    (here / "x\x1b[31m.iotrial").write_text("hello")
    for words in (
        ("import", name),
        ("report", f"./{name}"),
        ("plan", "--like", name),
        ("run", "--like", name),
    ):
        with pytest.raises(PackedError) as caught:
            verb(*words)
        assert caught.value.exit_status == 2
        assert "\x1b" not in caught.value.message


def test_a_study_or_a_packed_trial_is_named_and_not_both(verb: Verb) -> None:
    for words, found in (
        (("run",), "no study given"),
        (("run", "files/permissions", "--like", "x.iotrial"), "exclude each other"),
        (("plan",), "no study given"),
        (
            ("run", "files/permissions", "--keys", "keys"),
            "--keys: a trial on many hosts is `iotrial fleet run`",
        ),
    ):
        with pytest.raises(RequestError, match=found):
            verb(*words)


def test_a_plan_like_a_packed_trial_has_its_seed_and_its_levels(
    here: Path, monkeypatch: pytest.MonkeyPatch, verb: Verb, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen: Any = select(find("files/permissions"), sets={"mode": ["0444"]}, conditions={"cache": ["warm"]})
    of = header("a" * 16, controls=True, asked=["cache", "mode"], lab="directory")
    # the part that a directory lab without root keeps
    kept = tuple(factor for factor in chosen.factors if factor.name in ("mode", "cache", "size"))
    of = replace(of, study=replace(chosen, factors=kept, claims=()), seed="5" * 32)
    with Store.open() as store:
        filled(store, of, blocks=1)
    verb("export", "last", "x.iotrial")
    capsys.readouterr()
    verb("plan", "--like", "x.iotrial", "--json")
    plan = json.loads(capsys.readouterr().out)
    assert (plan["seed"], plan["lab"]) == ("5" * 32, "directory")
    assert {run["treatment"]["mode"] for block in plan["blocks"] for run in block["runs"]} == {"0777", "0444"}
    assert all("cache=warm" in condition for condition in plan["conditions"])
    verb("plan", "--like", "x.iotrial", "--json", "--seed", "7" * 32)
    assert json.loads(capsys.readouterr().out)["seed"] == "7" * 32


def test_programs_that_a_packed_trial_names_are_run_only_with_trust(
    here: Path, verb: Verb, capsys: pytest.CaptureFixture[str]
) -> None:
    of = header("a" * 16)
    study = replace(of.study, fixed=(*of.study.fixed, Setting(PROGRAM_KNOB, "/opt/fast")))
    with Store.open() as store:
        filled(store, replace(of, study=study), blocks=1)
    verb("export", "last", "x.iotrial")
    with pytest.raises(RequestError, match="ran programs of /opt/fast"):
        find_study(None, RunRequest(like="x.iotrial"))
    assert not find_study(None, RunRequest(like="x.iotrial", trust=True))[0].trusted
