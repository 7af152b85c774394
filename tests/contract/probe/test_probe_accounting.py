"""System calls of a process tree, checked against strace on the same command."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import signal
import struct
from pathlib import Path
from typing import Any

import pytest
import traced
from accounted import PYTHON, Known, account
from probe_client import NOBODY, Probe, ProbeError, eventually, inner, make_set, processes_with

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("strace"), reason="needs strace"),
]
#: restart codes unknown to the C library, with the kernel's names (include/linux/errno.h)
RESTARTS = {512: "ERESTARTSYS", 513: "ERESTARTNOINTR", 514: "ERESTARTNOHAND", 516: "ERESTART_RESTARTBLOCK"}


def counts(calls: dict[str, Any]) -> traced.Counts:
    return {name: (call["count"], sum(call["errors"].values())) for name, call in calls.items()}


def named_errors(calls: dict[str, Any]) -> dict[str, dict[str, int]]:
    def name(number: str) -> str:
        return RESTARTS.get(int(number)) or errno.errorcode[int(number)]

    return {
        call: {name(number): count for number, count in found["errors"].items()}
        for call, found in calls.items()
        if found["errors"]
    }


@pytest.fixture
def tree(folder: Path, probe: Probe) -> Path:
    return make_set(probe, folder, "tree", count=300, directories=7)


@pytest.fixture(scope="module")
def known() -> Known:
    return Known()


SIGNALLED = """
import os, signal, time
reading, writing = os.pipe()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, {restart})
if os.fork() == 0:
    time.sleep(0.5)
    os.write(writing, b"x")
    os._exit(0)
signal.setitimer(signal.ITIMER_REAL, 0.2)
os.read(reading, 1)
os.wait()
"""
# SIGCHLD is blocked: even if it is ignored, it interrupts a traced program.
SENT = """
import os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
pid = os.posix_spawn("/bin/sleep", ["sleep", "1.2"], os.environ)
time.sleep(0.6)  # a tracer has got as far as the sleep by then
os.kill(pid, signal.{first})
time.sleep(0.1)
os.kill(pid, signal.SIGCONT)
os.waitpid(pid, 0)
"""
COMMANDS = {
    "cat": ["cat", "/etc/hostname"],
    "one that fails": ["cat", "/etc/hostname", "/nowhere/at/all"],
    "grep": ["grep", "-r", "linux", "{tree}"],
    "find": ["find", "{tree}", "-name", "linux"],
    "forks": ["sh", "-c", "for i in 1 2 3; do cat /etc/hostname; (true; cat /nowhere); done"],
    "a group of forks": ["sh", "-c", "a=$(cat /etc/hostname); b=$(echo x); find {tree} -type d; exec true"],
    "vfork": [*PYTHON, "-c", "import subprocess as s; s.run(['cat', '/etc/hostname']); s.run(['/bin/true'])"],
    "killed by itself": ["sh", "-c", "kill -9 $$"],
    "ended by itself": ["sh", "-c", "kill -TERM $$"],
    "a child that is killed": [*PYTHON, "-c", SENT.format(first="SIGKILL")],
    "a child that is ended": [*PYTHON, "-c", SENT.format(first="SIGTERM")],
    "an interrupted call": [*PYTHON, "-c", SIGNALLED.format(restart=True)],
    "a restarted call": [*PYTHON, "-c", SIGNALLED.format(restart=False)],
    "a stopped child": [*PYTHON, "-c", SENT.format(first="SIGSTOP")],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_calls_and_errors_are_those_that_strace_counts(
    probe: Probe, folder: Path, tree: Path, name: str, known: Known
) -> None:
    argv = [word.replace("{tree}", str(tree)) for word in COMMANDS[name]]
    known.run_before(probe, argv)
    assert counts(account(probe, argv)) == known.counts(argv, folder)


@pytest.mark.parametrize("name", ["one that fails", "find", "an interrupted call", "a child that is ended"])
def test_errors_are_told_by_number(probe: Probe, folder: Path, tree: Path, name: str, known: Known) -> None:
    argv = [word.replace("{tree}", str(tree)) for word in COMMANDS[name]]
    found = named_errors(account(probe, argv))
    assert found
    assert found == known.errors(argv, folder)


def test_a_call_that_is_none_is_told_by_its_number(probe: Probe, folder: Path) -> None:
    """400 is an unassigned number within the table, 999 lies beyond it. strace -c drops the first and crashes
    at the second."""
    argv = [*PYTHON, "-c", "import ctypes; c = ctypes.CDLL(None); [c.syscall(n) for n in (400, 400, 999)]"]
    found = named_errors(account(probe, argv))
    truth = traced.errors(argv, folder)
    assert found["syscall_400"] == truth.pop("syscall_0x190") == {"ENOSYS": 2}
    assert found["syscall_999"] == truth.pop("syscall_0x3e7") == {"ENOSYS": 1}
    assert {name: count for name, count in found.items() if not name.startswith("syscall_")} == truth


THREADS = """
import os, threading
def work():
    for _ in range(1000):
        os.getppid()
        try: os.stat('/nowhere')
        except OSError: pass
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
SECOND_THREAD_EXECUTES = """
import os, threading
t = threading.Thread(target=lambda: os.execv('/bin/cat', ['cat', '/etc/hostname']))
t.start()
t.join()
"""


