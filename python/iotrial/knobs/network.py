"""Knobs of serving files from one guest to another, and of the network between them: rate, MTU, the cards."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from iotrial.errors import KnobError, LabError, RequestError, UnsupportedLevel
from iotrial.knobs.declaration import HARMLESS, Consequence, Scope, Stage, at_risk, trade_off
from iotrial.knobs.knob import Knob, Requirement, RunContext, size_within, whole_number
from iotrial.study.model import Setting
from iotrial.study.places import GUESTS
from iotrial.study.work import HasPrograms, Work
from iotrial.units import UnitError, format_bit_rate, format_size, parse_bit_rate

if TYPE_CHECKING:
    from iotrial.guest.link import Link
    from iotrial.guest.share import Share

#: the name of both guests' cards
WIRE = "wire"
#: placeholder in a command: with a path on the share after it, the URL of that file
SHARE = "{share}"
_LEAST_RATE, _MOST_RATE = 1e6, 100e9


class LinkKnob(Knob):
    """A setting of both cards, or of the link between them. It vanishes with the guests, so nothing is restored."""

    stage = Stage.DEVICE
    scope = Scope.FILESYSTEM
    requirement = Requirement(root=True, labs=GUESTS)
    plain: ClassVar[str | None] = None

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str | None:
        return levels[0] if self.plain is None else self.plain

    def where(self, context: RunContext, setting: Setting) -> str:
        return "the network cards of both guests"

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        link = _link(self.name, context)
        try:
            self.turn(link, value)
        except LabError as error:
            found = self.read(context, setting)
            if found != value:
                raise KnobError(
                    self.name, self.where(context, setting), wrote=value, found=found, hint=error.message
                ) from error

    def turn(self, link: Link, value: str) -> None:
        """Set the value at both ends. Raises LabError."""
        raise NotImplementedError


class LinkRate(LinkKnob):
    """Bits per second in each direction."""

    name = "link.rate"
    title = "rate of the network between the two guests"
    open_levels = "1 Mbit/s to 100 Gbit/s"
    consequence = HARMLESS

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

    def read(self, context: RunContext, setting: Setting) -> str:
        return format_bit_rate(_link(self.name, context).rate())

    def turn(self, link: Link, value: str) -> None:
        link.set_rate(parse_bit_rate(value))


class LinkMtu(LinkKnob):
    """The largest packet."""

    name = "link.mtu"
    title = "maximum packet size of the network (MTU)"
    open_levels = "576 to 9000"
    consequence = HARMLESS
    plain = "1500"

    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, 576, 9000)

    def read(self, context: RunContext, setting: Setting) -> str:
        return _link(self.name, context).server.read(f"/sys/class/net/{WIRE}/mtu")

    def turn(self, link: Link, value: str) -> None:
        link.both(["ip", "link", "set", WIRE, "mtu", value])


class LinkRing(LinkKnob):
    """Ring buffer size in each direction."""

    name = "link.ring"
    title = "receive and send buffers of each card"
    open_levels = "48 to 4096, as the card allows"
    consequence = trade_off("longer queues in the network cards delay packets")
    plain = "256"

    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, 48, 4096)

    def read(self, context: RunContext, setting: Setting) -> str:
        output = _ethtool(_link(self.name, context), "-g").partition("Current hardware settings")[2]
        found = dict(re.findall(r"^(RX|TX):\s+(\d+)$", output, re.MULTILINE))
        return " and ".join(sorted({found.get("RX", "none"), found.get("TX", "none")}))

    def turn(self, link: Link, value: str) -> None:
        link.both(["ethtool", "-G", WIRE, "rx", value, "tx", value])


class LinkCoalescing(LinkKnob):
    """Time for which a card delays an interrupt to collect more events."""

    name = "link.coalescing"
    title = "interrupt coalescing time of a network card in microseconds (e1000e: 3 is adaptive)"
    open_levels = "0 to 10000, as the card allows"
    consequence = trade_off("packets wait for a shared interrupt")
    plain = "3"

    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, 0, 10000)

    def read(self, context: RunContext, setting: Setting) -> str:
        found = re.search(r"^rx-usecs:\s+(\d+)$", _ethtool(_link(self.name, context), "-c"), re.MULTILINE)
        return "none" if found is None else found[1]

    def turn(self, link: Link, value: str) -> None:
        link.both(["ethtool", "-C", WIRE, "rx-usecs", value])


class LinkOffload(LinkKnob):
    """Work left to the card, or done for many packets at once: checksums, segmentation (TSO, GSO), merging (GRO)."""

    name = "link.offload"
    title = (
        "offloads of the network cards: none, checksums, or full (also segmentation and receive aggregation)"
    )
    LEVELS: Mapping[str, Mapping[str, str]] = {
        "none": {"rx": "off", "tx": "off", "sg": "off", "tso": "off", "gso": "off", "gro": "off"},
        "checksums": {"rx": "on", "tx": "on", "sg": "on", "tso": "off", "gso": "off", "gro": "off"},
        "full": {"rx": "on", "tx": "on", "sg": "on", "tso": "on", "gso": "on", "gro": "on"},
    }
    consequence = HARMLESS
    _SHOWN: ClassVar[Mapping[str, str]] = {
        "tx": "tx-checksumming",
        "tso": "tcp-segmentation-offload",
        "gro": "generic-receive-offload",
    }
    plain = "full"

    def read(self, context: RunContext, setting: Setting) -> str:
        output = _ethtool(_link(self.name, context), "-k")
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


def _link(knob: str, context: RunContext) -> Link:
    return share_of(knob, context).link


def _ethtool(link: Link, what: str) -> str:
    """Return ethtool's output, which must be the same for both cards. Raises LabError if they differ."""
    output = [target.run(["ethtool", what, WIRE]).stdout for target in (link.server, link.client)]
    if output[0] != output[1]:
        raise LabError(
            f"ethtool {what}: the network cards of the two guests differ: {output[0]!r}, {output[1]!r}"
        )
    return output[0]


