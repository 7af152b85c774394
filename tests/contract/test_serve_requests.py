"""The server against malicious clients: every request is answered or refused, and the server survives.

All tests share one server; ``served`` checks at the end that it has neither died nor logged an error.
"""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from values import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from store_examples import filled, header

from iotrial.store import Store
from iotrial.store.model import TrialState
from serving import Served, served

ATTACK = "x\"\r\nSet-Cookie: a=b\r\n\r\n<script>document.title='owned'</script>\x1b[31m\u202e../../etc/passwd"
HERE = b"Host: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a server with two trials; in the second, every text that is shown is an attack."""
    path = tmp_path_factory.mktemp("store") / "trials.db"
    with Store.open(path) as store:
        filled(store, header("ab" * 16))
        plain = header("cd" * 16)
        study = replace(plain.study, name=ATTACK, title=ATTACK, question=ATTACK)
        facts = dict.fromkeys(("processor", "kernel", "system", ATTACK), ATTACK)
        hostile = replace(plain, study=study, host=facts, lab={"kind": ATTACK}, options={"argv": [ATTACK]})
        filled(store, hostile)
        store.set_state(hostile.id, TrialState.FAILED, ATTACK)
    with served(path) as running:
        yield running


def alive(server: Served) -> bool:
    return server.get("/").status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/trials/../../etc/passwd", "/trials/..%2f..%2fetc%2fpasswd", "/trials/%2e%2e/%2e%2e/etc/passwd",
        "/../../../etc/passwd",
        "/trials/1%00", "/trials/%00", "/trials/0", "/trials/-1", "/trials/3", "/trials/last", "/trials/abab",
        "/trials/1.0",
        "/trials/%D9%A1", "/trials/%EF%BC%91", "/trials/%FF%FE",
        "/trials/" + "9" * 5000, "/trials/1%0d%0aSet-Cookie:a=b",
        "/trials/1/", "/trials//1", "/trials/1/report.html", "/trials/1/../1/report.json", "/trials/1/..%2f2",
        "//evil.example/x",
        "/style.css/../../app.py", "/static/x", "/.env", "/%2fetc/passwd", "/trials/1;x", "/trials/<script>",
        "http://evil.example/",
        "*", "/trials/1%20OR%201=1", "/history/x", "/compare/../x",
    ],
)  # fmt: skip
def test_an_address_that_leads_nowhere_is_not_found(server: Served, path: str) -> None:
    answer = server.raw(
        f"GET {server.root}{path} HTTP/1.1\r\n".encode() + HERE + b"Connection: close\r\n\r\n"
    )
    head, _, body = answer.partition(b"\r\n\r\n")
    assert re.match(rb"HTTP/1.1 40[034] ", head), head
    assert b"set-cookie" not in head.lower()
    assert b"location:" not in head.lower()
    assert b"root:" not in body
    assert b"<script" not in body
    assert alive(server)


def test_a_byte_that_no_address_may_hold_is_refused(server: Served) -> None:
    for line in (
        b"GET /\x00 HTTP/1.1",
        b"GET /\xff\xfe HTTP/1.1",
        b"GET / HTTP/x.9",
        b"\x16\x03\x01\x02\x00",
        b"GET",
    ):
        answer = server.raw(line + b"\r\n" + HERE + b"Connection: close\r\n\r\n", wait_s=2)
        assert answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 404", b""), answer
    assert alive(server)


@pytest.mark.parametrize(
    "query",
    [
        "trials=1,../2", "trials=1,%00", "trials=" + ",".join(map(str, range(1, 60))), "trials=1,1", "trials=99",
        "trials=1,2,3",
        "page=0", "page=" + "9" * 400, "page=%D9%A1", "since=x", "until=2024-13-01",
        "&".join(f"a{n}=b" for n in range(300)),
        "study=" + "x" * 9000, "study=" + "%00" * 300, "%ff%fe=%ff", "=", "&&&;;;", "trials", "study=%ed%a0%80",
    ],
)  # fmt: skip
def test_a_query_that_is_nonsense_is_answered_in_words(server: Served, query: str) -> None:
    for page in ("/", "/compare", "/history", "/trials/2/report.json", "/compare/report.json"):
        answer = server.get(f"{page}?{query}")
        assert answer.status in (200, 202, 400, 404, 503)
        assert "Internal error" not in answer.text
        if answer.headers["content-type"].startswith("text/html"):
            assert "<script" not in answer.text
    assert alive(server)


