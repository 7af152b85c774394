"""``--replay`` of ``iotrial try`` and ``best``: the study that it makes, what it says about the trace, and its refusals."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import click
import pytest
from store_examples import header

from iotrial.cli import main
from iotrial.cli.options import AFTER
from iotrial.cli.own_command import wish_of
from iotrial.cli.verbs import best, try_
from iotrial.runner.quick_study import Wish, study_text
from iotrial.study.model import DesignKind, Level, Setting
from iotrial.study.reader import read_study
from iotrial.study.work import makes_files
from iotrial.tune.evidence import rerun_words
from iotrial.workloads.replay import ReplayWork
from trace_files import MIB, Trace, small
from values import replace

SETTING = "block.read_ahead_kb=16,1024"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return small().write(tmp_path / "app.iotrace")


def wished(*words: str, verb: click.Command = try_.command) -> Wish:
    context = verb.make_context("verb", list(words))
    return wish_of(context.params.get("settings", ()), context.meta.get(AFTER, ()), context.params)


def work_of(wish: Wish) -> ReplayWork:
    (workload,) = read_study(study_text(wish), "the command line", trusted=True).workloads
    assert isinstance(workload.work, ReplayWork)
    return workload.work


def test_the_study_replays_the_trace_in_place(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trace.parent)
    wish = wished(SETTING, "--replay", "app.iotrace", "--cache", "cold")
    study = read_study(study_text(wish), "the command line", trusted=True)
    work = work_of(wish)
    assert (work.trace, work.folder, work.timing) == ("app.iotrace", str(trace.parent.resolve()), "closed")
    assert work.checksum == hashlib.sha256(trace.read_bytes()).hexdigest()
    assert makes_files(work)
    assert (study.name, study.title, study.quick) == (
        study.name,
        "read_ahead_kb: replay of app.iotrace",
        True,
    )
    assert study.name.startswith("try/read_ahead_kb-app.iotrace-")
    assert study.question == "Does block.read_ahead_kb change the time of the replay of app.iotrace?"
    assert (study.lab.kind, study.workloads[0].cache) == ("in-place", "cold-data")
    assert capsys.readouterr().err == ""


def test_best_takes_it_as_well(trace: Path) -> None:
    wish = wished("--over", SETTING, "--replay", str(trace), "--timing", "flat-out", verb=best.command)
    levels = tuple(
        Level(f"ahead {ahead}", (Setting("block.read_ahead_kb", ahead),)) for ahead in ("16", "1024")
    )
    race = replace(wish, bundles=levels, design=DesignKind.RACE)
    study = read_study(study_text(race), "the command line", trusted=True)
    assert study.question == "Which settings make the replay of app.iotrace fastest?"
    assert study.workloads[0].work.timing == "flat-out"  # type: ignore[attr-defined]


def test_a_link_to_a_trace_is_followed(trace: Path) -> None:
    link = trace.parent / "link"
    link.symlink_to(trace)
    assert work_of(wished(SETTING, "--replay", str(link))).trace == "app.iotrace"


def test_an_image_has_room_for_twice_the_files_and_what_is_added(
    tmp_path: Path, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = Trace()
    large.thread()
    large.file("old", 500 * MIB)
    large.file("new", None)
    large.op("read", handle=large.open("old"), length=4096)
    new = large.open("new", os.O_WRONLY | os.O_CREAT)
    for place in range(100):
        large.op("write", handle=new, at=place * MIB, length=MIB)
    path = str(large.write(tmp_path / "large.iotrace"))
    assert wished(SETTING, "--replay", path, "--lab", "image").size == "1200 MiB"
    assert "note: the files of the replay take 600 MiB" in capsys.readouterr().err
    assert wished(SETTING, "--replay", str(trace), "--lab", "image").size == "512 MiB"
    wish = wished(SETTING, "--replay", path, "--lab", "image", "--size", "3 GiB")
    study = read_study(study_text(wish), "the command line", trusted=True)
    assert (study.lab.kind, study.lab.size_bytes) == ("image", 3 << 30)
    assert wished(SETTING, "--replay", path).size is None


def test_what_a_trace_lacks_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = small()
    trace.lost = 3
    assert work_of(wished(SETTING, "--replay", str(trace.write(tmp_path / "a.iotrace")))).trace == "a.iotrace"
    assert "a.iotrace: 3 operations could not be recorded" in capsys.readouterr().err
    (tmp_path / "b.iotrace").write_bytes(small().bytes(complete=False))
    assert work_of(wished(SETTING, "--replay", str(tmp_path / "b.iotrace"))).trace == "b.iotrace"
    assert "b.iotrace: the recording was cut off" in capsys.readouterr().err


def test_a_recording_that_is_too_long_for_the_time_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = small()
    trace.now = 9 * 10**9
    trace.missing("none")
    path = str(trace.write(tmp_path / "long.iotrace"))
    wished(SETTING, "--replay", path)
    told = capsys.readouterr().err
    assert "the recording took 9 s" in told
    assert "--timing flat-out" in told
    wished(SETTING, "--replay", path, "--timing", "flat-out")
    wished(SETTING, "--replay", path, "--time", "5m")
    assert capsys.readouterr().err == ""


def test_the_words_that_measure_again_find_the_trace_from_any_folder(trace: Path) -> None:
    study = read_study(study_text(wished(SETTING, "--replay", str(trace))), "the command line", trusted=True)
    for words in (["--replay", "../app.iotrace"], ["--replay=../app.iotrace"]):
        options = {"argv": ["iotrial", "try", SETTING, *words, "--yes"], "folder": "/data"}
        of = replace(header(**options), study=study, lab={"kind": "in-place"})
        again = rerun_words(of, imported=False)
        assert str(trace.resolve()) in " ".join(again).replace("=", " ").split()
        assert "../app.iotrace" not in " ".join(again)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--replay", "TRACE", "--", "ls"), "--replay is only for a trial without a command"),
        (("--replay", "TRACE", "-L", "n", "1,2"), "-L is only for a command"),
        (("--replay", "TRACE", "--command", "ls"), "--command is only for a command"),
        (("--replay", "TRACE", "--prepare", "true"), "--prepare is only for a command"),
        (("--replay", "TRACE", "--response", "x=regex:(.)"), "--response is only for a command"),
        (("--replay", "TRACE", "--copy-from", "."), "hint: --lab image"),
        (("--replay", "TRACE", "--lab", "guest"), "'in-place', 'image'"),
        (("--timing", "open", "--", "ls"), "--timing is only for a replay"),
        (("--lab", "image", "--", "ls"), "--copy-from FOLDER"),
        (("--replay", "FOLDER/nowhere.iotrace"), "nowhere.iotrace: no such file"),
        (("--replay", "FOLDER"), "is a folder"),
        (("--replay", "FOLDER/notes.iotrace"), "not an .iotrace file"),
        (("--replay", "FOLDER/empty.iotrace"), "nothing to replay"),
        (("filesystem.type=ext4,xfs", "--replay", "TRACE"), "hint: try it on an image: --lab image"),
        (("mount.option=default,nobarrier", "--replay", "TRACE"), "--lab image"),
        ((), "--replay app.iotrace"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_a_hint(
    trace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    (trace.parent / "notes.iotrace").write_text("notes of a meeting\n" * 10)
    nothing = Trace()
    nothing.thread()
    nothing.write(trace.parent / "empty.iotrace")
    words = tuple(word.replace("TRACE", str(trace)).replace("FOLDER/", f"{trace.parent}/") for word in words)
    words = tuple(str(trace.parent) if word == "FOLDER" else word for word in words)
    setting = () if any("=" in word and not word.startswith("x=") for word in words) else (SETTING,)
    monkeypatch.setattr("sys.argv", ["iotrial", "try", *setting, *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "or a trace with --replay"),
        (("files/permissions", "--replay", "TRACE"), "both a study (files/permissions) and a replay"),
        (("--over", "block.scheduler=none,bfq", "--replay", "TRACE", "--lab", "guest"), "in-place or image"),
    ],
)
def test_best_refuses_what_is_no_choice(
    trace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setattr("sys.argv", ["iotrial", "best", *(str(trace) if w == "TRACE" else w for w in words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
