"""A host over ssh, as the coordinator speaks with it: one ssh process that answers requests, made anew when it is lost.

Nothing that comes back is trusted: not its length, not its shape, not that it is an answer to what was asked.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from iotrial.errors import IotrialError
from iotrial.fleet.asking import asking_after, asking_to_stop, refused
from iotrial.fleet.link import MAX_BATCH, Batch, HostFacts, Lost, Position
from iotrial.fleet.order import Order
from iotrial.fleet.ssh import placing
from iotrial.fleet.ssh.bundle import Bundle
from iotrial.fleet.ssh.client import Ssh, end, failure, said_in_words
from iotrial.fleet.ssh.resident import GREETING, MISMATCH
from iotrial.fleet.values import Distrusted, Fields, parsed
from iotrial.legible import shown

#: how long a host may take to begin answering, for one answer, and for one to ``begin``, which first puts back what is left
BEGIN_S = 180.0
ANSWER_S = 60.0
MEND_S = 600.0
#: what the shell of a host may print before the first answer
MOST_BEFORE = 65_536
_HEAD = 200
_MOST_SAID = 4096
_PIECE = 1 << 16


class SshLink:
    """One host; a HostLink. ``say`` is told what is done there that takes long."""

    def __init__(self, ssh: Ssh, bundle: Bundle, say: Callable[[str], None] | None = None) -> None:
        self._ssh = ssh
        self._bundle = bundle
        self._say = say
        self._talk: _Talk | None = None
        self._placed = False
        self._over = False

    @property
    def name(self) -> str:
        return self._ssh.destination.name

    def facts(self) -> HostFacts:
        return HostFacts.from_json(self._ask("facts", ""))

    def begin(self, order: Order) -> None:
        self._ask("begin", order.to_json())

    def after(self, fleet: str, position: Position) -> Batch:
        return Batch.from_json(self._ask("after", asking_after(fleet, position)))

    def stop(self, fleet: str) -> None:
        self._ask("stop", asking_to_stop(fleet))

    def close(self) -> None:
        self._over = True
        self._drop()

    def _drop(self) -> None:
        talk, self._talk = self._talk, None
        if talk is not None:
            talk.close()

    def prepare(self) -> None:
        """Look at the host, carry there what it lacks, and begin to talk. Raises RequestError where it cannot take part."""
        if self._talk is not None:
            return
        found = placing.look(self._ssh, self._bundle)
        if not found.there:
            self._carry(found)
        try:
            self._talk = self._begun()
        except _Unusable:
            # What is there has changed since, or was cut off: once more from the beginning.
            self._carry(found, replace=True)
            self._talk = self._begun()
        self._placed = True

    def _carry(self, found: placing.Found, *, replace: bool = False) -> None:
        if self._say is not None:
            self._say(f"host {self.name}: is brought {self._bundle.packed / 1e6:.0f} MB")
        placing.place(self._ssh, self._bundle, found, replace=replace)

    def _begun(self) -> _Talk:
        token = secrets.token_hex(16)
        return _Talk(self._ssh, placing.start_command(self._bundle, token, self.name), token)

    def _ask(self, ask: str, text: str) -> str:
        if self._over:
            raise Lost(f"host {self.name}: let go of")
        if self._talk is None and self._placed:
            with suppress(_Unusable):
                self._talk = self._begun()
        if self._talk is None:
            self.prepare()
        talk = self._talk
        if talk is None:  # let go of by another thread meanwhile
            raise Lost(f"host {self.name}: let go of")
        try:
            return refused(self.name, talk.ask(ask, text))
        except (Lost, Distrusted):
            self._drop()
            raise


class _Unusable(IotrialError):
    """What is in the folder on the host does not start, or is not what was sent."""


class _Talk:
    """One ssh process and what it has sent so far."""

    def __init__(self, ssh: Ssh, command: str, token: str) -> None:
        """Raises Lost, RequestError, and _Unusable where the program on the host does not begin."""
        self._ssh = ssh
        self._name = ssh.destination.name
        self._process: subprocess.Popen[bytes] = ssh.start(command)
        self._had = bytearray()
        self._said = b""
        self._number = 0
        self._asking = threading.Lock()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        try:
            greeting = f"{GREETING} 1 {token}".encode()
            deadline = time.monotonic() + BEGIN_S
            before = 0
            while (line := self._line(deadline, MOST_BEFORE - before)) != greeting:
                before += len(line) + 1
        except BaseException:
            self.close()
            raise

    def ask(self, ask: str, text: str) -> str:
        """The text that answers one question. Raises Lost, or Distrusted."""
        with self._asking:
            self._number += 1
            deadline = time.monotonic() + (MEND_S if ask == "begin" else ANSWER_S)
            self._send(json.dumps({"n": self._number, "do": ask, "text": text}).encode() + b"\n", deadline)
            return self._answer(deadline)

    def _answer(self, deadline: float) -> str:
        what = f"host {self._name}"
        line = self._line(deadline, _HEAD).decode("utf-8", "replace")
        head = Fields(parsed(line, longest=_HEAD, what=what), what)
        number, size = head.whole("n", 0, 2**62), head.whole("bytes", 0, 2 * MAX_BATCH)
        head.done()
        if number != self._number:
            raise Distrusted(f"{what}: answered something that was not asked")
        while len(self._had) <= size:
            self._read(deadline)
        if self._had[size : size + 1] != b"\n":
            raise Distrusted(f"{what}: its answer does not end where it said")
        body = bytes(self._had[:size])
        del self._had[: size + 1]
        try:
            return body.decode()
        except UnicodeDecodeError:
            raise Distrusted(f"{what}: its answer is no text") from None

    def close(self) -> None:
        """Let go of the host: its end of the link sees that and ends."""
        self._process.kill()  # a thread that waits for an answer sees its end
        if self._asking.acquire(timeout=10):
            end(self._process)
            self._asking.release()

    def _send(self, data: bytes, deadline: float) -> None:
        assert self._process.stdin is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdin, selectors.EVENT_WRITE)
            while data:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise Lost(f"host {self._name}: takes no request")
                try:
                    data = data[os.write(self._process.stdin.fileno(), data) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    raise self._ended() from None

    def _line(self, deadline: float, most: int) -> bytes:
        while (at := self._had.find(b"\n")) < 0:
            if len(self._had) > most:
                break
            self._read(deadline)
        if at < 0 or at > most:
            raise Distrusted(
                f"host {self._name}: sends {shown(bytes(self._had[:60]).decode('utf-8', 'replace'))}..., "
                f"more than {most} bytes where a line was expected"
            )
        line = bytes(self._had[:at])
        del self._had[: at + 1]
        return line

    def _read(self, deadline: float) -> None:
        out, err = self._process.stdout, self._process.stderr
        assert out is not None
        assert err is not None
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            selector.register(err, selectors.EVENT_READ)
            while True:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise Lost(f"host {self._name}: no answer in time")
                for key, _ in ready:
                    piece = os.read(key.fd, _PIECE)
                    if key.fileobj is err:
                        self._said = (self._said + piece)[-_MOST_SAID:]
                        if not piece:
                            selector.unregister(err)
                    elif not piece:
                        raise self._ended()
                    else:
                        self._had += piece
                        return

    def _ended(self) -> IotrialError:
        """Why ssh ended: its own trouble, or the program's on the host."""
        assert self._process.stderr is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(20.0)
        if self._process.returncode is None:
            return Lost(f"host {self._name}: has closed its side")
        os.set_blocking(self._process.stderr.fileno(), False)
        with suppress(OSError):
            self._said = (self._said + (self._process.stderr.read(_PIECE) or b""))[-_MOST_SAID:]
        status = self._process.returncode
        if status == 255:
            return failure(self._ssh.destination, status, self._said)
        if self._number == 0 or status == MISMATCH:
            return _Unusable(
                f"host {self._name}: what was carried there does not start ({said_in_words(self._said)})"
            )
        return Lost(
            f"host {self._name}: its end of the link ended with status {status} ({said_in_words(self._said)})"
        )
