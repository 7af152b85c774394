"""`iotrial best`: it finds planted differences, confirms them on fresh blocks, and leaves the machine as it was."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from running import NO_INTERVAL, iotrial, stored_runs
from test_in_place import contents, mounted, queue_of, settings

from iotrial.report.opening import document_of
from iotrial.stats.model import Left
from iotrial.store import Store
from trace_files import MIB, Trace

__all__ = ["mounted"]
pytestmark = [pytest.mark.root, pytest.mark.waiting]
SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "best.schema.json").read_text())


def best(*words: str, status: int = 0) -> dict[str, Any]:
    at = words.index("--") if "--" in words else len(words)
    done = iotrial("best", *words[:at], "--json", *words[at:], check=None)
    assert done.returncode == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    return found


@pytest.fixture
def deadline(mounted: Path) -> Iterator[Path]:
    """Yield the folder on a device whose scheduler has a setting of its own that is not the kernel's default."""
    queue = queue_of(mounted)
    before = (queue / "scheduler").read_text().split("[")[1].split("]")[0]
    (queue / "scheduler").write_text("mq-deadline")
    (queue / "iosched" / "fifo_batch").write_text("7")
    yield mounted
    (queue / "scheduler").write_text(before)


def test_it_finds_the_planted_best_and_what_each_setting_contributes(state: Path, tmp_path: Path) -> None:
    """Two settings that each save time, and one that does nothing."""
    found = best(
        "-L", "a", "60,30", "-L", "b", "50,20", "-L", "c", "1,2", "--in", str(tmp_path), "--time", "90 s", "--margin",
        "10 %", "--", "sleep 0.0{a}; sleep 0.0{b}; : {c}",
    )  # fmt: skip
    assert found["verdict"] == "change", found
    chosen = {one["setting"]: one["use"] for one in found["settings"] if one["needed"]}
    assert chosen == {"a": "30", "b": "20"}
    assert found["high"] < 0.8
    assert all(one["without"] > 1.1 for one in found["settings"] if one["needed"])
    assert len(found["trials"]) == 2
    assert found["runs"] == len(stored_runs(state))


def test_today_is_kept_if_nothing_is_better(state: Path, tmp_path: Path) -> None:
    found = best(
        "-L", "a", "50,90", "--in", str(tmp_path), "--time", "30 s", "--margin", "20 %", "--", "sleep 0.0{a}"
    )
    assert found["verdict"] == "keep"
    assert found["settings"] == []
    assert "Keep today's settings" in found["sentence"]


def test_it_chooses_for_a_recorded_application(
    state: Path, mounted: Path, disk_folder: Path, tmp_path: Path
) -> None:
    """An application that reads a file in order, on a device that today does not read ahead."""
    disk_folder.chmod(0o755)  # the replay is that of another user
    (queue_of(mounted) / "read_ahead_kb").write_text("0")
    trace = Trace()
    trace.thread()
    trace.file("large", 8 * MIB)
    handle = trace.open("large")
    for number in range(2048):
        trace.op("read", handle=handle, at=number * 4096, length=4096)
    before, held = settings(mounted), contents(mounted)
    found = best(
        "block.read_ahead_kb=1024", "--replay", str(trace.write(tmp_path / "app.iotrace")), "--timing",
        "flat-out", "--in", str(mounted), "--cache", "cold", "--time", "30 s", "--margin", "20 %", "--yes",
    )  # fmt: skip
    assert found["verdict"] == "change", found
    assert [(one["setting"], one["use"]) for one in found["settings"]] == [("read_ahead_kb", "1024")]
    assert found["high"] < 0.8
    assert (settings(mounted), contents(mounted)) == (before, held)
    for run in stored_runs(state):
        assert run["checks"]["replay"] == {"operations": trace.operations, "other_results": 0}


def test_an_arm_that_left_a_race_does_not_run_again_and_the_packed_trial_is_checked(
    state: Path, tmp_path: Path
) -> None:
    # the settings of b are equal, and the time scatters so much that this takes longer to find out than that a 90 is slow
    scattered = "sleep 0.0{a}; sleep 0.0$((20 + $(od -An -N1 -tu1 /dev/urandom) % 40)); : {b}"
    best("-L", "a", "20,90", "-L", "b", "1,2", "--in", str(tmp_path), "--time", "24 s", "--", scattered)
    race = Store.open(state / "trials.db").data(1)
    inside = [{o.arm for o in block.observations if o.kind == "treatment"} for block in race.blocks]
    washed = [block.wash_in for block in race.blocks]  # a race starts again when the wash-in changes
    steps = zip(itertools.pairwise(inside), itertools.pairwise(washed), strict=True)
    assert all(later <= earlier for (earlier, later), (before, now) in steps if before == now)
    assert inside[-1] < inside[0]
    packed = tmp_path / "race.iotrial"
    iotrial("export", "1", str(packed))
    report = json.loads(iotrial("report", str(packed), "--json").stdout)
    (found,) = report["trial"]["races"]
    assert found["reference"] == "today"
    assert {one["arm"] for one in found["places"] if one["left"]} >= {"a 90", "a 90 and b 2"}


