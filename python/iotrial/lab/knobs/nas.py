"""Knobs of serving files from one guest to another: the protocol and its settings."""

from __future__ import annotations

from iotrial.errors import RequestError, UnsupportedLevel
from iotrial.guest import protocols
from iotrial.guest.share import Share
from iotrial.knobs import network as declared
from iotrial.lab.disk import DiskPlace
from iotrial.lab.knob import Knob, Requirement, RunContext, size_within, whole_number
from iotrial.study.model import Setting
from iotrial.study.places import GUESTS
from iotrial.study.work import HasPrograms, Work
from iotrial.units import format_size

_LEAST_TRANSFER, _MOST_TRANSFER = 4 << 10, 1 << 20


class ShareKnob(Knob):
    """A setting of the server: requested for the next mount, and read back from it."""

    requirement = Requirement(root=True, labs=GUESTS)
    about: str

    def read(self, subject: RunContext, setting: Setting) -> str:
        return share_of(self.name, subject).found(self.about)

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        share_of(self.name, subject).want(self.about, value)


class NasProtocol(ShareKnob, declared.NasProtocol):
    about = "protocol"
    LEVELS = tuple(protocols.PROTOCOLS)

    def suits(self, setting: Setting, work: Work, bytes_each: int) -> None:
        """Refuse work that would be done on the mount although the protocol has none."""
        protocol = protocols.PROTOCOLS[self.parse(setting)]
        texts = work.texts() if isinstance(work, HasPrograms) else ()
        if protocol.by_program and not any(protocols.SHARE in text for text in texts):
            raise UnsupportedLevel(
                f"knob {self.name}: {protocol.name} has no mount, and this workload of kind {work.kind} names no URL",
                hint=f'use a command that gets "{protocols.SHARE}{{file}}" or puts "{protocols.SHARE}{{out}}/x", as nas/ftp',
            )


class NasExport(ShareKnob, declared.NasExport):
    about = "export"
    LEVELS = protocols.EXPORTS


class NasTransfer(ShareKnob, declared.NasTransfer):
    about = "transfer"

    def parse(self, setting: Setting) -> str:
        if setting.value == "default":
            return "default"
        return format_size(
            size_within(
                self.name, setting.value, _LEAST_TRANSFER, _MOST_TRANSFER, self.open_levels, power=True
            )
        )

    def read(self, subject: RunContext, setting: Setting) -> str:
        """Return the size that the client's kernel shows, if one was requested."""
        found = super().read(subject, setting)
        info = subject.worker.mount_at(subject.place.root)
        if found == "default" or info is None:
            return found
        shown = {word.partition("=")[2] for word in info.options if word.startswith(("rsize=", "wsize="))}
        return format_size(int(shown.pop())) if len(shown) == 1 else " and ".join(sorted(shown)) or found


class NasThreads(ShareKnob, declared.NasThreads):
    about = "threads"

    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, 1, 256)


def share_of(knob: str, subject: RunContext) -> Share:
    """Return the share that a knob acts on. Raises RequestError if the lab serves no files."""
    place = subject.place
    if isinstance(place, DiskPlace) and place.share is not None:
        return place.share
    raise RequestError(
        f"knob {knob}: in this lab no files are served over a network",
        hint="add a table [lab.link] to the study",
    )
