"""Summing up many hosts' trials on all processors: processes of this program that read the store and answer a line a trial.

    python -m iotrial.fleet.summing < {"store": PATH, "trials": [[NUMBER, HOST], ...]}

Each takes every n-th trial, so that answers come in order and nothing is held back. Few trials are summed up in place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

from iotrial.errors import IotrialError
from iotrial.fleet.summary import HostTrial, from_json, summary_of, to_json
from iotrial.store import Store
from iotrial.workers import end_worker, start_worker

#: trials; below, starting a process costs more than it gains
FEWEST = 16
MOST_PROCESSES = 16

Asked = tuple[int, str]  # number and host


def summaries(store: Store, asked: Sequence[Asked]) -> Generator[HostTrial | IotrialError]:
    """What each trial says, in order, or why it cannot be read."""
    count = min(MOST_PROCESSES, len(os.sched_getaffinity(0)))
    if len(asked) < FEWEST or count < 2 or not store.path.is_file():
        yield from (_one(store, number, host) for number, host in asked)
        return
    workers = [_worker(store.path, asked[first::count]) for first in range(count)]
    try:
        for place, (number, host) in enumerate(asked):
            line = _line(workers[place % count])
            # a process that died leaves its share to this one
            yield _read(line) if line else _one(store, number, host)
    finally:
        for worker in workers:
            end_worker(worker)


def _one(store: Store, number: int, host: str) -> HostTrial | IotrialError:
    try:
        return summary_of(store, number, host)
    except IotrialError as error:
        return error


def _worker(path: Path, asked: Sequence[Asked]) -> subprocess.Popen[bytes]:
    worker = start_worker("iotrial.fleet.summing", quiet=True)
    assert worker.stdin is not None
    try:
        # all of it is read before the first answer, so neither end waits for the other
        worker.stdin.write(json.dumps({"store": str(path.absolute()), "trials": list(asked)}).encode())
        worker.stdin.close()
    except BrokenPipeError:
        pass
    return worker


def _line(worker: subprocess.Popen[bytes]) -> bytes:
    assert worker.stdout is not None
    return worker.stdout.readline()


def _read(line: bytes) -> HostTrial | IotrialError:
    found = json.loads(line)
    return IotrialError(found["problem"]) if "id" not in found else from_json(found)


def main() -> None:
    """Answers what standard input asks."""
    asked = json.load(sys.stdin)
    with Store.open(asked["store"], read_only=True, checked=False) as store:
        for number, host in asked["trials"]:
            found = _one(store, number, host)
            text = {"problem": found.message} if isinstance(found, IotrialError) else to_json(found)
            print(json.dumps(text), flush=True)


if __name__ == "__main__":
    main()
