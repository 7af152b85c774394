"""fio job files in studies: parsing, what needs trust, and which numbers of fio's JSON are used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from iotrial.errors import RequestError, StudyError
from iotrial.runner.command_user import command_user
from iotrial.runner.own_files import check_own_files
from iotrial.runner.refusals import check_labs, check_made_files
from iotrial.runner.resolve import resolve
from iotrial.stats.spec import stretched_response
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.model import Better, Scale, Study
from iotrial.study.reader import load, read_study
from iotrial.study.schema import Problem
from iotrial.study.trust import demands
from iotrial.study.work import work_of
from iotrial.workloads import fio
from iotrial.workloads.fio import FioWork, Pick
from iotrial.workloads.fio_job import (
    HARMLESS,
    JobProblem,
    beyond_the_lab,
    bytes_in,
    entries_of,
    files_of,
    jobs_of,
    least_seconds,
    mapped,
    options_of,
)
from iotrial.workloads.fio_result import picked, result_of
from values import check_limits

JOB = "[global]\nioengine=psync\nsize=1m\n\n; a comment\n[read.a]\nrw=randread\nbs=4k\nrandrepeat\n"

STUDY = """
[study]
name = "f"
question = "?"

[[factor]]
name = "depth"
knob = "command.argument"
placeholder = "{depth}"
levels = [1, 8]

