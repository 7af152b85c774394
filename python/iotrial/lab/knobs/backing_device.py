"""Knobs of dirty pages of the lab's own device: its share of all that may be dirty.

The files are those of the kernel's Documentation/ABI/testing/sysfs-class-bdi.

Read-ahead is here too, under the name `block.read_ahead_kb`: both files are one number in the kernel. The ranges of the two
shares do not overlap, because the kernel refuses a least share above the largest.
"""

from __future__ import annotations

from iotrial.lab.knob import trade_off
from iotrial.lab.knobs.block_limits import BlockChoice
from iotrial.lab.knobs.block_queue import BlockNumber
from iotrial.study.model import Setting


class BdiMaxRatio(BlockNumber):
    """The largest share."""

    name = "bdi.max_ratio"
    title = "largest share of the dirty pages that the lab's device may have, in per cent"
    consequence = trade_off("the larger the share, the more data that nobody has synced a power cut takes")
    folder = "bdi"
    of_the_whole = True
    file = "max_ratio"
    least, most = 10, 100
    open_levels = "10 to 100"

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "50"


class BdiMinRatio(BlockNumber):
    """The least share."""

    name = "bdi.min_ratio"
    title = "least share of the dirty pages that is kept for the lab's device, in per cent"
    consequence = trade_off("what is kept for this device is taken from the memory of others")
    folder = "bdi"
    of_the_whole = True
    file = "min_ratio"
    least, most = 0, 10
    open_levels = "0 to 10"

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "1"


class BdiStrictLimit(BlockChoice):
    """Whether the share holds also while there is little dirty in all (since Linux 6.2)."""

    name = "bdi.strict_limit"
    title = "whether the device's share of dirty pages holds also while few pages are dirty in all"
    consequence = trade_off("writers wait earlier for this device")
    folder = "bdi"
    of_the_whole = True
    file = "strict_limit"
