"""The network between two guests: one card in each, with a configured rate and latency.

The connection itself is as fast as two processes can pass data. The configured slowness is added at each end by the
kernel's netem qdisc: each frame is delayed by its length divided by the rate, plus the latency.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from iotrial.errors import LabError
from iotrial.guest import qemu
from iotrial.guest.initramfs import Needs
from iotrial.knobs.network import WIRE
from iotrial.lab.target import Target
from iotrial.polling import attempts
from iotrial.study.model import LinkSpec
from iotrial.units import format_bit_rate, format_duration

#: the addresses of the cards
SERVER, CLIENT = "10.73.0.1", "10.73.0.2"
_PREFIX = 24
#: the server's port on which the client marks the begin and end of its work
MARKS = 7400
#: netem queue limit in packets: more than TCP ever has in flight here
_HELD = 100_000
#: how long a card may negotiate its link
_UP_WITHIN_S, _LOOK_S = 20.0, 0.02


@dataclass(frozen=True, slots=True)
class Card:
    """A network card model: its name in QEMU, its driver module, and whether only a full distribution kernel has that one."""

    device: str
    module: str
    whole_kernel: bool = False


CARDS: Mapping[str, Card] = MappingProxyType(
    {"virtio": Card("virtio-net-pci", "virtio_net"), "e1000e": Card("e1000e", "e1000e", whole_kernel=True)}
)


def needs_of(spec: LinkSpec) -> Needs:
    """Return what both guests need for this link."""
    return Needs(
        modules=frozenset({CARDS[spec.card].module, "sch_netem"}),
        packages=frozenset({"iproute2", "ethtool"}),
        programs=frozenset({"ip", "tc", "ethtool"}),
    )


def described(spec: LinkSpec) -> str:
    """Describe the link in words."""
    return (
        f"{format_bit_rate(spec.rate_bits_per_s)} each way, {format_duration(spec.latency_s)} of latency, "
        f"{spec.card} cards"
    )


class Link:
    """A network between two guests; up after ``open``."""

    def __init__(self, spec: LinkSpec, server: Target, client: Target) -> None:
        self.spec = spec
        self.server = server
        self.client = client

    def open(self) -> None:
        """Bring both ends up. Raises LabError if a card is missing or cannot be configured."""
        for end, target, address in self._ends():
            card = _card_with(target, qemu.MAC_ADDRESSES[end])
            _run(
                target,
                ["ip", "-batch", "-"],
                f"link set lo up\nlink set {card} name {WIRE}\n"
                f"address add {address}/{_PREFIX} dev {WIRE}\nlink set {WIRE} up\n",
            )
        self._wait()
        self.set_rate(self.spec.rate_bits_per_s)

    def set_rate(self, bits_per_s: float) -> None:
        """Set the rate in both directions from now on."""
        for _, target, _ in self._ends():
            _run(
                target,
                [
                    "tc", "qdisc", "replace", "dev", WIRE, "root", "netem", "limit", str(_HELD),
                    "rate", f"{bits_per_s:.0f}bit", "delay", f"{self.spec.latency_s * 1e6:.0f}us",
                ],
            )  # fmt: skip

    def rate(self) -> float:
        """Return the rate in bits per second, as reported by the server's kernel."""
        output = _run(self.server, ["tc", "-raw", "qdisc", "show", "dev", WIRE])
        found = re.search(r"\brate (\d+(?:\.\d+)?)([KMG]?)bit", output)
        if found is None:
            raise LabError(f"{self.server.name}: the link has no rate: {output.strip()}")
        return float(found[1]) * float(1000 ** " KMG".index(found[2] or " "))

    def both(self, argv: list[str]) -> None:
        """Run a program in both guests, and wait until both cards have a carrier again."""
        for _, target, _ in self._ends():
            _run(target, argv)
        self._wait()

    def _wait(self) -> None:
        # After each reset a card negotiates, for seconds, and loses what is sent meanwhile.
        for _, target, _ in self._ends():
            for _ in attempts(_UP_WITHIN_S, _LOOK_S):
                if target.read(f"/sys/class/net/{WIRE}/carrier") == "1":
                    break
            else:
                raise LabError(f"{target.name}: its network card has no carrier after {_UP_WITHIN_S:.0f} s")

    def _ends(self) -> tuple[tuple[int, Target, str], ...]:
        return (0, self.client, CLIENT), (1, self.server, SERVER)


def _card_with(target: Target, address: str) -> str:
    for name in target.call("list", path="/sys/class/net")["names"]:
        if target.read_or_none(f"/sys/class/net/{name}/address") == address:
            return str(name)
    raise LabError(f"{target.name}: no network card has the address {address}")


def _run(target: Target, argv: list[str], text: str = "") -> str:
    return target.run(argv, stdin=text, timeout_s=60).output(target.name)
