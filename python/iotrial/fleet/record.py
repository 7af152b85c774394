"""What a fleet is, written down before its first host begins: so that a coordinator that was killed can go on.

One small file for each fleet beside the store. What hosts have measured is not in it: that is in the store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

from iotrial.errors import RequestError, StoreError, UnknownName
from iotrial.fleet.order import MAX_ORDER, Order, seed_of
from iotrial.fleet.values import FLEET_ID, Distrusted, Fields, parsed
from iotrial.paths import state_folder


@dataclass(frozen=True, slots=True)
class Record:
    """A fleet's study and how it was asked for. ``order`` is that of a host that has no name yet and the fleet's seed;
    ``name`` is the study's; ``reached`` says how its hosts are reached, in the words of whoever reaches them."""

    order: Order
    name: str
    seed_chosen: bool = False
    reached: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.order.fleet

    def order_for(self, host: str) -> Order:
        """The order of one host, with a seed of its own."""
        return replace(self.order, host=host, seed=seed_of(self.order.seed, host))

    def write(self, folder: Path | None = None) -> Path:
        """Written whole and durable before it is named. Raises StoreError."""
        path = (folder or records_folder()) / f"{self.id}.json"
        value = {**asdict(self), "order": self.order.to_json(), "reached": dict(self.reached)}
        part = path.with_suffix(".part")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(value, file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            raise StoreError(
                f"writing {path}: {error.strerror}", hint="free some space on the disk"
            ) from error
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises StoreError for a file that is none."""
        try:
            table = Fields(parsed(path.read_text("utf-8"), longest=3 * MAX_ORDER, what=str(path)), str(path))
            reached = {str(name): str(value)[:4096] for name, value in table.table("reached", 8).items()}
            return cls(
                Order.from_json(table.take("order")),
                table.text("name", 200),
                table.flag("seed_chosen"),
                reached,
            )
        except (OSError, UnicodeDecodeError, Distrusted) as error:
            raise StoreError(f"what is written of a fleet cannot be read: {error}") from error


def records_folder() -> Path:
    """Where fleets are written down."""
    return state_folder() / "fleets"


def find_record(ref: str) -> Record:
    """The fleet of this id, of a unique beginning of one, or ``last``. UnknownName, RequestError where several begin so."""
    folder = records_folder()
    found = sorted(
        (path for path in (folder.iterdir() if folder.is_dir() else ()) if FLEET_ID.fullmatch(path.stem)
         and path.suffix == ".json"),
        key=lambda path: path.stat().st_mtime_ns,
    )  # fmt: skip
    if ref == "last" and found:
        return Record.read(found[-1])
    meant = [path for path in found if ref and path.stem.startswith(ref)]
    if not meant:
        raise UnknownName("fleet", ref, [path.stem for path in found[-8:]], where=str(folder))
    if len(meant) > 1:
        raise RequestError(f'several fleets begin with "{ref[:40]}"', hint="give more of the id")
    return Record.read(meant[0])
