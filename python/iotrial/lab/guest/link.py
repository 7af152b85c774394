"""The network between two guests: a card in each, a wire between them, and on the wire a rate and a latency.

The wire itself carries as much as two processes can hand to one another. What is slow about it is declared, and brought about
at each end by the kernel's own model of a link (netem: every frame takes its length by the rate, and the latency on top).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from iotrial.errors import LabError
from iotrial.lab.guest import qemu
from iotrial.lab.guest.initramfs import Needs
from iotrial.lab.target import Target
from iotrial.study.model import LinkSpec
from iotrial.units import format_bit_rate, format_duration

#: what both cards are called in their guests, and the addresses of both
WIRE, SERVER, CLIENT = "wire", "10.73.0.1", "10.73.0.2"
_PREFIX = 24
#: the port of the server on which the client says when its work begins and ends
MARKS = 7400
#: packets that the model of the link holds: more than TCP ever has under way here
_HELD = 100_000


@dataclass(frozen=True, slots=True)
class Card:
    """A model of a network card: what QEMU calls it, the module that drives it, whether only a whole kernel has that one."""

    device: str
    module: str
    whole_kernel: bool = False


CARDS: Mapping[str, Card] = MappingProxyType(
    {"virtio": Card("virtio-net-pci", "virtio_net"), "e1000e": Card("e1000e", "e1000e", whole_kernel=True)}
)


def needs_of(spec: LinkSpec) -> Needs:
    """What both guests must bring for it."""
    return Needs(
        modules=frozenset({CARDS[spec.card].module, "sch_netem"}),
        packages=frozenset({"iproute2", "ethtool"}),
        programs=frozenset({"ip", "tc", "ethtool"}),
    )


def described(spec: LinkSpec) -> str:
    """The link in words."""
    return (
        f"{format_bit_rate(spec.rate_bits_per_s)} each way, {format_duration(spec.latency_s)} of latency, "
        f"{spec.card} cards"
    )


class Link:
    """Both ends of one network, up after ``open``."""

    def __init__(self, spec: LinkSpec, server: Target, client: Target) -> None:
        self.spec = spec
        self.server = server
        self.client = client

    def open(self) -> None:
        """Raises LabError where a card is not there, or cannot be set up."""
        for end, target, address in self._ends():
            card = _card_with(target, qemu.MAC_ADDRESSES[end])
            _run(
                target,
                ["ip", "-batch", "-"],
                f"link set lo up\nlink set {card} name {WIRE}\n"
                f"address add {address}/{_PREFIX} dev {WIRE}\nlink set {WIRE} up\n",
            )
        self.set_rate(self.spec.rate_bits_per_s)

    def set_rate(self, bits_per_s: float) -> None:
        """From now on, in both directions."""
        for _, target, _ in self._ends():
            _run(
                target,
                [
                    "tc", "qdisc", "replace", "dev", WIRE, "root", "netem", "limit", str(_HELD),
                    "rate", f"{bits_per_s:.0f}bit", "delay", f"{self.spec.latency_s * 1e6:.0f}us",
                ],
            )  # fmt: skip

    def rate(self) -> float:
        """Bits a second, as the server's kernel has it."""
        said = _run(self.server, ["tc", "-raw", "qdisc", "show", "dev", WIRE])
        found = re.search(r"\brate (\d+(?:\.\d+)?)([KMG]?)bit", said)
        if found is None:
            raise LabError(f"{self.server.name}: the link has no rate: {said.strip()}")
        return float(found[1]) * float(1000 ** " KMG".index(found[2] or " "))

    def both(self, argv: list[str]) -> None:
        """Run a program at both ends."""
        for _, target, _ in self._ends():
            _run(target, argv)

    def _ends(self) -> tuple[tuple[int, Target, str], ...]:
        return (0, self.client, CLIENT), (1, self.server, SERVER)


def _card_with(target: Target, address: str) -> str:
    for name in target.call("list", path="/sys/class/net")["names"]:
        if target.read_or_none(f"/sys/class/net/{name}/address") == address:
            return str(name)
    raise LabError(f"{target.name}: no network card has the address {address}")


def _run(target: Target, argv: list[str], text: str = "") -> str:
    done = target.call(
        "run", argv=argv, environment=None, cwd="/", stdin=text, timeout_s=60, output_limit=65536
    )
    if done["exit"] != 0:
        raise LabError(f"{target.name}: {' '.join(argv)}: {str(done['stderr']).strip()[-400:]}")
    return str(done["stdout"])