class ShareKnob(Knob):
    """A setting of the server: requested for the next mount, and read back from it."""

    stage = Stage.MOUNT
    scope = Scope.FILESYSTEM
    requirement = Requirement(root=True, labs=GUESTS)
    about: str

    def read(self, context: RunContext, setting: Setting) -> str:
        return share_of(self.name, context).found(self.about)

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        share_of(self.name, context).want(self.about, value)


_IN_THE_CLIENT = trade_off(
    "closed but unsynced files may be only in the client's memory, and lost if it loses power"
)


class NasProtocol(ShareKnob):
    """NFS 3 or 4.2, SMB 3.1.1, iSCSI, NVMe/TCP, or FTP."""

    name = "nas.protocol"
    title = "how the server's files or disk are reached: NFS 3 or 4.2, SMB, iSCSI, NVMe/TCP, FTP"
    consequence = HARMLESS
    consequences: Mapping[str, Consequence] = {
        "smb": trade_off(
            "closed but unsynced files may be only in the server's memory, and lost if it loses power"
        ),
        "iscsi": _IN_THE_CLIENT,
        "nvme-tcp": _IN_THE_CLIENT,
        "ftp": trade_off(
            "files that were put may be only in the server's memory, and lost if it loses power: FTP has no sync"
        ),
    }
    about = "protocol"
    LEVELS = ("nfs3", "nfs4", "smb", "iscsi", "nvme-tcp", "ftp")

    def suits(self, setting: Setting, work: Work, bytes_each: int) -> None:
        """Refuse work that would be done on the mount although the protocol has none."""
        from iotrial.guest.protocols import PROTOCOLS

        protocol = PROTOCOLS[self.parse(setting)]
        texts = work.texts() if isinstance(work, HasPrograms) else ()
        if protocol.by_program and not any(SHARE in text for text in texts):
            raise UnsupportedLevel(
                f"knob {self.name}: {protocol.name} has no mount, and this workload of kind {work.kind} names no URL",
                hint=f'use a command that gets "{SHARE}{{file}}" or puts "{SHARE}{{out}}/x", as nas/ftp',
            )


class NasExport(ShareKnob):
    """sync: the NFS server answers after the write is on the disk; async: before."""

    name = "nas.export"
    title = "whether the NFS server acknowledges a write when it is on disk (sync) or before (async)"
    consequence = HARMLESS
    consequences: Mapping[str, Consequence] = {
        "async": at_risk(
            "the server acknowledges writes before the data are on its disk: if it crashes or loses power, data "
            "that clients consider synced are lost or corrupted"
        ),
    }
    about = "export"
    LEVELS = ("sync", "async")


