"""Protocols by which one guest accesses a file system of another: NFS, SMB, FTP, or iSCSI and NVMe/TCP for the whole disk.

The server is started when the file system is mounted and stopped before it is unmounted, so that a cold run finds nothing
cached at either end. The servers are the kernel's own (nfsd, ksmbd, the LIO and NVMe targets) with the daemons that they
require; for FTP, which the kernel does not serve, vsftpd.
"""

from __future__ import annotations

import errno
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

from iotrial.errors import LabError, TargetError
from iotrial.guest.initramfs import Needs
from iotrial.guest.link import CLIENT, SERVER
from iotrial.knobs.block import BACKING
from iotrial.knobs.network import NasExport
from iotrial.lab.target import MountInfo, Target
from iotrial.polling import attempts
from iotrial.study import server
from iotrial.study.server import Server
from iotrial.units import format_size, parse_size

#: how a place is served and mounted unless a knob changes it. ``transfer``: most bytes per request, "default": as negotiated;
#: ``connections``: of the client to the server; ``read_ahead``: of the client's mount, "default": the kernel's;
#: ``attribute_cache``: seconds for which the client trusts what it knows of a file, "default": the kernel's range;
#: ``close_to_open``: whether it asks the server at each open; ``lookup_cache``: which names it remembers
DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "protocol": "nfs4", "export": "sync", "transfer": "default", "threads": "8",
        "connections": "1", "read_ahead": "default", "attribute_cache": "default", "close_to_open": "on",
        "lookup_cache": "all",
    }
)  # fmt: skip
#: passwd entry for rpcbind, which drops its privileges
_USERS = "_rpc:x:101:65534::/run/rpcbind:/bin/false\n"
_NFSD, _PIPES = "/proc/fs/nfsd", "/run/rpc_pipefs"
_PASSWORD = "iotrial"
_TARGET, _INITIATOR = "iqn.2026-11.lab.iotrial:disk", "iqn.2026-11.lab.iotrial:client"
_SUBSYSTEM, _HOST = "nqn.2026-11.lab.iotrial:disk", "nqn.2026-11.lab.iotrial:client"
_SHELL = Needs(
    packages=frozenset({"dash", "coreutils"}), programs=frozenset({"dash", "mkdir", "ln", "rmdir", "rm"})
)
#: vsftpd reads files as root and answers for any path of the guest: nobody but the client can reach it. Its own sandbox
#: (namespaces, a process for each right) would be paid for at every login.
_FTP_SERVER = "/etc/vsftpd.conf"
_FTP_OPTIONS = (
    "listen=YES", "listen_ipv6=NO", "background=NO", "anonymous_enable=YES", "no_anon_password=YES",
    "run_as_launching_user=YES", "ftp_username=root", "anon_root=/", "anon_world_readable_only=NO", "anon_umask=022",
    "write_enable=YES", "anon_upload_enable=YES", "anon_mkdir_write_enable=YES", "anon_other_write_enable=YES",
    "seccomp_sandbox=NO", "isolate=NO", "isolate_network=NO",
)  # fmt: skip
#: a line of /proc/net/tcp: a socket that listens on port 21
_FTP_LISTENS = re.compile(r"^ *\d+: [0-9A-F]{8}:0015 [0-9A-F]{8}:0000 0A ", re.MULTILINE)
#: the kernel's attribute cache, in seconds; /proc/self/mountinfo shows only what differs
_ATTRIBUTE_CACHE = {"acregmin": "3", "acregmax": "60", "acdirmin": "30", "acdirmax": "60"}
#: mount options of NFS by setting and level; the kernel's own choice has none. /proc/self/mountinfo shows them in this form
_NFS_OPTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "close_to_open": {"off": "nocto"},
        "lookup_cache": {"positive": "lookupcache=pos", "none": "lookupcache=none"},
    }
)
_WITHIN_S, _LOOKS_EVERY_S = 5.0, 0.02
#: how long a served disk may take to appear
_APPEARS_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Served:
    """A served file system: a folder of the server, or its whole disk.

    ``filesystem`` is the type on it, ``words`` the mount options, ``wishes`` the settings in the form of DEFAULTS.
    """

    folder: str
    device: str
    filesystem: str
    words: tuple[str, ...] = ()
    wishes: Mapping[str, str] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[str, ...]:
        """Mount options of NFS and SMB for the size of a request; none if both ends are to negotiate it."""
        transfer = self.wishes["transfer"]
        return () if transfer == "default" else tuple(f"{way}size={parse_size(transfer)}" for way in "rw")


