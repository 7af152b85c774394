"""Run ``iotrial serve`` for tests: a process on a free port, and plain HTTP to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

PATIENCE_S = 120.0


@dataclass(frozen=True)
class Answer:
    """An HTTP response; ``headers`` by lower-case name."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Served:
    """A running server."""

    process: subprocess.Popen[str]
    address: str
    store: Path

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port
        return port

    @property
    def root(self) -> str:
        """The prefix of every path: the token."""
        return urlsplit(self.address).path.rstrip("/")

    def get(self, path: str, *, method: str = "GET", token: bool = True, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(
                method,
                (self.root if token else "") + path,
                headers={n.replace("_", "-"): v for n, v in headers.items()},
            )
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def settled(self, path: str) -> Answer:
        """Return the page once it no longer refreshes because an analysis is running."""
        end = time.monotonic() + PATIENCE_S
        while True:
            answer = self.get(path)
            if b'http-equiv="refresh"' not in answer.body or time.monotonic() > end:
                return answer
            time.sleep(0.05)

    def raw(self, sent: bytes, *, wait_s: float = PATIENCE_S) -> bytes:
        """Send these bytes and return everything received until the server closes the connection or is silent
        for ``wait_s``."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait_s) as connection:
            connection.sendall(sent)
            got = b""
            try:
                while piece := connection.recv(65536):
                    got += piece
            except (TimeoutError, ConnectionResetError):
                pass
            return got

    @property
    def url(self) -> str:
        return self.address.rstrip("/")


@contextmanager
def served(store: Path, *options: str, env: dict[str, str] | None = None) -> Iterator[Served]:
    """Serve this store. At the end check that the server still runs, has printed only its address, and stops
    on SIGINT at once."""
    argv = [sys.executable, "-m", "iotrial", "serve", "--port", "0", "--json", "--full-speed", *options]
    environment = {**os.environ, "IOTRIAL_STORE": str(store), "OPENBLAS_NUM_THREADS": "1", **(env or {})}
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout
        assert process.stderr
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield Served(process, json.loads(line)["serve"]["address"], store)
        assert process.poll() is None, "the server has died"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 128 + signal.SIGINT
        assert not out
        assert not re.search("Traceback|Error", err), err
    finally:
        process.kill()
        process.communicate()


def listed(server: Served, query: str = "") -> list[int]:
    """Return the trial numbers on the list page, in their order there."""
    found = re.findall(r'name="trials" value="(\d+)"', server.get(f"/?{query}").text)
    return [int(number) for number in found]
