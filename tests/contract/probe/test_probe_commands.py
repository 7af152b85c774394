"""The command job: steps, failures, timeouts, and processes that commands leave behind."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from probe_client import NOBODY, Probe, ProbeError, make_set, processes_with


def test_commands_run_once_for_each_file_or_once_for_all(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder)
    script = f'echo "$@" >> {folder}/log'
    done = probe(
        "command",
        set="s",
        files=[2, 0],
        steps=[
            {"name": "each", "argv": ["sh", "-c", script, "x", "one={file}"]},
            {"name": "all", "argv": ["sh", "-c", script, "x", "{files}"]},
            {"name": "dir", "argv": ["sh", "-c", f"echo {{dir}}; pwd >> {folder}/log"]},
        ],
        cwd="{dir}",
        replicates=2,
    )
    once = f"one={path}/f000002\none={path}/f000000\n{path}/f000002 {path}/f000000\n{path}\n"
    assert (folder / "log").read_text() == once * 2
    assert [(step["name"], step["processes"]) for step in done["steps"]] == [
        ("each", 4),
        ("all", 2),
        ("dir", 2),
    ]
    assert done["processes"] == 8
    assert (done["failures"], done["verified"], done["stragglers"]) == ([], True, 0)
    for key in ("wall_ns", "user_ns", "sys_ns"):
        assert done[key] == sum(step[key] for step in done["steps"])
    with pytest.raises(ProbeError) as caught:
        probe("command", steps=[{"name": "x", "argv": ["true", "{file}"]}])
    assert caught.value.code == "bad_request"


@pytest.mark.parametrize("stdout", ["pipe", "null"])
def test_output_goes_through_a_pipe_so_that_grep_reads_whole_files(
    probe: Probe, folder: Path, stdout: str
) -> None:
    """GNU grep stops at a file's first match if its output is /dev/null: then most of the file is not read."""
    large = folder / "large"
    large.write_bytes(b"error\n" + b"nothing to see in this line\n" * 400_000)
    script = (
        f"[ -p /dev/stdout ] && said=pipe || said=other; echo $said > {folder}/where; exec grep error {large}"
    )
    done = probe(
        "command",
        steps=[{"name": "grep", "argv": ["sh", "-c", script]}],
        account=os.geteuid() == 0,
        stdout=stdout,
    )
    assert done["failures"] == []
    where = (folder / "where").read_text()
    if stdout == "null":
        assert where == "other\n"
        assert done["printed_bytes"] is None
    else:
        assert where == "pipe\n"
        assert done["printed_bytes"] == len("error\n")
    if os.geteuid() == 0:
        reads = done["account"]["calls"]["read"]["count"]
        assert (reads < 50) is (stdout == "null"), reads


def test_a_child_that_keeps_the_output_open_is_not_waited_for(probe: Probe, folder: Path) -> None:
    began = time.monotonic()
    done = probe("command", steps=[{"name": "x", "argv": ["sh", "-c", "yes | head -c 3000000; sleep 60 &"]}])
    assert time.monotonic() - began < 30.0
    assert done["printed_bytes"] == 3_000_000
    assert done["stragglers"] == 1


def test_a_command_through_a_view_gets_the_names_of_the_view(probe: Probe, folder: Path) -> None:
    make_set(probe, folder)
    probe("link", set="s", files=[1], view="A", kind="symlink-relative")
    steps = [
        {"name": "a", "argv": ["sh", "-c", f"readlink {{file}} > {folder}/log; echo {{dir}} >> {folder}/log"]}
    ]
    probe("command", set="s", view="A", steps=steps)
    assert (folder / "log").read_text() == f"../s/f000001\n{folder}/s.A\n"


def test_held_files_stay_in_memory_until_the_job_has_ended(probe: Probe, folder: Path) -> None:
    whole, sparse = folder / "whole", folder / "sparse"
    whole.write_bytes(os.urandom(100_000))  # 25 pages, the last of them in part
    with sparse.open("wb") as file:  # data between two holes, not at the border of a page
        file.seek(3 * 2**20)
        file.write(os.urandom(20_000))  # 5 pages
        file.truncate(2**24)
    os.sync()  # only clean pages can be dropped
    drop = 'for f; do dd if="$f" iflag=nocache count=0 2> /dev/null; fincore -nbr -o PAGES "$f"; done'
    steps = [{"name": "drop", "argv": ["sh", "-c", drop, "sh", str(whole), str(sparse)]}]

    def left(**fields: object) -> list[int]:
        done = probe("command", steps=steps, keep_output=100, **fields)
        assert done["failures"] == []
        return [int(pages) for pages in done["steps"][0]["printed"]["stdout"].split()]

    assert left() == [0, 0], "otherwise nothing is shown"
    for _ in range(2):
        [of_whole, of_sparse] = left(hold=[str(whole), str(sparse)])
        assert of_whole == 25
        assert of_sparse >= 5
    assert left() == [0, 0]
    with pytest.raises(ProbeError) as caught:
        probe("command", steps=steps, hold=[str(folder / "none")])
    assert caught.value.code == "os"


