"""What pages are told of the store: at once what is known, and soon, or after the running trial, what must be analysed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from iotrial.errors import RequestError, StoreError, UnknownName
from iotrial.report.analysed import Analysed
from iotrial.report.analyses import Analyses
from iotrial.serve.desk import Desk, Unmade
from iotrial.serve.making import Made
from iotrial.serve.quiet import stand_back
from iotrial.serve.shelf import Shelf, View
from iotrial.serve.tasks import Compare, Look, Pack, Report, Task, Which
from iotrial.serve.workshop import Workshop
from iotrial.store.model import TrialHeader
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState

T = TypeVar("T")

PAGE_WAIT_S = 1.5  # for what the page is about
LOOK_PATIENCE_S = 4.0  # nobody may be looking any more


@dataclass(frozen=True, slots=True)
class Said:
    """A trial in a sentence, and what sort of verdict that is."""

    headline: str
    tone: str


@dataclass(frozen=True, slots=True)
class Looked:
    """Trials that have been analysed, by number; ``open``: how many have not; ``measuring``: nor are now; ``failed``: why
    not, by number."""

    found: dict[int, Analysed]
    open: int
    measuring: bool
    failed: dict[int, str]


class Site:
    """One store as pages see it."""

    def __init__(self, path: Path, *, aside: bool) -> None:
        self.shelf = Shelf(path)
        self._workshop = Workshop(self._measuring, aside=aside)
        self.desk = Desk(self._measuring, self._workshop.close)
        self._aside, self._wholly = aside, False

    def view(self) -> View:
        """What the store holds now. StoreError where it cannot be read."""
        return self._noticed(self.shelf.view())

    def trial(self, number: int | None, view: View) -> Outline:
        """UnknownName where there is none of this number, StoreError where it is damaged."""
        if number is not None and number in view.by_number:
            return view.by_number[number]
        for lost in view.damaged:
            if lost.number == number:
                raise StoreError(f"trial {lost.number} cannot be read: {lost.problem}")
        known = [str(trial.number) for trial in view.trials[:8]]
        raise UnknownName("trial", str(number or "that"), known, where="the store")

    def header(self, trial: Outline) -> TrialHeader:
        """All that is known of a trial before its first run. StoreError where that is damaged."""
        with self.shelf.opened() as store:
            return store.find(trial.number).header

    def said(self, trials: Sequence[Outline], *, wait_s: float = 0.0) -> dict[int, Said]:
        """What is known of these; what is not is looked at for at most ``wait_s`` (0: not at all)."""
        asked = [trial for trial in trials if trial.state is not TrialState.RUNNING]
        found = {number: Said(one.headline, one.tone) for number, one in self._stored(asked).items()}
        if wait_s > 0 and (unknown := [trial for trial in asked if trial.number not in found]):
            for number, one in self.looked(unknown, wait_s=wait_s).found.items():
                found[number] = Said(one.headline, one.tone)
        return found

    def looked(self, trials: Iterable[Outline], *, share: int = 1, wait_s: float = PAGE_WAIT_S) -> Looked:
        """These trials at their level over ``share``, as far as that is known within ``wait_s``."""
        trials = list(trials)
        found = self._stored(trials, share=share)
        failed: dict[int, str] = {}
        measuring, until_s = False, time.monotonic() + wait_s
        for trial in trials:
            if trial.number in found:
                continue
            try:
                one = self._look(trial, share, until_s)
            except Unmade as unmade:
                measuring = measuring or unmade.measuring
            except (StoreError, RequestError) as error:
                failed[trial.number] = error.message
            else:
                found[trial.number] = one
        still = len(trials) - len(found) - len(failed)
        return Looked(
            {t.number: found[t.number] for t in trials if t.number in found}, still, measuring, failed
        )

    def _stored(self, trials: Sequence[Outline], *, share: int = 1) -> dict[int, Analysed]:
        """What is stored of these trials at their level over ``share``, by number."""
        if not trials:
            return {}
        found: dict[int, Analysed] = {}
        with self.shelf.opened() as store, Analyses(store.path) as stored:
            for trial in trials:
                with suppress(StoreError):  # a damaged trial has a page of its own that says so
                    one = stored.newest_summary(trial.id, store.mark(trial.number), share=share)
                    if one is not None and one.number == trial.number:
                        found[trial.number] = one
        return found

    def _look(self, trial: Outline, share: int, until_s: float) -> Analysed:
        return self._done(
            ("look", share, *_key(trial)),
            Look(self._which(trial), share),
            size=lambda one: 2000 + 800 * (len(one.effects) + len(one.levels)),
            wait_s=max(0.0, until_s - time.monotonic()),
            urgent=False,
            patience_s=LOOK_PATIENCE_S,
        )

    def made(self, trial: Outline, *, wait_s: float = PAGE_WAIT_S) -> Made:
        """The reports of a trial that has ended. Unmade where they are not there yet."""
        return self._done(
            ("made", *_key(trial)), Report(self._which(trial)), size=lambda one: one.size, wait_s=wait_s
        )

    def compared(self, trials: Sequence[Outline], looked: Looked, *, wait_s: float = PAGE_WAIT_S) -> Made:
        """The comparison of trials that have all been looked at, in this order. Unmade where it is not there yet."""
        key = ("compared", *map(_key, trials))
        found = tuple(looked.found[trial.number] for trial in trials)
        return self._done(key, Compare(found), size=lambda one: one.size, wait_s=wait_s)

    def packed(self, trial: Outline, *, wait_s: float = PAGE_WAIT_S) -> bytes:
        """The packed trial. Unmade where it is not there yet."""
        return self._done(("packed", *_key(trial)), Pack(self._which(trial)), size=len, wait_s=wait_s)

    def _done(self, key: tuple[object, ...], task: Task[T], *, size: Callable[[T], int], **how: Any) -> T:
        return self.desk.ask(key, lambda: self._workshop.do(task), size=size, **how)

    def _which(self, trial: Outline) -> Which:
        return Which(self.shelf.path, trial.number, trial.id)

    def _noticed(self, view: View) -> View:
        if view.running and self._aside and not self._wholly:
            self._wholly = True
            stand_back(wholly=True)
        return view

    def _measuring(self) -> bool:
        try:
            return bool(self._noticed(self.shelf.view(at_most_s=1.0)).running)
        except StoreError:
            return False


def _key(trial: Outline) -> tuple[object, ...]:
    return (trial.number, trial.id, trial.state, trial.duration_s)