def test_calls_of_threads_are_counted_on_all_processors(probe: Probe, folder: Path) -> None:
    """The number of futex waits between threads varies; all other counts are fixed."""
    argv = [*PYTHON, "-c", THREADS]
    found, truth = counts(account(probe, argv)), traced.counted(argv, folder)
    assert found["getppid"] == (8000, 0)
    for call in ("getppid", "newfstatat", "stat", "clone3", "openat", "execve", "set_robust_list"):
        assert found.get(call) == truth.get(call), call


def test_a_second_thread_may_execute_a_program(probe: Probe, folder: Path) -> None:
    argv = [*PYTHON, "-c", SECOND_THREAD_EXECUTES]
    found, truth = counts(account(probe, argv)), traced.counted(argv, folder)
    for call in ("execve", "openat", "read", "write", "fadvise64"):
        assert found[call] == truth[call], call
    assert found["execve"] == (2, 0)


SIBLING_WAITS = """
import os, resource, threading, time
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
reading, writing = os.pipe()
threading.Thread(target=lambda: os.read(reading, 1)).start()
time.sleep(0.3)
{end}
"""


@pytest.mark.parametrize(
    "end",
    [
        "os.execv('/bin/cat', ['cat', '/etc/hostname'])",
        "os.abort()",
        "os.kill(os.getpid(), 15)",
        "os._exit(0)",
    ],
)
def test_a_call_in_which_another_thread_ends_the_task_is_counted_as_strace_does(
    probe: Probe, folder: Path, end: str, known: Known
) -> None:
    argv = [*PYTHON, "-c", SIBLING_WAITS.format(end=end)]
    known.run_before(probe, argv)
    assert counts(account(probe, argv))["read"] == known.counts(argv, folder)["read"]


TURNED_DOWN = """
import ctypes, struct
c = ctypes.CDLL(None)
for _ in range({before}): assert c.syscall({number}) == -1
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, {number}), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
class Program(ctypes.Structure): _fields_ = [("length", ctypes.c_ushort), ("rules", ctypes.c_void_p)]
program = Program(len(rules), ctypes.addressof(code))
assert c.prctl(38, 1, 0, 0, 0) == 0 and c.prctl(22, 2, ctypes.byref(program)) == 0
for _ in range({after}): assert c.syscall({number}) == -1
"""


def test_calls_that_seccomp_turns_down_are_counted(probe: Probe, folder: Path) -> None:
    """A filter answers getppid with EPERM; the kernel's sys_enter tracepoint is not reached then."""
    argv = [*PYTHON, "-c", TURNED_DOWN.format(number=110, before=0, after=5)]
    calls = account(probe, argv)
    assert counts(calls) == traced.counted(argv, folder)
    assert calls["getppid"]["errors"] == {str(errno.EPERM): 5}
    assert calls["getppid"]["untimed"] == 5


