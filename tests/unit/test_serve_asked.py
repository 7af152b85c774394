"""What an address may ask: every text that is no number, no date, or too much is refused in words."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from iotrial.errors import RequestError
from iotrial.serve.address import PortTaken, listening, loopback, names_this_machine, url_of
from iotrial.serve.asked import Search, holds, number_of, pairs_of, trials_of
from iotrial.serve.whose import asker, trusted


@pytest.mark.parametrize("text", ["1", "42", "999999999999999999"])
def test_a_trial_is_a_number_in_plain_digits(text: str) -> None:
    assert number_of(text) == int(text)


@pytest.mark.parametrize(
    "text",
    ["", "0", "01", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "1_0", "١", "１", "²", "1\x00", "1\n",
    "9" * 19, "9" * 10_000],
)  # fmt: skip
def test_nothing_else_is(text: str) -> None:
    assert number_of(text) is None


def test_trials_to_compare_come_from_boxes_and_from_text_alike() -> None:
    assert trials_of(pairs_of(b"trials=3&trials=1")) == (3, 1)
    assert trials_of(pairs_of(b"trials=3%2C+1%2C3")) == (3, 1)
    assert trials_of(pairs_of(b"")) == ()
    with pytest.raises(RequestError, match="no number"):
        trials_of(pairs_of(b"trials=1,../2"))
    with pytest.raises(RequestError, match="at most 20"):
        trials_of(pairs_of(b"trials=" + b",".join(b"%d" % n for n in range(1, 30))))


@pytest.mark.parametrize("query", [b"&".join(b"a%d=1" % n for n in range(100)), b"study=" + b"x" * 100_000])
def test_a_query_that_is_too_much_is_refused(query: bytes) -> None:
    with pytest.raises(RequestError, match=r"parameters|bytes"):
        pairs_of(query)


@pytest.mark.parametrize(
    "query",
    ["since=31.12.2024", "since=2024-02-30", "until=٢٠٢٤-٠١-٠١", "until=20240101", "page=0", "page=-1",
    "page=9999999", "page=x", "study=" + "x" * 201],
)  # fmt: skip
def test_a_search_that_cannot_be_meant_is_refused(query: str) -> None:
    from urllib.parse import quote

    with pytest.raises(RequestError):
        Search.of(pairs_of(quote(query, safe="=&").encode()))


def test_a_search_leads_to_its_other_pages() -> None:
    search = Search.of(pairs_of(b"study=a%26b%3Dc&since=2024-05-01&page=3"))
    assert (search.study, search.since, search.page) == ("a&b=c", "2024-05-01", 3)
    again = Search.of(pairs_of(search.address(4).partition("?")[2].encode()))
    assert (again.study, again.since, again.page) == ("a&b=c", "2024-05-01", 4)


def test_all_words_are_wanted_somewhere_whatever_their_case() -> None:
    assert holds("epyc DEBIAN", ("AMD EPYC", "Debian 12"))
    assert not holds("epyc fedora", ("AMD EPYC", "Debian 12"))
    assert holds("", ())


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8137", "localhost", "LOCALHOST:9", "[::1]", "[::1]:80", "127.1.2.3:65535"],
)
def test_a_loopback_name_at_any_port_is_this_machine(host: str) -> None:
    assert names_this_machine(host)


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "evil.example:8137", "127.0.0.1.evil.example", "localhost.evil.example",
        "127.0.0.1@evil.example",
        "10.0.0.1", "0.0.0.0", "[::]", "::1", "[::1", "[127.0.0.1]", "127.0.0.1:x", "127.0.0.1:80:80", "127.0.0.1:",
        "2130706433",
        "0x7f.1", "localhost.", "[fe80::1%lo]", "localhost\x00", "١٢٧.0.0.1",
    ],
)  # fmt: skip
def test_every_other_name_is_not(host: str) -> None:
    assert not names_this_machine(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.9.9.9"])
def test_a_loopback_address_is_taken(host: str) -> None:
    assert loopback(host) in ("127.0.0.1", "::1", "127.9.9.9")


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.1", "example.org", "", "127.0.0.1/8", "\x1b[31m"]
)
def test_any_other_address_is_refused_with_the_way_by_ssh(host: str) -> None:
    with pytest.raises(RequestError, match="loopback") as caught:
        loopback(host)
    assert "ssh -L 8137:127.0.0.1:8137" in str(caught.value.hint)
    assert "\x1b" not in caught.value.message


def test_a_port_that_is_taken_is_said_with_a_hint() -> None:
    with listening("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert url_of(first) == f"http://127.0.0.1:{port}/"
        with pytest.raises(PortTaken, match=f"port {port}") as caught:
            listening("127.0.0.1", port)
        assert "--port 0" in str(caught.value.hint)


def test_the_kernel_tells_whose_program_asks() -> None:
    import os

    with listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()) as client:
        accepted, address = listener.accept()
        with accepted:
            assert client.getsockname() == address
            assert asker(address, listener.getsockname()) == os.geteuid()
            assert asker((address[0], address[1] ^ 1), listener.getsockname()) is None
            assert asker(address, listener.getsockname(), net=Path("/proc/net")) == os.geteuid()
            client.close()  # nobody can read an answer any more: it is not root's, though the kernel calls its user 0
            assert asker(address, listener.getsockname()) is None
            assert asker(address, listener.getsockname(), net=Path("/proc/net")) is None


def test_a_list_of_connections_is_read_as_proc_net_tcp_has_it(tmp_path: Path) -> None:
    # 127.0.0.1 is 0100007F on a little-endian machine; 40000 is 9C40, 8137 is 1FC9 (proc_pid_net(5))
    import sys

    here = "0100007F" if sys.byteorder == "little" else "7F000001"
    rows = [
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
        f"   0: {here}:1FC9 {here}:9C40 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 20",
        f"   1: {here}:9C40 {here}:1FC9 01 00000000:00000000 00:00000000 00000000  1234        0 2 1 0 20",
    ]
    (tmp_path / "tcp").write_text("\n".join(rows) + "\n")
    assert asker(("127.0.0.1", 40000), ("127.0.0.1", 8137), net=tmp_path) == 1234
    assert asker(("127.0.0.1", 40001), ("127.0.0.1", 8137), net=tmp_path) is None
    assert asker(("::1", 40000), ("::1", 8137), net=tmp_path) is None


def test_who_became_root_by_sudo_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert trusted({"SUDO_UID": "1000"}) == {0, 1000}
    assert trusted({"SUDO_UID": "-1"}) == trusted({"SUDO_UID": "٣"}) == trusted({}) == {0}
    monkeypatch.setattr("os.geteuid", lambda: 5)
    assert trusted({"SUDO_UID": "1000"}) == {0, 5}