def test_a_level_that_the_kernel_refuses_does_not_end_the_search(state: Path, mounted: Path) -> None:
    before, queue = settings(mounted), queue_of(mounted).resolve()
    script = f"cat f000 > /dev/null; test $(cat {queue}/read_ahead_kb) = 16 || sleep 0.03"
    refused = "4096"  # the kernel takes 2048 at most
    found = best(
        "--over", "block.read_ahead_kb=16", "--over", f"block.nr_requests={refused}", "--in", str(mounted), "--yes",
        "--time", "40 s", "--margin", "20 %", "--", "sh", "-c", script,
    )  # fmt: skip
    assert found["verdict"] == "change", found
    assert [(one["setting"], one["use"]) for one in found["settings"]] == [("read_ahead_kb", "16")]
    assert settings(mounted) == before
    race = document_of(Store.open(state / "trials.db"), 1).analysis.races[0]
    assert {one.arm for one in race.places if one.left is Left.FAILS} == {
        f"nr_requests {refused}",
        f"read_ahead_kb 16 and nr_requests {refused}",
    }


def test_an_interrupted_search_goes_on_where_it_stopped(state: Path, tmp_path: Path) -> None:
    words = [
        "best",
        "-L",
        "a",
        "60,30",
        "-L",
        "b",
        "50,20",
        "--in",
        str(tmp_path),
        "--time",
        "60 s",
        "--margin",
        "10 %",
    ]
    command = ["--", "sleep 0.0{a}; sleep 0.0{b}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "iotrial", *words, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    until = time.monotonic() + 30
    while time.monotonic() < until and not ((state / "trials.db").exists() and len(stored_runs(state)) > 10):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate()
    assert process.returncode == 130
    assert "--resume" in printed
    # the settings that were compared so far, best estimates first
    assert printed.index("a 30 and b 20 ") < printed.index("today ", printed.index("against today's"))
    first = stored_runs(state)
    assert iotrial(*words, "--resume", "--", "other", check=None).returncode == 2
    done = iotrial(*words, "--resume", *command)
    assert "Use a 30 and b 20" in done.stdout
    with Store.open(state / "trials.db") as store:
        stages = store.listing()[0]
    assert [one.state.value for one in stages] == ["done", "done"]
    assert len({one.header.options["best"]["seed"] for one in stages}) == 1
    assert stored_runs(state)[: len(first)] == first


def test_a_race_without_a_winner_still_confirms_its_best_estimate(state: Path, tmp_path: Path) -> None:
    """Seven settings need more blocks than there is time for; today's and one other do not."""
    done = iotrial(
        "best", "-L", "a", "9,1", "-L", "b", "1,2", "-L", "c", "1,2", "--in", str(tmp_path), "--time", "14 s",
        "--no-controls", "--", "sleep 0.{a}; : {b} {c}", check=None,
    )  # fmt: skip
    assert done.returncode in (0, NO_INTERVAL), done.stderr
    with Store.open(state / "trials.db") as store:
        assert not document_of(store, 1).analysis.races[0].over
        levels = [level.label for level in store.listing()[0][1].header.study.treatment_factors[0].levels]
    assert levels[0] == "today"


def test_the_schedulers_own_settings_depend_on_it_and_come_back(state: Path, deadline: Path) -> None:
    before, held = settings(deadline), contents(deadline)
    queue = queue_of(deadline).resolve()
    script = f"cat f00*; cat {queue}/scheduler {queue}/iosched/fifo_batch 2>/dev/null; true"
    best(
        "block.scheduler=none,mq-deadline", "fifo_batch=1,32", "--in", str(deadline), "--yes",
        "--cache", "cold", "--time", "15 s", "--", "sh", "-c", script,
    )  # fmt: skip
    assert settings(deadline) == before
    assert (queue / "iosched" / "fifo_batch").read_text().strip() == "7"
    assert contents(deadline) == held
    arms = {run["arm"] for run in stored_runs(state) if run["kind"] == "treatment"}
    assert {"today", "scheduler none", "fifo_batch 1", "fifo_batch 32"} <= arms
    assert not any("none" in arm and "fifo_batch" in arm for arm in arms)


def test_a_kill_in_a_race_leaves_settings_that_restore_puts_back(state: Path, deadline: Path) -> None:
    before = settings(deadline)
    process = subprocess.Popen(
        [
            sys.executable, "-m", "iotrial", "best", "--over", "block.scheduler=none,mq-deadline", "--over",
            "block.read_ahead_kb=16,4096", "--over", "fifo_batch=1", "--in", str(deadline), "--yes", "--cache", "cold",
            "--time", "60 s", "--", "sh", "-c", "cat f0*",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 30
    while time.monotonic() < until and not ((state / "trials.db").exists() and len(stored_runs(state)) > 8):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    iotrial("restore", check=None)
    assert settings(deadline) == before
    assert (queue_of(deadline) / "iosched" / "fifo_batch").read_text().strip() == "7"
    iotrial("resume")  # with the arms that were still in the race
    data = Store.open(state / "trials.db").data(1)
    assert data.trial.state.value in ("done", "invalid")
    assert settings(deadline) == before


def test_a_large_space_is_searched_and_the_winner_confirmed(state: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    found = best(
        "-L", "a", "60,50,20", "-L", "b", "1,2,3", "-L", "c", "1,2,3", "--in", str(tmp_path), "--time", "60 s",
        "--margin", "10 %", "--", "sleep 0.0{a}; : {b} {c}",
    )  # fmt: skip
    assert found["verdict"] == "change", found
    chosen = {one["setting"]: one for one in found["settings"] if one["needed"]}
    assert chosen.pop("a")["use"] == "20"
    # b and c do nothing. If the search hit on other values of both, only one is taken out again: the rest was not measured.
    assert len(chosen) <= 1
    assert all(one["without"] < 1.1 for one in chosen.values())
    assert len(found["trials"]) >= 4


def test_a_study_of_the_catalogue_chooses_among_its_factors(state: Path, disk_folder: Path) -> None:
    found = best(
        "block/readahead", "--workload", "random", "--time", "20 s", "--lab", "image", "--margin", "20 %",
    )  # fmt: skip
    assert found["trials"]
    assert found["verdict"] in ("keep", "undecided", "change")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--", "true"), "nothing to choose from"),
        ((), "name a study, or a command"),
        (("block/readahead", "--", "true"), "both a study"),
        (("--over", "block.read_ahead_kb=764", "--", "true"), "today's value"),
        (("--over", "nosuch=1,2", "--", "true"), "nosuch"),
        (("nosuch=1,2", "--", "true"), "nosuch"),
        (("mount/atime", "mount/other"), "neither a second study"),
        (("--over", "mount.atime=relatime if scheduler=bfq", "--", "true"), "no level bfq"),
        (("--over", "mkfs.option=-O x,-O y", "--", "true"), "in place"),
        (("mount/atime", "--over", "nosuch"), "no factor is called"),
        (("mount/atime",), "has several"),
    ],
)
def test_a_space_that_cannot_be_is_refused_and_nothing_changes(
    state: Path, mounted: Path, words: tuple[str, ...], message: str
) -> None:
    before = settings(mounted)
    at = words.index("--") if "--" in words else len(words)
    done = iotrial("best", *words[:at], "--in", str(mounted), "--yes", *words[at:], check=None)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "hint:" in done.stderr
    assert settings(mounted) == before
    assert not (state / "trials.db").exists()


def test_what_it_finds_of_a_disk_can_be_kept(state: Path, mounted: Path, tmp_path: Path) -> None:
    """The command's time depends on the settings that it finds: planted truth through real knobs, and what `apply` writes."""
    queue = queue_of(mounted).resolve()
    script = (
        f"cat f000 > /dev/null; test $(cat {queue}/read_ahead_kb) = 16 || sleep 0.03; "
        f"test $(cat {queue}/nomerges) = 2 || sleep 0.03"
    )
    found = best(
        "--over", "block.read_ahead_kb=16,1024", "--over", "block.nomerges=1,2", "--in", str(mounted), "--yes",
        "--cache", "cold", "--time", "60 s", "--margin", "10 %", "--", "sh", "-c", script,
    )  # fmt: skip
    assert {one["setting"]: one["use"] for one in found["settings"] if one["needed"]} == {
        "read_ahead_kb": "16",
        "nomerges": "2",
    }
    trial = found["trials"][-1]
    folder = tmp_path / "files"
    iotrial("apply", trial, "--output", str(folder))
    rules = "".join(path.read_text() for path in folder.rglob("*.rules"))
    assert 'ATTR{queue/read_ahead_kb}="16"' in rules
    assert 'ATTR{queue/nomerges}="2"' in rules
    assert trial[:8] in rules
    refused = iotrial("apply", found["trials"][0], "--dry-run", check=None)
    assert refused.returncode == 2
    assert "is a race" in refused.stderr
