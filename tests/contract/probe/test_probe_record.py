"""`ioprobe record`: programs whose operations are known exactly, compared with what was recorded."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from probe_client import BINARY, MIB, NOBODY, Probe, make_set
from probe_recordings import Recording, python, read, record, recorder

pytestmark = pytest.mark.root


@pytest.fixture
def data(folder: Path) -> Path:
    """Return a folder with one file of 64 KiB."""
    data = folder / "data"
    data.mkdir()
    (data / "known").write_bytes(os.urandom(65536))
    return data


def test_calls_on_descriptors_are_recorded_with_offsets_lengths_and_results(data: Path) -> None:
    (data / "log").write_bytes(b"x" * 500)
    found = record(
        data,
        python("""
            import os
            fd = os.open("known", os.O_RDWR)
            os.read(fd, 1000)
            other = os.dup(fd)
            os.read(other, 1000)
            os.pread(fd, 4096, 8192)
            os.lseek(fd, 65530, os.SEEK_SET)
            os.read(fd, 100)
            os.pwrite(fd, b"y" * 10, 70000)
            os.writev(fd, [b"a" * 10, b"b" * 20, b"c" * 30])
            os.preadv(fd, [bytearray(100), bytearray(50)], 16)
            os.ftruncate(fd, 4096)
            os.posix_fallocate(fd, 4096, 8192)
            os.posix_fadvise(fd, 0, 4096, os.POSIX_FADV_DONTNEED)
            os.fsync(fd)
            os.close(fd)
            os.fdatasync(other)
            os.close(other)
            log = os.open("log", os.O_WRONLY | os.O_APPEND)
            os.write(log, b"z" * 7)
            os.close(log)
        """),
    )
    assert found.of("offset", "length", "result", "positional", "vectors", "handle") == [
        ("open", "known", 0, 0, 0, False, 1, 0),
        ("read", "known", 0, 1000, 1000, False, 1, 0),
        ("read", "known", 1000, 1000, 1000, False, 1, 0),
        ("read", "known", 8192, 4096, 4096, True, 1, 0),
        ("read", "known", 65530, 100, 6, False, 1, 0),
        ("write", "known", 70000, 10, 10, True, 1, 0),
        ("write", "known", 65536, 60, 60, False, 3, 0),
        ("read", "known", 16, 150, 150, True, 2, 0),
        ("truncate", "known", 0, 4096, 0, False, 1, 0),
        ("allocate", "known", 4096, 8192, 0, True, 1, 0),
        ("advise", "known", 0, 4096, 0, True, 1, 0),
        ("fsync", "known", 0, 0, 0, False, 1, 0),
        ("fdatasync", "known", 0, 0, 0, False, 1, 0),
        ("close", "known", 0, 0, 0, False, 1, 0),
        ("open", "log", 0, 0, 0, False, 1, 1),
        ("write", "log", 500, 7, 7, False, 1, 1),
        ("close", "log", 0, 0, 0, False, 1, 1),
    ]
    assert found.known("known")["size"] == 65536
    assert found.known("known")["stored"] == 65536
    assert found.known("log")["size"] == 500
    opened = [op["flags"] for op in found.ops if op["call"] == "open"]
    assert [flags & os.O_ACCMODE for flags in opened] == [os.O_RDWR, os.O_WRONLY]
    assert opened[1] & os.O_APPEND
    ends = [op["start_ns"] + op["duration_ns"] for op in found.ops]
    assert ends == sorted(ends)
    assert all(op["duration_ns"] > 0 for op in found.ops if op["call"] == "read")
    assert ends[-1] <= found.end["duration_ns"]


def test_files_have_the_place_on_the_disk_that_filefrag_shows(data: Path) -> None:
    os.truncate(data / "known", 1 << 20)
    (data / "empty").touch()
    os.sync()
    shown = subprocess.run(
        ["filefrag", "-v", "-b1024", str(data / "known")], capture_output=True, text=True, check=True
    ).stdout
    place = re.search(r"^ +0: +0\.\. +\d+: +(\d+)\.\.", shown, re.MULTILINE)
    assert place is not None, shown
    found = record(data, python("open('known').close(); open('empty').close()"))
    assert found.known("known")["position"] == int(place[1]) * 1024
    assert found.known("known")["extents"] == len(re.findall(r"^ +\d+: ", shown, re.MULTILINE))
    assert found.known("empty")["position"] == 0


def test_calls_on_names_are_recorded(data: Path) -> None:
    (data / "old").write_bytes(b"1" * 100)
    (data / "gone").write_bytes(b"2" * 200)
    (data / "way").symlink_to("known")
    found = record(
        data,
        python("""
            import os
            from contextlib import suppress
            os.mkdir("sub")
            os.rename("old", "sub/new")
            os.link("known", "sub/second")
            os.symlink("../known", "sub/link")
            os.unlink("gone")
            os.stat("way")
            os.lstat("way")
            with suppress(OSError):
                os.stat("missing")
            with suppress(OSError):
                os.open("sub/missing", os.O_RDONLY)
            os.access("known", os.R_OK)
            os.truncate("sub/new", 50)
            os.chdir("sub")
            fd = os.open("../way", os.O_RDONLY)
            os.fstat(fd)
            os.close(fd)
            folder = os.open("..", os.O_RDONLY)
            fd = os.open("sub/new", os.O_RDONLY, dir_fd=folder)
            os.close(fd)
            os.listdir(folder)
            os.close(folder)
            os.unlink("link"), os.unlink("second"), os.unlink("new")
            os.rmdir("../sub")
        """),
    )
    other = [found.path(op["other"]) for op in found.ops if op["call"] in ("rename", "link")]
    assert other == ["sub/new", "sub/second"]
    assert found.of("result") == [
        ("mkdir", "sub", 0),
        ("rename", "old", 0),
        ("link", "known", 0),
        ("symlink", "sub/link", 0),
        ("unlink", "gone", 0),
        ("stat", "known", 0),
        ("stat", "way", 0),
        ("stat", "missing", -2),
        ("open", "sub/missing", -2),
        ("stat", "known", 0),
        ("truncate", "sub/new", 0),
        ("open", "known", 0),
        ("stat", "known", 0),
        ("close", "known", 0),
        ("open", "", 0),
        ("open", "sub/new", 0),
        ("close", "sub/new", 0),
        ("stat", "", 0),
        *(one for one in found.of("result") if one[0] == "readdir"),
        ("close", "", 0),
        ("unlink", "sub/link", 0),
        ("unlink", "sub/second", 0),
        ("unlink", "sub/new", 0),
        ("rmdir", "sub", 0),
    ]
    sizes = {file["path"]: file["size"] for file in found.files if file["kind"] == "file"}
    assert sizes == {
        "old": 100,
        "sub/new": None,
        "known": 65536,
        "sub/second": None,
        "gone": 200,
        "missing": None,
        "sub/missing": None,
    }
    assert found.report["guessed"] == 0


def test_new_files_and_truncated_ones(data: Path) -> None:
    found = record(
        data,
        python("""
            import os
            os.close(os.open("new", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            os.close(os.open("known", os.O_WRONLY | os.O_TRUNC))
            os.close(os.open("new", os.O_RDONLY))
            try:
                fd = os.open(".", os.O_TMPFILE | os.O_RDWR)
            except OSError:
                raise SystemExit
            os.write(fd, b"1234")
            here = os.open(".", os.O_RDONLY)
            os.link(f"/proc/self/fd/{fd}", "named", src_dir_fd=here, follow_symlinks=True)
            os.close(fd)
        """),
    )
    assert found.known("new")["size"] is None
    assert found.known("known")["size"] == 65536
    assert found.of("result")[:6] == [
        ("open", "new", 0),
        ("close", "new", 0),
        ("open", "known", 0),
        ("close", "known", 0),
        ("open", "new", 0),
        ("close", "new", 0),
    ]
    if len(found.ops) > 7:
        assert found.known(".tmpfile-0")["size"] is None
        (linked,) = (op for op in found.ops if op["call"] == "link")
        assert (found.path(linked["file"]), found.path(linked["other"])) == (".tmpfile-0", "named")


def test_a_fork_shares_the_offset_and_is_waited_for(data: Path) -> None:
    found = record(
        data,
        python("""
            import os
            fd = os.open("known", os.O_RDONLY)
            os.read(fd, 100)
            child = os.fork()
            if child == 0:
                os.read(fd, 200)
                os._exit(0)
            os.waitpid(child, 0)
            os.read(fd, 300)
        """),
    )
    reads = [(op["thread"], op["offset"], op["result"]) for op in found.ops if op["call"] == "read"]
    assert reads == [(0, 0, 100), (1, 100, 200), (0, 300, 300)]
    calls = [(op["call"], op["thread"], op["other"]) for op in found.ops if op["call"] in ("start", "wait")]
    assert calls == [("start", 0, 1), ("wait", 0, 1)]
    assert [(thread["process"], thread["started_by"]) for thread in found.threads] == [(0, None), (1, 0)]
    # It is closed when the last process ends.
    assert [op["call"] for op in found.ops][-2:] == ["close", "exit"]


def test_threads_have_their_own_operations_on_shared_descriptors(data: Path) -> None:
    found = record(
        data,
        python("""
            import os, threading
            fd = os.open("known", os.O_RDONLY)
            def work(number):
                for index in range(100):
                    os.pread(fd, 64, 1000 * number + index)
            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            os.close(fd)
        """),
    )
    assert len(found.threads) == 5
    assert {thread["process"] for thread in found.threads} == {0}
    seen = set()
    for thread in range(1, 5):
        offsets = [op["offset"] for op in found.ops if (op["thread"], op["call"]) == (thread, "read")]
        assert offsets == [1000 * (offsets[0] // 1000) + index for index in range(100)]
        seen.add(offsets[0])
    assert seen == {0, 1000, 2000, 3000}
    assert {op["handle"] for op in found.ops if op["call"] == "read"} == {0}


def test_an_execve_keeps_what_is_not_closed_by_it(data: Path) -> None:
    found = record(
        data,
        python(f"""
            import os
            first = os.open("known", os.O_RDONLY)
            second = os.open("known", os.O_RDONLY)
            os.set_inheritable(first, True)
            os.read(first, 10)
            script = f"import os; os.read({{first}}, 20)"
            os.execv({sys.executable!r}, ["python", "-I", "-S", "-c", script])
        """),
    )
    assert found.of("offset", "handle", calls=("open", "read", "close")) == [
        ("open", "known", 0, 0),
        ("open", "known", 0, 1),
        ("read", "known", 0, 0),
        ("close", "known", 0, 1),
        ("read", "known", 10, 0),
        ("close", "known", 0, 0),
    ]


def test_copies_between_files_and_to_sockets(data: Path) -> None:
    found = record(
        data,
        python("""
            import os, socket
            source = os.open("known", os.O_RDONLY)
            target = os.open("copy", os.O_WRONLY | os.O_CREAT)
            os.copy_file_range(source, target, 4096, 8192, 0)
            os.copy_file_range(source, target, 4096)
            ours, theirs = socket.socketpair()
            os.sendfile(ours.fileno(), source, 100, 50)
            os.sendfile(ours.fileno(), source, None, 60)
            reading, writing = os.pipe()
            os.splice(source, writing, 70, 1000)
            os.splice(reading, target, 70)
        """),
    )
    wanted = ("copy", "send", "write")
    assert found.of("offset", "length", "result", "positional", calls=wanted) == [
        ("copy", "known", 8192, 4096, 4096, True),
        ("copy", "known", 0, 4096, 4096, False),
        ("send", "known", 100, 50, 50, True),
        ("send", "known", 4096, 60, 60, False),
        ("send", "known", 1000, 70, 70, True),
        ("write", "copy", 4096, 70, 70, False),
    ]
    copies = [op for op in found.ops if op["call"] == "copy"]
    assert [found.path(op["other"]) for op in copies] == ["copy", "copy"]
    assert [op["target"] for op in copies] == [[0, True], [0, False]]


def test_pages_of_a_mapping_are_recorded_when_they_are_read_from_the_file(data: Path) -> None:
    (data / "mapped").write_bytes(os.urandom(MIB))
    found = record(
        data,
        python("""
            import mmap, os
            fd = os.open("mapped", os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            pages = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
            pages.madvise(mmap.MADV_RANDOM)
            for page in (200, 17, 3):
                pages[page * 4096]
        """),
    )
    assert found.of("offset", "length", calls=("map",)) == [("map", "mapped", 0, MIB)]
    if found.report["faults"]:
        faults = found.of("offset", "length", calls=("fault",))
        assert faults == [("fault", "mapped", 4096 * page, 4096) for page in (200, 17, 3)]


@pytest.mark.parametrize("how", ["", "--direct=1", "--userspace_reap"])
@pytest.mark.parametrize("depth", [1, 8])
@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_requests_of_libaio_are_recorded_like_calls(folder: Path, depth: int, how: str) -> None:
    """fio counts them; with its own reaping, results are read from memory and no call returns them."""
    (folder / "big").write_bytes(os.urandom(MIB))
    log = folder.parent / "fio.json"
    fio = f"fio --name=job --filename=big --size=1M --rw=randrw --bs=4k --ioengine=libaio --iodepth={depth} --fsync=9"
    found = record(folder, [*fio.split(), *how.split(), "--output-format=json", f"--output={log}"])
    job = json.loads(log.read_text())["jobs"][0]
    requests = [op for op in found.ops if op["uring"]]
    for call in ("read", "write"):
        own = [op for op in requests if op["call"] == call]
        assert len(own) == job[call]["total_ios"] > 0
        assert {(found.path(op["file"]), op["length"], op["result"], op["positional"]) for op in own} == {
            ("big", 4096, 4096, True)
        }
    moved = sorted(op["offset"] for op in requests if op["call"] in ("read", "write"))
    assert moved == list(range(0, MIB, 4096))  # fio's random order meets each block once
    assert all(op["handle"] is not None for op in requests)
    assert found.report["lost"] == 0


@pytest.mark.parametrize("depth", [1, 8])
def test_requests_of_io_uring_are_recorded_like_calls(folder: Path, depth: int) -> None:
    trace = folder / "app.iotrace"
    reading, writing = os.pipe()
    prefix = (*recorder(trace, folder, writing), "--")
    with Probe(prefix=prefix, pass_fds=(writing,)) as probe:
        os.close(writing)
        make_set(probe, folder, count=3, size=64 * 4096, content="random")
        try:
            probe("random", set="s", operations=300, engine="io_uring", depth=depth)
        except Exception as error:
            if getattr(error, "code", None) == "unsupported":
                pytest.skip(str(error))
            raise
    with os.fdopen(reading, "rb") as pipe:
        answer = json.loads(pipe.read())
    found = read(trace, answer["ok"])
    if not found.report["uring"]:
        pytest.skip("this kernel does not show requests of io_uring")
    requests = [op for op in found.ops if op["uring"]]
    assert len(requests) == 300
    assert {(op["call"], op["length"], op["result"]) for op in requests} == {("read", 4096, 4096)}
    assert {op["offset"] % 4096 for op in requests} == {0}
    assert {op["offset"] // 4096 for op in requests} <= set(range(64))
    assert len({op["file"] for op in requests}) == 3
    assert all(op["handle"] is not None for op in requests)


@pytest.fixture
def waiting(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a running program that has a file open at offset 1000, two threads, and waits for a line."""
    script = """
        import os, sys, threading
        fd = os.open("known", os.O_RDONLY)
        os.read(fd, 1000)
        child = os.fork()
        go, done = threading.Event(), threading.Event()
        def work():
            go.wait()
            os.pread(fd, 5, 7)
            done.set()
        threading.Thread(target=work).start()
        print("ready", flush=True)
        if child:
            sys.stdin.readline()
            os.read(fd, 200)
            go.set()
            done.wait()
            os.close(os.open("new", os.O_WRONLY | os.O_CREAT))
            print("done", flush=True)
            sys.stdin.readline()
        else:
            go.set()
    """
    process = subprocess.Popen(python(script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=data)
    assert process.stdout
    assert [process.stdout.readline(), process.stdout.readline()] == [b"ready\n"] * 2
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()
    process.stdout.close()


def tell(process: subprocess.Popen[bytes], answer: bytes = b"") -> None:
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"go\n")
    process.stdin.flush()
    assert process.stdout.readline() == answer


@pytest.mark.parametrize("ends", ["by a signal", "with the process"])
def test_a_running_process_is_recorded_until_the_end(
    folder: Path, data: Path, waiting: subprocess.Popen[bytes], ends: str
) -> None:
    trace = folder / "app.iotrace"
    reading, writing = os.pipe()
    command = [str(BINARY), "record", "--output", str(trace), "--report", str(writing)]
    recording = subprocess.Popen([*command, "--pid", str(waiting.pid)], pass_fds=(writing,))
    os.close(writing)
    while not trace.exists() or not trace.stat().st_size:
        assert recording.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    tell(waiting, b"done\n")
    if ends == "by a signal":
        recording.send_signal(signal.SIGINT)
    else:
        tell(waiting)
    with os.fdopen(reading, "rb") as pipe:
        answer = json.loads(pipe.read())
    assert recording.wait() == 0
    found = read(trace, answer["ok"])
    assert found.header["under"] == str(data)
    calls = found.of("offset", "length", "result")
    assert calls[:4] == [
        ("read", "known", 1000, 200, 200),
        ("read", "known", 7, 5, 5),
        ("open", "new", 0, 0, 0),
        ("close", "new", 0, 0, 0),
    ]
    assert len({op["thread"] for op in found.ops[:3]}) == 2
    assert len({op["handle"] for op in found.ops[:2]}) == 1


def test_operations_elsewhere_are_only_counted(data: Path) -> None:
    (data.parent / "outside").write_bytes(b"1" * 1000)
    script = """
        import os
        for _ in range(50):
            fd = os.open("../outside", os.O_RDONLY)
            os.read(fd, 10)
            os.close(fd)
    """
    nothing, some = record(data, python("pass")), record(data, python(script))
    assert (nothing.ops, nothing.files) == ([], [])
    # An open and a read each; a close is none that moves data.
    assert abs(some.end["elsewhere"] - nothing.end["elsewhere"] - 100) <= 5
    assert not some.files


def test_lost_events_are_counted(data: Path) -> None:
    count = 30_000
    script = f"""
        import os
        fd = os.open("known", os.O_RDONLY)
        for _ in range({count}):
            os.pread(fd, 10, 0)
    """
    found = record(data, python(script), "--ring", "4096", check=False)
    reads = [op for op in found.ops if op["call"] == "read"]
    assert found.end["lost"] == found.report["lost"] > 0
    assert len(reads) < count
    whole = record(data, python(script))
    assert len([op for op in whole.ops if op["call"] == "read"]) == count


def test_a_killed_program_leaves_a_whole_trace(data: Path) -> None:
    script = """
        import os, signal
        fd = os.open("known", os.O_RDONLY)
        os.read(fd, 10)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    found = record(data, python(script), check=False)
    assert (found.report["exit_code"], found.report["signal"]) == (None, signal.SIGKILL)
    assert found.of(calls=("open", "read")) == [("open", "known"), ("read", "known")]


def test_a_trace_of_a_killed_recorder_is_readable_up_to_there(folder: Path, data: Path) -> None:
    trace = folder / "app.iotrace"
    script = """
        import os
        fd = os.open("known", os.O_RDONLY)
        for _ in range(100_000):
            os.pread(fd, 10, 0)
        print("done", flush=True)
        while True:
            os.pread(fd, 10, 0)
    """
    process = subprocess.Popen(
        [str(BINARY), "record", "--output", str(trace), "--under", str(data), "--", *python(script)],
        cwd=data,
        stdout=subprocess.PIPE,
    )
    assert process.stdout
    assert process.stdout.readline() == b"done\n"
    (command,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    time.sleep(0.2)
    process.kill()
    process.wait()
    os.kill(int(command), signal.SIGKILL)
    process.stdout.close()
    dumped = subprocess.run([str(BINARY), "record", "--dump", str(trace)], capture_output=True, text=True)
    assert dumped.returncode == 1
    assert "cut off" in dumped.stderr
    assert dumped.stdout.count('"call":"read"') > 10_000


def test_hashed_names_keep_the_structure_and_nothing_else(folder: Path, data: Path) -> None:
    (data / "secret").mkdir()
    (data / "secret" / "customers.db").write_bytes(b"1")
    (data / "secret" / "orders.db").write_bytes(b"1")
    script = """
        import os
        for name in ("customers.db", "orders.db"):
            os.close(os.open("secret/" + name, os.O_RDONLY))
    """
    found, again = (record(data, python(script), "--hash-names") for _ in range(2))
    whole = (folder / "app.iotrace").read_bytes()
    for word in (b"secret", b"customers", b"orders", data.name.encode(), b"import os"):
        assert word not in whole
    assert found.header["names_hashed"]
    paths = [file["path"].split("/") for file in found.files]
    assert [len(path) for path in paths] == [2, 2]
    assert paths[0][0] == paths[1][0]
    assert paths[0][1] != paths[1][1]
    assert all(path[1].endswith(".db") for path in paths)
    # The key is another one each time.
    assert [file["path"] for file in again.files] != [file["path"] for file in found.files]


def test_names_beyond_the_limit_are_learned_when_they_are_opened(data: Path) -> None:
    script = """
        import os
        os.close(os.open("known", os.O_RDONLY))
        os.close(os.open("new", os.O_WRONLY | os.O_CREAT))
    """
    found = record(data, python(script), "--names", "0")
    assert not found.report["complete"]
    assert (found.known("known")["size"], found.known("new")["size"]) == (65536, None)


@pytest.mark.parametrize("name", ["sh", "missing"])
def test_a_command_that_cannot_be_started_is_an_error(folder: Path, data: Path, name: str) -> None:
    options = ["--output", str(folder / "t"), "--under", str(data), "--", f"./{name}"]
    done = subprocess.run([str(BINARY), "record", *options], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"start ./{name}: No such file or directory" in done.stderr


def refusal(prefix: list[str], folder: Path, **more: Any) -> dict[str, Any]:
    options = ["--output", str(folder / "t"), "--under", str(folder), "--", "true"]
    argv = [*prefix, str(BINARY), "record", *options]
    done = subprocess.run(argv, capture_output=True, text=True, **more)
    assert done.returncode == 1
    return json.loads(done.stderr)["error"]


def test_without_privilege_it_is_refused(folder: Path) -> None:
    found = refusal([], folder, user=NOBODY, group=NOBODY, extra_groups=[])
    assert found["code"] == "unsupported"
    assert "needs root" in found["message"]


def test_from_within_a_container_it_is_refused(folder: Path) -> None:
    found = refusal(["unshare", "--pid", "--fork", "--mount-proc"], folder)
    assert found["code"] == "unsupported"
    assert "record from the host, with --pid" in found["message"]


def test_a_kernel_without_type_information_is_refused(folder: Path) -> None:
    hide = 'mount -t tmpfs none /sys/kernel/btf && exec "$@"'
    found = refusal(["unshare", "-m", "sh", "-c", hide, "sh"], folder)
    assert found["code"] == "unsupported"
    assert "it needs Linux 5.11 or later" in found["message"]


def test_memory_does_not_grow_with_the_recording(data: Path) -> None:
    def most_kib(count: int) -> int:
        script = f"""
            import os
            fd = os.open("known", os.O_RDONLY)
            for _ in range({count}):
                os.pread(fd, 10, 0)
        """
        trace = str(data.parent / "app.iotrace")
        argv = [str(BINARY), "record", "--output", trace, "--under", str(data), "--", *python(script)]
        process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        most = 0
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            lines = [line for line in status.splitlines() if line.startswith("RssAnon:")]
            most = max(most, *(int(line.split()[1]) for line in lines), 0)
            time.sleep(0.01)
        assert process.returncode == 0
        return most

    assert most_kib(400_000) < most_kib(20_000) + 8 * 1024


def test_one_of_many_files_is_found_by_what_the_kernel_opened(data: Path) -> None:
    """Through a link outside the folder, which no text of a path shows."""
    (data.parent / "way").symlink_to("data/known")
    found: Recording = record(data, python('import os; os.close(os.open("../way", os.O_RDONLY))'))
    assert found.of() == [("open", "known"), ("close", "known")]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_an_application_is_recorded_as_strace_sees_it(folder: Path, data: Path) -> None:
    script = """
        import sqlite3
        db = sqlite3.connect("x.db", isolation_level=None)
        db.execute("create table t (a, b)")
        for number in range(20):
            db.execute("insert into t values (?, ?)", (number, "x" * 1000))
    """
    found = record(data, python(script))
    (data / "x.db").unlink()
    report = folder / "strace"
    subprocess.run(
        ["strace", "-f", "-y", "-qq", "-s", "0", "-o", report, *python(script)], cwd=data, check=True
    )
    call = re.compile(rf"(\w+)\(\d+<{re.escape(str(data))}/?([^>]*)>.*\) += (\d+)$")
    seen = [match.groups() for line in report.read_text().splitlines() if (match := call.search(line))]
    names = {
        "pread64": "read",
        "pwrite64": "write",
        "read": "read",
        "write": "write",
        "fdatasync": "fdatasync",
    }
    wanted = [(names[name], path, int(result)) for name, path, result in seen if name in names]
    assert len(wanted) > 100
    assert found.of("result", calls=("read", "write", "fdatasync")) == wanted