def test_failures_say_which_step_how_and_in_which_words(probe: Probe) -> None:
    steps = [
        {"name": "fine", "argv": ["sh", "-c", "echo not this >&2"]},
        {"name": "bad", "argv": ["sh", "-c", "echo this >&2; exit 4"]},
        {"name": "after", "argv": ["true"]},
    ]
    done = probe("command", steps=steps)
    assert done["verified"] is False
    assert done["failures"] == [
        {"step": "bad", "argv0": "sh", "exit": 4, "signal": None, "timed_out": False, "stderr": "this\n"}
    ]
    assert [step["processes"] for step in done["steps"]] == [1, 1, 0], "the first failure ends the job"
    assert probe("command", steps=steps[1:2], expect_exit=4)["verified"] is True
    [failure] = probe("command", steps=[{"name": "k", "argv": ["sh", "-c", "kill -9 $$"]}])["failures"]
    assert (failure["exit"], failure["signal"], failure["timed_out"]) == (None, 9, False)
    [failure] = probe(
        "command", steps=[{"name": "k", "argv": ["sh", "-c", "head -c 9999 /dev/zero >&2; false"]}]
    )["failures"]
    assert len(failure["stderr"]) == 4096


def test_a_command_gets_its_input_and_environment_each_time(probe: Probe, folder: Path) -> None:
    steps = [{"name": "a", "argv": ["sh", "-c", f'read line; echo "$line $ARM" >> {folder}/log']}]
    probe("command", steps=steps, stdin="hello\n", environment={"ARM": "B"}, replicates=3)
    assert (folder / "log").read_text() == "hello B\n" * 3


@pytest.mark.parametrize("arguments", [(), pytest.param(("--isolate",), marks=pytest.mark.root)])
def test_a_time_limit_ends_the_whole_group(arguments: tuple[str, ...]) -> None:
    probe = Probe(*arguments)
    mark = f"9876.{os.getpid()}"
    script = f"sleep {mark} & sleep {mark} & wait"
    start = time.monotonic()
    done = probe(
        "command", steps=[{"name": "slow", "argv": ["sh", "-c", script]}], timeout_s=0.3, replicates=5
    )
    assert time.monotonic() - start >= 0.3
    [failure] = done["failures"]
    assert (failure["timed_out"], failure["signal"], done["processes"]) == (True, signal.SIGKILL, 1)
    assert done["wall_ns"] >= 0.3e9
    assert processes_with(mark) == []
    # The timeout applies to each process, and is cleared afterwards.
    done = probe("command", steps=[{"name": "q", "argv": ["sleep", "0.2"]}], timeout_s=0.35, replicates=3)
    assert done["verified"] is True
    assert probe.close() == 0


# Leaves three processes: one in its group, one in a session of its own, and one whose parent has also exited.
LEAVER = """
import os, time
heard, said = os.pipe()
for kind in ("group", "session", "daemon"):
    if os.fork() == 0:
        if kind != "group":
            os.setsid()
        if kind == "daemon" and os.fork():
            os._exit(0)
        os.write(said, b".")
        time.sleep(1000)
for _ in range(3):
    os.read(heard, 1)
"""


@pytest.mark.parametrize("arguments", [(), pytest.param(("--isolate",), marks=pytest.mark.root)])
def test_what_a_command_leaves_behind_is_ended(arguments: tuple[str, ...]) -> None:
    probe = Probe(*arguments)
    mark = f"8765.{os.getpid()}"
    argv = [sys.executable, "-c", LEAVER, mark]
    done = probe("command", steps=[{"name": "leaver", "argv": argv}])
    assert (done["verified"], done["stragglers"]) == (True, 3)
    assert processes_with(mark) == []
    assert probe("command", steps=[{"name": "t", "argv": ["true"]}])["stragglers"] == 0
    assert probe("run", argv=argv)["exit"] == 0
    assert processes_with(mark) == []
    assert probe.close() == 0


@pytest.mark.root
def test_a_command_as_another_user_is_that_user_alone(isolated: Probe, folder: Path) -> None:
    nobody = {"uid": NOBODY, "gid": NOBODY}
    folder.chmod(0o777)
    steps = [
        {
            "name": "id",
            "argv": ["sh", "-c", f"id -u > {folder}/id; id -g >> {folder}/id; id -G >> {folder}/id"],
        }
    ]
    assert isolated("command", steps=steps, user=nobody)["verified"] is True
    assert (folder / "id").read_text().split() == [str(NOBODY)] * 3
    script = "grep -E '^(Uid|CapEff|CapPrm)' /proc/self/status"
    said = isolated("run", argv=["sh", "-c", script], user=nobody)["stdout"]
    assert f"Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}" in said
    assert len(re.findall(r"Cap...:\t0{16}\n", said)) == 2
    assert isolated("run", argv=["id", "-u"])["stdout"] == "0\n"


