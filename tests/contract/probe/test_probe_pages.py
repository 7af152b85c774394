"""The job of pages, against servers that the tests write byte by byte."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from probe_client import Probe, ProbeError, processes_with, rounding_ns

from web_server import chunked, fnv1a, reset, serving, whole

PAGES = ["/a", "/b?x=1", "/c"]


def ask(probe: Probe, address: str, **fields: Any) -> dict[str, Any]:
    return probe("pages", **{"address": address, "host": "site.test", "pages": PAGES, **fields})


def problem(done: dict[str, Any]) -> str:
    assert not done["verified"]
    assert done["failed"] >= 1
    return str(done["failures"][0]["problem"])


def test_every_page_is_requested_in_order_and_told_with_its_size_and_mark(probe: Probe) -> None:
    bodies = {"/a": b"first page", "/b?x=1": b"", "/c": os.urandom(300_000)}

    def say(connection: socket.socket, path: str, n: int) -> bool:
        connection.sendall(
            chunked(bodies[path][:5], bodies[path][5:]) if path == "/a" else whole(bodies[path])
        )
        return True

    with serving(say) as server:
        done = ask(probe, server.address, replicates=2, histograms=True)
    assert server.requests == PAGES * 2
    assert server.connections == done["connections"] == 1
    assert "Host: site.test" in server.heads[0]
    pages = done["pages"]
    assert pages["count"] == [2, 2, 2]
    assert pages["bytes"] == [2 * len(bodies[page]) for page in PAGES]
    assert pages["body"] == [fnv1a(bodies[page]) for page in PAGES]
    assert (pages["varied"], done["statuses"], done["verified"]) == ([], {"200": 6}, True)
    response = done["operations"]["response"]
    assert response["count"] == 6 == sum(count for _, count in response["histogram"])
    assert abs(sum(pages["total_ns"]) - response["total_ns"]) <= 4
    assert done["wall_ns"] >= response["total_ns"]


def test_a_server_that_closes_is_asked_over_a_new_connection(probe: Probe) -> None:
    with serving(lambda c, path, _: bool(c.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + path.encode()))) as server:
        done = ask(probe, server.address)
    assert done["connections"] == server.connections == 3
    assert done["pages"]["bytes"] == [len(page) for page in PAGES]
    with serving(lambda c, *_: c.sendall(whole(b"x")) is None) as server:
        assert ask(probe, server.address, keep_alive=False)["connections"] == server.connections == 3
        assert "Connection: close" in server.heads[0]


def test_a_connection_that_went_stale_between_requests_is_no_failure(probe: Probe) -> None:
    def say(connection: socket.socket, path: str, n: int) -> bool:
        connection.sendall(whole(b"x"))  # says that it stays open, and closes it
        return False

    with serving(say) as server:
        done = ask(probe, server.address, delay_s=0.02)
    assert done["verified"]
    assert done["pages"]["count"] == [1, 1, 1]
    assert server.requests == PAGES


def test_clients_ask_at_once_and_each_for_everything(probe: Probe) -> None:
    waiting: list[float] = []

    def say(connection: socket.socket, path: str, n: int) -> bool:
        waiting.append(time.monotonic())
        time.sleep(0.05)
        connection.sendall(whole(path.encode()))
        return True

    with serving(say) as server:
        done = ask(probe, server.address, clients=3, warmup=1)
    assert (
        sorted(server.requests[:3]) == sorted(server.requests[9:12]) == sorted(PAGES)
    )  # not the same page at once
    assert sorted(server.requests) == sorted(PAGES * 6)
    assert done["pages"]["count"] == [3, 3, 3]  # the warming up is not counted
    assert max(waiting[9:12]) - min(waiting[9:12]) < 0.05  # the second did not wait for the first
    assert done["operations"]["response"]["total_ns"] > done["wall_ns"]


def test_the_pause_goes_from_the_end_of_a_response_to_the_next_request_and_is_no_response_time(
    probe: Probe,
) -> None:
    asked: list[float] = []
    ended: list[float] = []

    def say(connection: socket.socket, path: str, n: int) -> bool:
        asked.append(time.monotonic())
        time.sleep(0.03)  # of a pause from the request's beginning half would be over
        ended.append(
            time.monotonic()
        )  # before it is sent: who is asked for it behind that may have to wait for a processor
        connection.sendall(whole(b"x"))
        return True

    with serving(say) as server:
        done = ask(probe, server.address, delay_s=0.06)
    assert len(asked) == 3
    assert all(
        later - before >= 0.0599 for (before, _), (_, later) in pairwise(zip(ended, asked, strict=True))
    )
    assert done["wall_ns"] >= 2 * 60_000_000
    assert done["wall_ns"] - done["operations"]["response"]["total_ns"] >= 2 * 60_000_000


def test_a_stretch_is_in_proportion_to_the_time_of_responses(probe: Probe) -> None:
    def say(connection: socket.socket, path: str, n: int) -> bool:
        time.sleep(0.01)
        connection.sendall(whole(b"x"))
        return True

    with serving(say) as server:
        done = ask(probe, server.address, delay_s=0.02, stretch=0.5)
    plain = sum(done["pages"]["total_ns"])
    spun = done["spun"]["wall_ns"]
    assert abs(done["operations"]["response"]["total_ns"] - plain - spun) <= rounding_ns(4)
    assert spun >= 0.5 * plain - 1000  # more where the spin lost its processor
    assert done["injected"] == pytest.approx(1 + spun / plain, rel=1e-6)


def test_a_body_that_changes_is_told_unless_what_is_new_is_left_out(probe: Probe) -> None:
    def say(connection: socket.socket, path: str, n: int) -> bool:
        connection.sendall(whole(f'{path} <b id="t{n}">'.encode()))
        return True

    with serving(say) as server:
        assert ask(probe, server.address, replicates=2)["pages"]["varied"] == [0, 1, 2]
        done = ask(probe, server.address, replicates=2, ignore=['id="*"'])
    assert done["pages"]["varied"] == []
    assert done["pages"]["body"] == [fnv1a(f'{page} <b id="\0">'.encode()) for page in PAGES]


def test_the_server_is_found_by_its_socket_and_its_processor_time_counted(probe: Probe) -> None:
    spent: list[float] = []

    def say(connection: socket.socket, path: str, n: int) -> bool:
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass
        spent.append(time.thread_time())
        connection.sendall(whole(b"x"))
        return True

    with serving(say) as server:
        before = time.process_time_ns()
        done = ask(probe, server.address)
        after = time.process_time_ns()
    found = done["server"]
    assert found["processes"] == 1
    assert 90_000_000 <= found["cpu_ns"] <= after - before + 1_000_000
    own = int(
        next(
            x for x in Path("/proc/self/smaps_rollup").read_text().splitlines() if x.startswith("Pss:")
        ).split()[1]
    )
    assert 0.5 < found["memory_bytes"] / (own * 1024) < 2.0


@pytest.mark.root
def test_the_server_of_the_host_is_found_from_a_namespace(isolated: Probe) -> None:
    with serving(lambda c, *_: c.sendall(whole(b"x")) is None) as server:
        assert ask(isolated, server.address)["server"]["processes"] == 1


def test_another_status_is_a_failure_of_each_page_and_a_redirect_is_never_followed(probe: Probe) -> None:
    def say(connection: socket.socket, path: str, n: int) -> bool:
        answer = whole(
            b"", f"Location: {path}", status="302 Found"
        )  # to itself: a loop for whoever follows it
        connection.sendall(answer if path == "/a" else whole(b"no", status="500 Oh"))
        return True

    with serving(say) as server:
        done = ask(probe, server.address)
        assert problem(done).startswith(
            "the server answered 302 (a redirect, which is not followed), wanted 200"
        )
        assert [one["page"] for one in done["failures"]] == PAGES
        assert server.requests == PAGES
        counted = ask(probe, server.address, redirects="count", pages=["/a"])
    assert (counted["verified"], counted["redirects"], counted["statuses"]) == (True, 1, {"302": 1})


def endless_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X: " + b"y" * 4000 + b"\r\n")


def dribbling(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


def endless_body(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(bytes(1 << 20))


@pytest.mark.parametrize(
    ("hostile", "words"),
    [
        (lambda _: time.sleep(1), "no whole response within 0.3 s"),
        (lambda _: None, "closed the connection without a response"),
        (reset, "broke the connection off: Connection reset"),
        (endless_head, "sent a head of more than"),
        (dribbling, "no whole response within 0.3 s"),
        (endless_body, "more than 67108864 bytes|no whole response"),
        (lambda c: c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort"), "after 5 of 50 bytes"),
        (lambda c: c.sendall(whole(b"x") + b"more"), "4 bytes more than"),
        (lambda c: c.sendall(b"220 mail.test ESMTP\r\n"), "no status line"),
        (lambda c: c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), "contradict"),
        (lambda c: c.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100), "interim"),
    ],
    ids=["silent", "closes", "resets", "endless head", "dribbling", "endless body", "short", "long", "mail", "both", "more"],
)  # fmt: skip
def test_a_hostile_server_ends_as_a_failure(probe: Probe, hostile: Any, words: str) -> None:
    with serving(lambda c, *_: bool(hostile(c))) as server:
        began = time.monotonic()
        done = ask(probe, server.address, timeout_s=0.3, keep_alive=False)
        assert time.monotonic() - began < 5
    assert re.search(words, problem(done)), done["failures"]
    assert done["failures"][0]["page"] == "/a"
    assert len(server.requests) == 1  # and nothing more is asked of it


def test_nobody_listening_is_a_failure_that_says_so(probe: Probe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    assert problem(ask(probe, address)) == "the server takes no connection: Connection refused"


def test_a_failure_while_warming_up_is_one_too(probe: Probe) -> None:
    with serving(lambda c, *_: c.sendall(whole(b"", status="404 No")) is None) as server:
        done = ask(probe, server.address, warmup=2)
    assert problem(done) == "the server answered 404, wanted 200"
    assert len(server.requests) == 6
    assert sum(done["pages"]["count"]) == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"address": "192.0.2.1:80"}, "this machine's own"),
        ({"address": "localhost:80"}, "an IP address"),
        ({"address": "127.0.0.1"}, "an IP address with a port"),
        ({"host": "a\r\nX: y"}, "a host's name"),
        ({"host": ""}, "a host's name"),
        ({"pages": []}, "1 to 10000"),
        ({"pages": ["/a\r\nHost: b"]}, "paths such as"),
        ({"pages": ["http://other/"]}, "paths such as"),
        ({"clients": 0}, "1 to 256"),
        ({"clients": 256, "replicates": 100_000}, "10 million"),
        ({"delay_s": -1}, "delay_s"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"expect_status": 7}, "expect_status"),
        ({"ignore": ["*"]}, "ignore"),
        ({"files": [0]}, "works on no files"),
        ({"user": {"uid": 1, "gid": 1}}, "has no user"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused_before_anything_is_sent(
    probe: Probe, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ProbeError, match=message) as caught:
        ask(probe, **{"address": "127.0.0.1:9", **fields})
    assert caught.value.code == "bad_request"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium: apt-get install chromium")
def test_a_browser_loads_what_a_page_needs_and_reaches_no_other_machine(probe: Probe, folder: Path) -> None:
    html = b'<script src="/x.js"></script><img src="/x.svg"><img src="http://192.0.2.1/x"><p>'
    kinds = {"/x.js": (b"1", "text/javascript"), "/x.svg": (b"<svg/>", "image/svg+xml")}

    def say(connection: socket.socket, path: str, _: int) -> bool:
        body, kind = kinds.get(path, (html, "text/html"))
        connection.sendall(whole(body, f"Content-Type: {kind}", "Cache-Control: no-store"))
        return True

    with serving(say) as server:
        fields = {
            "browser": shutil.which("chromium"),
            "profile": str(folder / "profile"),
            "host": server.address,
        }
        done = ask(probe, server.address, **fields, pages=["/a", "/b"], clients=2, timeout_s=20)
        assert sorted(path for path in server.requests if path in ("/a", "/b")) == ["/a", "/a", "/b", "/b"]
        assert {"/x.js", "/x.svg"} <= set(server.requests)
    assert (done["verified"], done["pages"]["count"], done["statuses"]) == (True, [2, 2], {"200": 4})
    assert done["pages"]["bytes"] == [2 * len(html)] * 2
    assert done["pages"]["body"] == [None, None]
    assert not (folder / "profile").exists()
    assert not processes_with(f"--user-data-dir={folder}/profile")
    with serving(lambda c, *_: c.sendall(whole(b"", status="500 Oh")) is None) as server:
        done = ask(probe, server.address, **{**fields, "host": server.address}, pages=["/a"])
    assert not done["verified"]
