"""What the machine that serves did meanwhile: its processors' time, read by a probe there before and after a run.

The kernel counts in ticks of a hundredth of a second as a rule, and interrupts in whole ticks where it does not
account for them apart: what is said of a short run is coarse.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from iotrial.errors import ProbeError

_HZ = os.sysconf("SC_CLK_TCK")
#: the columns of /proc/stat, proc_stat(5); guests' time is in user and nice already
_NAMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


@dataclass(frozen=True, slots=True)
class Spent:
    """Ticks of all processors together since the machine's boot, by what they were spent on."""

    ticks: Mapping[str, int]

    @classmethod
    def of(cls, text: str) -> Spent:
        """What /proc/stat says. Raises ProbeError where it is none."""
        words = text.partition("\n")[0].split()
        if len(words) <= len(_NAMES) or words[0] != "cpu" or not all(word.isdigit() for word in words[1:]):
            raise ProbeError(
                f"reading /proc/stat of the server's machine: wanted its processors, found {text[:60]!r}"
            )
        return cls(dict(zip(_NAMES, map(int, words[1:]), strict=False)))

    def since(self, before: Spent) -> dict[str, float]:
        """Seconds, and the share of all processors' time in percent, since another reading of the same machine."""
        # idle and iowait may be counted back: never less than nothing
        more = {name: max(0, self.ticks[name] - before.ticks[name]) for name in _NAMES}
        interrupts = more["irq"] + more["softirq"]
        busy = more["user"] + more["nice"] + more["system"] + interrupts
        found = {"server_cpu": busy / _HZ, "server_softirq": interrupts / _HZ}
        whole = busy + more["idle"] + more["iowait"] + more["steal"]
        return {**found, "server_busy": 100.0 * busy / whole} if whole else found
