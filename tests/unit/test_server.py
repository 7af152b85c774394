"""Servers started for the conductor: the probe's job, and errors for its refusals."""

from __future__ import annotations

from typing import Any

import pytest

from iotrial.errors import LabError, NotSupported, ProbeError, TargetError
from iotrial.lab.target import Target
from iotrial.study import server
from iotrial.study.server import Server

WEB = Server("web", ("/bin/web", "-f"), {"socket": "/run/x/s"}, {"A": "b"}, stop_signal="QUIT")


class Channel:
    """Fake channel that records its calls and returns a canned answer."""

    name = "a machine"

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, object]]] = []

    def call(self, verb: str, **fields: object) -> dict[str, Any]:
        self.asked.append((verb, fields))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_the_probe_is_told_everything_and_by_which_signal_it_ends() -> None:
    channel = Channel({"died": False, "exit": 0, "signal": None, "stderr": ""})
    server.start(Target(channel), WEB, {"uid": 7, "gid": 8})
    assert server.stop(Target(channel), WEB) is None
    (start, given), (stop, rest) = channel.asked
    assert (start, stop) == ("server_start", "server_stop")
    assert given["argv"] == ["/bin/web", "-f"]
    assert (given["user"], given["environment"]) == ({"uid": 7, "gid": 8}, {"A": "b"})
    assert given["ready"] == {"socket": "/run/x/s"}
    assert rest == {"name": "web", "signal": "QUIT", "timeout_s": 60.0}


@pytest.mark.parametrize("error", [ProbeError("no luck"), TargetError("no luck"), NotSupported("no luck")])
def test_a_server_that_cannot_be_had_is_an_error_of_the_lab(error: Exception) -> None:
    with pytest.raises(LabError, match="needs a server: no luck"):
        server.start(Target(Channel(error)), WEB, None)


def test_a_socket_whose_path_is_too_long_for_the_kernel_is_refused_before() -> None:
    channel = Channel({})
    for length in (107, 108):  # sun_path of unix(7) has 108 bytes, the last of them 0
        wanted = Server("web", ("/bin/web",), {"socket": "/" + "s" * (length - 1)})
        if length == 107:
            server.start(Target(channel), wanted, None)
        else:
            with pytest.raises(LabError, match="108 bytes"):
                server.start(Target(channel), wanted, None)
    assert len(channel.asked) == 1


def test_how_a_server_had_died_is_said_with_its_last_words() -> None:
    answer = {"died": True, "exit": None, "signal": 9, "stderr": "out of memory\n"}
    assert server.stop(Target(Channel(answer)), WEB) == "server web was killed by signal 9: out of memory"
    answer = {"died": True, "exit": 3, "signal": None, "stderr": ""}
    assert server.stop(Target(Channel(answer)), WEB) == "server web ended with status 3"
