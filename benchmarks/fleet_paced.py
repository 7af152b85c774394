"""Cost of a fleet's coordinator while it follows hosts that finish blocks at a fixed rate.

The coordinator is the real one: its loop, its threads, its store on disk and its live table, which is drawn to
nowhere. Its hosts are links in the same process (there is no wire) that answer with the text of synthetic blocks, as
many as are due. Each thread measures the cost of building that text and subtracts it, because it is the hosts' work.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path

from fleet_made import FLEET, NAME, TEMPLATES, Made, made

from iotrial import __version__
from iotrial.cli.fleet_view import Table
from iotrial.fleet.batch import Batch, HostFacts, Position, Stage
from iotrial.fleet.collect import Collector
from iotrial.fleet.conduct import FleetConductor
from iotrial.fleet.order import Order, Record, seed_of
from iotrial.store import Store

WARM_S = 10.0  # after all hosts have started: until they are polled at their rate


class Fleet:
    """The hosts and their cost; a source of hosts."""

    def __init__(self, count: int, models: Sequence[Made], rate: float) -> None:
        self.rate = rate
        self.own_s = 0.0
        self.blocks = 0
        self.answers = 0
        self.begun = 0
        self._lock = threading.Lock()
        self.links = [Link(self, number, models[number % len(models)]) for number in range(count)]

    def present(self) -> Sequence[Link]:
        return self.links

    def close(self) -> None:
        pass

    def answered(self, own_s: float, blocks: int, *, begins: bool) -> None:
        with self._lock:
            self.own_s += own_s
            self.blocks += blocks
            self.answers += 1
            self.begun += begins


class Link:
    """Link to one synthetic host."""

    def __init__(self, fleet: Fleet, number: int, model: Made) -> None:
        self.name = f"h{number}"
        self._fleet = fleet
        self._number = number
        self._model = model
        self._began = 0.0
        self._stopped = False

    def facts(self) -> HostFacts:
        return HostFacts(self.name, __version__, "6.1", 2, 1 << 30, root=False)

    def begin(self, order: Order) -> None:
        self._began = time.monotonic()

    def after(self, fleet: str, position: Position) -> Batch:
        used = time.thread_time()
        finished = int((time.monotonic() - self._began) * self._fleet.rate)
        blocks = max(position.blocks, min(len(self._model.ends), finished))
        stage = Stage.ENDED if self._stopped else Stage.GOING
        last = self._stopped and position.states == 1
        text = self._model.text(self._number, position, blocks, stage, interrupted=last)
        self._fleet.answered(time.thread_time() - used, blocks - position.blocks, begins=not position.states)
        return Batch.from_json(text)

    def stop(self, fleet: str) -> None:
        self._stopped = True

    def close(self) -> None:
        pass


class MadeRecord(Record):
    """Gives each host the seed of its template."""

    def order_for(self, host: str) -> Order:
        return Order(FLEET, host, seed_of(FLEET, f"h{int(host[1:]) % TEMPLATES}"), NAME)


class Counted(Collector):
    """Counts transactions."""

    transactions = 0

    def together(self):  # type: ignore[no-untyped-def]
        self.transactions += 1
        return super().together()


def paced(count: int, blocks: int, folder: Path, *, rate: float, seconds: float) -> dict[str, float]:
    """Follow ``count`` hosts for ``seconds`` after a warm-up. Return CPU seconds of the coordinator and of its hosts."""
    models = [made(folder, template, blocks) for template in range(min(count, TEMPLATES))]
    fleet = Fleet(count, models, rate)
    path = folder / "followed.db"
    for old in folder.glob("followed.db*"):
        old.unlink()
    marks: list[tuple[float, float, float, int, int, int]] = []
    due = [math.inf]
    with Store.open(path) as store, Path(os.devnull).open("w") as nothing, redirect_stderr(nothing):
        collector = Counted(store, FLEET, NAME)

        def stopped() -> bool:
            now = time.monotonic()
            if due[0] == math.inf and fleet.begun >= count:
                due[0] = now + WARM_S
            if len(marks) < 2 and now >= due[0]:
                due[0] = now + seconds
                marks.append(
                    (
                        now,
                        time.process_time(),
                        fleet.own_s,
                        fleet.blocks,
                        fleet.answers,
                        collector.transactions,
                    )
                )
            return len(marks) == 2

        record = MadeRecord(Order(FLEET, "unnamed", "0" * 32, NAME), NAME)
        FleetConductor(fleet, record, collector, Table(120, 50), stopped=stopped).run()
    for old in folder.glob("followed.db*"):
        old.unlink()
    wall, used, own, sent, answers, together = (end - start for start, end in zip(*marks, strict=True))
    return {
        "wall_s": wall,
        "cpu_s": used - own,
        "own_s": own,
        "blocks": sent,
        "asked_every_s": wall * count / answers,
        "together": answers / max(1, together),
    }
