"""Knobs of the network between two guests: rate, MTU, and settings of the cards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from iotrial.errors import KnobError, LabError, RequestError, UnsupportedLevel
from iotrial.guest.link import WIRE, Link
from iotrial.knobs import network as declared
from iotrial.lab.knob import Knob, Requirement, RunContext, whole_number
from iotrial.lab.knobs.nas import share_of
from iotrial.study.model import Setting
from iotrial.study.places import GUESTS
from iotrial.units import UnitError, format_bit_rate, parse_bit_rate

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
