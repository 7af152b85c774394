"""Saved memory snapshots of guests: complete or absent, least recently used evicted first; and the QEMU monitor commands."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from iotrial.errors import LabError
from iotrial.guest import machine
from iotrial.guest.machine import Pulse
from iotrial.guest.snapshots import MOST, Monitor, States


def write(text: bytes):  # type: ignore[no-untyped-def]
    return lambda descriptor: os.write(descriptor, text)


def content(states: States, key: str) -> bytes | None:
    descriptor = states.open(key)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def test_what_was_kept_is_there_until_it_is_forgotten(tmp_path: Path) -> None:
    states = States(tmp_path / "states")
    assert states.open("a") is None
    assert states.keep("a", write(b"memory"))
    assert content(states, "a") == b"memory"
    states.forget("a")
    states.forget("a")
    assert states.open("a") is None


def test_one_that_another_could_have_written_is_not_believed(tmp_path: Path) -> None:
    states = States(tmp_path)
    states.keep("a", write(b"memory"))
    (tmp_path / "a.state").chmod(0o620)
    assert states.open("a") is None
    (tmp_path / "a.state").chmod(0o600)
    (tmp_path / "b.state").symlink_to("a.state")
    assert content(states, "a") == b"memory"
    assert states.open("b") is None
    if os.geteuid() == 0:
        os.chown(tmp_path / "a.state", 65534, 65534)
        assert states.open("a") is None


def test_one_that_could_not_be_written_whole_is_none(tmp_path: Path) -> None:
    states = States(tmp_path)

    def half(descriptor: int) -> None:
        os.write(descriptor, b"half")
        raise LabError("the guest died")

    assert not states.keep("a", half)
    assert list(tmp_path.iterdir()) == []


def test_none_is_kept_where_the_disk_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 1 GiB is free
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1 << 18, f_frsize=4096))
    assert not States(tmp_path).keep("a", write(b"memory"))
    assert list(tmp_path.iterdir()) == []


def test_those_used_last_stay(tmp_path: Path) -> None:
    states = States(tmp_path)
    for number in range(MOST):
        states.keep(str(number), write(b"."))
        os.utime(tmp_path / f"{number}.state", (number, number))
    assert content(states, "0") == b"."  # now used, so the oldest is 1
    states.keep("one more", write(b"."))
    assert states.open("1") is None
    assert content(states, "0") == content(states, "one more") == b"."


def test_what_somebody_left_half_written_goes_when_it_is_old(tmp_path: Path) -> None:
    old, young = tmp_path / "a.making", tmp_path / "b.making"
    for path in (old, young):
        path.touch()
    os.utime(old, (1, 1))
    States(tmp_path).keep("one", write(b"."))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.making", "one.state"]


def test_a_folder_that_cannot_be_written_to_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not States(tmp_path / "file").keep("a", write(b"."))


class Qemu(threading.Thread):
    """Fake QEMU monitor. ``ends`` is the final status of its migration, or "refused"."""

    def __init__(self, end: socket.socket, *, ends: str) -> None:
        super().__init__()
        self._end, self._ends, self.commands = socket.socket(fileno=os.dup(end.fileno())), ends, []  # type: ignore[var-annotated]

    def run(self) -> None:
        with self._end, self._end.makefile("rw") as lines:
            print(json.dumps({"QMP": {"version": {}}}), file=lines, flush=True)
            for line in lines:
                command = json.loads(line)["execute"]
                self.commands.append(command)
                print(json.dumps({"event": "SOMETHING"}), file=lines)
                status = "none" if "migrate" not in self.commands else self._ends
                if command == "migrate" and self._ends == "refused":
                    answer: dict[str, object] = {"error": {"class": "GenericError", "desc": "no"}}
                else:
                    answer = {"return": {"status": status} if command == "query-migrate" else {}}
                print(json.dumps(answer), file=lines, flush=True)


def saved(ends: str) -> list[str]:
    monitor = Monitor()
    qemu = Qemu(monitor.theirs, ends=ends)
    qemu.start()
    monitor.theirs.close()
    try:
        with Path(os.devnull).open("wb") as file:
            monitor.save(file.fileno(), 0.1)
    finally:
        monitor.close()
        qemu.join()
        commands = qemu.commands
    return commands


def test_the_guest_runs_on_after_its_memory_was_written() -> None:
    commands = [command for command in saved("completed") if command != "query-migrate"]
    assert commands == ["qmp_capabilities", "getfd", "migrate", "cont"]


@pytest.mark.parametrize(
    ("ends", "said"), [("failed", "failed"), ("active", "active"), ("refused", "GenericError")]
)
def test_a_memory_that_is_not_written_is_told(ends: str, said: str) -> None:
    monitor = Monitor()
    qemu = Qemu(monitor.theirs, ends=ends)
    qemu.start()
    monitor.theirs.close()
    with Path(os.devnull).open("wb") as file, pytest.raises(LabError, match=said):
        monitor.save(file.fileno(), 0.1)
    monitor.close()
    qemu.join()
    assert (qemu.commands[-1] == "cont") == (ends != "refused")  # after a refusal nothing had begun
    assert ("migrate_cancel" in qemu.commands) == (ends == "active")


def test_an_answer_that_is_no_list_is_told() -> None:
    """The fake answers every query with an object."""
    monitor = Monitor()
    qemu = Qemu(monitor.theirs, ends="completed")
    qemu.start()
    monitor.theirs.close()
    try:
        with pytest.raises(LabError, match="expected a list"):
            monitor.listed("query-block")
    finally:
        monitor.close()
        qemu.join()


def test_a_monitor_that_hangs_up_is_told() -> None:
    monitor = Monitor()
    monitor.theirs.close()
    with Path(os.devnull).open("wb") as file, pytest.raises(LabError, match="monitor"):
        monitor.save(file.fileno(), 0.1)


def test_silence_counts_from_the_last_sign_of_life_and_not_before_the_first() -> None:
    pulse = Pulse()
    time.sleep(0.05)
    assert pulse.silent_s() == 0.0
    pulse.theirs.send(b"..")
    assert pulse.silent_s() < 0.05
    time.sleep(0.1)
    assert pulse.silent_s() >= 0.1
    pulse.theirs.send(b".")
    assert pulse.silent_s() < 0.05
    pulse.close()


def test_a_busy_guest_has_a_minute() -> None:
    assert machine.HUNG_AFTER_S >= 60
