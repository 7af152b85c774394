"""Sources of a live trial's metric: the arithmetic of windows, hung sources, logs that rotate, resets of counters."""

from __future__ import annotations

import http.server
import json
import math
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iotrial.errors import RequestError
from iotrial.live.sources import MetricLost, WindowVoid, fetch, source_of
from iotrial.live.sources.base import Metric, Polled, Poller, Reading, bucket_quantile, nearest_rank
from iotrial.live.sources.exposed import Scrape, taken
from iotrial.live.sources.followed_log import LONGEST_LINE, Follower, Lines
from iotrial.live.sources.kernel import (
    Pressure,
    Processors,
    bar_quantile,
    bars_of,
    device_counters,
    device_source,
    lower_end,
    stalled_us,
    ticks,
)
from web_server import WebServer, serving, whole

SOON_S = 10.0


@pytest.fixture
def started() -> Iterator[Callable[[str], Any]]:
    """Return a function that starts a source, which is stopped at the end."""
    running: list[Any] = []

    def start(text: str) -> Any:
        source = source_of(text)
        running.append(source)
        source.start()
        return source

    yield start
    for source in running:
        source.stop()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < end, "it has not come to that in time"
        time.sleep(0.01)


# a source that hangs


def test_a_read_that_hangs_is_a_lost_metric_and_does_not_hang_the_caller() -> None:
    go_on = threading.Event()
    poller: Poller[float] = Poller("x", lambda: float(go_on.wait(60)), every_s=0.01, timeout_s=0.2)
    poller.start()
    try:
        began = time.monotonic()
        with pytest.raises(MetricLost, match=r"no answer within 0\.2 s"):
            poller.fresh()
        with pytest.raises(MetricLost, match=r"no answer within 0\.2 s"):
            poller.newest(0.0)
        with pytest.raises(MetricLost, match=r"no answer within 0\.2 s"):
            poller.record()
        poller.stop()
        assert time.monotonic() - began < SOON_S
    finally:
        go_on.set()


def test_a_read_that_fails_is_lost_until_one_succeeds() -> None:
    answers: list[float | Exception] = [1.0, ValueError("no"), MetricLost("gone"), 2.0]

    def read() -> float:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    poller: Poller[float] = Poller("x", read, every_s=60.0, timeout_s=SOON_S)
    poller.start()
    assert poller.fresh().value == 1.0
    with pytest.raises(MetricLost, match="ValueError: no"):
        poller.fresh()
    with pytest.raises(MetricLost, match="ValueError: no"):
        poller.newest(0.0)
    with pytest.raises(MetricLost, match="gone"):
        poller.fresh()
    assert poller.fresh().value == 2.0
    assert poller.newest(0.0)[-1].value == 2.0
    poller.stop()
    with pytest.raises(MetricLost, match="has ended"):
        poller.fresh()


def test_a_slow_reading_in_progress_does_not_take_the_time_of_the_next() -> None:
    poller: Poller[float] = Poller("x", lambda: time.sleep(0.6) or 1.0, every_s=0.01, timeout_s=0.9)
    poller.start()
    time.sleep(0.2)  # the first reading has begun
    poller.record()
    assert [one.value for one in poller.recorded()][-1] == 1.0
    poller.stop()


def silent(connection: Any, path: str, number: int) -> bool:
    """Accept, and never answer."""
    threading.Event().wait(30)
    return False


def trickle(connection: Any, path: str, number: int) -> bool:
    """Answer one byte at a time, for ever."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(300):
        connection.sendall(b"x")
        time.sleep(0.1)
    return False


def trickle_of_headers(connection: Any, path: str, number: int) -> bool:
    """Send headers one byte at a time, for ever."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(300):
        connection.sendall(b"x")
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("say", [silent, trickle, trickle_of_headers])
@pytest.mark.parametrize("form", ["promql:up@{}", "openmetrics:{}/metrics#x"])
def test_a_server_that_accepts_and_does_not_answer_is_lost(say: Any, form: str) -> None:
    with serving(say) as server:
        source = source_of(form.format(f"http://{server.address}") + ",timeout=500ms")
        began = time.monotonic()
        with pytest.raises(RequestError, match="no answer within"):
            source.start()
        assert time.monotonic() - began < SOON_S
        source.stop()
        # nor does its thread go on
        until(lambda: not [one for one in threading.enumerate() if one.name.startswith("metric")])


