"""Work that does not use what its knobs change gets no verdict: it is refused with a list of what it used, or
the trial is invalid."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from breaking import last_trial
from running import iotrial, run_json, stored_runs, write_study

pytestmark = pytest.mark.root

MIB = 1 << 20


def study(argv: str, *, knob: str = "block.read_ahead_kb", more: str = 'cache = "cold"') -> str:
    levels = {
        "block.read_ahead_kb": '["128", "4096"]',
        "mount.atime": '["strictatime", "noatime"]',
        "command.argument": '["-c", "-v"]\nplaceholder = "{mode}"',
    }[knob]
    return f"""
[study]
name = "elsewhere"
question = "Does it make the work faster?"
[lab]
kind = "image"
size = "64 MiB"
[budget]
time = "60 s"
blocks = 2
[[factor]]
name = "knob"
knob = "{knob}"
levels = {levels}
[[workload]]
name = "work"
kind = "command"
argv = {argv}
{more}
"""


@pytest.fixture
def elsewhere(disk_folder: Path) -> Iterator[Path]:
    """Yield a folder on a disk, outside the lab, that any user may read."""
    disk_folder.chmod(0o755)
    folder = disk_folder / "data"
    folder.mkdir()
    (folder / "large").write_bytes(os.urandom(MIB))
    (folder / "small").write_bytes(os.urandom(8192))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def repository(elsewhere: Path) -> Path:
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", "-C", str(elsewhere), *words], check=True)
    return elsewhere


def trial_state(state: Path) -> str | None:
    return last_trial()["state"] if (state / "trials.db").exists() else None


@pytest.mark.parametrize("rehearsed", [True, False])
@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_git_in_a_repository_elsewhere_is_refused_with_the_paths_it_used(
    state: Path, tmp_path: Path, repository: Path, rehearsed: bool
) -> None:
    argv = f'["git", "-c", "safe.directory=*", "-C", "{repository}", "status"]'
    words = ("--rehearse",) if rehearsed else ("--no-controls",)
    done = iotrial("run", write_study(tmp_path, study(argv)), *words, "--trust", check=2)
    assert str(repository) in done.stderr
    assert "block.read_ahead_kb" in done.stderr
    assert "{dir}" in done.stderr
    assert trial_state(state) in (None, "failed")
    assert not (state / "trials.db").exists() or not stored_runs(state)


@pytest.mark.parametrize("knob", ["block.read_ahead_kb", "mount.atime"])
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_tar_of_a_folder_elsewhere_is_refused(
    state: Path, tmp_path: Path, elsewhere: Path, knob: str, cache: str
) -> None:
    argv = f'["sh", "-c", "tar cf - {elsewhere} | cat > /dev/null"]'
    text = study(argv, knob=knob, more=f'cache = "{cache}"')
    done = iotrial("run", write_study(tmp_path, text), "--rehearse", "--trust", check=2)
    used = done.stderr.partition("It used: ")[2]
    assert used.startswith(f"{elsewhere}/large, {elsewhere}/small"), done.stderr
    assert knob in done.stderr


#: programs that only touch the lab (their own folder is in it), or read a little there, and work on a file
#: elsewhere
BY_THE_WAY = {
    "a listing of the lab": """["sh", "-c", "ls $0; cat ELSEWHERE/huge", "{dir}"]""",
    "a look at a name": """["sh", "-c", "test -e $0; cat ELSEWHERE/huge", "{file}"]""",
    "a link out of the lab": """["sh", "-c", "ln -s ELSEWHERE/huge link; cat link"]""",
    "a mapping of a file elsewhere": (
        """["python3", "-c", "import mmap, os; os.listdir(); """
        """print(sum(mmap.mmap(os.open('ELSEWHERE/huge', os.O_RDONLY), 0, prot=mmap.PROT_READ)[::4096]))"]"""
    ),
}


