"""The OpenMetrics text of a running trial: the reference parser reads it, and it is served on loopback only."""

from __future__ import annotations

import contextlib
import http.client
import math
import socket
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from iotrial.errors import RequestError
from iotrial.live import exposition
from iotrial.live.exposition import (
    CONTENT_TYPE,
    MOST_AT_ONCE,
    Exporter,
    Running,
    RunningGuard,
    RunningMetric,
    openmetrics,
)

RUNNING = Running(
    trial="0123",
    knob="block.scheduler",
    state="measuring",
    level="bfq",
    levels=("none", "bfq"),
    pairs=12,
    void_pairs=1,
    metrics=(
        RunningMetric(
            "latency_p99",
            "s",
            primary=True,
            current=0.021,
            windows={"none": 0.02, "bfq": 0.022},
            ratio={"bfq": 1.08},
            low={"bfq": 0.99},
            high={"bfq": math.inf},
            log_evidence={"bfq": -0.3},
        ),
        RunningMetric("cpu", "%", current=None),
    ),
    guards=(RunningGuard("latency_p99", tripped=False, limit=1.1, value=1.02),),
    share={"none": 0.75, "bfq": 0.25},
)


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_reference_parser_reads_all_numbers() -> None:
    found = samples(openmetrics(RUNNING))
    of_metric = {"trial": "0123", "metric": "latency_p99", "unit": "s", "primary": "yes"}

    def value(name: str, **labels: str) -> float:
        return found[name, frozenset(labels.items())]

    assert value("iotrial_pairs_total", trial="0123") == 12
    assert value("iotrial_void_pairs_total", trial="0123") == 1
    assert value("iotrial_level", trial="0123", iotrial_level="bfq") == 1
    assert value("iotrial_level", trial="0123", iotrial_level="none") == 0
    assert value("iotrial_current", **of_metric) == 0.021
    assert value("iotrial_effect_ratio", **of_metric, level="bfq") == 1.08
    assert value("iotrial_log_evidence", **of_metric, level="bfq") == -0.3
    assert value("iotrial_guard_tripped", trial="0123", guard="latency_p99") == 0
    assert value("iotrial_level_time_ratio", trial="0123", level="bfq") == 0.25
    names = {name for name, _ in found}
    assert "iotrial_effect_high_ratio" not in names  # unbounded
    assert sum(value for (name, _), value in found.items() if name == "iotrial_state") == 1


@given(st.text(max_size=30), st.floats(), st.text(min_size=1, max_size=10))
def test_any_label_and_number_can_be_read_back(text: str, number: float, level: str) -> None:
    metric = RunningMetric(text, text, current=number, windows={level: number})
    found = samples(openmetrics(Running(text, text, "ended", level, (level,), metrics=(metric,))))
    current = [value for (name, _), value in found.items() if name == "iotrial_current"]
    assert current == ([number] if math.isfinite(number) else [])
    labels = next(dict(labels) for name, labels in found if name == "iotrial_pairs_total")
    assert labels["trial"] == text.encode("utf-8", "replace").decode()


def fetch(port: int, path: str, **headers: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.headers.get("Content-Type", ""), answer.read().decode()


def test_the_newest_text_is_served() -> None:
    with Exporter() as exporter:
        port = int(exporter.url.split(":")[2].split("/")[0])
        assert fetch(port, "/metrics") == (200, CONTENT_TYPE, "# EOF\n")
        exporter.update(RUNNING)
        assert fetch(port, "/metrics") == (200, CONTENT_TYPE, openmetrics(RUNNING))
        assert fetch(port, "/metrics", Host=f"localhost:{port}")[0] == 200
        assert fetch(port, "/other")[0] == 404
        assert fetch(port, "/metrics", Host="evil.example")[0] == 421
    with pytest.raises(ConnectionRefusedError):
        fetch(port, "/metrics")


def test_it_listens_on_loopback_only() -> None:
    with Exporter() as exporter:
        port = int(exporter.url.split(":")[2].split("/")[0])
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        listening = [words for words in lines if words[1].endswith(f":{port:04X}") and words[3] == "0A"]
    assert {words[1].split(":")[0] for words in listening} == {"0100007F"}


def test_clients_that_say_nothing_do_not_stop_the_trial() -> None:
    with Exporter() as exporter:
        port = int(exporter.url.split(":")[2].split("/")[0])
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * MOST_AT_ONCE)]
        exporter.update(RUNNING)
        for one in silent:
            one.close()


def test_scrapers_that_take_too_long_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iotrial.live.exposition._CLIENT_S", 0.5)
    stop = threading.Event()

    def drip(one: socket.socket) -> None:
        with contextlib.suppress(OSError):
            one.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            while not stop.wait(0.1):
                one.sendall(b"x")

    with Exporter() as exporter:
        port = int(exporter.url.split(":")[2].split("/")[0])
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(MOST_AT_ONCE)]
        threads = [threading.Thread(target=drip, args=(one,)) for one in slow]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        for _ in range(MOST_AT_ONCE):
            assert fetch(port, "/metrics")[0] == 200
        stop.set()
        for thread, one in zip(threads, slow, strict=True):
            thread.join()
            one.close()


@pytest.mark.parametrize("reads", [False, True])
def test_slow_scrapers_keep_others_out_for_a_stated_time_only(
    monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    """Clients that send a byte of their request now and then, or that read nothing of a long answer."""
    monkeypatch.setattr(exposition, "_CLIENT_S", 1.0)
    with Exporter() as exporter:
        port = int(exporter.url.split(":")[2].split("/")[0])
        exporter._text = "x" * (32 << 20)  # more than the kernel takes for a client
        slow = []
        for _ in range(MOST_AT_ONCE):
            one = socket.create_connection(("127.0.0.1", port))
            one.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n" + (b"\r\n" if reads else b"X: "))
            slow.append(one)
        until, answered = time.monotonic() + 10, False
        while not answered and time.monotonic() < until:
            for one in slow:
                with suppress(OSError):
                    one.recv(1) if reads else one.sendall(b"y")
            time.sleep(0.1)
            with suppress(OSError, http.client.HTTPException):
                answered = fetch(port, "/other")[0] == 404
        assert answered
        for one in slow:
            one.close()


def test_a_port_in_use_is_refused() -> None:
    with Exporter() as exporter:
        port = int(exporter.url.split(":")[2].split("/")[0])
        with pytest.raises(RequestError, match=f"cannot serve metrics on 127.0.0.1:{port}"):
            Exporter(port)
    with pytest.raises(RequestError, match="cannot serve metrics"):
        Exporter(70000)


def test_all_names_are_of_this_program_and_each_family_stands_once() -> None:
    names = [family.name for family in text_string_to_metric_families(openmetrics(RUNNING))]
    assert all(name.startswith("iotrial_") for name in names)
    assert all(one != other for one, other in pairwise(sorted(names)))
