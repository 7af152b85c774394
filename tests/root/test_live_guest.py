"""`iotrial live` as a service of systemd, on a Debian in QEMU: stopped, killed, and asleep with its machine."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import pytest
from systemd_guest import Guest
from test_live import inside

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.alone]

TODAY, LOW = "764", "0"
UNIT, LOG, FOLDER = "trial-of-service", "/run/service.log", "/mnt/live"
#: units of the watchdogs
WATCHDOGS = "systemctl list-units --no-legend --plain 'iotrial-live-*.service'"
TRIAL = (
    f"iotrial live block.read_ahead_kb={TODAY},{LOW} --metric 'log:{LOG}:took ([0-9.]+) ms:mean,unit=ms' --in {FOLDER} "
    "--window 5s --washout 1s --blocks 1000 --no-stop --time 2h --yes"
)
#: windows of blocks that count, rules of void blocks, and events, as JSON
STORED = """
import json, sqlite3
rows = sqlite3.connect("file:/var/lib/iotrial/trials.db?mode=ro", uri=True)
sound = "FROM run JOIN block_end USING (trial, condition, block) WHERE void IS NULL"
runs = rows.execute(f"SELECT run.checks, run.treatment {sound}")
print(json.dumps({
    "runs": [{"checks": json.loads(a), "treatment": json.loads(b)} for a, b in runs],
    "void": [a for a, in rows.execute("SELECT void FROM block_end WHERE void IS NOT NULL")],
    "events": [a for a, in rows.execute("SELECT text FROM event WHERE kind = 'watchdog'")],
}))
"""


@dataclass(frozen=True)
class Served:
    """A service in the guest, and the queue of its loop device."""

    guest: Guest
    queue: str

    @property
    def ahead(self) -> str:
        return self.guest.read(f"{self.queue}/read_ahead_kb")

    def start(self, *properties: str) -> None:
        """Start a trial as a unit, and wait until it has set the other setting in its second block or later."""
        self.guest.run(f"systemd-run --unit={UNIT} {' '.join(properties)} {TRIAL}")
        self.until(lambda: len(self.stored()["runs"]) >= 2, "a block that counts")
        self.until_low()

    def until_low(self) -> None:
        self.until(lambda: self.ahead == LOW, "a window with the other setting")

    def until(self, condition: Any, what: str, within_s: float = 400) -> None:
        late = time.monotonic() + within_s
        while not condition():
            state = self.guest.run(f"systemctl is-active {UNIT}", status=None)
            assert state == "active", self.guest.run(f"journalctl --no-pager -n 40 -u {UNIT}", status=None)
            assert time.monotonic() < late, f"never came: {what}; {self.stored()}"
            time.sleep(0.2)

    def stored(self) -> dict[str, Any]:
        if self.guest.run("test -e /var/lib/iotrial/trials.db && echo yes", status=None) != "yes":
            return {"runs": [], "void": [], "events": []}
        found: dict[str, Any] = json.loads(self.guest.run("python3 /run/stored.py"))
        return found

    def counted_well(self) -> int:
        """Assert that in each window that counts the service saw its setting only; return how many there are."""
        lines = [line.split() for line in self.guest.run(f"cut -d ' ' -f 1,3 {LOG}").splitlines()]
        seen = [(float(at), ahead) for at, ahead in lines]
        runs = self.stored()["runs"]
        for run in runs:
            assert set(inside(run, seen, edge_s=0.5)) == {run["treatment"]["read_ahead_kb"]}
        return len(runs)

    def nothing_left(self) -> None:
        self.guest.wait_until(WATCHDOGS, "")
        assert (
            self.guest.run("find /var/lib/iotrial/journal /run -name '*.entry' -o -name '*.heartbeat'") == ""
        )


@pytest.fixture
def served(guest: Guest) -> Served:
    """Start a service on a loop device in the guest."""
    guest.run(
        "truncate -s 64M /srv/data/live.img && mkfs.ext4 -q /srv/data/live.img && "
        f"mkdir -p {FOLDER} && mount -o loop /srv/data/live.img {FOLDER} && "
        f"head -c 524288 /dev/urandom > {FOLDER}/data && sync"
    )
    guest.run(f"cat > /run/stored.py <<'END'\n{STORED}END")
    queue = guest.run(f"echo /sys/block/$(basename $(findmnt -no SOURCE {FOLDER}))/queue")
    guest.run(f"echo {TODAY} > {queue}/read_ahead_kb")
    guest.run(
        f"systemd-run --unit=service python3 /opt/tests/live_service.py {FOLDER}/data {LOG} {queue}; "
        f"while ! [ -s {LOG} ]; do sleep 0.2; done"
    )
    return Served(guest, queue)


def test_stopping_the_unit_sets_the_settings_again(served: Served) -> None:
    served.start("-p ExecStopPost='/usr/local/bin/iotrial restore'")
    served.guest.run(f"systemctl stop {UNIT}")
    assert served.ahead == TODAY
    served.nothing_left()
    found = served.stored()
    assert found["events"] == []  # it was iotrial itself
    assert served.counted_well() >= 2
    trials = json.loads(served.guest.run("iotrial trials --json"))["trials"]
    assert [one["state"] for one in trials] == ["interrupted"]


def test_when_the_unit_is_killed_its_watchdog_survives_and_sets_the_settings_again(served: Served) -> None:
    served.start()
    watchdog = served.guest.run(WATCHDOGS).split()[0]
    assert served.guest.run(f"systemctl show -P ControlGroup {watchdog}") == f"/system.slice/{watchdog}"
    served.guest.run(f"systemctl kill -s KILL {UNIT}")
    began = time.monotonic()
    served.guest.wait_until(f"cat {served.queue}/read_ahead_kb", TODAY)
    assert time.monotonic() - began < 60  # emulated, and so several times slower
    served.nothing_left()
    (text,) = served.stored()["events"]
    assert "has set today's settings again" in text
    served.guest.run(f"systemctl reset-failed {UNIT}", status=None)
    served.guest.run(f"systemd-run --unit={UNIT} iotrial resume")
    served.until_low()
    served.guest.run(f"systemctl stop {UNIT}")
    assert served.ahead == TODAY
    served.counted_well()


def test_when_unit_and_watchdog_are_killed_at_once_systemd_starts_the_watchdog_again(served: Served) -> None:
    served.start()
    watchdog = served.guest.run(WATCHDOGS).split()[0]
    served.guest.run(f"systemctl kill -s KILL {UNIT} {watchdog}")
    began = time.monotonic()
    served.guest.wait_until(f"cat {served.queue}/read_ahead_kb", TODAY)
    took_s = time.monotonic() - began
    print(f"{took_s:.1f} s")
    assert took_s < 60  # emulated, and so several times slower
    served.nothing_left()
    (text,) = served.stored()["events"]
    assert "has set today's settings again" in text
    assert "has set today's settings again" in served.guest.run("cat /var/lib/iotrial/watchdog.log")
    assert "has set today's settings again" in served.guest.run("journalctl --no-pager -t iotrial")


def test_a_machine_that_slept_voids_the_block_and_the_trial_goes_on(served: Served) -> None:
    """Suspended to memory (ACPI S3). Suspended to idle, this machine has nothing that wakes it."""
    guest = served.guest
    if "deep" not in guest.run("cat /sys/power/mem_sleep", status=None):
        pytest.skip("this kernel cannot suspend to memory")
    served.start()
    guest.begin("echo deep > /sys/power/mem_sleep && echo mem > /sys/power/state")
    late = time.monotonic() + 120
    while guest.control("query-status")["status"] != "suspended":
        assert time.monotonic() < late, "it does not fall asleep"
        time.sleep(0.5)
    time.sleep(15)
    guest.control("system_wakeup")
    assert guest.end(120)[0] == 0
    served.until(lambda: "machine_slept" in served.stored()["void"], "a void block")
    runs = len(served.stored()["runs"])
    served.until(lambda: len(served.stored()["runs"]) >= runs + 2, "a block after the sleep")
    guest.run(f"systemctl stop {UNIT}")
    assert served.ahead == TODAY
    served.counted_well()
    assert served.stored()["events"] == []  # the watchdog has not taken a sleep for a hang
    served.nothing_left()