def test_a_server_that_stops_answering_is_lost_within_seconds(
    started: Callable[[str], Any],
) -> None:
    hangs = threading.Event()

    def say(connection: Any, path: str, number: int) -> bool:
        if hangs.is_set():
            threading.Event().wait(30)
        connection.sendall(whole(b"# TYPE x gauge\nx 3\n", "Content-Type: text/plain; version=0.0.4"))
        return False

    with serving(say) as server:
        source = started(f"openmetrics:http://{server.address}/metrics#x,every=200ms,timeout=500ms")
        source.begin()
        assert source.end() == 3.0
        until(lambda: source.current() == 3.0)
        source.begin()
        hangs.set()
        with pytest.raises(MetricLost):
            until(lambda: source.current() is None)
        with pytest.raises(MetricLost):
            source.end()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (whole(b"no", status="503 Down"), "status 503: 'no'"),
        (whole(b"", "Location: /other", status="302 Found"), "redirects to '/other'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nx 1\n", r"bytes are missing|IncompleteRead"),
        (b"SSH-2.0-OpenSSH\r\n", "SSH"),
        (whole(b"<html>\n"), "no series of x"),
        (whole(b"x 1e\n"), "cannot read x"),
        (whole(b"x NaN\n"), "found 'nan'"),
        (whole(b"x 1\n", "Content-Type: application/openmetrics-text; version=1.0.0"), "has no # EOF"),
        (whole(b'# TYPE x histogram\nx_bucket{le="1"} 1\nx_count 1\n'), "say what to take of it"),
        (whole(b'# TYPE x gauge\nx{a="1"} 1\nx{a="2"} 1\n'), "expected one series, found 2"),
    ],
)
def test_an_answer_that_is_none_is_refused_when_the_trial_starts(answer: bytes, message: str) -> None:

    def say(connection: Any, path: str, number: int) -> bool:
        connection.sendall(answer)
        return False

    with serving(say) as server:
        source = source_of(f"openmetrics:http://{server.address}/metrics#x")
        with pytest.raises(RequestError, match=message):
            source.start()


def test_a_port_where_nothing_listens_is_refused() -> None:
    with serving(silent) as server:
        address = server.address
    source = source_of(f"promql:up@http://{address}")
    with pytest.raises(RequestError, match="refused"):
        source.start()


# counters of an endpoint


class Page:
    """An endpoint whose text a test changes."""

    def __init__(self) -> None:
        self.text = ""

    def say(self, connection: Any, path: str, number: int) -> bool:
        connection.sendall(whole(self.text.encode(), "Content-Type: text/plain; version=0.0.4"))
        return False


@pytest.fixture
def page() -> Iterator[tuple[Page, WebServer]]:
    found = Page()
    with serving(found.say) as server:
        yield found, server


def test_of_a_counter_the_increments_of_all_its_series_count(
    page: tuple[Page, WebServer], started: Callable[[str], Any]
) -> None:
    text, server = page
    text.text = '# TYPE x_total counter\nx_total{a="1"} 5\nx_total{a="2"} 7\nx_other 1\n'
    source = started(f'openmetrics:http://{server.address}/m#x_total{{a!="9"}},every=60s')
    source.begin()
    began = time.monotonic()
    text.text = (
        '# TYPE x_total counter\nx_total{a="1"} 105\nx_total{a="2"} 7\nx_total{a="3"} 50\nx_total{a="9"} 9\n'
    )
    time.sleep(0.05)
    found = source.end()
    assert 150 / (time.monotonic() - began + 0.1) <= found <= 150 / 0.05


@pytest.mark.parametrize(
    "later",
    [
        '# TYPE x_total counter\nx_total{a="1"} 4\nprocess_start_time_seconds 100\n',  # fell
        '# TYPE x_total counter\nx_total{a="2"} 400\nprocess_start_time_seconds 100\n',  # gone
        '# TYPE x_total counter\nx_total{a="1"} 500\nprocess_start_time_seconds 200\n',  # overtaken
        '# TYPE x_total counter\nx_total{a="1"} 500\nx_created{a="1"} 12\nprocess_start_time_seconds 100\n',
    ],
    ids=["fell", "gone", "overtaken", "created"],
)
def test_a_counter_that_was_reset_makes_the_window_void(
    later: str, page: tuple[Page, WebServer], started: Callable[[str], Any]
) -> None:
    text, server = page
    text.text = (
        '# TYPE x_total counter\nx_total{a="1"} 5\nx_created{a="1"} 11\nprocess_start_time_seconds 100\n'
    )
    source = started(f"openmetrics:http://{server.address}/m#x_total,every=60s")
    source.begin()
    text.text = later
    with pytest.raises(WindowVoid, match="was reset"):
        source.end()
    source.begin()  # the source goes on
    source.end()


