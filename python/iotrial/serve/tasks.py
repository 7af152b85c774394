"""What takes long, as values that can be sent to the process which does it: each names a trial and says what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from iotrial.errors import StoreError
from iotrial.report.analysed import Analysed
from iotrial.report.opening import summary_of
from iotrial.serve.making import Made, compared, made, packed
from iotrial.store import Store
from iotrial.store.model import TrialState

T_co = TypeVar("T_co", covariant=True)


class Task(Protocol[T_co]):
    """One piece of work."""

    def do(self) -> T_co:
        """The result. Raises IotrialError."""
        ...


@dataclass(frozen=True, slots=True)
class Which:
    """A trial in a file: by its number, and by its id, since the file may be another one by then."""

    path: Path
    number: int
    id: str

    @contextmanager
    def opened(self) -> Iterator[Store]:
        """The store with this very trial in it, which has ended; StoreError else."""
        with Store.open(self.path, read_only=True, checked=False) as store:
            found = store.find(self.number)
            if found.header.id != self.id:
                raise StoreError(f"trial {self.number} is another one by now", hint="load the page again")
            if found.state is TrialState.RUNNING:
                raise StoreError(f"trial {self.number} is running again", hint="load the page again")
            yield store


@dataclass(frozen=True, slots=True)
class Report:
    """The trial in all formats."""

    which: Which

    def do(self) -> Made:
        """Raises StoreError."""
        with self.which.opened() as store:
            return made(store, self.which.number)


@dataclass(frozen=True, slots=True)
class Look:
    """What the trial says at its level over ``share``."""

    which: Which
    share: int

    def do(self) -> Analysed:
        """Raises StoreError."""
        with self.which.opened() as store:
            return summary_of(store, self.which.number, share=self.share)


@dataclass(frozen=True, slots=True)
class Compare:
    """Trials side by side, each at its part of the level."""

    trials: tuple[Analysed, ...]

    def do(self) -> Made:
        """Raises RequestError where they share nothing."""
        return compared(self.trials)


@dataclass(frozen=True, slots=True)
class Pack:
    """The packed trial."""

    which: Which

    def do(self) -> bytes:
        """Raises StoreError."""
        with self.which.opened() as store:
            return packed(store, self.which.number)
