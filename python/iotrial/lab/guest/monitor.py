"""The part of QEMU's monitor protocol (QMP) that saves a guest's memory to a file while the guest keeps running.

QMP: one JSON object per line; docs/interop/qmp-spec in QEMU's documentation.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping

from iotrial.errors import LabError

_ANSWERS_WITHIN_S = 30.0
_LOOKS_EVERY_S = 0.02


class Monitor:
    """One end of a socket pair; QEMU is started with the other end, ``theirs``."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._ours.settimeout(_ANSWERS_WITHIN_S)
        self._received = b""
        self._greeted = False

    def save(self, descriptor: int, within_s: float) -> None:
        """Save the guest's memory and device state to a file, for another guest to resume from. This one keeps running.

        QEMU must have been started, and ``theirs`` closed here. Raises LabError; the guest keeps running even then.
        """
        self._ask("getfd", {"fdname": "state"}, descriptor)
        # do not stop the guest first, or the resumed one would start stopped: QEMU stops it itself for the last part
        self._ask("migrate", {"uri": "fd:state"})
        until = time.monotonic() + within_s
        try:
            while (status := self._status()) != "completed":
                if status in ("failed", "cancelled") or time.monotonic() > until:
                    raise LabError(f"guest: writing its memory down: {status}")
                time.sleep(_LOOKS_EVERY_S)
        finally:
            try:
                if self._status() in ("setup", "active", "device"):
                    self._ask("migrate_cancel")
            finally:
                self._ask("cont")

    def close(self) -> None:
        """Close both ends. QEMU tolerates it."""
        self._ours.close()
        self.theirs.close()

    def _status(self) -> str:
        return str(self._ask("query-migrate").get("status", "none"))

    def _ask(
        self, command: str, arguments: Mapping[str, object] | None = None, descriptor: int | None = None
    ) -> Mapping[str, object]:
        if not self._greeted:
            self._line()
            self._greeted = True
            self._ask("qmp_capabilities")
        text = json.dumps({"execute": command, "arguments": arguments or {}}).encode() + b"\n"
        try:
            if descriptor is None:
                self._ours.sendall(text)
            else:
                socket.send_fds(self._ours, [text], [descriptor])
        except OSError as error:
            raise LabError(f"guest: asking QEMU for {command}: {error.strerror}") from error
        while True:
            answer = self._line()
            if "error" in answer:
                raise LabError(f"guest: QEMU's {command}: {answer['error']}")
            if "return" in answer:  # anything else is an event
                found = answer["return"]
                return found if isinstance(found, Mapping) else {}

    def _line(self) -> Mapping[str, object]:
        try:
            while b"\n" not in self._received:
                chunk = self._ours.recv(1 << 16)
                if not chunk:
                    raise LabError("guest: QEMU has closed its monitor")
                self._received += chunk
            line, _, self._received = self._received.partition(b"\n")
            found = json.loads(line)
        except (OSError, ValueError) as error:
            raise LabError(f"guest: QEMU's monitor: {error}") from error
        if not isinstance(found, dict):
            raise LabError(f"guest: QEMU's monitor said {line[:200]!r}")
        return found