def test_a_counter_that_falls_and_recovers_between_the_ends_is_noticed_by_the_readings_in_between(
    page: tuple[Page, WebServer], started: Callable[[str], Any]
) -> None:
    text, server = page
    text.text = "# TYPE x_total counter\nx_total 50\n"
    source = started(f"openmetrics:http://{server.address}/m#x_total,every=200ms")
    source.begin()
    text.text = "# TYPE x_total counter\nx_total 1\n"
    seen = len(server.requests)
    until(lambda: len(server.requests) > seen + 2)
    text.text = "# TYPE x_total counter\nx_total 60\n"
    with pytest.raises(WindowVoid, match="fell from 50 to 1"):
        source.end()


def test_a_quantile_is_that_of_the_window_and_not_of_all_time(
    page: tuple[Page, WebServer], started: Callable[[str], Any]
) -> None:
    text, server = page

    def histogram(fast: int, slow: int) -> str:
        """Of observations up to 0.1 s and between 1 and 2 s."""
        total = fast + slow
        buckets = {"0.1": fast, "1": fast, "2": total, "+Inf": total}
        lines = [f'd_seconds_bucket{{le="{end}"}} {count}' for end, count in buckets.items()]
        sums = [f"d_seconds_sum {0.05 * fast + 1.5 * slow}", f"d_seconds_count {total}"]
        return "\n".join(["# TYPE d_seconds histogram", *lines, *sums, ""])

    text.text = histogram(1_000_000, 0)
    sources = [
        started(f"openmetrics:http://{server.address}/m#d_seconds:{take},every=60s")
        for take in ("p50", "p25", "mean")
    ]
    for source in sources:
        source.begin()
    text.text = histogram(1_000_050, 50)
    # half of the 100 observations of the window end at 0.1 s; a quarter is half way into the first bucket
    assert [source.end() for source in sources] == pytest.approx([0.1, 0.05, (0.05 * 50 + 1.5 * 50) / 100])
    for source in sources:
        source.begin()
        with pytest.raises(WindowVoid, match="nothing was counted"):
            source.end()


def test_of_a_gauge_the_mean_over_the_window_counts(
    page: tuple[Page, WebServer], started: Callable[[str], Any]
) -> None:
    text, server = page
    text.text = 'x{a="b\\"c"} 1\nx{a="d"} 100\n'
    source = started(f'openmetrics:http://{server.address}/m#x{{a="b\\"c"}},every=60s')
    source.begin()
    text.text = 'x{a="b\\"c"} 3\nx{a="d"} 100\n'
    assert source.end() == 2.0


def test_the_quantiles_that_a_summary_has_itself_are_refused(page: tuple[Page, WebServer]) -> None:
    text, server = page
    text.text = '# TYPE x summary\nx{quantile="0.99"} 3\nx_sum 5\nx_count 2\n'
    with pytest.raises(RequestError, match="say what to take of it"):
        source_of(f"openmetrics:http://{server.address}/m#x:p99").start()


@given(
    st.lists(st.floats(0, 1e6), min_size=2, max_size=8), st.lists(st.floats(0.1, 100), min_size=8, max_size=8)
)
def test_a_rate_is_the_growth_of_a_counter_that_never_falls(
    steps: Sequence[float], times: Sequence[float]
) -> None:
    key = ("x_total", ())
    at, value, readings = 0.0, 10.0, []
    for step, passed in zip(steps, times, strict=False):
        at, value = at + passed, value + step
        readings.append(Reading(at, Scrape("counter", {key: value}, {})))
    grown = readings[-1].value.samples[key] - readings[0].value.samples[key]
    assert taken(readings, "x_total", None) == pytest.approx(grown / (readings[-1].at_s - readings[0].at_s))
    fallen = [*readings, Reading(at + 1, Scrape("counter", {key: value / 2 - 1}, {}))]
    with pytest.raises(WindowVoid):
        taken([*fallen, Reading(at + 2, readings[-1].value)], "x_total", None)