def test_usage_is_that_of_the_command_and_the_descendants_it_waited_for(probe: Probe) -> None:
    spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    done = probe("command", steps=[{"name": "s", "argv": ["sh", "-c", f"sh -c '{spin}'; :"]}])
    assert done["user_ns"] + done["sys_ns"] > 10e6
    assert done["usage"]["faults_minor"] > 50
    # Each child inherits the peak RSS of the process that started the probe: the floor.
    wanted = done["max_rss_floor_bytes"] + 80_000_000
    hungry = f"x = bytearray({wanted})"
    done = probe("command", steps=[{"name": "m", "argv": [sys.executable, "-c", hungry]}])
    assert wanted < done["max_rss_bytes"] < wanted + 80_000_000


def test_standard_output_comes_back_only_where_it_is_asked_for(probe: Probe) -> None:
    steps = [{"name": name, "argv": ["printf", text]} for name, text in (("a", "first"), ("b", "second"))]
    assert [step["printed"] for step in probe("command", steps=steps)["steps"]] == [None, None]

    def printed(**fields: Any) -> list[dict[str, Any]]:
        return [step["printed"] for step in probe("command", steps=steps, **fields)["steps"]]

    assert printed(keep_output=100) == [
        {"stdout": text, "stderr": "", "whole": True} for text in ("first", "second")
    ]
    # all processes of a step, one after the other, up to the limit
    assert [one["stdout"] for one in printed(keep_output=100, replicates=2)] == ["firstfirst", "secondsecond"]
    assert printed(keep_output=5) == [
        {"stdout": "first", "stderr": "", "whole": True},
        {"stdout": "secon", "stderr": "", "whole": False},
    ]
    loud = [{"name": "x", "argv": ["sh", "-c", "echo out; echo err >&2"]}]
    [step] = probe("command", steps=loud, keep_output=100)["steps"]
    assert step["printed"] == {"stdout": "out\n", "stderr": "err\n", "whole": True}
    with pytest.raises(ProbeError, match="keep_output") as caught:
        probe("command", steps=steps, keep_output=1 << 40)
    assert caught.value.code == "bad_request"


def test_a_file_that_was_written_comes_back_and_nothing_else_is_read(probe: Probe, folder: Path) -> None:
    out = folder / "kept"
    probe("mkdir", path=str(out), exclusive=True)
    script = "mkdir d; echo 12345 > d/a; ln -s /etc/passwd link; ln -s d way; mkfifo pipe; mkdir empty"
    steps = [{"name": "x", "argv": ["sh", "-c", script]}]
    names = ["d/a", "link", "way/a", "pipe", "empty", "none", "../kept/d/a"]
    done = probe("command", steps=steps, out=str(out), cwd="{out}", keep_output=4, keep_files=names)
    assert done["kept_files"] == {
        **dict.fromkeys(names),
        "d/a": {"text": "1234", "whole": False},
        "../kept/d/a": None,
    }
    with pytest.raises(ProbeError, match="keep_files"):
        probe("command", steps=[{"name": "x", "argv": ["true"]}], keep_output=4, keep_files=["a"])


def test_a_folder_to_write_to_is_filled_in_and_counted(probe: Probe, folder: Path) -> None:
    make_set(probe, folder)
    out = folder / "out"
    probe("mkdir", path=str(out), exclusive=True)
    script = "cp $1 a; mkdir -p deep/er; cp $1 $2/deep/er/b; ln -s /usr link"
    steps = [{"name": "x", "argv": ["sh", "-c", script, "x", "{file}", "{out}"]}]
    done = probe("command", set="s", files=[0], steps=steps, out=str(out), cwd="{out}")
    assert done["verified"] is True
    size = (folder / "s/f000000").stat().st_size
    assert done["out"] == {"files": 3, "folders": 2, "bytes": 2 * size + len("/usr")}
    assert (out / "deep/er/b").read_bytes() == (folder / "s/f000000").read_bytes()
    assert probe("command", steps=[{"name": "t", "argv": ["true"]}])["out"] is None
    with pytest.raises(ProbeError, match="needs a folder to write to"):
        probe("command", steps=steps, set="s")


@pytest.mark.root
def test_a_folder_is_made_for_somebody_else_and_one_that_is_there_stays_whose_it_is(
    isolated: Probe, folder: Path
) -> None:
    out = folder / "out"
    isolated("mkdir", path=str(out), owner={"uid": NOBODY, "gid": NOBODY})
    assert (out.stat().st_uid, out.stat().st_gid, out.stat().st_mode & 0o7777) == (NOBODY, NOBODY, 0o755)
    isolated("mkdir", path=str(out), owner={"uid": 0, "gid": 0})
    assert out.stat().st_uid == NOBODY
