"""Orders and records of fleets, and what their options turn into."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fleet_hosts import ORDER

import program
from iotrial.errors import RequestError, StoreError
from iotrial.fleet import host
from iotrial.fleet.cluster import ip_of
from iotrial.fleet.host import Trial, error_in
from iotrial.fleet.order import Order, Record, Scheduler, find_record, seed_of

ASKED = msgspec.structs.replace(
    ORDER,
    host="alpha",
    options={"set": ("mode=0444,0777",), "time": ("5m",), "on": ("--trust",)},
    flags=("no-stop",),
)


def test_the_seed_of_a_host_is_what_sha256sum_says() -> None:
    # printf 'iotrial fleet\n%032d\nalpha\n' 0 | sha256sum
    assert seed_of("0" * 32, "alpha") == "098263a0258f145da35608786d70f14e"
    assert seed_of("0" * 32, "beta") != seed_of("0" * 32, "alpha") != seed_of("1" * 32, "alpha")


def test_an_order_comes_over_the_wire_as_it_was_and_the_same_one_is_the_same_text() -> None:
    assert Order.from_json(ASKED.to_json()) == ASKED
    assert Order.from_json(ASKED.to_json()).to_json() == ASKED.to_json()


def test_no_value_of_an_order_can_be_taken_for_another_option() -> None:
    words = ASKED.words(Path("/x/study.toml"), Path("/x/report.html"))
    assert words == (
        "run", "/x/study.toml", "--set=mode=0444,0777", "--time=5m", "--on=--trust", "--no-stop",
        f"--seed={ORDER.seed}", "--html=/x/report.html", "--json",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fleet", "../../etc"),
        ("fleet", "f" * 31),
        ("host", "a/b"),
        ("host", ""),
        ("host", "-x"),
        ("host", "x" * 64),
        ("seed", "g" * 32),
        ("study", "/etc/passwd"),
        ("study", "files/permissions"),  # with a text as well
        ("text", ""),
        ("text", "x" * ((1 << 20) + 1)),
        ("options", {"html": ["/etc/passwd"]}),
        ("options", {"device": ["/dev/sda"]}),
        ("options", {"lab": ["device"]}),
        ("options", {"time": "5m"}),
        ("options", {"time": [5]}),
        ("flags", ["erase"]),
        ("flags", "trust"),
        ("more", 1),
    ],
)
def test_an_order_that_asks_for_what_none_may_is_refused(field: str, value: Any) -> None:
    with pytest.raises(RequestError):
        Order.from_json(json.dumps({**json.loads(ASKED.to_json()), field: value}))


def test_why_a_program_ended_is_told_in_its_own_words() -> None:
    said = 'note\n{"error": {"code": "busy", "message": "another is measuring", "hint": "wait"}}\n'
    assert error_in(said) == "another is measuring (hint: wait)"
    assert error_in("Traceback\nMemoryError\n") == "Traceback\nMemoryError"


def test_a_record_is_read_as_it_was_written_and_one_of_an_earlier_version_is_refused(state: Path) -> None:
    record = Record(ASKED, "example", seed_chosen=True, scheduler=Scheduler("tls://a:1"), hosts=("a", "b"))
    path = record.write()
    assert find_record("last") == find_record(ASKED.fleet[:5]) == record
    old = {"order": ASKED.to_json(), "name": "example", "seed_chosen": False, "reached": {"hosts": "a"}}
    for text in (b"{}", json.dumps(old).encode(), b"\xff"):
        path.write_bytes(text)
        with pytest.raises(StoreError, match="cannot be read"):
            find_record("last")


def test_a_host_that_ran_another_trial_of_this_fleet_runs_no_second_one(state: Path) -> None:
    folder = state / "fleet" / ORDER.fleet
    folder.mkdir(parents=True)
    (folder / "order.json").write_text(ORDER.to_json())
    problem, left, packed = Trial(ASKED, lambda: True, lambda _: None, 1.0).run()
    assert "this fleet has run another trial here" in problem
    assert (left, packed) == (0, b"")


def test_a_host_waits_no_longer_for_a_stopped_program_of_its_fleet_and_names_it(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program inherited the lock, and the worker that took it has died."""
    monkeypatch.setattr(host, "_LONGEST_WAIT_S", 0.3)
    folder = state / "fleet" / ASKED.fleet
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        earlier = subprocess.Popen(["sleep", "60"], pass_fds=(lock.fileno(),))
    earlier.send_signal(signal.SIGSTOP)
    ending = threading.Timer(20, earlier.kill)
    ending.start()
    try:
        problem, _, packed = Trial(ASKED, lambda: True, lambda _: None, 1.0).run()
    finally:
        ending.cancel()
        earlier.kill()
        earlier.wait()
    assert f"held by process {earlier.pid} " in problem
    assert packed == b""


def test_a_damaged_store_of_a_fleet_is_said(state: Path) -> None:
    trial = Trial(ASKED, lambda: True, lambda _: None, 1.0)
    trial.store.parent.mkdir(parents=True)
    trial.store.write_text("no store")
    problem, _, packed = trial.run()
    assert "trials.db" in problem
    assert packed == b""


def test_tls_files_come_together_and_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").touch()
    run = (
        "fleet",
        "run",
        "files/permissions",
        "--scheduler",
        "tls://127.0.0.1:1",
        "--tls-ca",
        str(tmp_path / "x"),
    )
    for more, why in (((), "belong together"), (("--tls-key", str(tmp_path / "y")), "does not exist")):
        done = program.iotrial(*run, *more)
        assert done.returncode == 2
        assert why in done.stderr


@pytest.mark.parametrize(
    ("address", "ip"), [("tls://10.0.0.1:8786", "10.0.0.1"), ("tcp://[::1]:1", "[::1]"), ("a:1", "a")]
)
def test_the_machine_of_an_address(address: str, ip: str) -> None:
    assert ip_of(address) == ip


@pytest.mark.parametrize(
    "words",
    [
        ("run", "files/permissions", "--hosts", "a,b", "--grace", "5s"),
        ("run", "files/permissions", "--fleet", "tls://a:1", "--keys", "x"),
        ("fleet", "worker", "a", "--keys", "x"),
        ("fleet", "scheduler"),
        ("fleet", "keys", "x"),
        ("fleet", "clean"),
    ],
)
def test_what_earlier_versions_had_is_refused_with_what_there_is_now(
    words: tuple[str, ...], state: Path
) -> None:
    done = program.iotrial(*words)
    assert done.returncode == 2
    assert "dask-ssh" in done.stderr
    assert "iotrial fleet run STUDY --scheduler ADDRESS" in done.stderr
    assert not state.exists() or not list(state.iterdir())


@pytest.mark.parametrize(
    "words", [("--device", "/dev/x"), ("--copy-from", "/x"), ("--like", "x"), ("--lab", "in-place")]
)
def test_what_a_fleet_cannot_do_is_refused_before_anything_begins(
    words: tuple[str, ...], state: Path
) -> None:
    done = program.iotrial("fleet", "run", "files/permissions", "--scheduler", "tls://127.0.0.1:1", *words)
    assert done.returncode == 2, done.stderr
    assert words[0] in done.stderr or "lab" in done.stderr
    assert not (state / "fleets").exists()
