"""Servers that a job needs: started, ready, accounted for, stopped, and never left behind."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from probe_client import MIB, NOBODY, Lab, Probe, ProbeError, processes_with

#: serves one connection at a time, each in a child process that spins for a number of seconds and reads a
#: number of bytes of a file
FORKING = """
import os, signal, socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(8)
sys.stderr.write("listening, says " + os.environ.get("WHO", "nobody") + "\\n")
sys.stderr.flush()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
while True:
    peer, _ = listener.accept()
    child = os.fork()
    if child == 0:
        asked = peer.recv(100)
        if not asked:  # who only looks whether somebody listens
            os._exit(0)
        asked = float(asked)
        while time.process_time() < asked:
            pass
        data = open(sys.argv[1] + ".data", "rb").read() if os.path.exists(sys.argv[1] + ".data") else b""
        peer.send(str(time.process_time()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    peer.close()
"""
ASKING = """
import socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
peer.send(sys.argv[2].encode())
sys.exit(0 if float(peer.recv(100)) >= float(sys.argv[2]) else 1)
"""


KILLING = """
        server = os.getppid()
        os.kill(server, 9)
        while os.getppid() == server:
            time.sleep(0.001)
"""
#: an interpreter that every user may execute
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


def start(probe: Probe, path: Path, script: str = FORKING, **more: object) -> dict[str, object]:
    argv = [PYTHON, "-I", "-c", script, str(path)]
    return probe("server_start", **{"name": "s", "argv": argv, "ready": {"socket": str(path)}, **more})


def ask(probe: Probe, path: Path, seconds: float) -> dict[str, object]:
    argv = [sys.executable, "-I", "-c", ASKING, str(path), str(seconds)]
    return probe("command", steps=[{"name": "ask", "argv": argv}])


@pytest.fixture(params=["plain", "isolated"])
def any_probe(request: pytest.FixtureRequest) -> Probe:
    return request.getfixturevalue("probe" if request.param == "plain" else "isolated")


def test_a_server_outlives_commands_and_is_accounted_with_children_that_have_ended(
    any_probe: Probe, folder: Path
) -> None:
    path = folder / "socket"
    (folder / "socket.data").write_bytes(bytes(3 * MIB))
    assert start(any_probe, path, environment={"WHO": "me"})["ready_ns"] > 0
    # processes that a command leaves behind are still killed
    done = any_probe("command", steps=[{"name": "a", "argv": ["sh", "-c", "sleep 1000 & true"]}])
    assert done["stragglers"] == 1
    any_probe("run", argv=["true"])
    before = time.process_time()
    done = ask(any_probe, path, 0.3)
    assert time.process_time() - before < 0.3, "not in the time of the one who asks"
    assert (done["verified"], done["failures"]) == (True, [])
    used = done["servers"]["s"]
    assert 0.29e9 <= used["cpu_ns"] <= 0.6e9
    assert used["user_ns"] + used["sys_ns"] >= 0.28e9
    assert used["read_bytes"] >= 3 * MIB
    assert used["processes"] in (1, 2), "the one that asked for it may not be quite gone"
    assert used["resident_bytes"] > MIB
    idle = any_probe("command", steps=[{"name": "a", "argv": ["true"]}])["servers"]["s"]
    assert idle["cpu_ns"] < 0.1e9
    assert idle["read_bytes"] < MIB
    status = any_probe("server_status", name="s")
    assert status["alive"]
    assert status["stderr"] == "listening, says me\n"
    ended = any_probe("server_stop", name="s")
    assert (ended["exit"], ended["killed"], ended["left"], ended["died"]) == (7, False, 0, False)
    assert "servers" not in any_probe("command", steps=[{"name": "a", "argv": ["true"]}])


def test_what_is_no_server_is_refused_with_its_last_words(probe: Probe, folder: Path) -> None:
    path = folder / "socket"
    with pytest.raises(ProbeError, match=r"ended with status 3 before it was ready; its log: no luck"):
        start(probe, path, "import sys; sys.stderr.write('no luck'); sys.exit(3)")
    with pytest.raises(ProbeError, match="it was not ready in time; its log is empty"):
        start(probe, path, "import time; time.sleep(1000)", timeout_s=0.3)
    with pytest.raises(ProbeError, match="No such file") as caught:
        probe("server_start", name="s", argv=["/no/such"], ready={"tcp": 1})
    assert caught.value.errno == 2
    for ready in ({}, {"tcp": 0}, {"tcp": 1, "file": "/x"}, {"contains": "x", "tcp": 1}):
        with pytest.raises(ProbeError, match="ready"):
            probe("server_start", name="s", argv=["true"], ready=ready)
    with pytest.raises(ProbeError, match="no server named"):
        probe("server_stop", name="s")
    assert not processes_with(str(path))


def test_a_file_says_that_a_server_is_ready(probe: Probe, folder: Path) -> None:
    path = folder / "state"
    write = "f.write({!r}); f.flush(); time.sleep({})\n"
    script = (
        "import sys, time; f = open(sys.argv[1], 'w')\n"
        + write.format("starting", 0.3)
        + write.format("ready", 999)
    )
    started = start(probe, path, script, ready={"file": str(path), "contains": "ready"})
    assert started["ready_ns"] > 0.3e9
    assert probe("server_stop", name="s")["signal"] == signal.SIGTERM


def test_a_free_port_can_be_listened_on(probe: Probe, folder: Path) -> None:
    port = probe("free_port")["port"]
    # Python's SIGINT handler is lost if the signal arrives while a connection is being closed.
    script = (
        "import signal, socket, sys\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "s = socket.create_server(('127.0.0.1', int(sys.argv[2])))\nwhile True: s.accept()"
    )
    argv = [sys.executable, "-I", "-c", script, "x", str(port)]
    probe("server_start", name="web", argv=argv, ready={"tcp": port})
    with pytest.raises(ProbeError, match="must be unique"):
        probe("server_start", name="web", argv=argv, ready={"tcp": port})
    socket.create_connection(("127.0.0.1", port)).close()
    probe("server_stop", name="web", signal="INT")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_server_that_dies_makes_the_job_fail(any_probe: Probe, folder: Path) -> None:
    path = folder / "socket"
    dying = FORKING.replace("        peer.send", KILLING + "        peer.send")
    start(any_probe, path, dying)
    done = ask(any_probe, path, 0.01)
    assert done["verified"] is False
    failure = done["failures"][0]
    assert (failure["step"], failure["signal"], failure["argv0"]) == ("server s", 9, PYTHON)
    assert failure["stderr"].startswith("listening, says nobody\n")
    stopped = any_probe("server_stop", name="s")
    assert (stopped["died"], stopped["signal"]) == (True, 9)


def test_a_server_that_will_not_end_is_killed_with_all_below_it(any_probe: Probe, folder: Path) -> None:
    path = folder / "socket"
    more = (
        "import subprocess\nfor _ in '12':\n    subprocess.Popen(['sleep', '4321'], start_new_session=True)\n"
    )
    stubborn = FORKING.replace("lambda *_: sys.exit(7)", "signal.SIG_IGN").replace(
        "while True:\n    peer", more + "while True:\n    peer"
    )
    start(any_probe, path, stubborn)
    stopped = any_probe("server_stop", name="s", timeout_s=0.2)
    assert (stopped["killed"], stopped["signal"], stopped["left"]) == (True, 9, 2)
    assert not processes_with("4321")


@pytest.mark.parametrize("isolated", [True, False])
def test_nothing_of_a_server_outlives_a_killed_probe(folder: Path, isolated: bool) -> None:
    path = folder / "socket"
    probe = Probe(*["--isolate"] * isolated)
    start(probe, path)
    assert processes_with(str(path))
    probe.process.kill()
    probe.process.wait()
    deadline = time.monotonic() + 10
    while processes_with(str(path)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not processes_with(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_server_is_its_users_and_holds_no_device_of_the_lab(lab: Lab, folder: Path) -> None:
    os.chown(folder, NOBODY, NOBODY)
    path = folder / "socket"
    start(lab.probe, path, user={"uid": NOBODY, "gid": NOBODY})
    assert path.stat().st_uid == NOBODY
    used = ask(lab.probe, path, 0)["servers"]["s"]
    assert used["fetched_bytes"] is not None
    # a descriptor of the device or a folder in the lab would give EBUSY here
    lab.make_cold()
    lab.probe("server_stop", name="s")


def test_pages_of_a_folder_leave_the_cache_and_links_are_not_followed(probe: Probe, folder: Path) -> None:
    inside, outside = folder / "in" / "deep", folder / "out"
    inside.mkdir(parents=True)
    for path in (inside / "a", inside.parent / "b", outside):
        path.write_bytes(os.urandom(MIB))
    (inside / "link").symlink_to(outside)
    assert probe("evict_tree", path=str(inside.parent)) == {"files": 2, "bytes": 2 * MIB}
    assert (cached(inside / "a"), cached(inside.parent / "b"), cached(outside)) == (0, 0, MIB // 4096)


def cached(path: Path) -> int:
    """Return the file's pages in the page cache, by mincore(2)."""
    import ctypes
    import mmap

    libc = ctypes.CDLL(None, use_errno=True)
    size = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        vector = (ctypes.c_ubyte * (size // 4096))()
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), vector) == 0
        found = sum(byte & 1 for byte in vector)
        del address
    return found


def write_in_rounds(probe: Probe, folder: Path, rounds: str, script: str) -> dict[str, object]:
    argv = ["sh", "-c", script, "sh", str(folder / "written")]
    return probe("server_start", name="s", argv=argv, rounds=rounds)


def test_a_program_in_rounds_is_started_again_and_each_round_is_timed(any_probe: Probe, folder: Path) -> None:
    before = time.monotonic_ns()
    write_in_rounds(any_probe, folder, "repeat", "sleep .1; head -c 100000 /dev/zero >> $1")
    done = any_probe("command", steps=[{"name": "a", "argv": ["sleep", "1"]}])
    assert (done["verified"], done["failures"]) == (True, [])
    assert any_probe("server_status", name="s")["alive"]
    ended = any_probe("server_stop", name="s")
    after = time.monotonic_ns()
    assert not ended["died"]
    assert any_probe("command", steps=[{"name": "a", "argv": ["true"]}])["verified"]
    size = (folder / "written").stat().st_size
    rounds = ended["rounds_ns"]
    assert len(rounds) in (size // 100_000, size // 100_000 - 1), "the last one may not have been heard of"
    assert len(rounds) >= 3
    times = [moment for one in rounds for moment in one]
    assert before < times[0] < after
    assert times == sorted(times)
    assert times[-1] < after
    assert min(end - start for start, end in rounds) >= 0.1e9
    # what it wrote in the timed part is counted, also by the rounds that have ended
    assert 0 < done["servers"]["s"]["written_bytes"] <= size + 4096, "and its reaper's few lines"
    time.sleep(0.3)
    assert (folder / "written").stat().st_size == size, "nothing goes on"


def test_a_program_that_runs_once_is_waited_for_and_is_no_failure(any_probe: Probe, folder: Path) -> None:
    write_in_rounds(any_probe, folder, "once", "sleep .3; echo done > $1")
    done = any_probe("command", steps=[{"name": "a", "argv": ["true"]}])
    assert (done["verified"], done["failures"]) == (True, [])
    ended = any_probe("server_stop", name="s", after_round=True)
    assert (folder / "written").read_text() == "done\n"
    ((start, end),) = ended["rounds_ns"]
    assert 0.3e9 <= end - start < 5e9
    assert not ended["died"]
    # one that has ended before the job is none either
    write_in_rounds(any_probe, folder, "once", "true")
    time.sleep(0.3)
    done = any_probe("command", steps=[{"name": "a", "argv": ["sleep", ".2"]}])
    assert (done["verified"], done["failures"]) == (True, [])
    assert len(any_probe("server_stop", name="s", after_round=True)["rounds_ns"]) == 1


def test_a_round_that_fails_or_takes_too_long_is_told(any_probe: Probe, folder: Path) -> None:
    write_in_rounds(any_probe, folder, "repeat", "sleep .1; echo no luck >&2; exit 3")
    done = any_probe("command", steps=[{"name": "a", "argv": ["sleep", ".5"]}])
    assert not done["verified"]
    assert (done["failures"][0]["step"], done["failures"][0]["exit"]) == ("server s", 3)
    assert done["failures"][0]["stderr"] == "no luck\n"
    ended = any_probe("server_stop", name="s")
    assert (ended["died"], ended["exit"], ended["rounds_ns"]) == (True, 3, [])
    write_in_rounds(any_probe, folder, "once", "sleep 1000")
    ended = any_probe("server_stop", name="s", after_round=True, timeout_s=0.3)
    assert (ended["died"], ended["rounds_ns"]) == (False, [])
    assert not processes_with(str(folder / "written"))