class Protocol(ABC):
    """One protocol.

    ``whole_disk``: the server does not mount the file system that it serves. ``by_program``: files move by a program that
    is given their URL; the client's mount is for iotrial's own needs (making files, looking at what arrived). ``url``: with
    a path on the share after it, the URL of that file for such a program.
    """

    name: ClassVar[str]
    needs: ClassVar[Needs]
    whole_disk: ClassVar[bool] = False
    by_program: ClassVar[bool] = False
    url: ClassVar[str] = "file://"
    #: the keys of DEFAULTS that the protocol supports, apart from its name
    settings: ClassVar[frozenset[str]] = frozenset()
    #: file system type of the client's mount; "": that of the served file system
    mounted_as: ClassVar[str] = ""

    @abstractmethod
    def begin(self, machine: Target) -> None:
        """Set up the server, once, before the first ``serve``."""

    @abstractmethod
    def serve(self, machine: Target, what: Served) -> None:
        """Export it to the client. Raises LabError."""

    @abstractmethod
    def withdraw(self, machine: Target, what: Served) -> None:
        """Stop exporting it and release it."""

    @abstractmethod
    def reach(self, client: Target, what: Served) -> None:
        """Mount it on the client, at the same path. Raises LabError."""

    def leave(self, client: Target, what: Served) -> None:
        """Unmount it on the client."""
        client.unmount(what.folder)

    def found(self, about: str, machine: Target, client: Target, what: Served) -> str:
        """Return a setting as both kernels report it; the requested value for a setting that this protocol lacks."""
        if about != "protocol":
            return what.wishes[about]
        info = client.mount_at(what.folder)
        kind = "nothing" if info is None else info.type
        return self.name if kind == (self.mounted_as or what.filesystem) else kind


