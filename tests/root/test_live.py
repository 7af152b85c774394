"""`iotrial live` on a real loop device under a real load: what is set when, and what is set again after every kind of end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from breaking import Trial, entries, eventually, nothing_left, processes_with, state_of, stop
from running import iotrial, stored_runs
from test_faults_clock import SHIFT
from test_full_disk_kept import fill, small

from iotrial.design.keyed import Stream
from own_loop import own_loop

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.waiting,
]

HERE = Path(__file__).parent
TODAY, LOW = "764", "0"
NO_ANSWER = 6
#: twice the time after which the watchdog counts a trial as hung
REVERTED_WITHIN_S = 30.0


@dataclass
class Service:
    """A running service, its log, and the queue of its disk."""

    folder: Path
    log: Path
    queue: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        words = [str(self.folder / "data"), str(self.log), str(self.queue), *more]
        self.process = subprocess.Popen([sys.executable, str(HERE / "live_service.py"), *words])

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    @property
    def ahead(self) -> str:
        return (self.queue / "read_ahead_kb").read_text().strip()

    @property
    def metric(self) -> str:
        return f"log:{self.log}:took ([0-9.]+) ms:mean,unit=ms"

    @property
    def slow(self) -> Path:
        return self.log.with_suffix(".slow")

    @property
    def silent(self) -> Path:
        return self.log.with_suffix(".silent")

    def words(self, *more: str, setting: str = f"block.read_ahead_kb={TODAY},{LOW}") -> list[str]:
        return [
            setting, "--metric", self.metric, "--in", str(self.folder), "--window", "1500ms", "--washout", "500ms",
            "--yes", *more,
        ]  # fmt: skip

    def seen(self) -> list[tuple[float, str]]:
        """Return the read-ahead that the service has seen, with the time of day."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [(float(line[0]), line[2]) for line in lines if len(line) == 8]

    def seen_requests(self) -> list[tuple[float, str]]:
        """Return the same for the length of the queue."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [(float(line[0]), line[4]) for line in lines if len(line) == 8]


@pytest.fixture
def service(disk_folder: Path, tmp_path: Path) -> Iterator[Service]:
    image, folder = disk_folder / "live.img", disk_folder / "live"
    image.write_bytes(b"")
    os.truncate(image, 64 << 20)
    folder.mkdir()
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    with own_loop(image) as device:
        subprocess.run(["mount", "-o", "relatime", f"/dev/{device}", str(folder)], check=True)
        (folder / "data").write_bytes(os.urandom(2 << 20))
        os.sync()
        queue = Path(f"/sys/block/{device}/queue").resolve()
        (queue / "read_ahead_kb").write_text(TODAY)
        log = tmp_path / "service.log"
        running = Service(folder, log, queue)
        running.start()
        assert eventually(log.exists, 10)
        yield running
        running.kill()
        assert eventually(lambda: subprocess.run(["umount", str(folder)], check=False).returncode == 0, 10)
    folder.rmdir()
    image.unlink()


def events(state: Path, kind: str) -> list[str]:
    connection = sqlite3.connect(state / "trials.db")
    found = [text for (text,) in connection.execute("SELECT text FROM event WHERE kind = ?", (kind,))]
    connection.close()
    return found


def trial_id(state: Path) -> str:
    connection = sqlite3.connect(state / "trials.db")
    (found,) = connection.execute("SELECT id FROM trial").fetchone()
    connection.close()
    return str(found)


def newest_trial(state: Path) -> str:
    connection = sqlite3.connect(state / "trials.db")
    *_, (found,) = connection.execute("SELECT id FROM trial ORDER BY rowid")
    connection.close()
    return str(found)


def voids(state: Path) -> list[str]:
    """Return the rules of the void blocks."""
    connection = sqlite3.connect(state / "trials.db")
    found = [rule for (rule,) in connection.execute("SELECT void FROM block_end WHERE void IS NOT NULL")]
    connection.close()
    return found


def counted(state: Path) -> list[dict[str, Any]]:
    """Return the windows of blocks that count."""
    connection = sqlite3.connect(state / "trials.db")
    sound = {
        (condition, block)
        for condition, block in connection.execute(
            "SELECT condition, block FROM block_end WHERE void IS NULL"
        )
    }
    connection.close()
    return [run for run in stored_runs(state) if (run["condition"], run["block"]) in sound]


def inside(run: dict[str, Any], seen: list[tuple[float, str]], *, edge_s: float = 0.1) -> list[str]:
    """Return what the service saw in the counted part of a window, but for its edges."""
    clock = run["checks"]["clock"]
    begin, end = clock["unix_s"] + edge_s, clock["unix_s"] + clock["lasted_s"] - edge_s
    return [what for at, what in seen if begin < at < end]


def live(service: Service, *more: str, check: int = 0) -> dict[str, Any]:
    done = iotrial("live", *service.words(*more), "--json", check=None)
    assert done.returncode == check, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_windows_measure_the_service_with_the_setting_that_the_kernel_has(
    state: Path, service: Service
) -> None:
    report = live(service, "--blocks", "8", "--no-stop", "--time", "5 min")
    assert service.ahead == TODAY
    nothing_left(state)
    (effect,) = [one for one in report["effects"] if one["primary"]]
    assert (effect["reference"], effect["level"]) == (TODAY, LOW)
    assert effect["ratio"] > 1.5  # without read-ahead each page is a request of its own
    runs = stored_runs(state)
    assert len(runs) == 16
    # the order is drawn for each pair
    firsts = {run["treatment"]["read_ahead_kb"] for run in runs if run["slot"] == 0}
    assert firsts == {TODAY, LOW}
    seen = service.seen()
    for run in runs:
        assert set(inside(run, seen)) == {run["treatment"]["read_ahead_kb"]}
        assert run["checks"]["window"]["switched_s"] == pytest.approx(-0.5, abs=0.3)


def test_after_every_rest_a_drawn_setting_leads_in(state: Path, service: Service) -> None:
    """With other settings in a fifth of the time it rests before each pair; the second window of a pair follows the first."""
    live(service, "--blocks", "5", "--no-stop", "--most-share", "20 %", "--time", "5 min", check=NO_ANSWER)
    assert service.ahead == TODAY
    nothing_left(state)
    connection = sqlite3.connect(state / "trials.db")
    (seed,) = connection.execute("SELECT seed FROM trial").fetchone()
    connection.close()
    for run in counted(state):
        lead_in = run["checks"]["window"].get("lead_in")
        if run["slot"]:
            assert lead_in is None
            continue
        # the words of the documented generator
        drawn = Stream(seed, "lead_in", run["condition"], run["block"]).below(2)
        assert lead_in == sorted({one["arm"] for one in stored_runs(state)})[drawn]


def test_ctrl_c_sets_the_settings_again_and_a_resume_goes_on(state: Path, service: Service) -> None:
    trial = Trial(state, *service.words("--blocks", "3", "--no-stop", "--json"), verb="live")
    trial.until_runs(1)
    trial.until(lambda: service.ahead == LOW, "a window with the other setting")
    trial.process.send_signal(signal.SIGINT)
    status, _, _ = trial.end()
    assert status == 128 + signal.SIGINT
    assert service.ahead == TODAY
    nothing_left(state)
    iotrial("resume", "--json")
    assert service.ahead == TODAY
    assert set(voids(state)) <= {"cut_off"}
    nothing_left(state)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_watchdog_sets_the_settings_again_when_iotrial_dies_or_hangs(
    state: Path, service: Service, how: signal.Signals
) -> None:
    trial = Trial(state, *service.words("--blocks", "1000", "--no-stop"), verb="live")
    trial.until_runs(1)
    trial.until(lambda: service.ahead == LOW, "a window with the other setting")
    trial.process.send_signal(how)
    assert eventually(lambda: service.ahead == TODAY, REVERTED_WITHIN_S)
    assert eventually(lambda: not processes_with(trial_id(state)), 10)  # an argument of the watchdog
    trial.process.wait(10)
    trial.process.communicate()
    assert trial.process.returncode == -signal.SIGKILL
    assert entries(state) == []
    (text,) = events(state, "watchdog")
    assert "has set today's settings again" in text
    before = len(stored_runs(state))
    done = iotrial("resume", "--time", "20 s", "--json", check=None)
    assert done.returncode in (0, 3, 6), done.stderr
    assert len(stored_runs(state)) > before
    assert set(voids(state)) <= {"cut_off"}
    assert service.ahead == TODAY
    nothing_left(state)


def _gone(process: int) -> bool:
    return not Path(f"/proc/{process}").exists()


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.long)])
def test_killed_together_with_its_watchdog_the_settings_are_set_again(
    state: Path, service: Service, times: int
) -> None:
    """The watchdog's parent, a shell whose command line names neither Python nor iotrial, starts it again."""
    took_s = []
    for _ in range(times):
        trial = Trial(state, *service.words("--blocks", "1000", "--no-stop"), verb="live")
        trial.until(lambda: service.ahead == LOW, "a window with the other setting")
        (watching,) = processes_with(newest_trial(state))
        shell = int(Path(f"/proc/{watching}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(watching, signal.SIGKILL)
        trial.process.send_signal(signal.SIGKILL)
        began = time.monotonic()
        assert eventually(lambda: service.ahead == TODAY, REVERTED_WITHIN_S)
        took_s.append(time.monotonic() - began)
        assert eventually(lambda: not processes_with(newest_trial(state)), 10)
        assert eventually(partial(_gone, shell), 10)
        trial.process.communicate()
        assert entries(state) == []
        assert "has set today's settings again" in events(state, "watchdog")[-1]
    print(f"{times} times: {min(took_s):.2f} to {max(took_s):.2f} s")
    nothing_left(state)


def test_a_watchdog_that_is_killed_alone_is_started_again(state: Path, service: Service) -> None:
    trial = Trial(state, *service.words("--blocks", "1000", "--no-stop"), verb="live")
    trial.until_runs(1)
    (first,) = processes_with(newest_trial(state))
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: processes_with(newest_trial(state)) not in ([], [first]), 10)
    trial.until(lambda: service.ahead == LOW, "a window with the other setting")
    trial.process.send_signal(signal.SIGKILL)
    assert eventually(lambda: service.ahead == TODAY, REVERTED_WITHIN_S)
    trial.process.communicate()
    assert eventually(lambda: not processes_with(newest_trial(state)), 10)
    nothing_left(state)


def test_a_hard_limit_stops_the_trial_at_once_and_sets_the_settings_again(
    state: Path, service: Service
) -> None:
    trial = Trial(
        state, *service.words("--blocks", "1000", "--no-stop", "--guard", "> 800 ms", "--json"), verb="live"
    )
    trial.until_runs(2)
    service.slow.touch()
    status, out, _ = trial.end()
    assert status == 4
    assert service.ahead == TODAY
    (text,) = events(state, "guard")
    assert "beyond its limit" in text
    assert json.loads(out)["trial"]["state"] in ("done", "invalid")
    nothing_left(state)


def test_a_setting_shown_to_be_worse_stops_the_trial(state: Path, service: Service) -> None:
    live(service, "--blocks", "40", "--no-stop", "--guard", "worse by 20 %", check=4)
    assert service.ahead == TODAY
    (text,) = events(state, "guard")
    assert f"read_ahead_kb {LOW} makes" in text
    complete = len(stored_runs(state)) // 2
    assert 5 <= complete < 40  # five fair coins agree once in 32 times: nothing is shown before


def test_metrics_and_guards_are_in_view_and_in_the_summary_and_continue_asks(
    state: Path, service: Service
) -> None:
    guards = ["--guard", "service.log_mean > 900 ms", "--guard", "service.log_mean worse by 400 %"]
    done = iotrial("live", *service.words("--metric", "psi:io", *guards, "--blocks", "3", "--no-stop"))
    shown = [line for line in done.stderr.splitlines() if "; now service.log_mean " in line]
    assert shown, done.stderr
    now = r"now service\.log_mean [0-9.]+ \S*s, psi-io [0-9.]+ %"
    guarded = r"guard service\.log_mean > 900 ms: holds; guard service\.log_mean worse by 400 %: [0-9]"
    assert any(re.search(f"{now}; {guarded}", one) for one in shown), shown
    summary = " ".join(done.stdout.split())
    assert "service.log_mean > 900 ms, service.log_mean worse by 400 %: none stopped the trial" in summary
    assert "Other metrics" in summary
    assert re.search(r"psi-io read_ahead_kb 0 ", summary)
    refused = iotrial("continue", "last", "--blocks", "1", check=None)
    assert refused.returncode == 2
    assert "read_ahead_kb" in refused.stderr
    assert "add --yes" in refused.stderr
    assert service.ahead == TODAY
    iotrial("continue", "last", "--blocks", "1", "--no-stop", "--yes")
    assert service.ahead == TODAY


def test_a_lost_metric_sets_the_settings_again_until_it_is_back(state: Path, service: Service) -> None:
    trial = Trial(state, *service.words("--blocks", "1000", "--time", "2 min", "--no-stop"), verb="live")
    trial.until(lambda: service.ahead == LOW, "a window with the other setting")
    away = service.log.with_suffix(".away")
    service.log.rename(away)
    trial.until(lambda: "metric_lost" in voids(state), "a void block")
    assert service.ahead == TODAY
    before = trial.runs
    time.sleep(3)
    assert (service.ahead, trial.runs) == (TODAY, before)
    away.rename(service.log)
    trial.until_runs(before + 4)
    trial.process.send_signal(signal.SIGINT)
    trial.end()
    assert service.ahead == TODAY
    nothing_left(state)


def of_this_trial(state: Path, pid: int) -> bool:
    """Return whether a process has this test's state folder in its environment; other tests run at the same time."""
    with suppress(OSError):
        return str(state.parent).encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


@pytest.mark.parametrize("full", ["store", "journal"])
def test_a_disk_that_becomes_full_while_a_trial_runs_ends_it_and_sets_the_settings_again(
    state: Path, service: Service, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """The file system of the store, or of the journal with the store."""
    disk = state.parent / "small" if full == "store" else state
    with small(disk, 512):
        if full == "store":
            monkeypatch.setenv("IOTRIAL_STORE", str(disk / "trials.db"))
        trial = Trial(disk, *service.words("--blocks", "1000", "--no-stop"), verb="live")
        trial.until_runs(3)
        trial.until(lambda: service.ahead == LOW, "a window with the other setting")
        ballast = fill(disk, free_pages=0)
        status, _, said = trial.end()
        assert status not in (0, 3, 6)
        assert "No space left" in said or "full" in said
        assert service.ahead == TODAY
        assert eventually(
            lambda: not any(of_this_trial(state, pid) for pid in processes_with("iotrial.live.watchdog")), 15
        )
        ballast.unlink()
        kept = len(stored_runs(disk))
        iotrial("restore")
        done = iotrial("resume", "--time", "20 s", check=None)
        assert done.returncode in (0, 3, 6), done.stderr
        assert len(stored_runs(disk)) > kept
        assert service.ahead == TODAY
        nothing_left(state)
        monkeypatch.delenv("IOTRIAL_STORE", raising=False)


def test_a_service_that_stops_answering_leaves_windows_without_a_value(state: Path, service: Service) -> None:
    trial = Trial(state, *service.words("--blocks", "1000", "--time", "2 min", "--no-stop"), verb="live")
    trial.until_runs(2)
    service.silent.touch()
    trial.until(lambda: "window_without_value" in voids(state), "a void block")
    service.silent.unlink()
    trial.until_runs(trial.runs + 4)
    trial.process.send_signal(signal.SIGINT)
    trial.end()
    values = [run["responses"] for run in stored_runs(state) if "void" not in run["checks"]]
    assert all(len(one) == 1 for one in values)
    nothing_left(state)


@pytest.mark.parametrize(
    ("away_s", "first"),
    [(0.0, "0"), (0.0, "1000000"), (5.0, "0")],
    ids=["counter falls", "counter has overtaken its old value", "away for five seconds"],
)
def test_a_service_that_starts_again_voids_its_block_and_no_wrong_rate_counts(
    state: Path, service: Service, away_s: float, first: str
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    service.kill()
    service.start(port, "0")
    metric = f"reads=openmetrics:http://127.0.0.1:{port}/metrics#reads_total:rate,every=500ms"
    words = [
        f"block.read_ahead_kb={TODAY},{LOW}", "--metric", metric, "--in", str(service.folder), "--window", "3 s",
        "--washout", "500ms", "--yes", "--no-stop", "--blocks", "1000", "--time", "3 min", "--json",
    ]  # fmt: skip
    assert eventually(lambda: answers(port), 10)
    trial = Trial(state, *words, verb="live")
    trial.until_runs(2)
    trial.until(lambda: service.ahead == LOW, "a window with the other setting")
    time.sleep(2.0)  # into its counted part
    service.kill()
    time.sleep(away_s)
    service.start(port, first)
    trial.until(lambda: bool(voids(state)), "a void block")
    trial.until_runs(trial.runs + 4)
    trial.process.send_signal(signal.SIGINT)
    trial.end()
    assert service.ahead == TODAY
    assert set(voids(state)) <= {"window_without_value", "metric_lost"}
    assert len(voids(state)) < 3
    runs = counted(state)
    assert len(runs) >= 4
    for run in runs:
        # by the log of the service itself: as many reads as there are lines
        rate = len(inside(run, service.seen(), edge_s=0.0)) / run["checks"]["clock"]["lasted_s"]
        assert run["responses"]["reads"] == pytest.approx(rate, rel=0.1)
    nothing_left(state)


def answers(port: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5):
        return True
    return False


def test_two_settings_are_combined_and_each_window_has_its_own_combination(
    state: Path, service: Service
) -> None:
    requests = (service.queue / "nr_requests").read_text().strip()
    short = str(int(requests) // 2)
    words = service.words("--blocks", "4", "--no-stop", "--json")
    done = iotrial("live", f"block.nr_requests={short}", *words, check=None)
    assert done.returncode in (0, 3, 6), done.stderr
    assert (service.ahead, (service.queue / "nr_requests").read_text().strip()) == (TODAY, requests)
    runs = counted(state)
    blocks = {run["block"] for run in runs}
    assert len(blocks) == 4
    for block in blocks:
        found = {
            (run["treatment"]["read_ahead_kb"], run["treatment"]["nr_requests"])
            for run in runs
            if run["block"] == block
        }
        assert found == {(ahead, length) for ahead in (TODAY, LOW) for length in (requests, short)}
    for run in runs:
        assert set(inside(run, service.seen())) == {run["treatment"]["read_ahead_kb"]}
        assert set(inside(run, service.seen_requests())) == {run["treatment"]["nr_requests"]}
    effects = {one["factor"]: one for one in json.loads(done.stdout)["effects"] if one["kind"] == "main"}
    assert effects["read_ahead_kb"]["ratio"] > 1.5
    # one request at a time: the length of the queue hardly matters
    assert effects["nr_requests"]["ratio"] < effects["read_ahead_kb"]["ratio"]
    nothing_left(state)


@pytest.mark.parametrize("frozen_s", [4.0, 15.0], ids=["a part of a window", "longer than hung"])
def test_a_machine_that_was_frozen_voids_the_block_and_the_trial_goes_on(
    state: Path, service: Service, frozen_s: float
) -> None:
    """As in a container that is frozen: everything stands still but the clocks."""
    words = service.words("--blocks", "1000", "--time", "3 min", "--no-stop", "--window", "8 s")
    trial = Trial(state, *words, verb="live")
    trial.until(lambda: service.ahead == LOW, "a window with the other setting")
    assert service.process is not None
    time.sleep(2.0)
    everything = [service.process.pid, trial.process.pid, *trial.probes(), *processes_with(trial_id(state))]
    for pid in everything:
        stop(pid)
    time.sleep(frozen_s)
    for pid in everything:
        os.kill(pid, signal.SIGCONT)
    trial.until(lambda: bool(voids(state)), "a void block")
    trial.until_runs(trial.runs + 2)
    trial.process.send_signal(signal.SIGINT)
    trial.end()
    assert set(voids(state)) <= {"window_late", "metric_lost"}
    assert events(state, "watchdog") == []
    assert service.ahead == TODAY
    for run in counted(state):
        assert set(inside(run, service.seen())) == {run["treatment"]["read_ahead_kb"]}
    nothing_left(state)


def test_the_watchdog_of_a_dead_attempt_leaves_a_resumed_trial_alone(state: Path, service: Service) -> None:
    """However late it comes: here it is stopped until the resumed trial has changed a setting."""
    trial = Trial(state, *service.words("--blocks", "1000", "--no-stop"), verb="live")
    trial.until_runs(1)
    (watchdog,) = processes_with(trial_id(state))
    stop(watchdog)
    trial.process.kill()
    trial.process.communicate()
    iotrial("restore")
    assert service.ahead == TODAY
    before = len(stored_runs(state))
    resumed = Trial(state, verb="resume")
    resumed.until_runs(before + 1)
    os.kill(watchdog, signal.SIGCONT)
    # it may wait for a while for the lock of the other
    assert eventually(lambda: state_of(watchdog) in ("", "Z"), 15)
    done = resumed.runs
    resumed.until_runs(done + 6)
    resumed.process.send_signal(signal.SIGINT)
    status, _, err = resumed.end()
    assert status == 128 + signal.SIGINT, err
    assert set(voids(state)) <= {"cut_off"}
    assert events(state, "watchdog") == []
    assert service.ahead == TODAY
    nothing_left(state)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_clock_that_is_set_voids_the_pair(state: Path, service: Service, tmp_path: Path) -> None:
    (tmp_path / "shift.c").write_text(SHIFT)
    library, when = tmp_path / "shift.so", tmp_path / "now"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "shift.c"), "-ldl"]
    subprocess.run(command, check=True)
    trial = Trial(
        state, *service.words("--blocks", "4", "--no-stop", "--json"), verb="live",
        env={**os.environ, "LD_PRELOAD": str(library), "SHIFT_WHEN": str(when)},
    )  # fmt: skip
    trial.until_runs(1)
    when.touch()
    status, _, err = trial.end()
    assert status in (0, 3, 6), err
    assert voids(state) == ["clock_set"]
    assert service.ahead == TODAY
    nothing_left(state)


def test_a_setting_that_something_else_changes_ends_the_trial_and_is_left_alone(
    state: Path, service: Service
) -> None:
    trial = Trial(state, *service.words("--blocks", "1000", "--no-stop"), verb="live")
    trial.until(lambda: service.ahead == LOW, "a window with the other setting")
    (service.queue / "read_ahead_kb").write_text("332")
    status, _, err = trial.end()
    assert status in (1, 5), err
    assert "left alone" in err
    assert service.ahead == "332"
    (service.queue / "read_ahead_kb").write_text(TODAY)
    iotrial("restore", check=None)
    nothing_left(state)


def test_an_access_time_mode_is_changed_for_the_service_and_set_again(state: Path, service: Service) -> None:
    def mode() -> str:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return next(line.split(" ")[5] for line in lines if line.split(" ")[4] == str(service.folder))

    before = mode()
    assert "relatime" in before
    words = service.words("--blocks", "3", "--no-stop", setting="mount.atime=noatime")
    trial = Trial(state, *words, verb="live")
    trial.until(lambda: "noatime" in mode(), "a window with the other mode")
    status, _, err = trial.end()
    assert status in (0, 3, 6), err
    assert mode() == before
    assert {run["treatment"]["atime"] for run in stored_runs(state)} == {"relatime", "noatime"}
    nothing_left(state)


def test_a_scheduler_comes_back_with_the_settings_that_it_takes_along(state: Path, service: Service) -> None:
    names = ("scheduler", "nr_requests", "read_ahead_kb", "wbt_lat_usec")
    (service.queue / "nr_requests").write_text("77")

    def settings() -> dict[str, str]:
        return {name: (service.queue / name).read_text().strip() for name in names}

    before = settings()
    words = service.words("--blocks", "2", "--no-stop", setting="block.scheduler=mq-deadline,none")
    iotrial("live", *words, check=None)
    assert settings() == before
    assert len(stored_runs(state)) == 4
    nothing_left(state)


def test_other_settings_have_their_share_of_the_time_at_most(state: Path, service: Service) -> None:
    live(service, "--blocks", "3", "--no-stop", "--most-share", "20 %", "--time", "5 min", check=NO_ANSWER)
    runs = stored_runs(state)
    spent = runs[-1]["started_s"] + 1.5
    changed = 3 * 2.0
    assert changed / spent <= 0.2 + 0.02
    seen = service.seen()
    assert sum(ahead == LOW for _, ahead in seen) / len(seen) < 0.3


def test_a_plan_changes_nothing_and_says_how_it_is_undone(state: Path, service: Service) -> None:
    done = iotrial("live", *service.words("--plan", "--guard", "worse by 20 %"))
    assert "read_ahead_kb of the device or mount in use: 764, 0" in done.stdout
    assert "if iotrial is killed or hangs" in done.stdout
    assert service.ahead == TODAY
    assert not (state / "trials.db").exists()


def test_what_is_not_todays_setting_gets_it_as_its_reference(state: Path, service: Service) -> None:
    done = iotrial("live", *service.words("--plan", setting="block.read_ahead_kb=0,128"))
    assert "764, 0, 128" in done.stdout
    assert "today's settings are the reference: read_ahead_kb 764" in done.stdout


def test_the_state_of_a_running_trial_can_be_scraped(state: Path, service: Service) -> None:
    trial = Trial(state, *service.words("--blocks", "1000", "--no-stop", "--openmetrics", "0"), verb="live")
    assert trial.process.stderr is not None
    url = next(line.split()[-1] for line in trial.process.stderr if "http://127.0.0.1:" in line)
    found: dict[str, str] = {}

    def measured() -> bool:
        asked = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text"})
        with urllib.request.urlopen(asked, timeout=5) as answer:
            text = answer.read().decode()
        assert text.endswith("# EOF\n")
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        found.update({name: value for name, _, value in lines})
        return any(name.startswith("iotrial_window") for name in found)

    trial.until(measured, "a counted window")
    assert sum(float(v) for name, v in found.items() if name.startswith("iotrial_level{")) == 1.0
    trial.process.send_signal(signal.SIGINT)
    trial.process.communicate()
    assert service.ahead == TODAY
    nothing_left(state)


@pytest.fixture
def frozen() -> Iterator[Path]:
    """Yield a cgroup whose processes are frozen; they are thawed at the end."""
    top = Path("/sys/fs/cgroup/freezer")
    older = top.is_dir()
    group = (top if older else Path("/sys/fs/cgroup")) / f"iotrial-test-{os.getpid()}"
    if not older and not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        pytest.skip("no cgroup file system that freezes")
    file, on, off = ("freezer.state", "FROZEN", "THAWED") if older else ("cgroup.freeze", "1", "0")
    group.mkdir()
    (group / file).write_text(on)
    yield group
    (group / file).write_text(off)
    assert eventually(lambda: not (group / "cgroup.procs").read_text(), 30)
    group.rmdir()


def test_the_watchdog_sets_the_settings_again_of_a_trial_that_is_frozen(
    state: Path, service: Service, frozen: Path
) -> None:
    """The trial alone, not its watchdog. In a cgroup of version 1 it dies only once it is thawed."""
    trial = Trial(state, *service.words("--blocks", "1000", "--no-stop"), verb="live")
    trial.until_runs(1)
    trial.until(lambda: service.ahead == LOW, "a window with the other setting")
    (frozen / "cgroup.procs").write_text(str(trial.process.pid))
    assert eventually(lambda: service.ahead == TODAY, REVERTED_WITHIN_S)
    assert eventually(lambda: not processes_with(trial_id(state)), REVERTED_WITHIN_S)
    assert entries(state) == []
    (text,) = events(state, "watchdog")
    assert "has set today's settings again" in text
    file, off = ("freezer.state", "THAWED") if (frozen / "freezer.state").exists() else ("cgroup.freeze", "0")
    (frozen / file).write_text(off)
    assert trial.process.wait(30) == -signal.SIGKILL
    trial.process.communicate()
    assert service.ahead == TODAY
    nothing_left(state)


def test_a_saved_study_runs_like_any_other(state: Path, service: Service, tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    iotrial("live", *service.words("--plan", "--save", str(file)))
    words = ["run", str(file), "--on", str(service.folder), "--yes", "--blocks", "2", "--no-stop", "--json"]
    report = json.loads(iotrial(*words).stdout)
    assert {run["treatment"]["read_ahead_kb"] for run in stored_runs(state)} == {TODAY, LOW}
    assert report["controls"] == []
    assert service.ahead == TODAY
    nothing_left(state)


def test_a_pilot_says_nothing_about_the_settings(state: Path, service: Service) -> None:
    words = service.words("--pilot", "--blocks", "10", "--window", "2 s")
    done = iotrial("live", *words)
    assert "washout:" in done.stdout
    # Either may come of noise; what a pilot finds is tested where the truth is known.
    found = ("not excluded: a window after it is off by up to", "longer than the pilot's windows show")
    assert any(words in done.stdout for words in found)
    assert "slower" not in done.stdout + done.stderr
    assert service.ahead == TODAY
    nothing_left(state)
