"""The OpenMetrics text of a running trial: the reference parser reads it, and it is served on loopback only."""

from __future__ import annotations

import http.client
import json
import math
import re
import socket
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from iotrial.errors import RequestError
from iotrial.live.exposition import (
    Exporter,
    Running,
    RunningGuard,
    RunningMetric,
    families,
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


DASHBOARD = Path(__file__).parents[2] / "docs/examples/grafana-live.json"
ACCEPT = "application/openmetrics-text;version=1.0.0"


def openmetrics(running: Running) -> str:
    collector = SimpleNamespace(collect=lambda: [one for one in families(running) if one.samples])
    return generate_latest(collector).decode()


def port_of(exporter: Exporter) -> int:
    return int(exporter.url.split(":")[2].split("/")[0])


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
        port = port_of(exporter)
        assert fetch(port, "/metrics", Accept=ACCEPT)[2] == "# EOF\n"
        exporter.update(RUNNING)
        status, kind, text = fetch(port, "/metrics", Accept=ACCEPT)
        assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text")
        assert samples(text)[("iotrial_pairs_total", frozenset({("trial", "0123")}))] == 12
        assert fetch(port, "/metrics")[1].startswith("text/plain")  # to a client that asks for nothing
        assert fetch(port, "/metrics", Host=f"localhost:{port}")[0] == 200
        assert fetch(port, "/metrics", Host="evil.example")[0] == 421
    with pytest.raises(ConnectionRefusedError):
        fetch(port, "/metrics")


def test_it_listens_on_loopback_only() -> None:
    with Exporter() as exporter:
        port = port_of(exporter)
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        listening = [words for words in lines if words[1].endswith(f":{port:04X}") and words[3] == "0A"]
    assert {words[1].split(":")[0] for words in listening} == {"0100007F"}


def test_clients_that_say_nothing_do_not_stop_the_trial() -> None:
    with Exporter() as exporter:
        port = port_of(exporter)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        exporter.update(RUNNING)
        assert fetch(port, "/metrics")[0] == 200
        for one in silent:
            one.close()


def test_a_port_in_use_is_refused() -> None:
    with Exporter() as exporter:
        port = port_of(exporter)
        with pytest.raises(RequestError, match=f"cannot serve metrics on 127.0.0.1:{port}"):
            Exporter(port)
    with pytest.raises(RequestError, match="cannot serve metrics"):
        Exporter(70000)


def test_all_names_are_of_this_program_and_each_family_stands_once() -> None:
    names = [family.name for family in text_string_to_metric_families(openmetrics(RUNNING))]
    assert all(name.startswith("iotrial_") for name in names)
    assert all(one != other for one, other in pairwise(sorted(names)))


def test_the_dashboard_shows_all_that_is_exposed_and_nothing_else() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    annotations, variables = dashboard["annotations"]["list"], dashboard["templating"]["list"]
    texts = [one["expr"] for panel in dashboard["panels"] for one in panel["targets"]]
    texts += [one["expr"] for one in annotations] + [one["query"] for one in variables]
    # labels of state and level have the names of their families
    used = {name for text in texts for name in re.findall(r"iotrial_\w+", text)}
    running = replace(RUNNING, metrics=[replace(RUNNING.metrics[0], high={"bfq": 1.2})])
    exposed = {
        sample.name
        for family in text_string_to_metric_families(openmetrics(running))
        for sample in family.samples
    }
    assert used == exposed
    declared = {one["name"] for one in variables}
    named = {name for text in [*texts, json.dumps(dashboard)] for name in re.findall(r"\$\{?(\w+)", text)}
    assert named == declared
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
