"""The order for a host, and the record of a fleet.

An order holds a study and the options of an ordinary ``iotrial run``. The record is written before the first
host starts, so that ``fleet resume`` can go on after a coordinator that was killed.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, Self

import msgspec
from msgspec import Meta

from iotrial.decoding import decode
from iotrial.durable import DamageError, read_own, replacing
from iotrial.errors import RequestError, StoreError, UnknownName
from iotrial.paths import state_folder

#: options of ``iotrial run`` with a value, and flags
VALUES = (
    "set", "condition", "lab", "disk", "size", "on", "place", "time", "blocks", "margin", "alpha", "sample",
)  # fmt: skip
FLAGS = ("full", "no-controls", "no-account", "no-check", "no-stop", "precise", "foreign", "trust")
#: never a device: use of a machine's disk is confirmed on that machine
LABS = ("directory", "image", "guest")

HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

_HostName = Annotated[str, Meta(pattern=rf"^{HOST_NAME.pattern}\Z")]
_Id = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
_Words = tuple[Annotated[str, Meta(max_length=4096)], ...]


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trial for one host. ``study`` names one of the catalogue, or is empty: then ``text`` is a whole study file.

    ``fleet`` is the fleet's id, ``seed`` that of this host, both 32 hexadecimal digits.
    """

    fleet: _Id
    host: _HostName
    seed: _Id
    study: Annotated[str, Meta(pattern=r"^([a-z0-9-]{1,40}/[a-z0-9-]{1,60})?\Z")]
    text: Annotated[str, Meta(max_length=1 << 20)] = ""
    options: dict[str, _Words] = msgspec.field(default_factory=dict)
    flags: _Words = ()

    def words(self, study_file: Path, report: Path) -> tuple[str, ...]:
        """Return the arguments of ``iotrial``; ``study_file`` holds ``text`` if the study is not in the catalogue."""
        named = [f"--{name}={value}" for name, values in self.options.items() for value in values]
        return (
            "run", self.study or str(study_file), *named, *(f"--{flag}" for flag in self.flags),
            f"--seed={self.seed}", f"--html={report}", "--json",
        )  # fmt: skip

    def to_json(self) -> str:
        """Return the order as text; the same order gives the same text."""
        return msgspec.json.encode(self, order="deterministic").decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse an order. Raises RequestError if it is invalid."""
        try:
            order = decode(text, cls)
        except msgspec.MsgspecError as error:
            raise RequestError(f"an order of a fleet: {error}") from error
        order.check()
        return order

    def check(self) -> None:
        """Raise RequestError if it uses something that no order may."""
        if bool(self.study) == bool(self.text):
            raise RequestError("an order: expected either a study of the catalogue or the text of one")
        for name in {*self.options, *self.flags} - {*VALUES, *FLAGS}:
            raise RequestError(f"an order: no option --{name[:40]} can be set for a host")
        if any(lab not in LABS for lab in self.options.get("lab", ())):
            raise RequestError(f"a lab on a host of a fleet is one of {', '.join(LABS)}")


def seed_of(fleet_seed: str, host: str) -> str:
    """Return the seed of one host, reproducible and independent of other hosts' seeds.

    The first 32 hexadecimal digits of the SHA-256 of ``iotrial fleet``, the fleet's seed and the host's name,
    each on its own line.
    """
    return hashlib.sha256(f"iotrial fleet\n{fleet_seed}\n{host}\n".encode()).hexdigest()[:32]


class Scheduler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user's Dask scheduler: address and the paths of CA, certificate and key. Dask's configuration has what is empty."""

    address: str = ""
    tls: tuple[str, ...] = ()


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fleet's study, how to run it, where, and the hosts that have taken part so far.

    ``order`` is that of a host without a name, with the fleet's seed; ``name`` is the study's.
    """

    order: Order
    name: Annotated[str, Meta(max_length=200)]
    seed_chosen: bool = False
    scheduler: Scheduler = Scheduler()
    hosts: tuple[_HostName, ...] = ()

    @property
    def id(self) -> str:
        return self.order.fleet

    def order_for(self, host: str) -> Order:
        """Return the order of one host, with its own seed."""
        return msgspec.structs.replace(self.order, host=host, seed=seed_of(self.order.seed, host))

    def write(self) -> Path:
        """Write the record durably. Raises StoreError."""
        path = _folder() / f"{self.id}.json"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(path, path.with_suffix(".part")) as file:
                file.write(msgspec.json.encode(self))
        except OSError as error:
            raise StoreError(f"writing {path}: {error.strerror}") from error
        return path


def find_record(ref: str) -> Record:
    """Return the fleet with this id or unique prefix, or the ``last`` one.

    Raises UnknownName if there is none, RequestError if the prefix is ambiguous, StoreError if it cannot be read.
    """
    paths = sorted(_folder().glob("[0-9a-f]*.json"), key=lambda path: path.lstat().st_mtime_ns)
    meant = paths[-1:] if ref == "last" else [path for path in paths if ref and path.stem.startswith(ref)]
    if not meant:
        raise UnknownName("fleet", ref, [path.stem for path in paths[-8:]], where=str(_folder()))
    if len(meant) > 1:
        raise RequestError(f'several fleets begin with "{ref[:40]}"', hint="give more digits of the id")
    try:
        record = decode(read_own(meant[0]), Record)
        record.order.check()
    except (OSError, msgspec.MsgspecError, ValueError, RequestError, DamageError) as error:
        raise StoreError(
            f"the record of fleet {meant[0].stem[:8]} cannot be read: {error}",
            hint="a fleet that an earlier version began cannot be resumed: begin a new one",
        ) from error
    return record


def _folder() -> Path:
    return state_folder() / "fleets"