class Nfs(Protocol):
    """The kernel's NFS server and client."""

    version: ClassVar[str]
    settings = frozenset(DEFAULTS.keys() - {"protocol"})
    needs = _SHELL | Needs(
        modules=frozenset({"nfsd", "nfsv3", "nfsv4"}),
        packages=frozenset({"nfs-kernel-server", "rpcbind", "libtirpc-common", "netbase"}),
        programs=frozenset({"rpcbind", "rpc.mountd", "rpc.nfsd", "nfsdcld", "exportfs"}),
        files=frozenset({"/etc/netconfig", "/etc/services", "/etc/protocols"}),
    )

    def begin(self, machine: Target) -> None:
        if machine.exists(f"{_NFSD}/threads"):
            return
        machine.mount("nfsd", _NFSD, "nfsd", [])
        script(
            machine,
            f"mkdir -p /var/lib/nfs/v4recovery /var/lib/nfs/nfsdcld {_PIPES} /run/rpcbind\n"
            ": >/var/lib/nfs/etab; : >/var/lib/nfs/rmtab; : >/etc/exports\n"
            f"printf '%s' '{_USERS}' >>/etc/passwd",
        )
        server.start(machine, Server("rpcbind", ("rpcbind", "-f", "-w"), {"tcp": 111}), None)
        server.start(
            machine, Server("mountd", ("rpc.mountd", "-F", "-p", "20048", "--no-udp"), {"tcp": 20048}), None
        )
        # nfsdcld tracks the clients; without it, nfsd waits a second for it at every start
        machine.mount("rpc_pipefs", _PIPES, "rpc_pipefs", [])
        server.start(
            machine,
            Server("nfsdcld", ("nfsdcld", "-F", "-p", _PIPES), {"file": "/var/lib/nfs/nfsdcld/main.sqlite"}),
            None,
        )

    def serve(self, machine: Target, what: Served) -> None:
        options = f"rw,{what.wishes['export']},no_root_squash,no_subtree_check,fsid=1,insecure"
        script(machine, f"exportfs -o {options} {CLIENT}:{what.folder} && rpc.nfsd {what.wishes['threads']}")

    def withdraw(self, machine: Target, what: Served) -> None:
        # with no threads, the server keeps no client state and no open files
        script(machine, f"echo 0 >{_NFSD}/threads; exportfs -ua; exportfs -f")

    def reach(self, client: Target, what: Served) -> None:
        options = [
            "rw",
            f"vers={self.version}",
            f"addr={SERVER}",
            "sec=sys",
            "proto=tcp",
            f"nconnect={what.wishes['connections']}",
            *what.sizes,
            *self.options(),
        ]
        if what.wishes["attribute_cache"] != DEFAULTS["attribute_cache"]:
            options.append(f"actimeo={what.wishes['attribute_cache']}")
        options += [
            level[what.wishes[about]] for about, level in _NFS_OPTIONS.items() if what.wishes[about] in level
        ]
        client.mount(
            f"{SERVER}:{what.folder}", what.folder, "nfs" if self.version == "3" else "nfs4", options
        )
        if what.wishes["read_ahead"] != DEFAULTS["read_ahead"]:
            kibibytes = parse_size(what.wishes["read_ahead"]) >> 10
            client.write(_read_ahead_file(_mount_of(client, what)), str(kibibytes))

    def found(self, about: str, machine: Target, client: Target, what: Served) -> str:
        if about == "threads":
            return machine.read(f"{_NFSD}/threads")
        if about == "export":
            lines = machine.read(f"{_NFSD}/exports").splitlines()
            words = {
                word for line in lines if line.startswith(what.folder) for word in re.split(r"[(),]", line)
            }
            return " and ".join(sorted(words & set(NasExport.LEVELS))) or "nothing"
        if about in _FROM_MOUNT:
            return _FROM_MOUNT[about](_mount_of(client, what))
        if about in _NFS_OPTIONS:
            shown = _mount_of(client, what).options
            return next(
                (level for level, option in _NFS_OPTIONS[about].items() if option in shown), DEFAULTS[about]
            )
        if about == "read_ahead" and what.wishes[about] != DEFAULTS[about]:
            return format_size(int(client.read(_read_ahead_file(_mount_of(client, what)))) << 10)
        return super().found(about, machine, client, what)

    def options(self) -> tuple[str, ...]:
        """Mount options specific to this version."""
        return (f"clientaddr={CLIENT}",)


def _mount_of(client: Target, what: Served) -> MountInfo:
    found = client.mount_at(what.folder)
    if found is None:
        raise LabError(f"{what.folder} is not mounted on {client.name}")
    return found


def _attribute_cache(mount: MountInfo) -> str:
    shown = dict(one.split("=", 1) for one in mount.options if one.partition("=")[0] in _ATTRIBUTE_CACHE)
    found = _ATTRIBUTE_CACHE | shown
    one = set(found.values())
    if len(one) == 1:
        return one.pop()
    return "default" if not shown else ", ".join(f"{key}={value}" for key, value in found.items())


#: how /proc/self/mountinfo shows a setting of the mount
_FROM_MOUNT: Mapping[str, Callable[[MountInfo], str]] = {
    "connections": lambda mount: next(
        (one.partition("=")[2] for one in mount.options if one.startswith("nconnect=")), "1"
    ),
    "attribute_cache": _attribute_cache,
}


def _read_ahead_file(mount: MountInfo) -> str:
    """Return the file with the read-ahead of an NFS mount; the kernel names its folder by the number of the mount."""
    return f"{BACKING}{mount.number}/read_ahead_kb"


class Nfs3(Nfs):
    """NFS version 3 over TCP, without locks."""

    name = "nfs3"
    version = "3"
    mounted_as = "nfs"

    def options(self) -> tuple[str, ...]:
        return "port=2049", "mountport=20048", "mountproto=tcp", "mountvers=3", "nolock"


