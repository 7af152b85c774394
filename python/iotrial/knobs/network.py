"""Knobs of serving files from one guest to another, and of the network between them."""

from __future__ import annotations

from collections.abc import Mapping

from iotrial.knobs.declaration import (
    Consequence,
    Declaration,
    Scope,
    Stage,
    at_risk,
    harmless,
    trade_off,
)


class NasProtocol(Declaration):
    """NFS 3 or 4.2, SMB 3.1.1, iSCSI, or FTP."""

    name = "nas.protocol"
    title = "how the server's files or disk are reached: NFS 3 or 4.2, SMB, iSCSI, FTP"
    stage = Stage.MOUNT
    scope = Scope.FILESYSTEM
    consequence = harmless("a file that was closed is on the disk of the server")
    consequences: Mapping[str, Consequence] = {
        "smb": trade_off(
            "closed but unsynced files may be only in the server's memory, and lost if it loses power"
        ),
        "iscsi": trade_off(
            "closed but unsynced files may be only in the client's memory, and lost if it loses power"
        ),
        "ftp": trade_off(
            "files that were put may be only in the server's memory, and lost if it loses power: FTP has no sync"
        ),
    }


class NasExport(Declaration):
    """sync: the NFS server answers after the write is on the disk; async: before."""

    name = "nas.export"
    title = "whether the NFS server acknowledges a write when it is on disk (sync) or before (async)"
    stage = Stage.MOUNT
    scope = Scope.FILESYSTEM
    consequence = harmless("the server acknowledges writes when the data are on its disk")
    consequences: Mapping[str, Consequence] = {
        "async": at_risk(
            "the server acknowledges writes before the data are on its disk: if it crashes or loses power, data "
            "that clients consider synced are lost or corrupted"
        ),
    }


class NasTransfer(Declaration):
    """The mount options rsize and wsize."""

    name = "nas.transfer"
    title = "maximum size of an NFS or SMB request (rsize and wsize)"
    stage = Stage.MOUNT
    scope = Scope.FILESYSTEM
    open_levels = "default, or 4 KiB to 1 MiB, powers of two"
    consequence = harmless("the size of requests")


class NasThreads(Declaration):
    """Number of nfsd threads."""

    name = "nas.threads"
    title = "threads of the NFS server"
    stage = Stage.MOUNT
    scope = Scope.FILESYSTEM
    open_levels = "1 to 256"
    consequence = harmless("how many requests are served concurrently")


class LinkRate(Declaration):
    """Bits per second in each direction."""

    name = "link.rate"
    title = "rate of the network between the two guests"
    stage = Stage.DEVICE
    scope = Scope.FILESYSTEM
    open_levels = "1 Mbit/s to 100 Gbit/s"
    consequence = harmless("the speed of the network")


class LinkMtu(Declaration):
    """The largest packet."""

    name = "link.mtu"
    title = "maximum packet size of the network (MTU)"
    stage = Stage.DEVICE
    scope = Scope.FILESYSTEM
    open_levels = "576 to 9000"
    consequence = harmless("the size of packets")


class LinkRing(Declaration):
    """Ring buffer size in each direction."""

    name = "link.ring"
    title = "receive and send buffers of each card"
    stage = Stage.DEVICE
    scope = Scope.FILESYSTEM
    open_levels = "48 to 4096, as the card allows"
    consequence = trade_off("longer queues in the network cards delay packets")


class LinkCoalescing(Declaration):
    """Time for which a card delays an interrupt to collect more events."""

    name = "link.coalescing"
    title = "interrupt coalescing time of a network card in microseconds (e1000e: 3 is adaptive)"
    stage = Stage.DEVICE
    scope = Scope.FILESYSTEM
    open_levels = "0 to 10000, as the card allows"
    consequence = trade_off("packets wait for a shared interrupt")


class LinkOffload(Declaration):
    """Work left to the card, or done for many packets at once: checksums, segmentation (TSO, GSO), merging (GRO)."""

    name = "link.offload"
    title = (
        "offloads of the network cards: none, checksums, or full (also segmentation and receive aggregation)"
    )
    stage = Stage.DEVICE
    scope = Scope.FILESYSTEM
    LEVELS: Mapping[str, Mapping[str, str]] = {
        "none": {"rx": "off", "tx": "off", "sg": "off", "tso": "off", "gso": "off", "gro": "off"},
        "checksums": {"rx": "on", "tx": "on", "sg": "on", "tso": "off", "gso": "off", "gro": "off"},
        "full": {"rx": "on", "tx": "on", "sg": "on", "tso": "on", "gso": "on", "gro": "on"},
    }
    consequence = harmless("whether the card or the CPU computes and verifies checksums")
