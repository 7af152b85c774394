"""``--metric``: what each form means, and what cannot be understood."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iotrial.errors import RequestError
from iotrial.live.sources import KINDS, reach_s, source_of

URL = "http://127.0.0.1:9090"


@pytest.mark.parametrize(
    ("text", "name", "unit", "lower"),
    [
        ("cpu", "cpu", "%", True),
        ("cpu,higher", "cpu", "%", False),
        ("load=cpu", "load", "%", True),
        ("psi:io", "psi-io", "%", True),
        ("psi:memory:full", "psi-memory-full", "%", True),
        ("device:vda:latency-p99", "latency-p99", "s", True),
        ("device:throughput", "throughput", "bytes/s", False),
        ("disk=device:requests,lower", "disk", "1/s", True),
        ("command:/opt/bin/latency --p99", "latency", "", True),
        ("command:psql -c 'select 1',rate,unit=1/s", "psql", "1/s", False),
        ("command:awk '{print $1}' x,higher", "awk", "", False),
        (r"log:/var/log/app.log:took ([0-9.]+) ms:p99,unit=ms", "app.log_p99", "ms", True),
        (r"log:/var/log/app.log:GET /", "app.log", "1/s", False),
        (r"log:/var/log/app.log:error:count,lower", "app.log_count", "", True),
        (f"promql:rate(http_requests_total[$window])@{URL},higher", "http_requests_total", "", False),
        (f'promql:sum by (job) (rate(a:b{{x="y@http://z"}}[5m]))@{URL}/prom', "a_b", "", True),
        (f"tps=promql:x @ 1609746000@{URL}", "tps", "", True),
    ],
)
def test_each_form_has_a_name_a_unit_and_a_direction(text: str, name: str, unit: str, lower: bool) -> None:
    source = source_of(text, device="vda")
    assert (source.name, source.unit, source.lower_is_better) == (name, unit, lower)


@pytest.mark.parametrize(
    ("series", "name", "unit", "lower"),
    [
        ("http_requests_total", "http_requests_total", "1/s", False),
        ('http_requests_total{code=~"5.."},lower', "http_requests_total", "1/s", True),
        ("disk_written_bytes_total:rate", "disk_written_bytes_total_rate", "bytes/s", False),
        ("request_duration_seconds:p99.9", "request_duration_seconds_p99.9", "s", True),
        ("queue_length", "queue_length", "", True),
        ("request_duration_seconds:rate", "request_duration_seconds_rate", "", False),
        ("request_duration_seconds_count:rate", "request_duration_seconds_count_rate", "1/s", False),
        ("process_cpu_seconds_total", "process_cpu_seconds_total", "s/s", False),
    ],
)
def test_a_series_has_the_unit_of_its_name(series: str, name: str, unit: str, lower: bool) -> None:
    source = source_of(f"openmetrics:{URL}/metrics#{series}")
    assert (source.name, source.unit, source.lower_is_better) == (name, unit, lower)


@pytest.mark.parametrize(
    ("text", "command", "lower"),
    [
        ("command:echo a,b", "echo a,b", True),
        ("command:echo a,higher", "echo a", False),
        ("command:echo a,higher,", "echo a,higher", True),
        ("command:echo a,lower,,higher", "echo a,lower", False),
        ("command:echo 1,every=2s,timeout=1s,higher", "echo 1", False),
        ("command:echo x=cpu:1", "echo x=cpu:1", True),
        ("command:FOO=1 ./x", "FOO=1 ./x", True),
    ],
)
def test_what_belongs_to_a_command_is_unambiguous(text: str, command: str, lower: bool) -> None:
    source = source_of(text)
    assert (source.__dict__["_command"], source.lower_is_better) == (command, lower)


def test_times_of_a_source_are_those_of_its_options() -> None:
    metric = source_of("command:echo 1,every=7s,timeout=900ms").__dict__["metric"]
    assert (metric.every_s, metric.timeout_s) == (7.0, 0.9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no kind of metric"),
        ("prom:up", "no kind of metric"),
        ("my metric=cpu", "expected a name of letters"),
        ("1st=cpu", "expected a name of letters"),
        ("cpu:0", "expected nothing after it"),
        ("psi:disk", "no pressure"),
        ("psi:io:most", "no pressure"),
        ("device:vda:speed", "no metric of a device"),
        ("device:../vda:latency", "no block device"),
        ("promql:up", "expected QUERY@URL"),
        (f"promql: @{URL}", "expected a query of 1 to"),
        ("promql:up@http://", "expected http://HOST"),
        ("promql:up@http://host:99999", "Port out of range"),
        ("promql:up@http://ho st:1", "has blanks"),
        ("openmetrics:http://h/metrics", "expected URL#SERIES"),
        ("command:", "expected a shell command"),
        ("log:/var/log/x", "expected FILE:REGEX"),
        ("log:/var/log/x:(:mean", r"missing \)"),
        ("log:/var/log/x:(a)(b)", "at most one group"),
        ("log:/var/log/x:a:p99", "put a group around it"),
        ("log:/var/log/x:(a):p0", "expected a quantile"),
        ("cpu,higher,lower", "given twice"),
        ("cpu,every=1ms", "expected 0.2 s to 600 s"),
        ("cpu,every=soon", "every=soon"),
        ("cpu,unit=a b", "found 'a b'"),
        ("cpu,rate", "rate only with command"),
        ("x" * 9000, "at most 8000 characters"),
    ],
)
def test_what_cannot_be_understood_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        source_of(text)
    assert len(str(caught.value)) < 500


def test_a_device_must_be_known_from_somewhere() -> None:
    with pytest.raises(RequestError, match="expected NAME:METRIC"):
        source_of("device:latency")


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("up", 0.0),
        ("rate(x[1m])", 60.0),
        ("rate(x[$window])", 0.0),
        ("max_over_time(rate(x[30s])[1h30m:1m])", 5400.0),
        ("x offset 1d", 86400.0),
        ('x{a="[5m]"}', 0.0),
        ("x[500ms]", 0.5),
    ],
)
def test_how_far_a_query_reaches_back_is_known(query: str, seconds: float) -> None:
    assert reach_s(source_of(f"promql:{query}@{URL}")) == seconds


@given(
    st.sampled_from(["", "a=", "a.b-c_d=", "=", "ä="]),
    st.sampled_from([*KINDS, "x"]),
    st.text(alphabet='abpr0159:@#{}"=~,./$[]() \\%µ\n\x00', max_size=40),
    st.sampled_from(["", ",higher", ",lower,", ",unit=s", ",every=1s", ",rate", ":p99", ":rate"]),
)
def test_anything_else_is_a_source_or_refused(name: str, kind: str, rest: str, options: str) -> None:
    try:
        source = source_of(f"{name}{kind}:{rest}{options}", device="vda")
    except RequestError:
        return
    assert source.name
    assert not set("\n,") & set(source.name)
