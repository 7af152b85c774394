"""Cost of a fleet's coordinator while it follows hosts that finish a block per second.

Coordinator, Dask scheduler and Dask workers are the real ones, in three processes that are joined by TCP on
loopback; the coordinator has its store on disk and its live table, which is drawn to nowhere. The hosts are
simulated: a worker each, all in one process, whose task reports the blocks that are due, as ``fleet.host`` does.

    python benchmarks/fleet_paced.py ADDRESS COUNT      runs so many workers until its standard input ends
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any

from iotrial import __version__
from iotrial.cli.fleet_view import FleetTable
from iotrial.fleet import host
from iotrial.fleet.cluster import Cluster, Facts
from iotrial.fleet.collect import Collector
from iotrial.fleet.conduct import FleetConductor
from iotrial.fleet.order import Order, Record, Scheduler
from iotrial.report.text import Console
from iotrial.store import Store

FLEET = "f1ee7" + "0" * 27
WARM_S = 10.0  # after all hosts have reported


def simulated(order_text: str, every_s: float) -> tuple[str, int, bytes]:
    """Report a block per second until the fleet is stopped: the task of a simulated host."""
    from distributed import get_worker

    worker: Any = get_worker()
    key = str(worker.get_current_task())
    order = Order.from_json(order_text)
    began = time.monotonic()
    while key not in host._ending:
        with suppress(Exception):
            worker.log_event(host.TOPIC + order.fleet, {"key": key, "blocks": int(time.monotonic() - began)})
        time.sleep(every_s)
    return "", 0, b""


class Simulated(Cluster):
    """A cluster whose hosts are simulated: each worker is one, by its port."""

    def facts(self, workers: Sequence[str]) -> dict[str, Facts]:
        return {worker: (f"h{worker.rpartition(':')[2]}", __version__) for worker in workers}

    def start(self, order: Order, worker: str, key: str, every_s: float, done: Callable[[], None]) -> Any:
        task = self._client.submit(
            simulated,
            order.to_json(),
            every_s,
            key=key,
            workers=[worker],
            pure=False,
            allow_other_workers=False,
        )
        task.add_done_callback(lambda _: done())
        return task


class Counted:
    """A live table that is drawn to nowhere, and counts blocks."""

    def __init__(self) -> None:
        self._table = FleetTable(Console(stderr=True, width=120, height=50, force_terminal=True))
        self.blocks = self.hosts = 0

    def update(self, standing: Any) -> None:
        self.blocks = sum(one.blocks for one in standing.hosts)
        self.hosts = sum(one.blocks > 0 for one in standing.hosts)
        self._table.update(standing)

    def say(self, text: str) -> None:
        self._table.say(text)


@contextmanager
def cluster(count: int) -> Iterator[str]:
    """Yield the address of a scheduler with so many workers, in processes of their own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    scheduler = subprocess.Popen(
        [*command, "--no-dashboard"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert scheduler.stderr is not None
    address = next(line.split()[-1] for line in scheduler.stderr if "Scheduler at:" in line)
    workers = subprocess.Popen(
        [sys.executable, __file__, address, str(count)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    )  # fmt: skip
    assert workers.stdin is not None
    assert workers.stdout is not None
    try:
        assert workers.stdout.readline() == "ready\n"
        yield address
    finally:
        workers.kill()
        workers.wait()
        scheduler.kill()
        scheduler.wait()


def paced(count: int, folder: Path, *, seconds: float) -> dict[str, float]:
    """Follow ``count`` hosts for ``seconds`` after a warm-up. Return the CPU seconds of the coordinator."""
    path = folder / "followed.db"
    for old in folder.glob("followed.db*"):
        old.unlink()
    marks: list[tuple[float, float, int]] = []
    due = [math.inf]
    os.environ["XDG_STATE_HOME"] = str(folder)
    with (
        cluster(count) as address,
        Store.open(path) as store,
        Path(os.devnull).open("w") as nothing,
        redirect_stderr(nothing),
    ):
        watcher = Counted()

        def stopped() -> bool:
            now = time.monotonic()
            if due[0] == math.inf and watcher.hosts >= count:
                due[0] = now + WARM_S
            if len(marks) < 2 and now >= due[0]:
                due[0] = now + seconds
                marks.append((now, time.process_time(), watcher.blocks))
            return len(marks) == 2

        record = Record(Order(FLEET, "unnamed", "0" * 32, "files/permissions"), "files/permissions")
        FleetConductor(
            Simulated(Scheduler(address)),
            record,
            Collector(store, FLEET, record.name),
            watcher,
            stopped=stopped,
        ).run()
    for old in folder.glob("followed.db*"):
        old.unlink()
    wall, used, blocks = (end - start for start, end in zip(*marks, strict=True))
    return {"wall_s": wall, "cpu_s": used, "blocks": blocks}


async def _workers(address: str, count: int) -> None:
    from distributed import Worker

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    workers = []
    for first in range(0, count, 50):
        made = [
            Worker(address, nthreads=1, name=f"w{number}", host="127.0.0.1", dashboard=False, memory_limit=0)
            for number in range(first, min(count, first + 50))
        ]
        await asyncio.gather(*made)
        workers += made
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    import dask

    dask.config.set({"distributed.worker.profile.enabled": False})
    asyncio.run(_workers(sys.argv[1], int(sys.argv[2])))