class Nfs4(Nfs):
    """NFS version 4.2."""

    name = "nfs4"
    version = "4.2"
    mounted_as = "nfs4"


class Ftp(Nfs4):
    """vsftpd, without TLS; and an NFS mount for what iotrial itself does on the client, which caches no names."""

    name = "ftp"
    by_program = True
    url = f"ftp://{SERVER}"
    settings = frozenset()
    needs = Nfs4.needs | Needs(packages=frozenset({"vsftpd"}), programs=frozenset({"vsftpd"}))

    def begin(self, machine: Target) -> None:
        super().begin(machine)
        script(machine, f"printf '%s\\n' {' '.join(_FTP_OPTIONS)} >{_FTP_SERVER}")

    def serve(self, machine: Target, what: Served) -> None:
        super().serve(machine, what)
        server.start(machine, Server("vsftpd", ("vsftpd", _FTP_SERVER), {"tcp": 21}), None)

    def withdraw(self, machine: Target, what: Served) -> None:
        super().withdraw(machine, what)
        server.stop(machine, Server("vsftpd", (), {}))

    def found(self, about: str, machine: Target, client: Target, what: Served) -> str:
        if about == "protocol" and not _FTP_LISTENS.search(machine.read("/proc/net/tcp")):
            return "nothing"
        return super().found(about, machine, client, what)

    def options(self) -> tuple[str, ...]:
        # files come and go behind the back of this mount
        return (*super().options(), "actimeo=0", "lookupcache=none")


class Smb(Protocol):
    """ksmbd and the kernel's client, SMB 3.1.1, neither signed nor encrypted."""

    name = "smb"
    mounted_as = "cifs"
    settings = frozenset({"transfer"})
    needs = _SHELL | Needs(
        modules=frozenset({"ksmbd", "cifs", "cmac", "gcm", "ccm", "crc32_generic"}),
        packages=frozenset({"ksmbd-tools"}),
        programs=frozenset({"ksmbd.mountd", "ksmbd.adduser", "ksmbd.control"}),
    )

    def begin(self, machine: Target) -> None:
        """Do nothing: the server is restarted for each mount."""

    def serve(self, machine: Target, what: Served) -> None:
        script(
            machine,
            "mkdir -p /etc/ksmbd /run/lock\n"
            "printf '[global]\\nserver min protocol = SMB3_11\\nserver signing = disabled\\nsmb3 encryption = no\\n"
            f"[lab]\\npath = {what.folder}\\nread only = no\\nforce user = root\\nforce group = root\\noplocks = yes\\n' "
            ">/etc/ksmbd/ksmbd.conf\n"
            f": >/etc/ksmbd/ksmbdpwd.db; ksmbd.adduser -a root -p {_PASSWORD}",
        )
        server.start(machine, Server("ksmbd", ("ksmbd.mountd", "-n"), {"tcp": 445}), None)

    def withdraw(self, machine: Target, what: Served) -> None:
        script(machine, "ksmbd.control -s")
        server.stop(machine, Server("ksmbd", (), {}))

    def reach(self, client: Target, what: Served) -> None:
        words = [
            f"ip={SERVER}",
            "username=root",
            f"password={_PASSWORD}",
            "vers=3.1.1",
            "noperm",
            *what.sizes,
        ]
        # ksmbd has a socket for each network card: one may answer before the others do
        as_soon_as_it_can(
            lambda: client.mount(f"//{SERVER}/lab", what.folder, "cifs", words), errno.ECONNREFUSED
        )


