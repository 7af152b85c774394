"""The colours of figures by role. In a page they are the style sheet's; alone, a picture has its light ones.

matplotlib draws in *inks*: names of colours that are known to it only while it draws. What they stand for is the palette's:
within a page a mark that becomes a CSS variable afterwards, in a picture of its own the colour itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

INK, MUTED, LINE, BAND, PAPER = (f"iotrial:{role}" for role in ("ink", "muted", "line", "band", "card"))
_FASTER, _SLOWER, _EQUIVALENT, _MOVED = (
    f"iotrial:{role}" for role in ("faster", "slower", "equivalent", "moved")
)
#: by the words of a conclusion
VERDICT_INKS = {
    "faster": _FASTER,
    "better": _FASTER,
    "slower": _SLOWER,
    "worse": _SLOWER,
    "equivalent": _EQUIVALENT,
    "higher": _MOVED,
    "lower": _MOVED,
    "undecided": MUTED,
    **dict.fromkeys(
        (f"probably {word}" for word in ("faster", "slower", "better", "worse", "higher", "lower")), _MOVED
    ),
    "differs by condition": _MOVED,
}
#: of an effect whose faster level puts data at risk
RISK_INK = _MOVED
ARM_COLOURS = 8
ARMS = tuple(f"iotrial:arm-{i}" for i in range(ARM_COLOURS))

#: the same as the style sheet's on a light screen
LIGHT: Mapping[str, str] = {
    INK: "#1c2430",
    MUTED: "#5b6675",
    LINE: "#e1e5ea",
    BAND: "#e6eef6",
    PAPER: "#ffffff",
    _FASTER: "#00795a",
    _SLOWER: "#c2410c",
    _EQUIVALENT: "#2f5d9b",
    _MOVED: "#8a6100",
    **dict(
        zip(
            ARMS,
            ("#3c4656", "#0072b2", "#d55e00", "#009e73", "#b4558f", "#a87f00", "#3aa0d8", "#8c564b"),
            strict=True,
        )
    ),
}
#: colours that no figure has otherwise, one a role
MARKS: Mapping[str, str] = {ink: f"#{0x070000 + place:06x}" for place, ink in enumerate(LIGHT)}
_ONE_AT_A_TIME = threading.RLock()


def arm_ink(position: int) -> str:
    """The ink of an arm; they repeat after eight, then the marker tells."""
    return ARMS[position % ARM_COLOURS]


def variable(ink: str) -> str:
    """What a page calls this ink: ``var(--arm-1)``."""
    return f"var(--{ink.removeprefix('iotrial:')})"


@contextmanager
def inks(colours: Mapping[str, str]) -> Iterator[None]:
    """While this lasts matplotlib knows the inks by these colours. matplotlib's settings are global: one draws at a time."""
    from matplotlib.colors import get_named_colors_mapping

    with _ONE_AT_A_TIME:
        known = get_named_colors_mapping()
        known.update(colours)
        try:
            yield
        finally:
            for ink in colours:
                del known[ink]
