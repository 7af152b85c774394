"""Serving a place of one guest to another: the requested settings, the current ones, and the steps between them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from contextlib import suppress

from iotrial.errors import LabError, TargetError
from iotrial.guest.link import Link
from iotrial.guest.protocols import DEFAULTS, PROTOCOLS, Protocol, Served, as_soon_as_it_can, script


class Share:
    """A place served to another machine: requested and current settings. ``link`` has both machines."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._wanted = dict(DEFAULTS)
        self._serving: tuple[Protocol, Served] | None = None
        self._begun: set[str] = set()

    @property
    def due(self) -> bool:
        """True if it is served with other settings than those requested."""
        return self._serving is not None and self._wanted != self._serving[1].wishes

    @property
    def whole_disk(self) -> bool:
        """True if the server must not mount the file system because the client will."""
        return PROTOCOLS[self._wanted["protocol"]].whole_disk

    @property
    def url(self) -> str:
        """What makes a URL of a path on the share, for the protocol by which it is served."""
        protocol = PROTOCOLS[self._wanted["protocol"]] if self._serving is None else self._serving[0]
        return protocol.url

    def want(self, about: str, value: str) -> None:
        """Set how it is served from the next ``open`` on: by a key of DEFAULTS."""
        self._wanted[about] = value

    def found(self, about: str) -> str:
        """Return how it is served, as reported by the kernels of both machines."""
        if self._serving is None:
            return "nothing"
        protocol, what = self._serving
        return protocol.found(about, self.link.server, self.link.client, what)

    def open(self, folder: str, device: str, filesystem: str, words: tuple[str, ...]) -> None:
        """Serve the place and mount it on the client."""
        wishes = dict(self._wanted)
        protocol = PROTOCOLS[wishes["protocol"]]
        for about, value in wishes.items():
            if about not in {"protocol", *protocol.settings} and value != DEFAULTS[about]:
                raise LabError(
                    f"{protocol.name} has no {about}, expected {value}",
                    hint=f"vary nas.{about} with a protocol that has it",
                )
        what = Served(folder, device, filesystem, words, wishes)
        machine, client = self.link.server, self.link.client
        if protocol.name not in self._begun:
            protocol.begin(machine)
            self._begun.add(protocol.name)
        if not client.exists(folder):
            script(client, f"mkdir -p {folder}")
        try:
            protocol.serve(machine, what)
            protocol.reach(client, what)
        except Exception as error:
            with suppress(LabError, TargetError):  # report the first error, not a later one
                protocol.withdraw(machine, what)
            if isinstance(error, TargetError):
                raise LabError(f"reaching {folder} by {protocol.name}: {error.message}") from error
            raise
        self._serving = protocol, what

    def close(self) -> None:
        """Unmount it on the client and stop serving it. Does nothing if it is not served."""
        if self._serving is None:
            return
        protocol, what = self._serving
        try:
            protocol.leave(self.link.client, what)
        except TargetError as error:
            if error.errno != errno.EBUSY:
                raise
            raise LabError(
                f"cannot unmount {what.folder} on {self.link.client.name}: still in use",
                hint="a command of the study left a process or file open in the lab",
            ) from error
        self._serving = None
        protocol.withdraw(self.link.server, what)

    def let_go(self, unmount: Callable[[], None]) -> None:
        """Call ``unmount``, retrying until the server releases the file system: a separate thread closes the last files."""
        as_soon_as_it_can(unmount, errno.EBUSY)

    def facts(self) -> Mapping[str, object]:
        """Return what the report shows."""
        return dict(self._wanted if self._serving is None else self._serving[1].wishes)