[[workload]]
name = "w"
kind = "fio"
%s
pick = ["jobs.read.a.read.iops", { path = "jobs.read.a.read.clat_ns.percentile.99.000000", name = "p99" }]
"""


def study(job: str, *, trusted: bool = False) -> Study:
    return read_study(STUDY % f"job = '''\n{job}\n'''", "x.toml", trusted=trusted)


def test_a_job_file_is_its_sections_and_options() -> None:
    found = [(o.section, o.name, o.value, o.line) for o in options_of(JOB)]
    assert found == [
        ("global", "ioengine", "psync", 2),
        ("global", "size", "1m", 3),
        ("read.a", "rw", "randread", 7),
        ("read.a", "bs", "4k", 8),
        ("read.a", "randrepeat", "", 9),
    ]
    [job] = jobs_of(JOB)
    assert (job.name, job.options["size"], job.options["rw"]) == ("read.a", "1m", "randread")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no job"),
        ("[global]\nbs=4k", "has no job"),
        ("bs=4k\n[a]", "line 1: an option before the first section"),
        ("[a]\n\ninclude /etc/passwd", "line 3: includes another file"),
        ("[../../etc/x]\n", "line 1: expected a section"),
        ("[a\tb]\n", "line 1: expected a section"),
        ("[a", "line 1: expected a section"),
        ("[a] b", "line 1: expected a section"),
        ("[a]\nb@c=1", "line 2: expected an option"),
        ("[a]\n" * 2001, "more than 2000 lines"),
    ],
)
def test_what_is_no_job_file_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(JobProblem, match=message):
        jobs_of(text)


@pytest.mark.parametrize(
    "line",
    [
        "exec_prerun=touch /tmp/x", "exec_postrun=id",
        "filename=.x", "filename=", "filename=a:../..", "opendir=/", "ioscheduler=bfq", "ioengine=external:/tmp/x.so",
        "ioengine=exec", "ioengine=net", "ioengine=", "mem=mmaphuge:/tmp/x", "write_bw_log=x", "read_iolog=x", "bs=$(id)",
        "size=$mb_memory", "bs=${HOME}", "bs=`id`", "size=4k;id", 'description="x"', "buffer_pattern='/etc/shadow'",
        "verify_pattern=x", "uid=0",
        "cgroup=x", "fill_device=1", "replay_redirect=/dev/sda", "profile=act", "Exec_prerun=id", "unknown_option=1",
        "bssplit=4k/50:/etc/x y", "write_hist_log=a", "trim_backlog=1", "bs={a}{b}",
    ],
)  # fmt: skip
def test_what_reaches_beyond_the_lab_needs_trust_and_says_why(line: str) -> None:
    name = line.partition("=")[0]
    found = list(beyond_the_lab(f"[a]\nrw=read\n{line}\n"))
    assert len(found) == 1
    assert found[0].startswith(f"{name} (line 3), ")
    job = f"[read.a]\n{line}\n"
    assert any(name in reason for reason in demands(study(job + "rw=read\niodepth={depth}")))


@pytest.mark.parametrize(
    "line",
    [
        "bs=4k", "rw=randrw", "rwmixread=70", "size=50%", "filename=data.0", "bssplit=4k/60:64k/40", "iodepth={depth}",
        "random_distribution=zipf:1.2", "percentile_list=99:99.9", "ioengine=io_uring", "ioengine={depth}", "time_based",
        "runtime=2s", "direct=1", "buffer_compress_percentage=50", "bs = 4k",
    ],
)  # fmt: skip
def test_what_stays_in_the_lab_needs_none(line: str) -> None:
    assert list(beyond_the_lab(f"[a]\n{line}\n")) == []


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_every_option_on_the_list_is_one_that_fio_knows() -> None:
    asked = ["--cmdhelp=all", *(f"--enghelp={engine}" for engine in ("io_uring", "pvsync2", "libaio"))]
    said = [
        subprocess.run(["fio", word], capture_output=True, text=True, check=True).stdout for word in asked
    ]
    known = {line.split()[0] for line in "".join(said).splitlines() if line.strip()}
    assert len(known) > 100
    # those with another name: fio's own list has only the first name of each
    assert {name for name in HARMLESS - known if not _has(name)} == set()
    assert not _has("no_option_of_fio")


def _has(name: str) -> bool:
    done = subprocess.run(["fio", f"--cmdhelp={name}"], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    return "No such" not in said and "closest match" not in said


@pytest.mark.parametrize(
    "value", ["4\nexec_prerun=id", "/dev/sda", "$(id)", "external:/tmp/x.so", "a b", "{depth}"]
)
def test_a_level_that_is_put_into_a_job_file_is_looked_at_too(value: str) -> None:
    text = STUDY.replace("levels = [1, 8]", f'levels = ["1", {{ label = "b", value = {json.dumps(value)} }}]')
    found = read_study(text % "job = '''\n[read.a]\nioengine={depth}\n'''", "x.toml", trusted=False)
    assert demands(found)


def test_a_level_that_names_an_engine_has_to_be_on_the_list() -> None:
    text = (STUDY % "job = '''\n[read.a]\nioengine={depth}\n'''").replace("[1, 8]", '["psync", "%s"]')
    assert not demands(read_study(text % "libaio", "x.toml", trusted=False))
    assert demands(read_study(text % "exec", "x.toml", trusted=False))


def test_a_job_as_root_needs_trust() -> None:
    text = STUDY % "job = '''\n[read.a]\niodepth={depth}\n'''\nrun_as = \"root\""
    assert any("runs fio as root" in reason for reason in demands(read_study(text, "x.toml", trusted=False)))


# Reading.


def test_a_job_file_is_stored_with_the_study(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    job = JOB + "iodepth={depth}\ndescription=a 'quoted' \\ one\n"
    (tmp_path / "jobs" / "a.fio").write_text(job)
    (tmp_path / "s.toml").write_text(STUDY % '# a comment\nfile = "jobs/a.fio"')
    found = load(tmp_path / "s.toml")
    assert found.trusted
    (tmp_path / "jobs" / "a.fio").chmod(0o646)
    assert not load(tmp_path / "s.toml").trusted
    work = found.workload("w").work
    assert isinstance(work, FioWork)
    assert work.job == job
    shutil.rmtree(tmp_path / "jobs")
    # The text alone gives the same study, and so does the stored form.
    again = read_study(found.text, str(tmp_path / "s.toml"), trusted=False)
    assert again.workloads == found.workloads
    assert "# a comment" in found.text
    stored = study_from_json(json.loads(json.dumps(study_to_json(found))))
    assert stored == found
    check_limits(stored, origin="stored")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/etc/passwd", "below the study's folder"),
        ("../a.fio", "below the study's folder"),
        ("jobs/../../a.fio", "below the study's folder"),
        ("none.fio", "No such file"),
        ("link.fio", "cannot be read"),
        ("folder", "Is a directory"),
        ("large.fio", "larger than 64 KiB"),
        ("binary.fio", "not UTF-8"),
    ],
)
def test_a_job_file_that_cannot_be_had_is_an_error_at_its_line(
    tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "a.fio").write_text(JOB)
    (tmp_path / "link.fio").symlink_to("a.fio")
    (tmp_path / "folder").mkdir()
    (tmp_path / "large.fio").write_text("#" * 70_000)
    (tmp_path / "binary.fio").write_bytes(b"\xff\xfe")
    (tmp_path / "s.toml").write_text(STUDY % f'file = "{name}"')
    with pytest.raises(StudyError, match=message) as caught:
        load(tmp_path / "s.toml")
    assert caught.value.line == (STUDY % "file").splitlines().index("file") + 1


def test_a_study_without_a_folder_names_no_file() -> None:
    with pytest.raises(StudyError, match="in its own file"):
        read_study(STUDY % 'file = "a.fio"', "family/study", trusted=True)


def test_either_file_or_job() -> None:
    with pytest.raises(StudyError, match="found both"):
        read_study(STUDY % "file = \"a\"\njob = '[a]'", "x", trusted=False)
    with pytest.raises(StudyError, match="either file or job"):
        read_study(STUDY % "", "x", trusted=False)


def test_a_pick_of_no_job_names_the_jobs() -> None:
    with pytest.raises(StudyError, match="does not name a job of") as caught:
        study("[raed.a]\niodepth={depth}")
    assert "raed.a" in (caught.value.hint or "")


def _work(*pick: Any) -> FioWork:
    return work_of(FioWork, {"job": "[a]\nrw=read", "pick": list(pick)})


@pytest.mark.parametrize(
    ("path", "unit", "factor", "scale", "better"),
    [
        ("jobs.a.read.iops", "1/s", 1.0, Scale.LOG, Better.HIGHER),
        ("jobs.a.write.bw_bytes", "bytes/s", 1.0, Scale.LOG, Better.HIGHER),
        ("jobs.a.write.bw", "bytes/s", 1024.0, Scale.LOG, Better.HIGHER),
        ("read.clat_ns.percentile.99.000000", "s", 1e-9, Scale.LOG, Better.LOWER),
        ("jobs.a.read.lat_ns.mean", "s", 1e-9, Scale.LOG, Better.LOWER),
        ("jobs.a.read.runtime", "s", 1e-3, Scale.LOG, Better.LOWER),
        ("usr_cpu", "%", 1.0, Scale.DIFFERENCE, Better.LOWER),
        ("jobs.a.ctx", "1", 1.0, Scale.DIFFERENCE, Better.LOWER),
    ],
)
def test_what_a_number_is_measured_in_is_known_from_its_name(
    path: str, unit: str, factor: float, scale: Scale, better: Better
) -> None:
    assert _work(path).picks == (
        Pick(path=path, name=path, unit=unit, factor=factor, scale=scale, better=better),
    )


def test_what_is_not_known_must_be_said() -> None:
    with pytest.raises(Problem, match="is unknown"):
        _work("disk_util.loop0.util")
    own = {
        "path": "disk_util.loop0.util",
        "name": "util",
        "unit": "%",
        "scale": "difference",
        "better": "none",
    }
    assert _work(own).picks == (
        Pick(path=own["path"], name="util", unit="%", scale=Scale.DIFFERENCE, better=Better.NONE),
    )
    for taken in ("wall", "cpu"):
        with pytest.raises(Problem, match="is given twice"):
            _work({"path": "read.iops", "name": taken})


@pytest.mark.parametrize(
    ("pick", "message"),
    [
        ({"path": "read.iops", "unt": "x"}, 'unknown key "unt"'),
        ({"name": "x"}, "path"),
        (3, "expected a path"),
        ("a\tb", "displayed safely"),
        ({"path": "read.iops", "better": "more"}, "better"),
        ({"path": "read.iops", "factor": 0}, "factor"),
    ],
)
def test_a_pick_that_cannot_be_is_told_in_words(pick: Any, message: str) -> None:
    with pytest.raises(Problem, match=message):
        _work(pick)


def test_a_job_is_run_once_in_a_run() -> None:
    with pytest.raises(Problem, match="once"):
        work_of(FioWork, {"job": "[a]", "pick": ["read.iops"], "replicates": 2})


def test_the_slow_down_goes_into_wall_and_not_into_what_fio_says() -> None:
    found = study("[read.a]\niodepth={depth}")
    assert [r.name for r in found.responses][:3] == ["jobs.read.a.read.iops", "p99", "wall"]
    assert [r.name for r in found.responses if r.primary] == ["jobs.read.a.read.iops"]
    stretched = stretched_response(found.responses)
    assert stretched is not None
    assert stretched.name == "wall"


# The JSON of the real fio.


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not shutil.which("fio"):
        pytest.skip("needs fio")
    job = "[global]\nsize=256k\nioengine=psync\n[a.b]\nrw=randread\n[c]\nrw=write\n[c]\nrw=write\n"
    folder = tmp_path_factory.mktemp("fio")
    done = subprocess.run(
        ["fio", "--output-format=json", "-"],
        input=job,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return result_of("fio: a message before it\n" + done.stdout)


def test_numbers_are_found_by_names_that_hold_dots(real: dict[str, Any]) -> None:
    job = real["jobs"][0]
    assert job["jobname"] == "a.b"
    assert picked(real, "jobs.a.b.read.iops") == job["read"]["iops"]
    ninety_nine = job["read"]["clat_ns"]["percentile"]["99.000000"]
    assert picked(real, "jobs.a.b.read.clat_ns.percentile.99.000000") == ninety_nine
    assert picked(real, "jobs.a.b.read.io_bytes") == 256 * 1024
    alone = {**real, "jobs": [job]}
    assert picked(alone, "read.iops") == job["read"]["iops"]


def test_a_number_that_is_not_there_is_an_error_that_names_near_ones(real: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r'no number "jobs\.a\.b\.read\.iosp"') as caught:
        picked(real, "jobs.a.b.read.iosp")
    assert "jobs.a.b.read.iops" in (caught.value.hint or "")
    with pytest.raises(RequestError, match="no number"):
        picked(real, "jobs.a.b.jobname")


def test_two_jobs_of_one_name_are_told_apart_by_nothing(real: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match='2 entries called "c"') as caught:
        picked(real, "jobs.c.write.iops")
    assert "group_reporting" in (caught.value.hint or "")


@pytest.mark.parametrize("output", ["", "no JSON", "[1]", "{", "{" * 100_000, '{"a": 1'])
def test_what_is_no_result_is_an_error(output: str) -> None:
    with pytest.raises(RequestError, match="as JSON"):
        result_of(output)


@pytest.mark.parametrize(
    ("lines", "mapped_lines", "told"),
    [
        ("directory=/mnt/data", "", ["directory=/mnt/data: left out"]),
        (
            "filename=/mnt/data/test.0",
            "filename=test.0",
            ["filename=/mnt/data/test.0: file test.0 of the lab"],
        ),
        ("filename=../x", "filename=x", ["filename=../x: file x of the lab"]),
        ("filename=test", "filename=test", []),
        ("filename=/dev/sdb", "filename=sdb", ["filename=/dev/sdb: file sdb of the lab"]),
        (
            "filename=/dev/sda:/mnt/sda:/dev/nvme0n1",
            "filename=sda:mnt_sda:nvme0n1",
            ["filename=/dev/sda:/mnt/sda:/dev/nvme0n1: files sda, mnt_sda, nvme0n1 of the lab"],
        ),
        ("; directory=/mnt", "; directory=/mnt", []),
    ],
)
def test_folders_and_paths_of_a_job_are_mapped_into_the_folder_of_the_lab(
    lines: str, mapped_lines: str, told: list[str]
) -> None:
    job = f"[a]\nrw=read\n{lines}\nsize=4k"
    kept = [mapped_lines] if mapped_lines else []
    assert mapped(job) == ("\n".join(["[a]", "rw=read", *kept, "size=4k"]), tuple(told))
    found = study(job.replace("[a]", "[read.a]") + "\niodepth={depth}")
    assert not list(demands(found))
    work = found.workload("w").work
    assert isinstance(work, FioWork)
    shown = " ".join(work.launched().details)
    for text in told:
        assert text in shown
        assert text in work.remark()
    assert "/dev/" not in work.described()


# What fio makes of a job file: its entries and its files, against the real fio.


def _done_by_fio(job: str, folder: Path) -> tuple[list[str], dict[str, int]]:
    """Return the names of fio's entries and the bytes of the files that it leaves."""
    done = subprocess.run(
        ["fio", "--output-format=json", "--eta=never", "-"],
        input=job,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    return [entry["jobname"] for entry in result_of(done.stdout)["jobs"]], files


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
@pytest.mark.parametrize(
    ("job", "entries"),
    [
        # options that the tests' own job files share with kubestr's and fio's examples
        ("[job1]\nname=read_iops\nsize=64k\n[job2]\nname=write_iops\nrw=write\nsize=64k", 2),
        ("[global]\nname=ignored\nsize=64k\n[a]\n[b]", 2),
        ("[read 50% of it]\nsize=64k\n[b (2), ü]\nsize=64k", 2),
        ("[globally]\nsize=64k\n[Global]\n[a]", 2),
        ("[global]\ngroup_reporting\nsize=64k\n[a]\n[b]\n[c]\nstonewall\n[d]\nnew_group\nnumjobs=2\n[e]", 3),
        ("[global]\nsize=64k\n[a]\nnumjobs=3\n[b]\nwait_for_previous", 4),
        ("[a]\nsize=64k ; a comment\nnumjobs=2 # another\ngroup_reporting=1", 1),
    ],
)
def test_the_entries_of_a_result_are_known_from_the_job_file(job: str, entries: int, tmp_path: Path) -> None:
    names, _ = _done_by_fio(job, tmp_path)
    assert [entry[0].name for entry in entries_of(jobs_of(job))] == names
    assert len(names) == entries


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
@pytest.mark.parametrize(
    "job",
    [
        "[a]\nsize=1m\n[b]\nsize=64k\nnumjobs=3",
        "[a]\nsize=1mb\nnrfiles=4",
        "[a]\nsize=100kib\nbs=1000",
        "[a]\nsize=100ki",
        "[a]\nfilesize=64k\nnrfiles=5\nnumjobs=2",
        "[a]\nfilesize=1m\nsize=50%",
        "[global]\nfilename=x\nsize=128k\n[a]\nnumjobs=4\n[b]\nsize=256k",
        "[a]\nfilename=x:y:z\nsize=384k",
        "[a]\nsize=64k\noffset=64k",
        "[a]\nfilename=x\nsize=64k\noffset_increment=64k\nnumjobs=3",
        "[a]\nfilename=x\nsize=256k\n[b]\nfilename=x\nsize=50%\nstonewall\n[c]\nfilename=x",
        "[a]\nrw=write\nsize=256k\n[b]\nsize=0x10000",
        "[a]\nioengine=filecreate\nfilesize=4k\nnrfiles=10",
    ],
)
def test_the_bytes_of_the_files_are_known_from_the_job_file(job: str, tmp_path: Path) -> None:
    _, files = _done_by_fio(job, tmp_path)
    assert sum(files_of(job).values()) == sum(files.values())


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
@pytest.mark.parametrize(
    "lines", ["rw=read", "size=50%", "filename=/dev/sdz", "io_size=1m", "rw=write\nruntime=1"]
)
def test_a_job_without_a_size_is_refused_as_by_fio(lines: str, tmp_path: Path) -> None:
    job = mapped(f"[a]\n{lines}\n")[0]
    done = subprocess.run(["fio", "-"], input=job, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "you need to specify size" in done.stdout + done.stderr
    with pytest.raises(JobProblem, match='job "a" has no size'):
        files_of(job)


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("filename=/dev/sdz\nzonemode=zbd\nzonesize=1m\nrw=write", "needs a device with zones"),
        ("rw=trim", "on devices only"),
        ("rw=randtrim\nioengine=libaio", "on devices only"),
        ("read_iolog=app.log", "names no file of the lab"),
        ("rw=write\nverify=md5\nverify_state_load=1", "the state that an earlier fio has saved"),
        ("rw=read\nverify=crc32c\nbs=4k", "verifies what no job has written"),
        ("rw=read\nverify=crc32c\nbs=4k\n[b]\nsize=1m\nrw=write\nverify=crc32c", "verifies what no job"),
        (
            "filename=f\nverify=md5\nrw=read\n[b]\nfilename=f\noffset=4m\nsize=1m\nrw=write\nverify=md5\nstonewall",
            "verifies what no job",
        ),
    ],
)
def test_what_a_job_expects_to_find_is_refused_as_by_fio_in_an_empty_folder(
    lines: str, message: str, tmp_path: Path
) -> None:
    job = mapped(f"[a]\nsize=1m\n{lines}\n")[0]
    done = subprocess.run(["fio", "-"], input=job, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    with pytest.raises(JobProblem, match=message):
        files_of(job)


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_what_an_earlier_job_has_written_can_be_verified(tmp_path: Path) -> None:
    same = "filename=f\nverify=crc32c\nbs=4k\nsize=64k\n"
    job = f"[w]\nrw=write\n{same}[r]\nstonewall\nrw=read\n{same}"
    assert files_of(job) == {"f": 65536}
    assert _done_by_fio(job, tmp_path)[1]["f"] == 65536


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
@pytest.mark.parametrize("lines", ["cpus_allowed=0,900", "numa_cpu_nodes=0-900"])
def test_processors_that_are_not_here_are_refused(lines: str, tmp_path: Path) -> None:
    job = f"[a]\nsize=4k\n{lines}\n"
    done = subprocess.run(["fio", "-"], input=job, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    work = work_of(FioWork, {"job": job, "pick": ["read.iops"]})
    with pytest.raises(RequestError, match=f"{lines}, but the last"):
        work.check_to_run((), (0, 0))


@pytest.mark.skipif(not shutil.which("fio") or not shutil.which("fincore"), reason="needs fio and fincore")
@pytest.mark.parametrize("lines", ["rw=randread", "rw=read"])
def test_the_run_before_a_warm_one_reads_whole_files(lines: str, tmp_path: Path) -> None:
    limits = "time_based\nruntime=200ms\nrate_iops=20\ninvalidate=0"
    work = work_of(
        FioWork, {"job": f"[a]\nfilename=f\nsize=4m\n{limits}\n{lines}\n", "pick": ["jobs.a.usr_cpu"]}
    )
    (tmp_path / "f").write_bytes(bytes(4 << 20))
    with (tmp_path / "f").open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    job = work.warming({"stdin": f"[global]\ndirectory=.\n{work.job}\n"})
    subprocess.run(
        ["fio", "-"], input=str(job["stdin"]), cwd=tmp_path, stdout=subprocess.DEVNULL, text=True, check=True
    )
    line = ["fincore", "--noheadings", "--bytes", "--output", "RES", "f"]
    assert (
        int(subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True).stdout) == 4 << 20
    )


@pytest.mark.parametrize("other", ["rw=write", "rw=read\nioengine=null"])
def test_files_that_a_job_does_not_read_are_not_read_before(other: str) -> None:
    job = f"[a]\nsize=4k\nrw=read\n[b]\nsize=4k\n{other}\n"
    work = work_of(FioWork, {"job": job, "pick": ["jobs.a.usr_cpu"]})
    assert work.warming({"stdin": job}) == {"stdin": job}


@pytest.mark.parametrize(
    ("version", "lines", "refused"),
    [
        ("fio-3.33", "io_submit_mode=offload\niodepth=32", True),
        ("fio-3.41-7-gabc", "io_submit_mode=offload\niodepth=2", True),
        ("fio-3.42", "io_submit_mode=offload\niodepth=32", False),
        ("fio-4.0", "io_submit_mode=offload\niodepth=32", False),
        ("fio-3.33", "io_submit_mode=offload", False),
        ("fio-3.33", "io_submit_mode=inline\niodepth=32", False),
    ],
)
def test_submit_threads_are_refused_to_a_fio_that_hangs_when_it_starts_them(
    version: str, lines: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = {"--version": f"{version}\n", "--enghelp": "Available IO engines:\npsync\n"}
    monkeypatch.setattr(
        fio,
        "_fio",
        lambda words, _user, **_: subprocess.CompletedProcess(words, 0, printed.get(words[0], ""), ""),
    )
    work = work_of(FioWork, {"job": f"[a]\nsize=4k\n{lines}\n", "pick": ["read.iops"]})
    if refused:
        with pytest.raises(RequestError, match=f'{version} often hangs at the start of job "a"'):
            work.check_to_run((), (os.getuid(), os.getgid()))
    else:
        work.check_to_run((), (os.getuid(), os.getgid()))


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ("size=1m", 0),
        ("size=4m\nrate=1m", 4),
        ("size=4m\nrate=1m\nruntime=3", 3),
        ("size=4m\nrate_iops=100", 10.24),
        ("size=4m\nbs=8k\nrate_iops=100\nstartdelay=5", 10.12),
        ("size=4m\nrate=1m,1m\nrw=rw", 2),
        ("size=4m\nrate=1m\nrw=rw", 2),
        ("size=4m\nrate=,1m\nrw=rw", 0),
        ("size=4m\nrate=,1m\nrw=write", 4),
        ("size=4m\nrate_iops=100\nbssplit=4k/50:1m/50", 0),
        ("size=1m\ntime_based\nruntime=2m", 120),
        ("size=1m\nruntime=2m", 0),
        ("size=1m\nruntime=2m\ntime_based\nss=iops:10%", 0),
        ("size=1m\ntime_based\nruntime={t}", 0),
    ],
)
def test_how_long_a_job_takes_at_least(lines: str, seconds: float) -> None:
    job = f"[a]\n{lines}\n"
    assert least_seconds(jobs_of(job)[0]) == pytest.approx(seconds)
    work = work_of(FioWork, {"job": job, "pick": ["usr_cpu"], "timeout": "1 s"})
    if seconds > 1:
        with pytest.raises(RequestError, match=f"takes {seconds:.0f} s at least, but the timeout is 1 s"):
            work.check_to_run((), None)
    else:
        work.check_to_run((), None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4k", 4096),
        ("4KB", 4096),
        ("4ki", 4096),
        ("4kib", 4000),
        ("1gib", 10**9),
        ("512", 512),
        ("0x10", 16),
        ("2t", 2 << 40),
    ]
    + [(text, None) for text in ("", "50%", "{size}", "(1g*2)", "$mb_memory", "1.5g", "g")],
)
def test_sizes_are_read_as_fio_reads_them(text: str, expected: int | None) -> None:
    assert bytes_in(text) == expected