@pytest.mark.parametrize("argv", BY_THE_WAY.values(), ids=BY_THE_WAY)
@pytest.mark.parametrize("rehearsed", [True, False])
def test_a_work_that_meets_the_lab_only_by_the_way_is_refused(
    state: Path, tmp_path: Path, elsewhere: Path, argv: str, rehearsed: bool
) -> None:
    """Every run reads the blocks of the lab's folder from its device, so the device's counters cannot tell."""
    (elsewhere / "huge").write_bytes(os.urandom(8 * MIB))
    text = study(
        argv.replace("ELSEWHERE", str(elsewhere)), more='cache = "cold"\nreads = "names"\ncwd = "{out}"'
    )
    how = "--rehearse" if rehearsed else "--no-controls"
    done = iotrial("run", write_study(tmp_path, text), how, "--trust", check=2)
    assert f"{elsewhere}/huge" in done.stderr
    assert "hardly uses the lab" in done.stderr
    assert not (state / "trials.db").exists() or not stored_runs(state)


def test_a_small_file_of_the_lab_beside_a_large_one_elsewhere_is_refused(
    state: Path, tmp_path: Path, elsewhere: Path
) -> None:
    (elsewhere / "huge").write_bytes(os.urandom(8 * MIB))
    text = study(f'["cat", "{{file}}", "{elsewhere}/huge"]', more='cache = "cold"\nsize = "4 KiB"')
    done = iotrial("run", write_study(tmp_path, text), "--no-controls", "--trust", check=2)
    assert "hardly uses the lab (4 KiB and" in done.stderr


def test_a_rehearsal_notes_what_was_used_elsewhere(state: Path, tmp_path: Path, elsewhere: Path) -> None:
    """The lab's files are smaller in a rehearsal, so it refuses nothing that reads them."""
    text = study(f'["cat", "{{file}}", "{elsewhere}/large"]', more='cache = "cold"\nsize = "16 MiB"')
    own = write_study(tmp_path, text)
    assert f"{elsewhere}/large" in iotrial("run", own, "--rehearse", "--trust").stdout
    done = iotrial("run", own, "--rehearse", "--trust", "--json")
    (note,) = json.loads(done.stdout)["rehearsal"]["notes"]
    assert f"{elsewhere}/large" in note


def test_what_turns_the_whole_machine_needs_no_file_of_the_lab_unless_it_is_to_be_cold(
    state: Path, tmp_path: Path, elsewhere: Path
) -> None:
    argv = f'["wc", "{{mode}}", "{elsewhere}/small"]'
    text = study(argv, knob="command.argument", more="").replace('"-v"', '"-l"')
    iotrial("run", write_study(tmp_path, text), "--rehearse", "--trust")
    cold = text + 'cache = "cold"\n'
    done = iotrial("run", write_study(tmp_path, cold), "--rehearse", "--trust", check=2)
    assert "cold-files" in done.stderr


def test_a_work_mostly_elsewhere_says_so_in_its_report(state: Path, tmp_path: Path, elsewhere: Path) -> None:
    argv = f'["sh", "-c", "cat $0 {elsewhere}/large > /dev/null", "{{file}}"]'
    text = study(argv, more='size = "256 KiB"\ncache = "cold"')
    report = run_json(write_study(tmp_path, text), "--no-controls", "--no-stop", "--trust")
    assert report["trial"]["state"] == "done"
    (note,) = [note for note in report["diagnostics"]["notes"] if f"{elsewhere}/large" in note]
    assert "80 %" in note  # 1 MiB of 1.25 MiB
    assert "Note" in iotrial("report", "last").stdout


