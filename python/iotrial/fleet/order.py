"""What a host is ordered to do: a study, and how it was asked for, as the words of an ordinary ``iotrial run``.

An order holds no command line: each option is on a list here, so that nothing else can be said to a host by one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from iotrial.fleet.values import FLEET_ID, HOST_NAME, Distrusted, Fields, parsed

#: options of ``iotrial run`` that take a value, and those that take none
VALUES = (
    "set", "condition", "lab", "disk", "size", "on", "place", "time", "blocks", "server", "margin", "alpha", "sample",
)  # fmt: skip
FLAGS = ("full", "no-controls", "no-account", "no-stop", "precise", "foreign", "trust")
LABS = (
    "directory",
    "image",
    "guest",
)  # never a device: a disk of one machine is consented to on that machine

MAX_ORDER = 2 << 20
MAX_STUDY = 1 << 20
MAX_WORD = 4096
LONGEST_GRACE_S = 86_400
GRACE_S = 120.0

_SEED = re.compile(r"[0-9a-f]{32}")
_STUDY = re.compile(r"([a-z0-9-]{1,40}/[a-z0-9-]{1,60})?")


@dataclass(frozen=True, slots=True)
class Order:
    """A trial for one host. ``study`` names one of the catalogue, or is empty: then ``text`` is a whole study file.

    ``fleet`` is the fleet's id, ``seed`` that of this host, both 32 hexadecimal digits. A host that nobody asks for
    ``grace_s`` seconds ends its trial by itself.
    """

    fleet: str
    host: str
    seed: str
    study: str
    text: str = ""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    grace_s: float = GRACE_S

    def words(self, study_file: Path, report: Path) -> tuple[str, ...]:
        """What follows ``iotrial``; ``study_file`` holds ``text`` where the study is not of the catalogue."""
        named = [f"--{name}={value}" for name, values in self.options.items() for value in values]
        return (
            "run", self.study or str(study_file), *named, *(f"--{flag}" for flag in self.flags),
            f"--seed={self.seed}", f"--html={report}", "--json",
        )  # fmt: skip

    def to_json(self) -> str:
        """As text for the wire and for a file; the same order gives the same text."""
        return json.dumps(
            {
                "fleet": self.fleet,
                "host": self.host,
                "seed": self.seed,
                "study": self.study,
                "text": self.text,
                "options": {name: list(values) for name, values in self.options.items()},
                "flags": list(self.flags),
                "grace_s": self.grace_s,
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: object) -> Self:
        """The order in a text. Raises Distrusted for anything that is none."""
        table = Fields(parsed(text, longest=MAX_ORDER, what="an order"), "an order")
        order = cls(
            fleet=table.matching("fleet", FLEET_ID),
            host=table.matching("host", HOST_NAME),
            seed=table.matching("seed", _SEED),
            study=table.matching("study", _STUDY),
            text=table.text("text", MAX_STUDY),
            options=_options(table.table("options", len(VALUES))),
            flags=table.words("flags", len(FLAGS), 40),
            grace_s=table.number("grace_s", 1, LONGEST_GRACE_S),
        )
        table.done()
        order.check()
        return order

    def check(self) -> None:
        """Raises Distrusted where it asks for something that no order may."""
        if bool(self.study) == bool(self.text):
            raise Distrusted("an order: wanted either a study of the catalogue or the text of one")
        for name in (*self.options, *self.flags):
            if name not in (*VALUES, *FLAGS):
                raise Distrusted(f"an order: no option --{name[:40]} may be given to a host")
        if any(lab not in LABS for lab in self.options.get("lab", ())):
            raise Distrusted(f"an order: a lab on a host is one of {', '.join(LABS)}")


def seed_of(fleet_seed: str, host: str) -> str:
    """The seed of one host: the first 32 hexadecimal digits of the SHA-256 of ``iotrial fleet``, the fleet's seed and the
    host's name, each on a line of its own. Other hosts' draws tell nothing of it, and the same host has the same again."""
    return hashlib.sha256(f"iotrial fleet\n{fleet_seed}\n{host}\n".encode()).hexdigest()[:32]


def _options(given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    table = Fields(given, "options of an order")
    return {name: table.words(name, 256, MAX_WORD) for name in given}