def test_a_job_without_files_cannot_show_what_a_setting_of_the_lab_does() -> None:
    text = (STUDY % "job = '''\n[read.a]\nioengine=cpuio\ncpuload=50\n'''").replace(
        'knob = "command.argument"\nplaceholder = "{depth}"\nlevels = [1, 8]',
        'knob = "block.read_ahead_kb"\nlevels = [128, 256]',
    )
    with pytest.raises(RequestError, match=r"uses no files of the lab, but block.read_ahead_kb acts on"):
        resolve(read_study(text, "x.toml", trusted=True), root=True, lab="image")


@pytest.mark.parametrize("option", ["fill_fs=1", "fill_device"])
def test_a_job_that_fills_the_disk_needs_a_lab_with_a_disk_of_its_own(option: str) -> None:
    filling = study(f"[read.a]\n{option}\nrw=write\niodepth={{depth}}\n")
    check_labs(filling, "image")
    with pytest.raises(RequestError, match="a directory lab has no disk of its own"):
        check_labs(filling, "directory")


def test_the_files_of_all_levels_have_to_fit_into_the_lab() -> None:
    text = (STUDY % "job = '''\n[read.a]\nsize={depth}\n[b]\nfilename=/dev/sdz\nsize=1g\n'''").replace(
        "[1, 8]", '["1g", "8g"]'
    )
    found = read_study(text, "x.toml", trusted=True)
    check_own_files(found, lab="image", lab_bytes=11 << 30)
    check_own_files(found, lab="directory", lab_bytes=1 << 30)  # its free space is checked where it is made
    with pytest.raises(RequestError, match="lay out files of 9 GiB, in a lab of 9 GiB") as caught:
        check_own_files(found, lab="image", lab_bytes=9 << 30)
    assert "at least 11520 MiB" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("rw=read", "evicts the files of job"),
        ("rw=randrw\ninvalidate=1", "evicts the files"),
        ("rw=read\ninvalidate=0\ndirect=1", "reads past the page cache"),
        ("rw=write", None),
        ("rw=read\ninvalidate=0", None),
        ("rw=read\npre_read=1", None),
        ("ioengine=null\nrw=read", None),
    ],
)
def test_files_that_fio_evicts_cannot_be_warm(job: str, message: str | None) -> None:
    for how in ("cache", "factor"):
        text = STUDY % f"job = '''\n[read.a]\nsize=1m\niodepth={{depth}}\n{job}\n'''"
        text = text.replace('["jobs.read.a.read.iops", ', "[").replace(
            ".read.clat_ns.percentile.99.000000", ".usr_cpu"
        )
        if how == "cache":
            text = text.replace('kind = "fio"', 'kind = "fio"\ncache = "warm"')
        else:
            text += '[[factor]]\nname = "c"\nknob = "cache.state"\nlevels = ["cold", "warm"]\n'
        found = read_study(text, "x.toml", trusted=True)
        if message is None:
            check_made_files(found, "image")
        else:
            with pytest.raises(RequestError, match=f"cannot be warm: .*{message}"):
                check_made_files(found, "image")
        assert found.workloads[0].work.warm("warm") == 1


