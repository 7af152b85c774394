"""Workload kind ``replay``: its keys, how a study keeps its trace, its responses, and the sentences on it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from iotrial.errors import LabError, StudyError
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.reader import load, read_study
from iotrial.study.work import JobContext, LabContext
from iotrial.workloads.replay import ReplayWork
from trace_files import small

STUDY = """
[study]
name = "app"
question = "Is it fast?"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0644", "0444"]
[[workload]]
name = "app"
kind = "replay"
trace = "app.iotrace"
"""


def work_of(folder: Path, keys: str = "") -> ReplayWork:
    small().write(folder / "app.iotrace")
    (folder / "study.toml").write_text(STUDY + keys)
    work = load(folder / "study.toml").workloads[0].work
    assert isinstance(work, ReplayWork)
    return work


def refused(folder: Path, keys: str, *, study: str = STUDY) -> str:
    (folder / "study.toml").write_text(study + keys)
    with pytest.raises(StudyError) as error:
        load(folder / "study.toml")
    return str(error.value)


def test_a_study_keeps_checksum_and_folder_of_its_trace(tmp_path: Path) -> None:
    work = work_of(tmp_path)
    assert work.checksum == hashlib.sha256(small().bytes()).hexdigest()
    assert work.folder == str(tmp_path.resolve())
    study = load(tmp_path / "study.toml")
    (tmp_path / "app.iotrace").unlink()
    again = read_study(study.text, "stored", trusted=True)  # needs no file
    assert again.workloads[0].work == work
    assert study_from_json(study_to_json(study)).workloads[0].work == work
    assert study_from_json(study_to_json(study), foreign=True).workloads[0].work == work


def test_what_is_no_trace_next_to_the_study_is_refused(tmp_path: Path) -> None:
    assert "app.iotrace: cannot be read: No such file or directory" in refused(tmp_path, "")
    for name in ("/etc/passwd", "../app.iotrace", ""):
        text = STUDY.replace('"app.iotrace"', f'"{name}"')
        assert "below the study's folder" in refused(tmp_path, "", study=text)
    (tmp_path / "app.iotrace").symlink_to("/etc/passwd")
    assert "cannot be read" in refused(tmp_path, "")
    (tmp_path / "app.iotrace").unlink()
    small().write(tmp_path / "app.iotrace")
    assert "not the one stated" in refused(tmp_path, f'checksum = "{"0" * 64}"\n')
    assert 'lacks "trace"' in refused(tmp_path, "", study=STUDY.replace('trace = "app.iotrace"\n', ""))
    with pytest.raises(StudyError, match="only a study in its own file"):
        read_study(STUDY, "text", trusted=False)


def test_keys_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    small().write(tmp_path / "app.iotrace")
    assert "is only for timing" in refused(tmp_path, 'timing = "flat-out"\nspeed = 2\n')
    assert "given twice" in refused(tmp_path, 'latencies = ["read", "read"]\n')
    assert "latencies" in refused(tmp_path, 'latencies = ["reed"]\n')
    assert "speed" in refused(tmp_path, "speed = 0\n")
    kept = f'checksum = "{"0" * 64}"\nfolder = "tmp"\n'
    assert "absolute path" in refused(tmp_path, kept)
    text = STUDY.replace('"app.iotrace"', '"../x"')
    assert "below the study's folder" in refused(tmp_path, kept.replace('"tmp"', '"/tmp"'), study=text)


def test_the_first_response_depends_on_who_sets_the_duration(tmp_path: Path) -> None:
    names = [spec.name for spec in work_of(tmp_path, 'latencies = ["fsync"]\n').responses()]
    assert names[:3] == ["wall", "rate", "fsync_p50"]
    names = [spec.name for spec in work_of(tmp_path, 'timing = "open"\nlatencies = ["fsync"]\n').responses()]
    assert names[:2] == ["fsync_p99", "operation_p99"]
    assert {"late_max", "behind_share", "wall"} < set(names)


class Answering:
    """A target that answers as a probe does, and keeps what it was asked."""

    def __init__(self, calls: dict[str, int]) -> None:
        self.calls = calls
        self.asked: list[tuple[str, dict[str, object]]] = []

    def call(self, verb: str, **fields: object) -> dict[str, Any]:
        self.asked.append((verb, fields))
        return {"trace": {"calls": self.calls}, "files": {}}


def lab_of(target: Answering) -> LabContext:
    return LabContext(target=target, root="/lab", files="/lab/set", user={"uid": 7, "gid": 8})  # type: ignore[arg-type]


def test_files_are_made_for_the_user_of_the_run(tmp_path: Path) -> None:
    work, target = (
        work_of(tmp_path, 'speed = 2.5\nfragments = true\nlatencies = ["read"]\n'),
        Answering({"read": 1}),
    )
    work.provide(lab_of(target))
    folder = f"/lab/own/replay-{work.checksum[:12]}-in-fragments"
    assert target.asked == [
        ("mkdir", {"path": "/lab/own", "mode": "0755"}),
        (
            "replay_prepare",
            {
                "trace": f"{tmp_path.resolve()}/app.iotrace",
                "folder": folder,
                "fragments": True,
                "owner": {"uid": 7, "gid": 8},
            },
        ),
    ]
    job = work.probe_job(JobContext(lab=lab_of(target)))
    assert (job["folder"], job["speed"]) == (folder, 2.5)
    assert work.warming(job) == {**job, "timing": "flat-out"}
    with pytest.raises(LabError, match="no call of the trace is called"):
        work.provide(lab_of(Answering({"write": 1})))


def test_another_or_a_missing_trace_stops_the_trial(tmp_path: Path) -> None:
    work, target = work_of(tmp_path), Answering({})
    work.provide(lab_of(target))
    (tmp_path / "app.iotrace").write_bytes(b"other")
    with pytest.raises(LabError, match="is not the one of the study"):
        work.provide(lab_of(target))
    (tmp_path / "app.iotrace").unlink()
    with pytest.raises(LabError, match="cannot be read: No such file or directory"):
        work.provide(lab_of(target))


LATENCY = {
    "p50_ns": 1000,
    "p99_ns": 2000,
    "p999_ns": 3000,
    "max_ns": 4000,
    "count": 200,
    "histogram": [[1000, 200]],
}


def answer(**more: object) -> dict[str, Any]:
    return {
        "wall_ns": 2_000_000_000,
        "spun": {"wall_ns": 0, "cpu_ns": 0},
        "operations": {"fsync": LATENCY},
        "all": LATENCY,
        "late": None,
        "behind": 0,
        "differing": 0,
        "first_differing": None,
        "bytes_read": 5,
        "bytes_written": 6,
        "trace": {"complete": True, "left_out": 0, "lost": 0},
        **more,
    }


def test_numbers_and_checks_of_a_run(tmp_path: Path) -> None:
    found = work_of(tmp_path).measured(answer(), JobContext())
    assert found.numbers["rate"] == 100.0
    assert found.numbers["fsync_p99"] == 2e-6
    assert not {"late_p50", "replay_lost"} & set(found.numbers)
    assert found.checks == {"replay": {"operations": 200, "other_results": 0}}
    behind = answer(
        late=LATENCY,
        behind=3,
        differing=1,
        first_differing="read a",
        trace={"complete": False, "left_out": 4, "lost": 5},
    )
    found = work_of(tmp_path).measured(behind, JobContext())
    assert (found.numbers["behind_share"], found.numbers["late_max"]) == (1.5, 4e-6)
    assert found.numbers["replay_lost"] == 5.0
    assert found.checks["replay"] == {
        "operations": 200,
        "other_results": 1,
        "first_other_result": "read a",
        "fell_behind": True,
        "trace_cut_off": True,
        "left_out": 4,
    }