class WholeDisk(Protocol):
    """A protocol that serves the server's disk; the client mounts the file system on it."""

    whole_disk = True
    #: what the names of the client's disks begin with
    disks: ClassVar[str]

    def begin(self, machine: Target) -> None:
        if not machine.exists("/sys/kernel/config/target") and not machine.exists("/sys/kernel/config/nvmet"):
            machine.mount("configfs", "/sys/kernel/config", "configfs", [])

    def reach(self, client: Target, what: Served) -> None:
        self.connect(client)
        try:
            disk = self._disk(client)
            # the device node can appear before the disk is usable
            as_soon_as_it_can(
                lambda: client.mount(f"/dev/{disk}", what.folder, what.filesystem, list(what.words)),
                errno.ENXIO,
            )
        except Exception:
            with suppress(LabError, TargetError):
                self.disconnect(client)
            raise

    def leave(self, client: Target, what: Served) -> None:
        client.unmount(what.folder)
        self.disconnect(client)

    @abstractmethod
    def connect(self, client: Target) -> None:
        """Make the disk appear on the client. Raises LabError."""

    @abstractmethod
    def disconnect(self, client: Target) -> None:
        """Make it disappear. Raises LabError."""

    def found(self, about: str, machine: Target, client: Target, what: Served) -> str:
        """As for every protocol; a file system on a disk of another protocol is not this one's."""
        found = super().found(about, machine, client, what)
        info = client.mount_at(what.folder) if found == self.name else None
        return found if info is None or info.source.startswith(f"/dev/{self.disks}") else info.source

    def _disk(self, client: Target) -> str:
        """Return the client's only disk of this kind, once the kernel has probed it."""
        for _ in attempts(_APPEARS_WITHIN_S, _LOOKS_EVERY_S):
            names = client.call("list", path="/sys/block")["names"]
            disks = [name for name in names if name.startswith(self.disks) and client.exists(f"/dev/{name}")]
            if disks:
                return str(disks[0])
        raise LabError(f"{client.name}: the disk that is served by {self.name} did not appear")


class Iscsi(WholeDisk):
    """The kernel's iSCSI target over the server's disk, and the open-iscsi initiator."""

    name = "iscsi"
    disks = "sd"
    needs = _SHELL | Needs(
        modules=frozenset(
            {"target_core_mod", "target_core_iblock", "iscsi_target_mod", "iscsi_tcp", "sd_mod"}
        ),
        packages=frozenset({"open-iscsi"}),
        programs=frozenset({"iscsid", "iscsiadm"}),
    )
    _CORE = "/sys/kernel/config/target/core/iblock_0/disk"
    _PORTAL = f"/sys/kernel/config/target/iscsi/{_TARGET}"

    def serve(self, machine: Target, what: Served) -> None:
        group = f"{self._PORTAL}/tpgt_1"
        script(
            machine,
            f"mkdir -p {self._CORE} && echo udev_path=/dev/{what.device} >{self._CORE}/control && "
            f"echo 1 >{self._CORE}/enable && "
            f"mkdir -p {group}/np/{SERVER}:3260 {group}/lun/lun_0 {group}/acls/{_INITIATOR}/lun_0 && "
            f"ln -s {self._CORE} {group}/lun/lun_0/disk && ln -s {group}/lun/lun_0 {group}/acls/{_INITIATOR}/lun_0/disk && "
            f"echo 0 >{group}/attrib/authentication && echo 1 >{group}/enable",
        )

    def withdraw(self, machine: Target, what: Served) -> None:
        group = f"{self._PORTAL}/tpgt_1"
        script(
            machine,
            f"echo 0 >{group}/enable && rm {group}/acls/{_INITIATOR}/lun_0/disk && rmdir {group}/acls/{_INITIATOR}/lun_0 "
            f"{group}/acls/{_INITIATOR} && rm {group}/lun/lun_0/disk && rmdir {group}/lun/lun_0 {group}/np/{SERVER}:3260 "
            f"{group} {self._PORTAL} {self._CORE}",
        )

    def connect(self, client: Target) -> None:
        if not client.exists("/etc/iscsi/iscsid.conf"):
            script(
                client,
                "mkdir -p /etc/iscsi /run/lock/iscsi\n"
                f"echo InitiatorName={_INITIATOR} >/etc/iscsi/initiatorname.iscsi\n"
                "printf 'node.startup = manual\\nnode.session.auth.authmethod = None\\n' >/etc/iscsi/iscsid.conf",
            )
            server.start(
                client,
                # iscsid does not report when it is ready; its clients wait for it
                Server(
                    "iscsid",
                    ("dash", "-c", "iscsid -f & echo started >/run/iscsid.started; wait"),
                    {"file": "/run/iscsid.started", "contains": "started"},
                ),
                None,
            )
            self._admin(client, "-o new")
        self._admin(client, "--login")

    def disconnect(self, client: Target) -> None:
        self._admin(client, "--logout")

    def _admin(self, client: Target, action: str) -> None:
        script(client, f"iscsiadm -m node -T {_TARGET} -p {SERVER}:3260 {action}")


