"""Knobs of files that are served from one guest to another: by what protocol, and how."""

from __future__ import annotations

from collections.abc import Mapping

from iotrial.errors import RequestError
from iotrial.lab.disk import DiskPlace
from iotrial.lab.guest import protocols
from iotrial.lab.guest.share import Share
from iotrial.lab.knob import (
    Consequence,
    Knob,
    Requirement,
    Scope,
    Stage,
    Subject,
    at_risk,
    harmless,
    one_of,
    size_within,
    trade_off,
    whole_number,
)
from iotrial.study.model import Setting
from iotrial.units import format_size

_GUEST = frozenset({"guest"})
_LEAST_TRANSFER, _MOST_TRANSFER = 4 << 10, 1 << 20


class ShareKnob(Knob):
    """Something with which files are served: a wish until they are mounted next, and read back from what then stands."""

    stage = Stage.MOUNT
    scope = Scope.FILESYSTEM
    about: str

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(root=True, labs=_GUEST)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return ()

    def read(self, subject: Subject, setting: Setting) -> str:
        return share_of(self.name, subject).found(self.about)

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        share_of(self.name, subject).want(self.about, value)


class NasProtocol(ShareKnob):
    """NFS 3 or 4.2, SMB 3.1.1, or iSCSI."""

    name = "nas.protocol"
    title = "how the server's files or disk are reached: NFS 3 or 4.2, SMB, iSCSI"
    consequence = harmless("a file that was closed is on the disk of the server")
    consequences: Mapping[str, Consequence] = {
        "smb": trade_off(
            "what was closed and not synced may be in the memory of the server alone, and lost with its power"
        ),
        "iscsi": trade_off(
            "what was closed and not synced may be in the memory of the client alone, and lost with its power"
        ),
    }
    about = "protocol"
    LEVELS = tuple(protocols.PROTOCOLS)

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, self.LEVELS)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return self.LEVELS


class NasExport(ShareKnob):
    """sync: NFS answers once it is on the disk; async: before."""

    name = "nas.export"
    title = "whether the NFS server answers a write when it is on the disk (sync), or before (async)"
    consequence = harmless("the server answers when data are on its disk")
    consequences: Mapping[str, Consequence] = {
        "async": at_risk(
            "the server answers before data are on its disk: when it crashes or loses power, data that clients hold for "
            "synced are lost or corrupted"
        ),
    }
    about = "export"
    LEVELS = protocols.EXPORTS

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, self.LEVELS)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return self.LEVELS


class NasTransfer(ShareKnob):
    """rsize and wsize."""

    name = "nas.transfer"
    title = "the most that one request of NFS or SMB carries (rsize and wsize)"
    consequence = harmless("the size of requests")
    about = "transfer"
    open_levels = "default, or 4 KiB to 1 MiB, powers of two"

    def parse(self, setting: Setting) -> str:
        if setting.value == "default":
            return "default"
        return format_size(
            size_within(
                self.name, setting.value, _LEAST_TRANSFER, _MOST_TRANSFER, self.open_levels, power=True
            )
        )

    def read(self, subject: Subject, setting: Setting) -> str:
        """As the client's kernel shows it, where it is asked for."""
        found = super().read(subject, setting)
        info = subject.worker.mount_at(subject.place.root)
        if found == "default" or info is None:
            return found
        shown = {word.partition("=")[2] for word in info.options if word.startswith(("rsize=", "wsize="))}
        return format_size(int(shown.pop())) if len(shown) == 1 else " and ".join(sorted(shown)) or found


class NasThreads(ShareKnob):
    """Threads of nfsd."""

    name = "nas.threads"
    title = "threads of the NFS server"
    consequence = harmless("how many requests are served at once")
    about = "threads"
    open_levels = "1 to 256"

    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, 1, 256)


def share_of(knob: str, subject: Subject) -> Share:
    """The share that a knob acts on. Raises RequestError where the lab serves nothing."""
    place = subject.place
    if isinstance(place, DiskPlace) and place.share is not None:
        return place.share
    raise RequestError(
        f"knob {knob}: in this lab files are not served to another machine",
        hint="add a table [lab.link] to the study",
    )