def test_a_call_beyond_the_tables_may_fail_in_two_ways(probe: Probe) -> None:
    call = account(probe, [*PYTHON, "-c", TURNED_DOWN.format(number=999, before=2, after=3)])["syscall_999"]
    assert call["errors"] == {str(errno.ENOSYS): 2, str(errno.EPERM): 3}
    assert call["count"] == 5


def test_calls_of_32_bit_programs_have_names_of_their_own(probe: Probe, folder: Path) -> None:
    program = folder / "program32"
    program.write_bytes(_elf_32())
    program.chmod(0o755)
    argv = [str(program)]
    try:
        truth = traced.counted(argv, folder)
    except AssertionError:
        pytest.skip("this kernel runs no 32-bit programs")
    if not any(name.endswith("@i386") for name in truth):
        pytest.skip("this kernel runs no 32-bit programs")
    found = counts(account(probe, argv))
    assert found["getpid@i386"] == (3, 0)
    assert found["close@i386"] == (1, 1)
    assert found["execve"] == (1, 0)


def _elf_32() -> bytes:
    """Return a 32-bit ELF program: getpid three times, close(-1), exit(0), by int 0x80."""
    getpid = b"\xb8\x14\x00\x00\x00\xcd\x80"
    close = b"\xbb\xff\xff\xff\xff\xb8\x06\x00\x00\x00\xcd\x80"
    leave = b"\x31\xdb\xb8\x01\x00\x00\x00\xcd\x80"
    code, base, headers = getpid * 3 + close + leave, 0x08048000, 52 + 32
    size = headers + len(code)
    identity = b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    header = struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + headers, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    segment = struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 0x1000)
    return identity + header + segment + code


def test_times_are_within_the_time_of_the_program(probe: Probe) -> None:
    """With one thread the sum of all calls is at most the run time, and a sleep takes as long as it sleeps."""
    steps = [{"name": "it", "argv": ["sleep", "0.2"]}]
    done = probe("command", steps=steps, account=True)
    calls = done["account"]["calls"]
    assert sum(call["total_ns"] for call in calls.values()) <= done["wall_ns"]
    slept = calls["clock_nanosleep"]
    assert slept["count"] == 1
    assert 200e6 <= slept["total_ns"] <= done["wall_ns"]
    for call in calls.values():
        assert sum(count for _, count in call["histogram"]) + call["untimed"] == call["count"]
        longest = sum(ns * count for ns, count in call["histogram"])
        assert longest / 1.25 - call["count"] <= call["total_ns"] <= longest


def test_all_runs_of_a_job_are_counted_together(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, count=3)
    steps = [{"name": "a", "argv": ["cat", "{file}"]}, {"name": "b", "argv": ["true"]}]
    done = probe("command", set="s", steps=steps, account=True, replicates=2)
    assert done["account"]["calls"]["execve"]["count"] == done["processes"] == 8


def test_others_are_not_counted(probe: Probe) -> None:
    """Another process makes calls all the time, and so does a program of ours that was started before."""
    with Probe() as other:
        argv = ["sh", "-c", "while :; do cat /etc/hostname; done"]
        other.send("run", argv=argv, timeout_s=1.5)
        alone = counts(account(probe, ["sleep", "0.5"]))
    assert alone["execve"] == (1, 0)
    assert sum(count for count, _ in alone.values()) < 60


def test_a_command_that_is_not_accounted_says_nothing(probe: Probe) -> None:
    assert probe("command", steps=[{"name": "it", "argv": ["true"]}])["account"] is None


FATES: dict[str, dict[str, Any]] = {
    "ends": {"argv": ["true"]},
    "is killed": {"argv": ["sh", "-c", "kill -9 $$"]},
    "takes too long": {"argv": ["sleep", "100.3"], "timeout_s": 0.3},
    "leaves a child behind": {"argv": ["sh", "-c", "sleep 100.4 & exit 0"]},
    "is executed by a second thread": {"argv": [*PYTHON, "-c", SECOND_THREAD_EXECUTES]},
    "cannot be executed": {"argv": ["{folder}/no-program"]},
}


