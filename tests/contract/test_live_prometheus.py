"""Metrics of a live trial from a real Prometheus, which scrapes a real program; and a running trial that it scrapes."""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from iotrial.errors import RequestError
from iotrial.live.exposition import Exporter, Running, RunningGuard, RunningMetric
from iotrial.live.sources import MetricLost, source_of

DASHBOARD = Path(__file__).parents[2] / "docs/examples/grafana-live.json"
PROMETHEUS = shutil.which("prometheus")
SOON_S = 60.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is not installed (apt-get install prometheus)"),
]

#: a real program of a client library: each line of input is an amount of work, added to its counters
PROGRAM = """
import sys
from prometheus_client import Counter, Gauge, Histogram, start_http_server
work = Counter("work", "Done.")
queue = Gauge("queue", "Waiting.")
took = Histogram("took_seconds", "Duration.", buckets=(0.1, 0.2, 0.4))
start_http_server(int(sys.argv[1]), "127.0.0.1")
print("ready", flush=True)
for line in sys.stdin:
    amount = float(line)
    work.inc(amount)
    queue.set(amount)
    took.observe(0.15)
    print("done", flush=True)
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Program:
    """The program with counters. ``work`` adds to them."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answered("ready")

    def work(self, amount: float) -> None:
        assert self._process.stdin is not None
        print(amount, file=self._process.stdin, flush=True)
        self._answered("done")

    def _answered(self, wanted: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == wanted

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def program() -> Iterator[Program]:
    found = Program(free_port())
    yield found
    found.end()


class Prometheus:
    """A server that scrapes some ports of this machine twice a second."""

    def __init__(self, folder: Path, *ports: int) -> None:
        assert PROMETHEUS is not None
        targets = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
        config = folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 500ms, scrape_timeout: 400ms}\n"
            f"scrape_configs: [{{job_name: x, static_configs: [{{targets: [{targets}]}}]}}]\n"
        )
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--storage.tsdb.retention.time=1h",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, query: str) -> float:
        """Return the one number of a query by the API, NaN if there is none."""
        result = self.series(f"query?query={quote(query)}")
        return float(result[0]["value"][1]) if result else math.nan

    def series(self, request: str) -> list[dict[str, Any]]:
        """Return the series that answer a request to the API."""
        with urllib.request.urlopen(f"{self.url}/api/v1/{request}", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON_S
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < end, "it has not come to that in time"
        time.sleep(0.1)


@pytest.fixture
def prometheus(program: Program, tmp_path: Path) -> Iterator[Prometheus]:
    found = Prometheus(tmp_path, program.port)
    try:
        until(lambda: found.ask("count_over_time(work_total[30s])") >= 3)
        yield found
    finally:
        found.end()


def test_a_query_is_answered_for_the_counted_part_alone(program: Program, prometheus: Prometheus) -> None:
    rate = source_of(f"promql:increase(work_total[$window])@{prometheus.url},higher")
    highest = source_of(f"promql:max_over_time(queue[$window])@{prometheus.url}")
    mean = source_of(f"promql:queue@{prometheus.url}")
    slow = source_of(
        f"promql:histogram_quantile(0.5, rate(took_seconds_bucket[$window]))@{prometheus.url},unit=s"
    )
    program.work(1_000_000)  # before the window
    until(lambda: prometheus.ask("work_total") == 1_000_000)
    for source in (rate, highest, mean, slow):
        source.start()
    try:
        program.work(7)
        until(lambda: prometheus.ask("queue") == 7)
        time.sleep(1.2)  # no scrape of before is left in the window
        for source in (rate, highest, mean, slow):
            source.begin()
        time.sleep(2.0)
        program.work(50)
        until(lambda: prometheus.ask("queue") == 50)
        time.sleep(2.0)
        # Prometheus extrapolates an increase to the ends of the window: by a scrape at each
        assert 50 <= rate.end() <= 50 * 1.5
        assert highest.end() == 50
        assert 7 < mean.end() < 50
        assert slow.end() == pytest.approx(0.15)
        assert rate.current() is not None
    finally:
        for source in (rate, highest, mean, slow):
            source.stop()


def test_what_has_no_number_or_several_is_refused(prometheus: Prometheus) -> None:
    for query, message in (
        ("nothing_of_this_name", "has no number now"),
        ("rate(nothing[$window])", "has no number now"),
        ("took_seconds_bucket", "expected one series, found 4"),
        ("work_total[1m]", "is not one number"),
        ("rate(work_total", "parse error"),
    ):
        with pytest.raises(RequestError, match=message):
            source_of(f"promql:{query}@{prometheus.url}").start()


def test_a_server_that_ends_is_a_lost_metric(prometheus: Prometheus) -> None:
    source = source_of(f"promql:work_total@{prometheus.url},every=200ms,timeout=1s")
    source.start()
    try:
        source.begin()
        prometheus.end()
        with pytest.raises(MetricLost):
            until(lambda: source.current() is None)
        with pytest.raises(MetricLost):
            source.end()
    finally:
        source.stop()


def test_a_stopped_server_is_a_lost_metric(prometheus: Prometheus) -> None:
    source = source_of(f"promql:work_total@{prometheus.url},every=200ms,timeout=1s")
    source.start()
    prometheus.process.send_signal(19)  # SIGSTOP: it accepts and does not answer
    try:
        began = time.monotonic()
        with pytest.raises(MetricLost, match="no answer within"):
            until(lambda: source.current() is None)
        assert time.monotonic() - began < SOON_S
    finally:
        prometheus.process.send_signal(18)
        source.stop()


def test_the_endpoint_of_a_program_is_read_directly(program: Program) -> None:
    page = f"openmetrics:http://127.0.0.1:{program.port}/metrics"
    rate = source_of(f"{page}#work_total,every=60s")
    mean = source_of(f"{page}#took_seconds:mean,every=60s")
    quantile = source_of(f"{page}#took_seconds:p50,every=60s")
    seconds = source_of(f"{page}#process_cpu_seconds_total,every=60s")
    for source in (rate, mean, quantile, seconds):
        source.start()
    try:
        program.work(1000)
        began = time.monotonic()
        for source in (rate, mean, quantile, seconds):
            source.begin()
        program.work(60)
        program.work(40)
        time.sleep(0.2)
        found = rate.end()
        assert 100 / (time.monotonic() - began + 0.2) <= found <= 100 / 0.2
        assert mean.end() == pytest.approx(0.15)
        assert 0.1 < quantile.end() <= 0.2
        assert 0 <= seconds.end() < 1
        # a program that was started again, and has overtaken its counter
        rate.begin()
        program.end()
        again = Program(program.port)
        again.work(5000)
        with pytest.raises(MetricLost, match="was reset: process_start_time_seconds has changed"):
            rate.end()
        again.end()
    finally:
        for source in (rate, mean, quantile, seconds):
            source.stop()


def test_prometheus_scrapes_a_running_trial(tmp_path: Path) -> None:
    with Exporter() as exporter:
        exporter.update(
            Running("t", "block.scheduler", "measuring", "bfq", ("none", "bfq"), pairs=17, void_pairs=2)
        )
        server = Prometheus(tmp_path, int(exporter.url.split(":")[2].split("/")[0]))
        try:
            until(lambda: server.ask("iotrial_pairs_total") == 17)
            assert server.ask('iotrial_level{iotrial_level="bfq"}') == 1
            assert server.ask('iotrial_state{iotrial_state="measuring"}') == 1
            assert server.ask("up") == 1
        finally:
            server.end()


def running(level: str, **more: Any) -> Running:
    """A trial that has a number for everything that is exposed."""
    by_level = {"none": 0.02, "bfq": 0.022}
    metric = RunningMetric(
        "p99", "s", True, 0.021, by_level, {"bfq": 1.08}, {"bfq": 0.99}, {"bfq": 1.2}, {"bfq": -0.3}
    )
    return Running(
        "7", "block.scheduler", "measuring", level, ("none", "bfq"), 12, 1, (metric,),
        (RunningGuard("p99 > 200 ms", tripped=True, limit=0.2, value=0.3),), {"none": 0.75, "bfq": 0.25}, **more,
    )  # fmt: skip


def test_every_query_of_the_dashboard_is_answered_and_its_annotations_show_when_a_level_was_in_force(
    tmp_path: Path,
) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    filled = {"$trial": "7", "$metric": "p99"}

    def with_values(text: str) -> str:
        for name, value in filled.items():
            text = text.replace(name, value)
        assert "$" not in text
        return text

    queries = [with_values(one["expr"]) for panel in dashboard["panels"] for one in panel["targets"]]
    annotations = {one["name"]: with_values(one["expr"]) for one in dashboard["annotations"]["list"]}
    variables = [
        re.fullmatch(r"label_values\((.+), (\w+)\)", with_values(one["query"]))
        for one in dashboard["templating"]["list"]
        if one["type"] == "query"
    ]
    with Exporter() as exporter:
        exporter.update(running("none"))
        server = Prometheus(tmp_path, int(exporter.url.split(":")[2].split("/")[0]))
        try:
            until(lambda: server.ask("iotrial_pairs_total") == 12)
            began = time.time()
            for query in (*queries, *annotations.values()):
                assert server.series(f"query?query={quote(query)}"), query
            for one in variables:
                assert one is not None
                assert {found["metric"][one[2]] for found in server.series(f"query?query={quote(one[1])}")}
            time.sleep(2)
            exporter.update(running("bfq"))
            until(
                lambda: (
                    server.ask(
                        annotations["Levels"] + ' and on(iotrial_level) iotrial_level{iotrial_level="bfq"}'
                    )
                    == 1
                )
            )
            time.sleep(2)
            spans = (
                f"query_range?query={quote(annotations['Levels'])}&start={began}&end={time.time()}&step=0.5"
            )
            times = {
                one["metric"]["iotrial_level"]: [float(at) for at, value in one["values"] if float(value) > 0]
                for one in server.series(spans)
            }
            assert set(times) == {"none", "bfq"}
            assert max(times["none"]) < min(times["bfq"])
        finally:
            server.end()