# Picks.


def _picked(job: str, *pick: Any) -> None:
    work = work_of(FioWork, {"job": job, "pick": list(pick)})
    work.check_to_run((), None)


@pytest.mark.parametrize(
    ("job", "pick", "message", "hint"),
    [
        ("[job1]\nname=a", "jobs.job1.read.iops", "does not name a job", 'reports it as "jobs.a"'),
        ("[a]\nname=b c", "jobs.b.read.iops", "does not name a job", "has: b c"),
        ("[global]\ngroup_reporting\n[a]\n[b]", "jobs.b.read.iops", "does not name", 'adds it to "jobs.a"'),
        ("[a]\nnumjobs=4", "jobs.a.read.iops", 'reports 4 jobs called "a"', "group_reporting"),
        ("[a]\n[b]", "read.iops", "has 2 jobs, so name one", 'such as "jobs.a.read.iops"'),
        ("[a]\nrw=randwrite", "read.iops", "always 0: the job does only write", ""),
        ("[a]\nrw=randrw:8", "trim.iops", "always 0: the job does only read and write", ""),
        ("[a]\ngtod_reduce=1", "read.clat_ns.mean", "not measured with gtod_reduce", "remove gtod_reduce"),
        ("[a]\ndisable_clat=1", "read.clat_ns.mean", "not measured with disable_clat", ""),
        ("[a]\nunified_rw_reporting=1", "read.iops", 'leaves only "mixed"', 'use "mixed.iops"'),
        (
            "[a]",
            "read.clat_ns.percentile.99",
            "no percentile that the job",
            "95.000000, 99.000000, 99.500000",
        ),
        (
            "[a]\npercentile_list=50:99.9",
            "read.clat_ns.percentile.99.000000",
            "no perc",
            "known: 50.000000, 99.900000",
        ),
        ("[a]", "read.lat_ns.percentile.99.000000", "no percentile", "add lat_percentiles=1"),
        (
            "[a]\nclat_percentiles=0",
            "read.clat_ns.percentile.99.000000",
            "no percentile",
            "add clat_percentiles=1",
        ),
    ],
)
def test_a_pick_that_fio_will_not_have_is_refused_before_the_lab_is_made(
    job: str, pick: str, message: str, hint: str
) -> None:
    with pytest.raises((Problem, RequestError), match=message) as caught:
        _picked(job, pick)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("job", "pick"),
    [
        ("[job1]\nname=read_iops", "jobs.read_iops.read.iops"),
        ("[read 50% of it]", "jobs.read 50% of it.read.iops"),
        ("[a]\n[a.b]\nrw=write", "jobs.a.b.write.iops"),
        ("[a]\nnumjobs=4\ngroup_reporting", "read.iops"),
        ("[global]\ngroup_reporting\n[a]\n[b]\nrw=write", "jobs.a.write.iops"),
        ("[a]\nrw=write\nverify=crc32c", "read.iops"),
        ("[a]\nrw=trimwrite", "trim.iops"),
        ("[a]\nrw={mode}", "write.iops"),
        ("[a]\nunified_rw_reporting=1", "mixed.iops"),
        ("[a]\npercentile_list=50:99.9", "read.clat_ns.percentile.99.900000"),
        ("[a]\nlat_percentiles=1", "read.lat_ns.percentile.99.950000"),
        ("[a]\ndisable_clat=1", "read.lat_ns.mean"),
    ],
)
def test_a_pick_that_fio_will_have_is_accepted(job: str, pick: str) -> None:
    _picked(job, pick)


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no_such_option=1", "Bad option <no_such_option=1>"),
        ("ioengine=http", 'no ioengine of this fio is called "http"'),
        ("ioengine=nosuch", 'no ioengine of this fio is called "nosuch"'),
        ("rw=sideways", "failed parsing rw=sideways"),
    ],
)
def test_what_the_installed_fio_does_not_accept_is_refused(line: str, message: str) -> None:
    found = study(f"[read.a]\nsize=1m\n{line}\niodepth={{depth}}", trusted=True)
    work = found.workload("w").work
    with pytest.raises(RequestError, match=message):
        work.check_to_run(found.settings, command_user(found))
    fine = study("[read.a]\nsize=1m\niodepth={depth}", trusted=True)
    fine.workload("w").work.check_to_run(fine.settings, command_user(fine))


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_a_job_that_only_the_last_level_makes_wrong_is_refused_also_for_another_user() -> None:
    users = [(os.getuid(), os.getgid()), *([(65534, 65534)] if os.geteuid() == 0 else [])]
    for line, message in (("direct={depth}", "max value out of range: 8"), ("rw=read\nbs={depth}4k", "")):
        found = study(f"[read.a]\nsize=1m\n{line}", trusted=True)
        for user in users:
            if message:
                with pytest.raises(RequestError, match=message):
                    found.workload("w").work.check_to_run(found.settings, user)
            else:
                found.workload("w").work.check_to_run(found.settings, user)


