"""No space left: reported before the trial, during it, and in the lab itself. The full disk is a small one of
the test's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from breaking import MIB, Trial, command_study, image_study, iotrial, nothing_left, own_disk, report_of
from probe_between import fill, install
from running import failures_of, stored_runs

pytestmark = pytest.mark.root

WRITES = ["dd", "if={file}", "of={dir}/copy-{word}", "bs=4k", "conv=fsync"]
#: room for an image of 64 MiB and the reserve of 1 GiB, with some to spare
ROOMY = 1300 * MIB


@pytest.mark.parametrize(("verb", "lab"), [("image", "image"), ("fileset", "directory")])
def test_space_that_somebody_takes_in_the_last_moment_is_told_and_nothing_stays(
    state: Path, tmp_path: Path, verb: str, lab: str
) -> None:
    with own_disk(state.parent, ROOMY) as (_, disk):
        study = command_study(tmp_path, WRITES, lab=lab)
        environment = install(tmp_path, verb=verb, does="fill", folder=str(disk))
        done = iotrial("run", study, "--on", str(disk), "--json", env=environment)
        assert done.returncode == 2, done.stderr
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        assert error["code"] == "no_space"
        assert "No space left on device" in error["message"]
        assert "--on" in error["hint"]
        nothing_left(state, disk)
        assert json.loads(iotrial("trials", "--json").stdout)["trials"] == []


def test_a_disk_that_fills_up_makes_runs_of_a_folder_fail_and_is_said(state: Path, tmp_path: Path) -> None:
    with own_disk(state.parent, ROOMY) as (_, disk):
        appends = [*WRITES[:-1], "oflag=append", "conv=notrunc,fsync"]
        study = command_study(tmp_path, appends, blocks=2000)
        trial = Trial(state, study, "--on", str(disk), "--no-stop", "--json")
        trial.until_runs(4)
        fill(str(disk))
        status, out, err = trial.end()
        assert status in (0, 6), err
        failures = failures_of(state)
        assert failures
        assert all("No space left on device" in failure for failure in failures)
        primary = [e for e in report_of(out)["effects"] if e["primary"]]
        assert {(e["verdict"], e["reason"]) for e in primary} == {("inconclusive", "failures")}
        nothing_left(state, disk)


@pytest.mark.long
def test_a_disk_that_fills_up_does_not_reach_an_image(state: Path, tmp_path: Path) -> None:
    with own_disk(state.parent, ROOMY) as (_, disk):
        trial = Trial(state, command_study(tmp_path, WRITES, lab="image", blocks=40), "--on", str(disk))
        trial.until_runs(4)
        fill(str(disk))
        before = trial.runs
        status, _, err = trial.end()
        assert status in (0, 3, 6), err
        assert len(stored_runs(state)) > before
        assert failures_of(state) == []
        nothing_left(state, disk)


def test_files_that_do_not_fit_into_the_image_are_told_with_the_key_to_change(
    state: Path, tmp_path: Path
) -> None:
    done = iotrial("run", image_study(tmp_path, size="8 MiB"), "--json")
    assert done.returncode == 2, done.stderr
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert error["code"] == "no_space"
    assert "size in [lab]" in error["hint"]
    nothing_left(state)


@pytest.mark.long
def test_a_command_that_fills_the_lab_is_counted_as_failing(state: Path, tmp_path: Path) -> None:
    study = command_study(tmp_path, ["dd", "if=/dev/zero", "of={dir}/big-{word}", "bs=1M"], lab="image")
    done = iotrial("run", study, "--json")
    assert done.returncode in (0, 3, 6), done.stderr
    report = report_of(done.stdout)
    assert len(failures_of(state)) == len(stored_runs(state)) > 0
    primary = [e for e in report["effects"] if e["primary"]]
    assert {e["verdict"] for e in primary} == {"inconclusive"}
    assert all(e["failures"] > 0 for e in primary)
    nothing_left(state)
