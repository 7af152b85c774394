"""Knobs of the network between two guests: rate, MTU, and settings of the cards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from iotrial.errors import KnobError, LabError, RequestError, UnsupportedLevel
from iotrial.guest import protocols
from iotrial.guest.link import WIRE, Link
from iotrial.guest.share import Share
from iotrial.knobs import network as declared
from iotrial.lab.disk import DiskPlace
from iotrial.lab.knob import Knob, Requirement, RunContext, size_within, whole_number
from iotrial.study.model import Setting
from iotrial.study.places import GUESTS
from iotrial.study.work import HasPrograms, Work
from iotrial.units import UnitError, format_bit_rate, format_size, parse_bit_rate

_LEAST_RATE, _MOST_RATE = 1e6, 100e9


class LinkKnob(Knob):
    """A setting of both cards, or of the link between them. It vanishes with the guests, so nothing is restored."""

    requirement = Requirement(root=True, labs=GUESTS)
    plain: ClassVar[str | None] = None

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str | None:
        return levels[0] if self.plain is None else self.plain

    def where(self, subject: RunContext, setting: Setting) -> str:
        return "the network cards of both guests"

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        link = _link(self.name, subject)
        try:
            self.turn(link, value)
        except LabError as error:
            found = self.read(subject, setting)
            if found != value:
                raise KnobError(
                    self.name, self.where(subject, setting), wrote=value, found=found, hint=error.message
                ) from error

    def turn(self, link: Link, value: str) -> None:
        """Set the value at both ends. Raises LabError."""
        raise NotImplementedError


class LinkRate(LinkKnob, declared.LinkRate):
    def parse(self, setting: Setting) -> str:
        try:
            rate = parse_bit_rate(setting.value)
        except UnitError as error:
            raise RequestError(
                f"knob {self.name}: {error.message}", hint=error.hint or self.open_levels
            ) from error
        if not _LEAST_RATE <= rate <= _MOST_RATE:
            raise UnsupportedLevel(
                f'knob {self.name}: "{setting.value}" is out of range', hint=self.open_levels
            )
        return format_bit_rate(rate)

    def read(self, subject: RunContext, setting: Setting) -> str:
        return format_bit_rate(_link(self.name, subject).rate())

    def turn(self, link: Link, value: str) -> None:
        link.set_rate(parse_bit_rate(value))


class LinkMtu(LinkKnob, declared.LinkMtu):
    plain = "1500"

    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, 576, 9000)

    def read(self, subject: RunContext, setting: Setting) -> str:
        return _link(self.name, subject).server.read(f"/sys/class/net/{WIRE}/mtu")

    def turn(self, link: Link, value: str) -> None:
        link.both(["ip", "link", "set", WIRE, "mtu", value])


class LinkRing(LinkKnob, declared.LinkRing):
    plain = "256"

    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, 48, 4096)

    def read(self, subject: RunContext, setting: Setting) -> str:
        output = _ethtool(_link(self.name, subject), "-g").partition("Current hardware settings")[2]
        found = dict(re.findall(r"^(RX|TX):\s+(\d+)$", output, re.MULTILINE))
        return " and ".join(sorted({found.get("RX", "none"), found.get("TX", "none")}))

    def turn(self, link: Link, value: str) -> None:
        link.both(["ethtool", "-G", WIRE, "rx", value, "tx", value])


class LinkCoalescing(LinkKnob, declared.LinkCoalescing):
    plain = "3"

    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, 0, 10000)

    def read(self, subject: RunContext, setting: Setting) -> str:
        found = re.search(r"^rx-usecs:\s+(\d+)$", _ethtool(_link(self.name, subject), "-c"), re.MULTILINE)
        return "none" if found is None else found[1]

    def turn(self, link: Link, value: str) -> None:
        link.both(["ethtool", "-C", WIRE, "rx-usecs", value])


class LinkOffload(LinkKnob, declared.LinkOffload):
    _SHOWN: ClassVar[Mapping[str, str]] = {
        "tx": "tx-checksumming",
        "tso": "tcp-segmentation-offload",
        "gro": "generic-receive-offload",
    }
    plain = "full"

    def read(self, subject: RunContext, setting: Setting) -> str:
        output = _ethtool(_link(self.name, subject), "-k")
        found = {
            key: match[1]
            for key, name in self._SHOWN.items()
            if (match := re.search(rf"^{name}: (on|off)", output, re.MULTILINE))
        }
        for level, features in self.LEVELS.items():
            if all(found.get(key) == features[key] for key in self._SHOWN):
                return level
        return ", ".join(f"{key} {value}" for key, value in found.items())

    def turn(self, link: Link, value: str) -> None:
        link.both(["ethtool", "-K", WIRE, *(word for pair in self.LEVELS[value].items() for word in pair)])


def _link(knob: str, subject: RunContext) -> Link:
    return share_of(knob, subject).link


def _ethtool(link: Link, what: str) -> str:
    """Return ethtool's output, which must be the same for both cards. Raises LabError if they differ."""
    output = [target.run(["ethtool", what, WIRE]).stdout for target in (link.server, link.client)]
    if output[0] != output[1]:
        raise LabError(
            f"ethtool {what}: the network cards of the two guests differ: {output[0]!r}, {output[1]!r}"
        )
    return output[0]


# Knobs of serving files from one guest to another: the protocol and its settings.


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
