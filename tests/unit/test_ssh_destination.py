"""Host names: which are valid, and arguments that must never reach ssh."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotrial.errors import RequestError
from iotrial.fleet.order import HOST_NAME
from iotrial.fleet.ssh import Destination, Ssh, destinations, failure


def test_hosts_are_named_with_users_ports_and_numbers() -> None:
    found = destinations("a, root@b.example.org:2222,[2001:db8::1]:22,192.0.2.7,worker@[::1]")
    assert found == (
        Destination("a"),
        Destination("b.example.org", "root", 2222),
        Destination("2001:db8::1", None, 22),
        Destination("192.0.2.7"),
        Destination("::1", "worker"),
    )
    assert ",".join(map(str, found)) == "a,root@b.example.org:2222,[2001:db8::1]:22,192.0.2.7,worker@[::1]"
    assert destinations(",".join(map(str, found))) == found
    assert [one.name for one in found] == ["a", "b.example.org-2222", "2001-db8-1-22", "192.0.2.7", "1"]
    assert all(HOST_NAME.fullmatch(one.name) for one in found)


@pytest.mark.parametrize(
    "word",
    [
        "-oProxyCommand=touch /tmp/x", "-F/etc/passwd", "a b", "a;reboot", "$(reboot)", "`reboot`", "a|b", "a\nb",
        "a\x1b[2J",
        "root@-oX", "-l@a", "@a", "a@b@c", "a:", "a:ssh", "a:0", "a:65536", "a:999999", "[::1", "::1",
        "[-1]", "a/b", "a'b", 'a"b',
        "\u0430.example", "a%h", "user name@a", "a" * 254, "ssh://a",
    ],
)  # fmt: skip
def test_what_ssh_or_a_shell_could_take_for_more_than_a_name_is_refused(word: str) -> None:
    with pytest.raises(RequestError, match="--hosts") as error:
        destinations(f"good,{word}")
    assert error.value.message.isprintable()


@pytest.mark.parametrize(
    "text", ["", " , ", "a,a", "a,A", "root@a,worker@a", ",".join(f"h{n}" for n in range(1001))]
)
def test_none_two_of_one_name_and_more_than_a_thousand_are_refused(text: str) -> None:
    with pytest.raises(RequestError):
        destinations(text)


def test_a_name_that_is_too_long_for_a_fleet_is_told_how_to_be_shortened() -> None:
    with pytest.raises(RequestError, match="63 characters") as error:
        destinations("a" * 64)
    assert "ssh/config" in str(error.value.hint)


def test_ssh_never_asks_and_never_weakens_the_check_of_host_keys() -> None:
    argv = Ssh(Destination("a", "root", 2222), Path("/c")).argv("true")
    assert "BatchMode=yes" in argv
    assert not [word for word in argv if "hostkey" in word.lower() or "knownhosts" in word.lower()]
    # nothing after the two hyphens is an option
    assert argv[argv.index("--") :] == ("--", "a", "true")
    assert argv[argv.index("-l") + 1] == "root"
    assert argv[argv.index("-p") + 1] == "2222"
    assert argv[argv.index("-F") + 1] == "/c"


def test_what_a_host_says_on_standard_error_steers_no_terminal_and_is_bounded() -> None:
    error = failure(Destination("a"), 1, b"\x1b]0;owned\x07" + b"\xff" * 100_000)
    assert error.message.isprintable()
    assert len(error.message) < 8000


def test_a_command_on_a_host_cannot_pass_for_ssh_itself() -> None:
    error = failure(Destination("a"), 1, b"Host key verification failed.\n")
    assert "status 1" in error.message
    assert not isinstance(error, RequestError)