class ShareSize(ShareKnob):
    """A size, or ``default``: what both ends negotiate, or the kernel chooses."""

    consequence = HARMLESS

    @abstractmethod
    def within(self, text: str) -> int:
        """Return the bytes. Raises UnsupportedLevel."""

    def parse(self, setting: Setting) -> str:
        return "default" if setting.value == "default" else format_size(self.within(setting.value))


class ShareCount(ShareKnob):
    """A whole number from 1 to ``most``."""

    consequence = HARMLESS
    most: int

    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, 1, self.most)


class NasTransfer(ShareSize):
    """The mount options rsize and wsize."""

    name = "nas.transfer"
    title = "maximum size of an NFS or SMB request (rsize and wsize)"
    open_levels = "default, or 4 KiB to 1 MiB, powers of two"
    about = "transfer"

    def within(self, text: str) -> int:
        return size_within(self.name, text, 4 << 10, 1 << 20, self.open_levels, power=True)

    def read(self, context: RunContext, setting: Setting) -> str:
        """Return the size that the client's kernel shows, if one was requested."""
        found = super().read(context, setting)
        info = context.worker.mount_at(context.place.root)
        if found == "default" or info is None:
            return found
        shown = {word.partition("=")[2] for word in info.options if word.startswith(("rsize=", "wsize="))}
        return format_size(int(shown.pop())) if len(shown) == 1 else " and ".join(sorted(shown)) or found


class NasThreads(ShareCount):
    """Number of nfsd threads."""

    name = "nas.threads"
    title = "threads of the NFS server"
    open_levels = "1 to 256"
    about = "threads"
    most = 256


class NasConnections(ShareCount):
    """The mount option nconnect."""

    name = "nas.connections"
    title = "TCP connections of the client to the NFS server (nconnect)"
    open_levels = "1 to 16"
    about = "connections"
    most = 16


class NasReadAhead(ShareSize):
    """read_ahead_kb of the client's mount (/sys/class/bdi)."""

    name = "nas.read_ahead"
    title = "read-ahead of the client's NFS mount"
    open_levels = "default, or 4 KiB to 64 MiB, whole pages"
    about = "read_ahead"

    def within(self, text: str) -> int:
        return size_within(self.name, text, 4 << 10, 64 << 20, self.open_levels, multiple_of=4 << 10)


class NasAttributeCache(ShareKnob):
    """The mount option actimeo."""

    name = "nas.attribute_cache"
    title = "seconds for which the NFS client trusts the attributes of files and folders (actimeo)"
    open_levels = "default (files 3 to 60, folders 30 to 60), or 0 to 3600"
    consequence = trade_off("what other clients change is seen later, by up to that time")
    consequences: Mapping[str, Consequence] = {"default": HARMLESS, "0": HARMLESS}
    about = "attribute_cache"

    def parse(self, setting: Setting) -> str:
        value = setting.value
        return value if value == "default" else whole_number(f"knob {self.name}", value, 0, 3600)


class NasCloseToOpen(ShareKnob):
    """The mount options cto and nocto."""

    name = "nas.close_to_open"
    title = "whether the NFS client asks the server for changes at each open (cto, nocto)"
    consequence = HARMLESS
    consequences: Mapping[str, Consequence] = {
        "off": trade_off("an opened file may be older than what another client has written and closed"),
    }
    about = "close_to_open"
    LEVELS = ("on", "off")


class NasLookupCache(ShareKnob):
    """The mount option lookupcache."""

    name = "nas.lookup_cache"
    title = "which names the NFS client remembers (lookupcache): all, also of files that do not exist; positive; none"
    consequence = HARMLESS
    about = "lookup_cache"
    LEVELS = ("all", "positive", "none")


def share_of(knob: str, context: RunContext) -> Share:
    """Return the share that a knob acts on. Raises RequestError if the lab serves no files."""
    from iotrial.lab.disk import DiskPlace

    place = context.place
    if isinstance(place, DiskPlace) and place.share is not None:
        return place.share
    raise RequestError(
        f"knob {knob}: in this lab no files are served over a network",
        hint="add a table [lab.link] to the study",
    )
