"""Query parameters: text that is no number, no date or too large is refused with a message."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from starlette.requests import Request

from iotrial.errors import RequestError
from iotrial.web.query_params import Pairs, Search, holds, number_of, trials_of, value_of
from iotrial.web.query_params import pairs_of as pairs_of_request
from iotrial.web.server import PortTaken, listen, loopback


def pairs_of(query: bytes) -> Pairs:
    return pairs_of_request(Request({"type": "http", "query_string": query}))


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


def test_of_several_values_the_last_counts() -> None:
    assert value_of(pairs_of(b"study=a&study=b"), "study") == "b"


def test_trials_to_compare_come_from_boxes_and_from_text_alike() -> None:
    assert trials_of(pairs_of(b"trials=3&trials=1")) == (3, 1)
    assert trials_of(pairs_of(b"trials=3%2C+1%2C3")) == (3, 1)
    assert trials_of(pairs_of(b"")) == ()
    with pytest.raises(RequestError, match="not the number of a trial"):
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
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port}") as caught:
            listen("127.0.0.1", port)
        assert "--port 0" in str(caught.value.hint)