def test_a_work_whose_requests_go_to_another_device_in_every_run_is_invalid(
    state: Path, tmp_path: Path, elsewhere: Path
) -> None:
    """The work opens a cached file of the lab, and reads from another disk.

    It reads so much there that the lab file system's own writes, some 16 KiB, are less than 1 % of it.
    """
    (elsewhere / "huge").write_bytes(os.urandom(8 * MIB))
    argv = (
        f'["sh", "-c", "cat $0 > /dev/null; dd if={elsewhere}/huge of=/dev/null bs=64K iflag=direct status=none", '
        '"{file}"]'
    )
    own = write_study(tmp_path, study(argv, more='cache = "warm"\nsize = "256 KiB"'))
    done = iotrial("run", own, "--no-controls", "--no-stop", "--trust", "--json", check=3)
    report = json.loads(done.stdout)
    runs = stored_runs(state)
    assert all(run["evidence"]["work_elsewhere_bytes"] >= 8 * MIB for run in runs)
    assert report["trial"]["state"] == "invalid"
    (reason,) = report["diagnostics"]["invalid_reasons"]
    assert "the work did not use the device under test" in reason
    assert reason in " ".join(iotrial("report", "last", check=3).stdout.split())


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_io_uring_on_another_disk_is_found_by_the_counters_of_cold_runs(
    state: Path, tmp_path: Path, elsewhere: Path
) -> None:
    """Reads through io_uring are not seen when the work is traced. The lab's folder is listed, so its device
    has requests."""
    (elsewhere / "huge").write_bytes(os.urandom(8 * MIB))
    job = (
        f"fio --name=job --filename={elsewhere}/huge --readonly --rw=read --bs=64k --ioengine=io_uring --direct=1 "
        "--output=/dev/null"
    )
    text = study(f'["sh", "-c", "ls $0; {job}", "{{dir}}"]', more='cache = "cold"\nreads = "names"')
    done = iotrial(
        "run", write_study(tmp_path, text), "--no-controls", "--no-stop", "--trust", "--json", check=3
    )
    assert all(run["checks"]["bytes_read"] > 0 for run in stored_runs(state))
    (reason,) = json.loads(done.stdout)["diagnostics"]["invalid_reasons"]
    assert "the work did not use the device under test" in reason


def test_access_times_of_warm_files_need_no_request_to_the_device(state: Path, tmp_path: Path) -> None:
    text = study('["cat", "{file}"]', knob="mount.atime", more='cache = "warm"')
    report = run_json(write_study(tmp_path, text), "--no-controls", "--no-stop")
    assert report["trial"]["state"] == "done"
    assert report["diagnostics"]["notes"] == [
        note for note in report["diagnostics"]["notes"] if "outside the lab" not in note
    ]


def test_warm_work_says_that_what_is_turned_on_the_device_could_not_matter(
    state: Path, tmp_path: Path
) -> None:
    for cache, told in (("warm", 1), ("cold", 0)):
        text = study('["cat", "{file}"]', more=f'cache = "{cache}"')
        report = run_json(write_study(tmp_path, text), "--no-controls", "--no-stop")
        assert report["trial"]["state"] == "done"
        notes = [
            note for note in report["diagnostics"]["notes"] if "had no requests during any timed run" in note
        ]
        assert len(notes) == told, cache


@pytest.mark.parametrize(
    "argv",
    ['["stat", "{file}"]', '["ls", "{dir}"]', '["sh", "-c", "echo x > new && mv new newer && rm newer"]'],
)
def test_names_alone_are_a_use_of_the_lab(state: Path, tmp_path: Path, argv: str) -> None:
    text = study(argv, knob="mount.atime", more='cache = "cold"\nreads = "names"\ncwd = "{out}"')
    iotrial("run", write_study(tmp_path, text), "--rehearse", "--trust")


def test_a_cold_run_reads_what_the_work_was_seen_to_read(state: Path, tmp_path: Path) -> None:
    """``names`` alone would accept a run that reads only the blocks of a folder."""
    text = study('["cat", "{files}"]', more='cache = "cold"\nreads = "names"\nfiles = 4\nsize = "256 KiB"')
    run_json(write_study(tmp_path, text), "--no-controls", "--no-stop")
    runs = stored_runs(state)
    assert all(MIB / 10 - 1 <= run["checks"]["bytes_expected"] <= MIB for run in runs)
    assert all(run["checks"]["bytes_read"] >= MIB for run in runs)


@pytest.mark.parametrize("reads", [True, False])
def test_a_command_that_reads_and_changes_a_file_is_said_to_depend_on_the_run_before(
    state: Path, tmp_path: Path, elsewhere: Path, reads: bool
) -> None:
    file = elsewhere / "small"
    file.chmod(0o666)
    first = f"head -c 9 {file} >/dev/null; " if reads else ""
    argv = f"""["sh", "-c", "{first}echo {{mode}} >>{file}"]"""
    text = study(argv, knob="command.argument", more="")
    done = iotrial("run", write_study(tmp_path, text), "--rehearse", "--trust")
    said = f"work reads and changes {file}, so a run may depend on the run before"
    assert (said in " ".join((done.stdout + done.stderr).split())) is reads
