"""Write a made-up log of a power meter for a packed trial of system/power, to try `iotrial meter` without a meter.

    iotrial run system/power
    iotrial export last power.iotrial
    python docs/examples/made_up_meter.py power.iotrial > readings.csv
    iotrial meter last readings.csv

Nothing here is measured: the machine takes 55 W when idle and 120 W when all its processors are busy (published figures of
one desktop machine without graphics card), in between in proportion, and the meter is off by up to 1 W.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path

IDLE_W, LOAD_W, NOISE_W = 55.0, 120.0, 1.0
PERIOD_S = 0.5


def main(packed: str) -> None:
    with gzip.open(Path(packed), "rt", encoding="utf-8") as lines:
        found = [json.loads(line)["run"] for line in lines if line.startswith('{"run"')]
    spans = []
    for run in found:
        clock = run["checks"].get("clock")
        if clock is not None and run["failure"] is None:
            busy = run["responses"]["cpu"] / run["responses"]["wall"]
            spans.append((clock["unix_s"], clock["unix_s"] + clock["lasted_s"], busy))
    if not spans:
        raise SystemExit(f"{packed}: no run with a time of day; expected a packed trial of system/power")
    most = max(busy for *_, busy in spans)
    draw = random.Random(0)
    print("time,watts")
    at = spans[0][0] - 5.0
    while at < spans[-1][1] + 5.0:
        busy = next((busy for start, end, busy in spans if start <= at <= end), 0.0)
        watts = IDLE_W + (LOAD_W - IDLE_W) * busy / most + draw.uniform(-NOISE_W, NOISE_W)
        print(f"{at:.3f},{watts:.1f}")
        at += PERIOD_S


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python made_up_meter.py TRIAL.iotrial > readings.csv")
    main(sys.argv[1])