@pytest.mark.parametrize(
    ("share", "wanted"),
    # PromQL: 10 up to 1, 20 up to 2, 10 up to 4, 5 above
    [(0.1, 0.45), (10 / 45, 1.0), (0.5, 1.625), (30 / 45, 2.0), (0.8, 3.2), (0.95, 4.0)],
)
def test_a_quantile_is_interpolated_within_its_bucket(share: float, wanted: float) -> None:
    assert bucket_quantile(share, [1.0, 2.0, 4.0, math.inf], [10, 20, 10, 5]) == pytest.approx(wanted)


# commands


def test_a_command_is_a_number_and_the_mean_over_the_window(
    tmp_path: Path, started: Callable[[str], Any]
) -> None:
    number = tmp_path / "number"
    number.write_text("1\n")
    source = started(f"command:cat {number},every=60s")
    source.begin()
    number.write_text(" 4e0 \n")
    assert source.end() == 2.5


def test_a_counter_of_a_command_becomes_a_rate(tmp_path: Path, started: Callable[[str], Any]) -> None:
    number = tmp_path / "number"
    number.write_text("100")
    source = started(f"command:cat {number},rate,every=60s")
    source.begin()
    time.sleep(0.1)
    number.write_text("300")
    assert 0 < source.end() <= 200 / 0.1
    source.begin()
    number.write_text("3")
    with pytest.raises(WindowVoid, match="counter was reset"):
        source.end()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo one", "expected a number"),
        ("echo 1_000", "expected a number"),
        ("echo nan", "expected a number"),
        ("echo 1 2", "expected a number"),
        ("echo 1e999", "expected a number of a magnitude up to"),
        ("echo oh >&2; exit 3", "status 3: 'oh'"),
        ("/no/such/program", "failed with status 127"),
        ("yes", "no answer within"),
        ("sleep 60", "no answer within"),
    ],
)
def test_a_command_that_gives_no_number_in_time_is_refused(command: str, message: str) -> None:
    source = source_of(f"command:{command},timeout=700ms")
    began = time.monotonic()
    with pytest.raises(RequestError, match=message):
        source.start()
    assert time.monotonic() - began < SOON_S


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    source = source_of(f"command:sleep 61 & echo $! > {tmp_path}/child; wait,timeout=1s")
    with pytest.raises(RequestError, match="no answer within"):
        source.start()
    child = int((tmp_path / "child").read_text())
    until(lambda: not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text())


#: 3,000 processes, each of which ends as soon as it has started the next
CHAIN = """
import os, time
for _ in range(3000):
    if os.fork():
        os._exit(0)
time.sleep(61)
"""


@pytest.mark.parametrize(
    "leaves",
    [
        "sleep 61 & echo $! > {note}",  # holds the output open
        "setsid sleep 61 >/dev/null 2>&1 & echo $! > {note}",
        "(trap '' TERM HUP; (setsid sh -c 'echo $$ > {note}; sleep 61' >/dev/null 2>&1 &) &); sleep 0.2",
        "(exec <&- >&- 2>&-; setsid sh -c 'echo $$ > {note}; sleep 61' &); sleep 0.2",
        "{python} {chain} & echo $! > {note}; sleep 0.1",
    ],
)
def test_what_a_command_leaves_running_ends_with_it(
    tmp_path: Path, started: Callable[[str], Any], leaves: str
) -> None:
    note, chain = tmp_path / "note", tmp_path / "chain.py"
    chain.write_text(CHAIN)
    source = started(
        f"command:{leaves.format(note=note, python=sys.executable, chain=chain)}; echo 7,every=60s"
    )
    source.begin()
    assert source.end() == 7
    assert not is_running(int(note.read_text()))
    assert not any(str(chain) in command for command in commands_running())


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and " Z " not in stat.read_text()


def commands_running() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    return found


# logs


def log_source(path: Path, rest: str, started: Callable[[str], Any]) -> Any:
    return started(f"log:{path}:{rest},every=60s")


def test_only_the_lines_of_the_window_count(tmp_path: Path, started: Callable[[str], Any]) -> None:
    path = tmp_path / "log"
    path.write_text("took 1000 ms\n")
    mean, highest, count = (
        log_source(path, rf"took (\d+) ms:{take}", started) for take in ("mean", "p90", "count")
    )
    with path.open("a") as file:
        print("took 500 ms", file=file)
    for source in (mean, highest, count):
        source.begin()
    with path.open("a") as file:
        for took in range(1, 11):
            print(f"took {took} ms\nother line", file=file)
    assert [source.end() for source in (mean, highest, count)] == [5.5, 9.0, 10.0]
    for source in (mean, count):
        source.begin()
    assert count.end() == 0.0
    with pytest.raises(WindowVoid, match="nothing was counted"):
        mean.end()


