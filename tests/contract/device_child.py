"""A conductor that opens a device lab, writes to it, and is killed at the step that its arguments name.

Arguments: journal folder, path of the disk, serials (NAME=SERIAL,...), verb, number of its call, before or
after.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from stand_in import SERIAL, place_on, replace_look_up

from iotrial.lab.journal import Journal
from iotrial.lab.restore import restore
from iotrial.lab.target import Target
from iotrial.probe.client import Probe


def die_at(verb: str, number: int, when: str) -> None:
    calls = 0
    plain = Target.call

    def call(self: Target, requested_verb: str, **fields: object) -> dict[str, Any]:
        nonlocal calls
        calls += requested_verb == verb
        mine = requested_verb == verb and calls == number
        if mine and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = plain(self, requested_verb, **fields)
        if mine and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    Target.call = call  # type: ignore[method-assign]


def main() -> None:
    folder, path, serials, verb, number, when = sys.argv[1:]
    replace_look_up(dict(pair.split("=") for pair in serials.split(",")))
    journal = Journal(Path(folder))
    if path == "restore":
        with Probe(isolate=False) as probe:
            die_at(verb, int(number), when)
            restore(journal, Target(probe))
        return
    with place_on(path, journal, serial=SERIAL) as place:
        die_at(verb, int(number), when)
        place.open()
        place.target.call(
            "fileset", set="s", dir=f"{place.root}/s", count=50, size=40_000, seed=1, content="random"
        )
        place.syncfs()
        place.close()


if __name__ == "__main__":
    main()
