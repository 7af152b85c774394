"""Accounting of system calls where something found no room: it is said, and never counted low in silence."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from accounted import PYTHON, account
from probe_client import Probe, ProbeError, eventually, inner, zombie

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

BURST = """
import os, signal
probe, stop = os.getppid(), {stop}
if stop: os.kill(probe, signal.SIGSTOP)
for _ in range({count}): os.getpgid(0)
if stop: os.kill(probe, signal.SIGCONT)
"""
ENDING_IN_A_BURST = """
import os, signal
os.kill(os.getppid(), signal.SIGSTOP)
for _ in range({count}): os.getpgid(0)
os.kill(os.getpid(), signal.SIGKILL)
"""
#: a call writes two records of some hundred bytes: four times more than there is room for without the environment's word
TOO_MANY = 160_000


@pytest.mark.parametrize("ring", ["4096", "65536", "1048576", None])
@pytest.mark.parametrize("stop", [False, True], ids=["while the probe reads", "while it stands still"])
def test_counts_of_perf_events_are_whole_or_say_that_they_are_not(ring: str | None, stop: bool) -> None:
    """A burst of calls, with a probe that reads along or is stopped by the program meanwhile."""
    environment = {**os.environ, **({} if ring is None else {"IOPROBE_RING_BYTES": ring})}
    argv = [*PYTHON, "-c", BURST.format(count=TOO_MANY, stop=stop)]
    with Probe(env=environment) as probe:
        found = probe("command", steps=[{"name": "it", "argv": argv}], account="perf")["account"]
    counted = found["calls"]["getpgid"]["count"] if "getpgid" in found["calls"] else 0
    assert counted <= TOO_MANY
    assert (counted == TOO_MANY) or found["lost"] > 0
    if stop:
        assert counted < TOO_MANY


def test_what_finds_no_room_at_the_very_end_is_told_too() -> None:
    """The kernel tells of lost records with the next one that fits; here there is none."""
    argv = [*PYTHON, "-c", ENDING_IN_A_BURST.format(count=TOO_MANY)]
    with Probe() as probe:
        probe("hello")
        stopped = inner(probe)
        probe.send("command", steps=[{"name": "it", "argv": argv}], account="perf")
        try:
            assert eventually(lambda: any(zombie(pid) for pid in children(stopped)), 60)
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert probe.process.stdout
        found = json.loads(probe.process.stdout.readline())["ok"]["account"]
    assert found["lost"] > 0
    assert found["calls"]["getpgid"]["count"] < TOO_MANY


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_size_of_buffers_that_cannot_be_is_refused() -> None:
    with (
        Probe(env={**os.environ, "IOPROBE_RING_BYTES": "5000"}) as probe,
        pytest.raises(ProbeError) as caught,
    ):
        probe("command", steps=[{"name": "it", "argv": ["true"]}], account="perf")
    assert 'IOPROBE_RING_BYTES: wanted a power of two from 4096 to 1073741824, found "5000"' in str(
        caught.value
    )


NO_SUCH_CALLS = "import ctypes; c = ctypes.CDLL(None); [c.syscall(n) for n in range(1000, 1000 + {count})]"
#: places in BPF's table of errors, one for each error of a call (docs/accounting.md)
ERRORS = 4096


def test_errors_that_find_no_room_in_the_table_of_bpf_are_told_as_lost(probe: Probe) -> None:
    """Every number that is no call is one by itself, and fails with ENOSYS."""
    fits = account(probe, "bpf", [*PYTHON, "-c", NO_SUCH_CALLS.format(count=ERRORS - 100)])
    beyond = {name: call["count"] for name, call in fits.items() if name.startswith("syscall_")}
    assert beyond == {f"syscall_{number}": 1 for number in range(1000, 1000 + ERRORS - 100)}
    others = sum(len(call["errors"]) for name, call in fits.items() if name not in beyond)
    argv = [*PYTHON, "-c", NO_SUCH_CALLS.format(count=ERRORS + 1000)]
    found = probe("command", steps=[{"name": "it", "argv": argv}], account="bpf")["account"]
    kept = sum(1 for name in found["calls"] if name.startswith("syscall_"))
    assert kept <= ERRORS - others
    assert found["lost"] >= ERRORS + 1000 - kept > 0