@pytest.mark.parametrize("how", ["renamed", "renamed before it is made again", "cut off in place", "never"])
def test_a_log_is_followed_through_rotation(how: str, tmp_path: Path, started: Callable[[str], Any]) -> None:
    path = tmp_path / "log"
    path.write_text("x 999\n" * 100)
    source = log_source(path, r"x (\d+):mean", started)
    source.begin()
    with path.open("a") as file:
        print("x 1", file=file)
    wanted = [1, 6, 11]
    if how == "cut off in place":
        source.poller.fresh()
        os.truncate(path, 0)
    elif how != "never":
        old = path.open("a")
        path.rename(tmp_path / "log.1")
        if how == "renamed before it is made again":
            source.poller.fresh()
        print("x 2", file=old, flush=True)
        path.touch()
        source.poller.fresh()
        # a program writes to the old one until it opens its log again
        print("x 30", file=old, flush=True)
        old.close()
        wanted += [2, 30]
    with path.open("a") as file:
        print("x 6", file=file)
    source.poller.fresh()
    with path.open("a") as file:
        print("x 11", file=file)
    assert source.end() == pytest.approx(sum(wanted) / len(wanted))


def test_a_renamed_log_is_closed_after_some_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iotrial.live.sources.followed_log.LINGERS_S", 0.05)
    path = tmp_path / "log"
    path.write_text("")
    follower = Follower(str(path))
    follower.lines()
    for number in range(3):
        with path.open("a") as file:
            file.write(f"whole {number}\nhalf {number}")
        path.rename(tmp_path / f"log.{number}")
        path.write_text("")
        assert follower.lines() == [b"whole %d" % number]
        time.sleep(0.1)
        assert follower.lines() == [b"half %d" % number]  # no more will be added
    held = {str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()}
    assert not [name for name in held if "log." in name and str(tmp_path) in name]
    follower.close()


def test_a_line_counts_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("half a li")
    follower = Follower(str(path))
    assert follower.lines() == []
    with path.open("a") as file:
        file.write("ne\nwhole\nnex")
        file.flush()
        assert follower.lines() == [b"whole"]  # of the first one only a part was seen
        file.write("t\n")
        file.flush()
        assert follower.lines() == [b"next"]
        file.write("y" * (5 * LONGEST_LINE))
        file.flush()
        (long,) = follower.lines()
        assert len(long) == LONGEST_LINE
        file.write("y\nafter\n")
    assert follower.lines() == [b"after"]
    follower.close()


@given(st.lists(st.binary(max_size=50), max_size=12))
def test_lines_do_not_depend_on_how_they_arrive(pieces: list[bytes]) -> None:
    splitting = Lines()
    found = [line for piece in pieces for line in splitting.split(piece)]
    assert found == b"".join(pieces).split(b"\n")[:-1]


def test_a_log_that_is_gone_for_long_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iotrial.live.sources.followed_log.GONE_S", 0.05)
    path = tmp_path / "log"
    path.write_text("")
    follower = Follower(str(path))
    follower.lines()
    path.unlink()
    assert follower.lines() == []
    time.sleep(0.1)
    with pytest.raises(MetricLost, match="cannot read"):
        follower.lines()
    follower.close()


def _unreadable(path: Path) -> None:
    path.touch()
    path.chmod(0)


#: what a log can become, by what makes it
BECOMES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link that leads nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
    "a file of nobody's": _unreadable,
}


@pytest.fixture
def no_file_is_closed_twice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that closes a number which is not open: it may be another thread's file by then."""
    wrong: list[int] = []

    def close(number: int, really: Callable[[int], None] = os.close) -> None:
        try:
            really(number)
        except OSError:
            wrong.append(number)
            raise

    monkeypatch.setattr(os, "close", close)
    yield
    assert not wrong


