"""The guests of a trial: one that has the disks and, if the study has a link, a second one that does the work."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

from iotrial.guest.link import Link, described
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.runner.guest import Guest, GuestSpec, MachineSpec, client_spec


class Guests:
    """All guests of a trial, off at first.

    The caller owns the probe of the guest that has the disks; the probe of the other one is owned here.
    """

    def __init__(
        self,
        spec: GuestSpec,
        *,
        store: Path,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._spec = spec
        self._first = Guest(spec, store=store, waiting=waiting)
        self._second = (
            None
            if spec.link is None
            else Guest(client_spec(spec), store=store, waiting=waiting, depends=self._server_lost)
        )
        self._server: Probe | None = None
        self._other: Probe | None = None
        #: The network between both, once they are up.
        self.link: Link | None = None

    @property
    def wanted(self) -> MachineSpec:
        """The machine of the guest with the disks."""
        return self._first.wanted

    def want(self, machine: MachineSpec) -> None:
        """Set the machine of the guest with the disks from the next ``start`` on."""
        self._first.want(machine)

    @property
    def memory_besides(self) -> int:
        """Bytes of memory of the guest with the disks that are reserved for simulated ones."""
        return self._first.memory_besides

    def attachment(self, about: str) -> str:
        """Return a field of ``qemu.Attachment`` of the disks as QEMU shows it. Raises LabError."""
        return self._first.attachment(about)

    @property
    def alive(self) -> bool:
        """Whether the second guest is alive; True if there is none."""
        return self._other is None or self._other.alive

    def start(self, begun: Callable[[Probe], None]) -> Probe:
        """Boot all guests; return the probe in the one that has the disks.

        ``begun`` is called with each probe as soon as it runs. Raises ProbeError if a guest does not boot,
        LabError if the link does not come up.
        """
        with ExitStack() as ends:
            ours, theirs = _wire(ends) if self._second is not None else (None, None)
            probe = self._first.start(ours)
            try:
                begun(probe)
                if self._second is not None:
                    self._server = probe
                    self._other = self._second.start(theirs)
                    begun(self._other)
                    self._join(probe, self._other)
            except BaseException:
                probe.close()
                self.hang_up()
                raise
        return probe

    def _server_lost(self) -> str | None:
        """Return a message if the server is lost: a client of its files would wait forever; else None."""
        if self._server is None:
            return None
        if not self._server.alive:
            return f"{self._server.name}, which has its files, has died{self._server.epitaph()}"
        hung = self._first.hung()
        return None if hung is None else f"{self._server.name}, which has its files, hangs: {hung}"

    def _join(self, first: Probe, second: Probe) -> None:
        assert self._spec.link is not None
        self.link = Link(self._spec.link, Target(first), Target(second))
        self.link.open()

    def kill(self) -> None:
        """Kill the second guest, whatever it is doing."""
        if self._other is not None:
            self._other.kill()

    def hang_up(self) -> None:
        """Turn the second guest off."""
        self.link = None
        if self._other is not None:
            self._other.close()
            self._other = None

    def close(self) -> None:
        """Release the disks; both probes' processes must have ended."""
        for guest in (self._second, self._first):
            if guest is not None:
                guest.close()

    def notes(self) -> tuple[str, ...]:
        """Return the caveats for numbers measured in these guests."""
        notes = [note for guest in (self._first, self._second) if guest is not None for note in guest.notes()]
        return tuple(dict.fromkeys(notes))

    def facts(self) -> Mapping[str, object]:
        """Return facts for reports: of the guest that has the disks, and of the link."""
        return {
            **self._first.facts(),
            **({} if self._spec.link is None else {"link": described(self._spec.link)}),
        }


def _wire(ends: ExitStack) -> tuple[int, int]:
    """Return descriptors of both ends of a wire between two guests; ``ends`` closes our copies."""
    ours, theirs = socket.socketpair()
    return ends.enter_context(ours).fileno(), ends.enter_context(theirs).fileno()
