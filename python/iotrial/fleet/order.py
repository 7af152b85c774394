"""The order for a host, and the record of a fleet.

An order holds a study and the options of an ordinary ``iotrial run``. The record is written before the first
host starts, so that a killed coordinator can resume. An order holds no command line: its options are checked
against a list, so nothing else can be passed to a host.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self, TypeVar

import msgspec
from msgspec import Meta

from iotrial.decoding import decode
from iotrial.durable import DamageError, read_own, replacing
from iotrial.errors import IotrialError, RequestError, StoreError, UnknownName
from iotrial.paths import state_folder
from iotrial.terminal import escape

#: options of ``iotrial run`` with a value, and flags
VALUES = (
    "set", "condition", "lab", "disk", "size", "on", "place", "time", "blocks", "margin", "alpha", "sample",
)  # fmt: skip
FLAGS = ("full", "no-controls", "no-account", "no-check", "no-stop", "precise", "foreign", "trust")
#: never a device: use of a machine's disk is confirmed on that machine
LABS = ("directory", "image", "guest")

MAX_ORDER = 2 << 20
MAX_STUDY = 1 << 20
MAX_WORD = 4096
MAX_NAME = 63
LONGEST_GRACE_S = 86_400
GRACE_S = 120.0

HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
FLEET_ID = re.compile(r"[0-9a-f]{32}")

HostName = Annotated[str, Meta(pattern=rf"^{HOST_NAME.pattern}\Z")]
FleetId = Annotated[str, Meta(pattern=rf"^{FLEET_ID.pattern}\Z")]
_Seed = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
_Shipped = Annotated[str, Meta(pattern=r"^([a-z0-9-]{1,40}/[a-z0-9-]{1,60})?\Z")]
_Words = Annotated[tuple[Annotated[str, Meta(max_length=MAX_WORD)], ...], Meta(max_length=256)]

T = TypeVar("T")


class Distrusted(IotrialError):
    """A host sent something invalid. Nothing of it was kept."""

    code = "bad_host"


def read(kind: type[T], text: object, *, longest: int, what: str) -> T:
    """Decode JSON text from another machine.

    Raises Distrusted if it is not of this type, or is longer than ``longest`` characters.
    """
    if not isinstance(text, str):
        raise Distrusted(f"{what}: expected text, found {type(text).__name__}")
    if len(text) > longest:
        raise Distrusted(f"{what}: {len(text):,} characters, the maximum is {longest:,}")
    try:
        return decode(text.encode(), kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Distrusted(f"{what}: {escape(str(error)[:200])}") from error


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trial for one host. ``study`` names one of the catalogue, or is empty: then ``text`` is a whole study file.

    ``fleet`` is the fleet's id, ``seed`` that of this host, both 32 hexadecimal digits. A host stops its
    trial by itself after ``grace_s`` seconds without a request.
    """

    fleet: FleetId
    host: HostName
    seed: _Seed
    study: _Shipped
    text: Annotated[str, Meta(max_length=MAX_STUDY)] = ""
    options: dict[str, _Words] = msgspec.field(default_factory=dict)
    flags: _Words = ()
    grace_s: Annotated[float, Meta(ge=1, le=LONGEST_GRACE_S)] = GRACE_S

    def words(self, study_file: Path, report: Path) -> tuple[str, ...]:
        """Return the arguments of ``iotrial``; ``study_file`` holds ``text`` if the study is not in the catalogue."""
        named = [f"--{name}={value}" for name, values in self.options.items() for value in values]
        return (
            "run", self.study or str(study_file), *named, *(f"--{flag}" for flag in self.flags),
            f"--seed={self.seed}", f"--html={report}", "--json",
        )  # fmt: skip

    def to_json(self) -> str:
        """Serialise for the wire and for a file; the same order gives the same text."""
        return json.dumps(msgspec.to_builtins(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: object) -> Self:
        """Parse an order. Raises Distrusted if it is invalid."""
        order = read(cls, text, longest=MAX_ORDER, what="an order")
        order.check()
        return order

    def check(self) -> None:
        """Raise Distrusted if it uses something that no order may."""
        if bool(self.study) == bool(self.text):
            raise Distrusted("an order: expected either a study of the catalogue or the text of one")
        for name in (*self.options, *self.flags):
            if name not in (*VALUES, *FLAGS):
                raise Distrusted(f"an order: no option --{escape(name[:40])} can be set for a host")
        if any(lab not in LABS for lab in self.options.get("lab", ())):
            raise Distrusted(f"an order: a lab on a host is one of {', '.join(LABS)}")


def seed_of(fleet_seed: str, host: str) -> str:
    """Return the seed of one host.

    The first 32 hexadecimal digits of the SHA-256 of ``iotrial fleet``, the fleet's seed and the host's name,
    each on its own line. It is reproducible, and independent of other hosts' seeds.
    """
    return hashlib.sha256(f"iotrial fleet\n{fleet_seed}\n{host}\n".encode()).hexdigest()[:32]


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    """A record as stored in its file."""

    order: str
    name: Annotated[str, Meta(max_length=200)]
    seed_chosen: bool
    reached: dict[str, str]


@dataclass(frozen=True, slots=True)
class Record:
    """A fleet's study and how to run it.

    ``order`` is that of a host without a name, with the fleet's seed; ``name`` is the study's; ``reached``
    says how to reach the hosts (``fleet.hosts``).
    """

    order: Order
    name: str
    seed_chosen: bool = False
    reached: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.order.fleet

    def order_for(self, host: str) -> Order:
        """Return the order of one host, with its own seed."""
        return msgspec.structs.replace(self.order, host=host, seed=seed_of(self.order.seed, host))

    def write(self, folder: Path | None = None) -> Path:
        """Write the record durably. Raises StoreError."""
        path = (folder or records_folder()) / f"{self.id}.json"
        value = _Written(self.order.to_json(), self.name, self.seed_chosen, dict(self.reached))
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(path, path.with_suffix(".part")) as file:
                file.write(msgspec.json.encode(value))
        except OSError as error:
            raise StoreError(f"writing {path}: {error.strerror}") from error
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a record. Raises StoreError if it is not valid."""
        try:
            found = read(_Written, read_own(path).decode(), longest=3 * MAX_ORDER, what=str(path))
            return cls(Order.from_json(found.order), found.name, found.seed_chosen, found.reached)
        except (OSError, UnicodeDecodeError, Distrusted, DamageError) as error:
            raise StoreError(f"the record of a fleet cannot be read: {error}") from error


def records_folder() -> Path:
    """Return the folder of fleet records."""
    return state_folder() / "fleets"


def find_record(ref: str) -> Record:
    """Return the fleet with this id or unique prefix, or the ``last`` one.

    Raises UnknownName if there is none, and RequestError if the prefix is ambiguous.
    """
    folder = records_folder()
    found = sorted(
        (path for path in (folder.iterdir() if folder.is_dir() else ()) if FLEET_ID.fullmatch(path.stem)
         and path.suffix == ".json"),
        key=lambda path: path.lstat().st_mtime_ns,
    )  # fmt: skip
    if ref == "last" and found:
        return Record.read(found[-1])
    meant = [path for path in found if ref and path.stem.startswith(ref)]
    if not meant:
        raise UnknownName("fleet", ref, [path.stem for path in found[-8:]], where=str(folder))
    if len(meant) > 1:
        raise RequestError(f'several fleets begin with "{ref[:40]}"', hint="give more digits of the id")
    return Record.read(meant[0])