@pytest.mark.usefixtures("no_file_is_closed_twice")
@pytest.mark.parametrize("what", BECOMES)
def test_a_log_that_becomes_something_else_is_lost_until_it_is_one_again(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "a file of nobody's" and os.geteuid() == 0:
        pytest.skip("root reads every file")
    monkeypatch.setattr("iotrial.live.sources.followed_log.GONE_S", 0.05)
    monkeypatch.setattr("iotrial.live.sources.followed_log.LINGERS_S", 0.1)
    path = tmp_path / "log"
    path.write_text("")
    follower = Follower(str(path))
    follower.lines()
    with path.open("a") as old:
        path.rename(tmp_path / "log.1")
        BECOMES[what](path)
        assert follower.lines() == []
        print("to the old one", file=old, flush=True)
        assert follower.lines() == [b"to the old one"]
    for _ in range(3):
        time.sleep(0.1)
        with pytest.raises(MetricLost, match="cannot read"):
            follower.lines()
    path.rename(tmp_path / "log.2")
    path.write_text("again\n")
    assert follower.lines() == [b"again"]
    follower.close()
    follower.close()
    open_ones = (one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink())
    assert not [one for one in open_ones if one.is_relative_to(tmp_path)]


def test_a_window_in_which_the_log_could_not_be_read_is_void(
    tmp_path: Path, started: Callable[[str], Any]
) -> None:
    path = tmp_path / "log"
    path.write_text("")
    source = log_source(path, r"x (\S+):mean", started)
    source.begin()
    with path.open("a") as file:
        print("x 1\nx one", file=file, flush=True)
        with pytest.raises(MetricLost, match="expected a number"):
            source.poller.fresh()
        print("x 3", file=file, flush=True)
        with pytest.raises(WindowVoid, match="lines may be missing"):
            source.end()
        source.begin()
        print("x 4", file=file, flush=True)
    assert source.end() == 4.0


def test_a_source_whose_thread_hangs_keeps_its_file_open(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("")
    source: Any = source_of(f"log:{path}:x,timeout=200ms")
    hung, really = threading.Event(), source.read
    hung.set()
    source.read = lambda: really() if hung.wait(SOON_S) else None
    source.start()
    held = source._follower
    hung.clear()
    with pytest.raises(MetricLost, match="no answer within"):
        source.poller.fresh()
    source.stop()
    assert os.fstat(held._now._file).st_ino == path.stat().st_ino
    hung.set()
    held.close()


def test_what_is_not_a_log_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "nothing", tmp_path, tmp_path / "pipe"):
        with pytest.raises(RequestError, match="cannot read"):
            source_of(f"log:{path}:x").start()


def test_a_group_that_is_no_number_is_a_lost_metric(tmp_path: Path, started: Callable[[str], Any]) -> None:
    path = tmp_path / "log"
    path.write_text("")
    source = log_source(path, "took (.*) ms", started)
    source.begin()
    path.write_text("took long ms\n")
    with pytest.raises(MetricLost, match=r"group: expected a number.*long"):
        source.end()


@pytest.mark.parametrize(("share", "wanted"), [(0.5, 2), (0.75, 3), (0.76, 4), (0.01, 1), (0.99, 4)])
def test_a_nearest_rank_is_one_of_the_values(share: float, wanted: int) -> None:
    assert nearest_rank([1, 2, 3, 4], share) == wanted


# the kernel's counters


def test_counters_of_a_device_are_those_of_diskstats() -> None:
    for line in Path("/proc/diskstats").read_text().splitlines():
        words = line.split()
        file = Path("/sys/class/block") / words[2].replace("/", "!") / "stat"
        if not file.exists():
            continue
        before = [int(word) for word in words[3:14]]
        found = device_counters(file.read_text())
        again = next(
            one.split()
            for one in Path("/proc/diskstats").read_text().splitlines()
            if one.split()[2] == words[2]
        )
        after = [int(word) for word in again[3:14]]
        assert before[0] + before[4] <= found.requests <= after[0] + after[4]
        assert before[2] + before[6] <= found.sectors <= after[2] + after[6]
        assert before[3] + before[7] <= found.waited_ms <= after[3] + after[7]
        assert before[9] <= found.busy_ms <= after[9]


def test_bars_of_the_probe_touch_each_other() -> None:
    # crates/ioprobe/src/trace/call.rs: bar b from 4 on ends at ((5 + b % 4) << (b / 4 - 1)) - 1
    ends = [0, 1, 2, 3, *(((5 + bar % 4) << (bar // 4 - 1)) - 1 for bar in range(4, 144))]
    assert ends[-1] == 2**37 - 1
    for below, end in pairwise(ends):
        assert lower_end(end) == below


def test_a_quantile_of_bars_is_within_its_bar() -> None:
    ends = [((5 + bar % 4) << (bar // 4 - 1)) - 1 for bar in (80, 81, 100)]
    assert ends[0] < bar_quantile(0.5, ends, [1, 4, 1]) < ends[1]
    assert lower_end(ends[2]) < bar_quantile(0.99, ends, [1, 4, 1]) < ends[2]
    assert bar_quantile(0.5, [ends[0]], [2]) == pytest.approx((lower_end(ends[0]) + ends[0]) / 2)


def over(source: Polled[Any], first: object, last: object, seconds: float = 2.0) -> float:
    return source.value([Reading(10.0, first), Reading(10.0 + seconds, last)])


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("throughput", (100 + 300) * 512 / 2),
        ("requests", (10 + 30) / 2),
        ("utilisation", 25.0),
        ("latency", (20 + 60) / 1e3 / (10 + 30)),
    ],
)
def test_metrics_of_a_device_are_those_of_reads_and_writes_between_two_readings(
    what: str, value: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("iotrial.live.sources.kernel.BLOCK", tmp_path)
    (tmp_path / "sda").mkdir()
    source = device_source(Metric(what, "1", lower_is_better=True), "sda", what)
    # Documentation/block/stat.rst: ios, merges, sectors and ms of reads and writes, in flight, busy ms, queue ms
    before = device_counters("5 0 50 7 6 0 60 8 0 1000 2000")
    after = device_counters("15 0 150 27 36 0 360 68 0 1500 2500")
    assert over(source, before, after) == pytest.approx(value)
    with pytest.raises(WindowVoid, match="counter was reset"):
        over(source, after, before)


def test_pressure_and_processors_are_shares_of_the_time_in_percent() -> None:
    metric = Metric("x", "%", lower_is_better=True)
    assert over(Pressure(metric, "io", full=False), 1_000_000, 1_500_000) == 25.0
    # 100 of 400 ticks; 50 of waiting for I/O are idle, 20 stolen ones are busy
    idle, busy = ticks("cpu  0 0 0 0 0 0 0 0\n"), ticks("cpu  50 10 20 250 50 0 0 20\n")
    assert over(Processors(metric), idle, busy) == pytest.approx(25.0)


def test_latencies_are_of_reads_and_writes_if_nearly_all_requests_were_seen() -> None:
    kinds = {
        "read": {"histogram": [[10, 3]]},
        "write": {"histogram": [[10, 4], [20, 5]]},
        "flush": {"histogram": [[9, 9]]},
    }
    answer = {"requests": {"sda": kinds}, "requests_lost": 0}
    assert bars_of(answer, "sda") == {10: 7, 20: 5}
    with pytest.raises(MetricLost, match="1 requests were not seen"):
        bars_of({**answer, "requests_lost": 1}, "sda")


def test_pressure_and_processors_are_read_from_their_files() -> None:
    text = "some avg10=0.00 avg60=0.12 avg300=0.05 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=789\n"
    assert (stalled_us(text, "some"), stalled_us(text, "full")) == (123456, 789)
    found = ticks("cpu  10 20 30 400 50 6 7 8 0 0\ncpu0 1 2 3 4\n")
    assert (found.busy, found.all) == (10 + 20 + 30 + 6 + 7 + 8, 531)
    for broken in ("", "some total=x\n", "avg10=1"):
        with pytest.raises(MetricLost):
            stalled_us(broken, "some")
    for broken in ("", "cpu 1 2\n", "cpu0 1 2 3 4 5 6 7 8\n"):
        with pytest.raises(MetricLost):
            ticks(broken)


@pytest.mark.parametrize("text", ["cpu", "psi:cpu"])
def test_a_machine_that_works_is_busy(text: str, started: Callable[[str], Any]) -> None:
    if text.startswith("psi") and not Path("/proc/pressure/cpu").exists():
        pytest.skip("this kernel has no pressure stall information")
    source = started(text)
    source.begin()
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    found = source.end()
    assert 0.0 <= found <= 100.0
    if text == "cpu":
        assert found > 50.0 / (os.cpu_count() or 1)


def test_a_source_may_be_stopped_at_any_time_and_started_again() -> None:
    source = source_of("cpu")
    source.stop()
    with pytest.raises(MetricLost, match="reading has ended"):
        source.current()
    for _ in range(2):
        source.start()
        source.begin()
        time.sleep(0.05)
        source.end()
        source.stop()
        source.stop()


def test_a_metric_that_is_not_finite_has_no_window() -> None:
    class Odd(source_of("cpu").__class__):  # type: ignore[misc]
        def value(self, readings: Any) -> float:
            return math.inf

    source = Odd(Metric("odd", "", True))
    source.start()
    source.begin()
    with pytest.raises(WindowVoid, match="nothing was counted"):
        source.end()
    source.stop()


# Prometheus's answers, from a server of the test


class FakePrometheus:
    """Answers ``time()`` from a clock that a test sets, and any other query with 5."""

    def __init__(self) -> None:
        self.offset_s = 0.0

    def say(self, connection: Any, path: str, number: int) -> bool:
        query = parse_qs(urlsplit(path).query)
        value = str(time.monotonic() + self.offset_s) if query["query"] == ["time()"] else "5"
        if urlsplit(path).path.endswith("query_range"):
            first, last, step = (float(query[name][0]) for name in ("start", "end", "step"))
            count = int((last - first) / step) + 1
            values = [[first + place * step, "NaN" if place else "4"] for place in range(count)]
            result: object = [{"metric": {}, "values": values}]
            kind = "matrix"
        else:
            result, kind = [0, value], "scalar"
        body = {"status": "success", "data": {"resultType": kind, "result": result}}
        connection.sendall(whole(json.dumps(body).encode()))
        return False


@pytest.mark.parametrize("step_s", [-3600.0, 5.0])
def test_a_clock_that_is_set_within_a_window_makes_it_void(
    step_s: float, started: Callable[[str], Any]
) -> None:
    fake = FakePrometheus()
    with serving(fake.say) as server:
        source = started(f"promql:rate(x[$window])@http://{server.address},every=60s")
        source.begin()
        time.sleep(0.3)
        assert source.end() == 5.0
        asked = parse_qs(urlsplit(server.requests[-1]).query)
        milliseconds = int(asked["query"][0].removeprefix("rate(x[").removesuffix("ms])"))
        assert 300 <= milliseconds < 5000
        assert abs(float(asked["time"][0]) - time.monotonic()) < 5
        source.begin()
        fake.offset_s += step_s
        with pytest.raises(WindowVoid, match="was set, or the machine slept"):
            source.end()
        source.begin()
        assert source.end() == 5.0


def test_a_query_with_few_values_in_the_window_makes_it_void(started: Callable[[str], Any]) -> None:
    fake = FakePrometheus()
    with serving(fake.say) as server:
        source = started(f"promql:x@http://{server.address}/prom,every=60s")
        source.begin()
        assert source.end() == 4.0  # one value, of a window with one step
        source.begin()
        time.sleep(1.7)
        with pytest.raises(WindowVoid, match="has 1 values in this window"):
            source.end()
        assert {urlsplit(path).path.split("/")[1] for path in server.requests} == {"prom"}


@pytest.mark.parametrize(
    "text", ["promql:up@http://a:b@127.0.0.1:1", "openmetrics:http://a:b@127.0.0.1:1/#x"]
)
def test_a_password_in_a_url_is_in_no_message(text: str) -> None:
    source = source_of(text.replace("a:b", "reader:hunter2"))
    with pytest.raises(RequestError) as caught:
        source.start()
    assert "hunter2" not in str(caught.value)
    assert "127.0.0.1:1" in str(caught.value)


# who asks, and whom


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_command_runs_as_the_user_who_called_sudo(
    monkeypatch: pytest.MonkeyPatch, started: Callable[[str], Any]
) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    for shows, wanted in (("id -u", 65534), ("id -g", 65534), ("id -G | wc -w", 1), ("id -u root", 0)):
        source = started(f"command:{shows},every=60s")
        source.begin()
        assert source.end() == wanted


def test_a_server_with_tls_is_asked_only_if_its_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        [
            *make.split(),
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x 3\n")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        text = f"openmetrics:https://127.0.0.1:{server.server_port}/metrics#x"
        fetch._context.cache_clear()
        with pytest.raises(RequestError, match="certificate verify failed"):
            source_of(text).start()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        fetch._context.cache_clear()
        source = source_of(text)
        source.start()
        source.begin()
        assert source.end() == 3.0
        source.stop()
        server.shutdown()
    fetch._context.cache_clear()