@pytest.mark.parametrize("fate", FATES)
def test_nothing_stays_attached_whatever_becomes_of_the_command(
    probe: Probe, folder: Path, fate: str
) -> None:
    (folder / "no-program").write_bytes(b"\x7fELF")
    (folder / "no-program").chmod(0o755)
    fields = dict(FATES[fate])
    argv = [word.replace("{folder}", str(folder)) for word in fields.pop("argv")]
    before = in_kernel()
    if fate == "cannot be executed":
        with pytest.raises(ProbeError, match="execute it"):
            account(probe, argv)
    else:
        assert account(probe, argv, **fields)["execve"]["count"] >= 1
    new = in_kernel() - before
    assert not held(inner(probe))
    assert eventually(lambda: not (in_kernel() & new))
    assert not processes_with("100.4")


def test_nothing_stays_attached_when_the_probe_is_killed() -> None:
    probe = Probe()
    try:
        probe.send("command", steps=[{"name": "it", "argv": ["sleep", "100.5"]}], account=True)
        assert eventually(lambda: bool(processes_with("100.5")))
        pid = inner(probe)
        assert held(pid)
        own = in_kernel_by(pid)
        assert len([number for kind, number in own if kind == "program"]) == 3
        assert own <= in_kernel()
        os.kill(pid, signal.SIGKILL)
    finally:
        probe.close()
    assert eventually(lambda: not (in_kernel() & own))


def held(pid: int) -> list[str]:
    """Return the BPF descriptors of a process."""
    links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    return [link for link in links if "bpf" in link]


#: bpf(2) commands that return the next id: BPF_PROG_GET_NEXT_ID and the like
NEXT = {"program": 11, "map": 12, "types": 23, "link": 31}


def in_kernel() -> set[tuple[str, int]]:
    """Return all BPF objects in the kernel."""
    return {(kind, number) for kind in NEXT for number in numbers(kind)}


def in_kernel_by(pid: int) -> set[tuple[str, int]]:
    """Return the BPF objects that a process holds by descriptors (proc_pid_fdinfo(5))."""
    told = "".join(file.read_text() for file in Path(f"/proc/{pid}/fdinfo").iterdir())
    kinds = {"prog": "program", "map": "map", "link": "link"}
    return {
        (kinds[kind], int(number))
        for kind, number in re.findall(r"^(prog|map|link)_id:\s*(\d+)", told, re.MULTILINE)
    }


def numbers(kind: str) -> set[int]:
    libc = ctypes.CDLL(None, use_errno=True)
    found: set[int] = set()
    attributes = (ctypes.c_uint32 * 3)()
    while libc.syscall(321, NEXT[kind], ctypes.byref(attributes), 12) == 0:
        found.add(attributes[1])
        attributes[0] = attributes[1]
    assert ctypes.get_errno() == errno.ENOENT
    return found


def test_without_privilege_it_says_what_was_refused_and_what_it_takes() -> None:
    with Probe(user=NOBODY, group=NOBODY, extra_groups=[]) as probe, pytest.raises(ProbeError) as caught:
        probe("command", steps=[{"name": "it", "argv": ["true"]}], account=True)
    assert caught.value.code == "unsupported"
    assert "Operation not permitted; it needs CAP_BPF and CAP_PERFMON: run as root" in str(caught.value)


def test_how_calls_are_counted_cannot_be_chosen(probe: Probe) -> None:
    with pytest.raises(ProbeError, match='account: invalid type: string "perf", expected a boolean'):
        probe("command", steps=[{"name": "it", "argv": ["true"]}], account="perf")


def test_an_isolated_probe_counts_the_same(isolated: Probe, probe: Probe) -> None:
    argv = ["sh", "-c", "cat /etc/hostname; (cat /nowhere; true)"]
    assert counts(account(isolated, argv)) == counts(account(probe, argv))
