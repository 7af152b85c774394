"""The probe as a process: one JSON object a line in, one out.

A ``Probe`` is a channel in the sense of ``iotrial.lab.target``: it carries the verbs of
``docs/probe-protocol.md`` to this machine. It runs in a session of its own, so that a Ctrl-C at the
terminal reaches the conductor alone, which then decides what happens to the probe.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from iotrial.errors import ProbeError, TargetError
from iotrial.probe.binary import find_binary

PROTOCOL = 1


class Probe:
    """A running probe. Use as a context manager; leaving it ends the process and all that it holds.

    ``isolate`` (root) gives it a mount and a PID namespace of its own. Raises ProbeError where the binary is
    missing or speaks another protocol.
    """

    def __init__(self, *, isolate: bool, binary: Path | None = None) -> None:
        self.binary = binary or find_binary()
        self.name = "this machine"
        self._last = 0
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        argv = [str(self.binary)] + (["--isolate"] if isolate else [])
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,
                close_fds=True,
            )
        except OSError as error:
            raise ProbeError(f"cannot start the probe {self.binary}: {error.strerror}") from error
        self.facts = self.call("hello")
        if self.facts.get("protocol") != PROTOCOL:
            self.kill()
            raise ProbeError(
                f"the probe {self.binary} speaks protocol {self.facts.get('protocol')}, wanted {PROTOCOL}",
                hint="package and probe are of different versions: install again",
            )

    def call(self, verb: str, **fields: object) -> dict[str, Any]:
        """Ask for one verb and wait for its answer.

        Raises TargetError where the target refused (``errno`` set for a failed system call),
        ProbeError where the probe found its own work wrong, did not understand, or died.
        """
        self._last += 1
        line = json.dumps({"id": self._last, "verb": verb, **fields}, separators=(",", ":"))
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
            answer = stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            raise ProbeError(f'the probe died at "{verb}"{self._epitaph()}')
        return answer_of(answer, verb=verb, number=self._last)

    def _epitaph(self) -> str:
        status = self._process.wait()
        self._log.seek(0)
        tail = self._log.read()[-400:].decode(errors="replace").strip()
        return f" (status {status})" + (f": {tail}" if tail else "")

    @property
    def pid(self) -> int:
        """Process id on this machine (of the outer process, where isolated)."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End of input: the probe leaves by itself, and the kernel takes its namespaces down."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            try:
                self._process.stdin.close()
                self._process.wait(timeout=20)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self.kill()
        self._log.close()

    def kill(self) -> None:
        """End it at once; nothing that it holds outlives it."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def answer_of(line: bytes, *, verb: str, number: int) -> dict[str, Any]:
    """What one line of the probe answers to request ``number``.

    Raises TargetError where the target refused, ProbeError where the probe did, or where the line is no answer.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as cause:
        raise ProbeError(f"{verb}: the probe's answer is not JSON: {cause}") from cause
    if not isinstance(message, dict) or message.get("id") != number:
        found = message.get("id") if isinstance(message, dict) else message
        raise ProbeError(f'the probe answered {str(found)[:80]} where "{verb}" was {number}')
    error = message.get("error")
    if error is None:
        ok = message.get("ok")
        if not isinstance(ok, dict):
            raise ProbeError(f'the probe answered "{verb}" with neither an object nor an error')
        return ok
    if not isinstance(error, dict):
        raise ProbeError(f'the probe answered "{verb}" with an error that says nothing')
    text = str(error.get("message", "no reason given"))
    errno = error.get("errno")
    if error.get("code") in ("os", "unsupported"):
        raise TargetError(text, errno=errno if isinstance(errno, int) else None)
    raise ProbeError(f"{verb}: {text}")