class NvmeTcp(WholeDisk):
    """The kernel's NVMe target over the server's disk, and its initiator, over TCP without TLS; no program is needed."""

    name = "nvme-tcp"
    disks = "nvme"
    needs = _SHELL | Needs(modules=frozenset({"nvmet", "nvmet_tcp", "nvme_tcp"}))
    _NVMET = "/sys/kernel/config/nvmet"
    _ALLOWED = f"{_NVMET}/hosts/{_HOST}"
    _SERVED = f"{_NVMET}/subsystems/{_SUBSYSTEM}"
    _DISK = f"{_SERVED}/namespaces/1"
    _PORT = f"{_NVMET}/ports/1"
    #: of the client; any will do
    _HOST_ID = "9f1c35e0-8d0b-4c52-a5a9-0f6a0d5b7c11"

    def serve(self, machine: Target, what: Served) -> None:
        script(
            machine,
            f"mkdir -p {self._DISK} {self._ALLOWED} {self._PORT} && ln -s {self._ALLOWED} {self._SERVED}/allowed_hosts/ && "
            f"echo /dev/{what.device} >{self._DISK}/device_path && echo 1 >{self._DISK}/enable && "
            f"echo ipv4 >{self._PORT}/addr_adrfam && echo tcp >{self._PORT}/addr_trtype && "
            f"echo {SERVER} >{self._PORT}/addr_traddr && echo 4420 >{self._PORT}/addr_trsvcid && "
            f"ln -s {self._SERVED} {self._PORT}/subsystems/",
        )

    def withdraw(self, machine: Target, what: Served) -> None:
        script(
            machine,
            f"rm {self._PORT}/subsystems/{_SUBSYSTEM} && echo 0 >{self._DISK}/enable && rmdir {self._DISK} && "
            f"rm {self._SERVED}/allowed_hosts/{_HOST} && rmdir {self._SERVED} {self._PORT} {self._ALLOWED}",
        )

    def connect(self, client: Target) -> None:
        words = f"transport=tcp,traddr={SERVER},trsvcid=4420,nqn={_SUBSYSTEM},hostnqn={_HOST},hostid={self._HOST_ID}"
        script(client, f"echo {words} >/dev/nvme-fabrics")

    def disconnect(self, client: Target) -> None:
        script(client, "for each in /sys/class/nvme/*/delete_controller; do echo 1 >$each; done")


PROTOCOLS: Mapping[str, Protocol] = MappingProxyType(
    {one.name: one for one in (Nfs3(), Nfs4(), Smb(), Iscsi(), NvmeTcp(), Ftp())}
)


def as_soon_as_it_can(act: Callable[[], None], number: int) -> None:
    """Retry an action while it fails with this errno, for up to ``_WITHIN_S`` seconds. Raises TargetError."""
    for _ in attempts(_WITHIN_S, _LOOKS_EVERY_S):
        try:
            return act()
        except TargetError as error:
            if error.errno != number:
                raise
            failed = error
    raise failed


def script(machine: Target, text: str) -> str:
    """Run a shell script. Raises LabError with its output if its last command fails."""
    done = machine.run(["dash", "-c", text], timeout_s=60)
    if done.exit_status != 0:
        output = (done.stderr or done.stdout).strip()[-400:]
        raise LabError(
            f"{machine.name}: {text.splitlines()[-1][:200]}: {output or 'it failed without any output'}"
        )
    return done.stdout