def test_a_query_of_a_hundred_kilobytes_is_refused_before_it_is_read(server: Served) -> None:
    answer = server.raw(
        b"GET "
        + server.root.encode()
        + b"/?study="
        + b"x" * 100_000
        + b" HTTP/1.1\r\n"
        + HERE
        + b"Connection: close\r\n\r\n"
    )
    assert answer[:12] in (b"HTTP/1.1 400", b"")
    answer = server.raw(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 40_000 + HERE + b"\r\n")
    assert answer[:12] in (b"HTTP/1.1 400", b"")
    assert alive(server)


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"]
)
def test_only_looking_is_possible(server: Served, method: str) -> None:
    for path in ("/", "/trials/1", "/nowhere"):
        answer = server.get(path, method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        assert "access-control-allow-origin" not in answer.headers


def test_a_head_has_the_headers_of_the_page_and_nothing_else(server: Served) -> None:
    # an analysis that another test requested may finish and change the list in between
    for _ in range(50):
        page, head, again = server.get("/"), server.get("/", method="HEAD"), server.get("/")
        if again.headers == page.headers:
            break
    assert (head.status, head.body) == (200, b"")
    assert head.headers == page.headers
    assert server.get("/trials/99", method="HEAD").body == b""


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "0.0.0.0",
        "10.0.0.1",
        "",
        "localhost@evil.example",
    ],
)
def test_a_name_from_elsewhere_is_not_answered(server: Served, host: str) -> None:
    for path in ("/", "/trials/1", "/style.css"):
        answer = server.raw(
            f"GET {server.root}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert b"example" not in answer.partition(b"\r\n\r\n")[2]


def test_a_request_without_a_name_or_with_two_is_not_answered(server: Served) -> None:
    root = server.root.encode()
    assert server.raw(b"GET " + root + b"/ HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    two = server.raw(
        b"GET " + root + b"/ HTTP/1.1\r\n" + HERE + b"Host: evil.example\r\nConnection: close\r\n\r\n"
    )
    assert two.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_lead_here_and_load_nothing(server: Served, site: str) -> None:
    for dest, mode in (
        ("image", "no-cors"),
        ("script", "no-cors"),
        ("iframe", "navigate"),
        ("empty", "cors"),
    ):
        asked = {"Sec_Fetch_Site": site, "Sec_Fetch_Dest": dest, "Sec_Fetch_Mode": mode}
        assert server.get("/trials/1/report.json", Origin="http://evil.example", **asked).status == 403
    led = server.get("/", Sec_Fetch_Site=site, Sec_Fetch_Dest="document", Sec_Fetch_Mode="navigate")
    assert led.status == 200
    assert server.get("/", Sec_Fetch_Site="same-origin", Sec_Fetch_Dest="empty").status == 200


@pytest.mark.parametrize(
    "path", ["/", "/trials/1", "/trials/2", "/nowhere", "/compare", "/history", "/style.css", "/?page=x"]
)
def test_every_answer_tells_the_browser_to_trust_nothing(server: Served, path: str) -> None:
    for answer in (server.settled(path), server.get(path, method="POST")):
        headers = answer.headers
        policy = {
            part.split()[0]: part.split()[1:] for part in headers["content-security-policy"].split("; ")
        }
        assert policy["default-src"] == ["'none'"]
        assert policy["form-action"] == ["'self'"]
        assert policy["base-uri"] == policy["frame-ancestors"] == ["'none'"]
        assert "'unsafe-inline'" not in policy.get("script-src", [])
        assert "'unsafe-eval'" not in policy.get("script-src", [])
        assert not {"http:", "https:", "*"} & {source for sources in policy.values() for source in sources}
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert not {"set-cookie", "location", "access-control-allow-origin", "server"} & set(headers)


def test_no_text_of_a_trial_becomes_markup_or_a_header(server: Served) -> None:
    from urllib.parse import quote

    searched = quote(ATTACK)
    for path in (
        "/", "/trials/2",
        f"/?study={searched}&machine={searched}&verdict={searched}&kernel={searched}&state={searched}",
        f"/history?study={searched}", f"/history?study={searched}&effect={searched}", "/compare?trials=1,2",
        f"/compare?trials={searched}",
        f"/trials/{quote('<script>alert(1)</script>', safe='')}",
    ):  # fmt: skip
        answer = server.settled(path)
        assert answer.status in (200, 400, 404)
        assert not re.search("<script>document|<(img|iframe|svg onload|object|embed)", answer.text)
        assert not {"\x1b", "\u202e"} & set(answer.text), path
        assert "set-cookie" not in answer.headers


def test_a_file_to_save_has_a_name_that_is_only_a_name(server: Served) -> None:
    for suffix, kind in (("report.json", "application/json"), ("report.md", "text/markdown; charset=utf-8")):
        saved = server.settled(f"/trials/2/{suffix}")
        assert saved.status == 200, saved.text
        assert saved.headers["content-type"] == kind
        name = re.fullmatch(r'attachment; filename="([A-Za-z0-9_.-]+)"', saved.headers["content-disposition"])
        assert name is not None
        assert name[1].startswith("2-x-Set-Cookie-a-b-script")
        assert not name[1].startswith(".")
        assert "set-cookie" not in saved.headers


def test_a_trial_that_no_store_would_take_is_not_handed_out(server: Served) -> None:
    assert server.settled("/trials/1/trial.iotrial").status == 200
    refused = server.settled("/trials/2/trial.iotrial")
    assert refused.status == 503
    assert "cannot be packed" in refused.text


def test_a_body_is_not_waited_for(server: Served) -> None:
    root = server.root.encode()
    sent = b"GET " + root + b"/ HTTP/1.1\r\n" + HERE + b"Content-Length: 1000000000\r\n\r\nx"
    assert server.raw(sent, wait_s=1).startswith(b"HTTP/1.1 200 ")
    chunked = b"GET " + root + b"/ HTTP/1.1\r\n" + HERE + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\nx"
    assert server.raw(chunked, wait_s=1).startswith(b"HTTP/1.1 200 ")
    assert alive(server)


@pytest.mark.long
def test_slow_clients_are_cut_off_and_hold_nobody_up(server: Served) -> None:
    """Silent connections and an endless request are cut off; other clients are answered meanwhile."""
    address = ("127.0.0.1", server.port)
    silent = [socket.create_connection(address) for _ in range(20)]
    slow = socket.create_connection(address)
    slow.sendall(b"GET / HTTP/1.1\r\nX: ")
    try:
        for _ in range(3):
            assert alive(server)
        end = time.monotonic() + 60
        waiting = {*silent, slow}
        while waiting and time.monotonic() < end:
            for one in list(waiting):
                one.settimeout(0.02)
                try:
                    if one is slow:
                        one.sendall(b"y")
                    if one.recv(1) == b"":
                        waiting.discard(one)
                except TimeoutError:
                    continue
                except OSError:
                    waiting.discard(one)
        assert not waiting
    finally:
        for one in (*silent, slow):
            one.close()
    assert alive(server)


def test_several_requests_on_one_connection_are_all_answered(server: Served) -> None:
    one = b"GET " + server.root.encode() + b"/nowhere HTTP/1.1\r\n" + HERE
    answer = server.raw((one + b"\r\n") * 5 + one + b"Connection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 404 ") == 6


@pytest.mark.parametrize("path", ["/", "/trials/1", "/style.css", "/nowhere"])
def test_nobody_is_answered_without_the_token(server: Served, path: str) -> None:
    assert server.get(path).status in (200, 202, 404)
    other = "/" + "A" * (len(server.root) - 1)
    for address in (
        path,
        other + path,
        server.root[:-1] + path,
        server.root + "A" + path,
        server.root.upper(),
    ):
        refused = server.get(address, token=False)
        assert refused.status == 403
        assert "trials.db" not in refused.text
        assert server.root not in refused.text
    assert server.get("", token=True).status == 200  # the address without its trailing slash


def test_all_users_of_the_machine_are_answered_without_a_token_if_told_so(server: Served) -> None:
    with served(server.store, "--all-users") as open_to_all:
        assert open_to_all.root == ""
        assert "2 trials" in open_to_all.get("/").text
        assert open_to_all.get("/", Host="evil.example").status == 400


def test_two_servers_have_two_tokens(server: Served) -> None:
    with served(server.store) as other:
        assert len(server.root) > 20
        assert server.root != other.root


def test_hundreds_of_idle_connections_keep_nobody_out(server: Served) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(400)]
    try:
        assert [server.get("/").status for _ in range(5)] == [200] * 5
    finally:
        for one in idle:
            one.close()
    assert alive(server)