# Included files.


def test_files_that_a_job_file_includes_are_stored_with_the_study(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.fio").write_text("[global]\ninclude common.fio\n[read.a]\niodepth={depth}\n")
    (tmp_path / "jobs" / "common.fio").write_text("size=1m\ninclude more.fio\n")
    (tmp_path / "jobs" / "more.fio").write_text("bs=8k\n")
    (tmp_path / "s.toml").write_text(STUDY % 'file = "jobs/a.fio"')
    found = load(tmp_path / "s.toml")
    work = found.workload("w").work
    assert isinstance(work, FioWork)
    assert dict(jobs_of(work.job)[0].options) == {"size": "1m", "bs": "8k", "iodepth": "{depth}"}
    shutil.rmtree(tmp_path / "jobs")
    again = read_study(found.text, str(tmp_path / "s.toml"), trusted=False)
    assert again.workloads == found.workloads


@pytest.mark.parametrize(
    ("included", "message"),
    [
        ("include a.fio", "more than 8 deep"),
        ("include /etc/passwd", "below the study's folder"),
        ("include b.fio", "No such file"),
    ],
)
def test_a_file_that_cannot_be_included_is_an_error(tmp_path: Path, included: str, message: str) -> None:
    (tmp_path / "a.fio").write_text(f"[global]\n{included}\n[read.a]\niodepth={{depth}}\n")
    (tmp_path / "s.toml").write_text(STUDY % 'file = "a.fio"')
    with pytest.raises(StudyError, match=message):
        load(tmp_path / "s.toml")


def test_a_comment_may_follow_a_section_an_option_and_an_option_without_a_value() -> None:
    text = "[global]  # for all\ndirect=1    #past the cache\ntime_based    ;keep running\n ; nothing\n[a] # one\nrw=read\n"
    (job,) = jobs_of(text)
    assert job.name == "a"
    assert job.options == {"direct": "1", "time_based": "1", "rw": "read"}
