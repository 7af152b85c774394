"""Simulated disks by name: their parameters, the sources of these, and which of them a study may change.

A study writes a parameter with its unit; it is stored in seconds, bytes and bytes per second. A study that
has been read keeps all parameters of its disk, so a stored trial records what was simulated even if a later
version redefines the name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from iotrial import units
from iotrial.errors import unknown

ORDERS = ("arrival", "elevator", "nearest")


class DiskSpec(Struct, frozen=True):
    """A simulated disk.

    ``figures`` holds all parameters of its kind by key, in SI units; ``changed`` are the keys that the study
    sets.
    """

    model: str
    turning: bool
    figures: Mapping[str, float]
    order: str
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """One parameter: its allowed range. ``read`` parses what a study writes. docs/labs.md describes them."""

    least: float
    most: float
    read: Callable[[object], float]
    shown: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class NamedDisk:
    """A predefined disk."""

    figures: Mapping[str, float]
    order: str


def _time(value: object) -> float:
    return units.parse_duration(_text(value))


def _bytes(value: object) -> float:
    text = _text(value)
    return 0.0 if text.strip() in ("0", "none") else float(units.parse_size(text))


def _rate(value: object) -> float:
    text = _text(value).strip()
    return float(units.parse_size(text[: -len("/s")] if text.endswith("/s") else text))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number, found {value!r}")
    return float(value)


def _share(value: object) -> float:
    return units.parse_fraction(_text(value), what="share")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text with a unit, found {value!r}")
    return value


def _as_rate(value: float) -> str:
    return f"{value / 1e6:g} MB/s"


def _as_count(value: float) -> str:
    return f"{value:g}"


def _as_size(value: float) -> str:
    return units.format_size(int(value)) if value else "none"


def _duration(most: float = 10.0) -> Figure:
    return Figure(0.0, most, _time, units.format_duration)


def _of_rate() -> Figure:
    return Figure(1e4, 1e11, _rate, _as_rate)


TURNING: Mapping[str, Figure] = {
    "turns_per_minute": Figure(100.0, 1e6, _number, _as_count),
    "seek_track": _duration(),
    "seek_mean": _duration(),
    "seek_full": _duration(),
    "rate_outer": _of_rate(),
    "rate_inner": _of_rate(),
    "rate_wire": _of_rate(),
    "overhead": _duration(1.0),
    "read_ahead": Figure(0.0, 1 << 30, _bytes, _as_size),
    "write_cache": Figure(
        0.0,
        1 << 30,
        _bytes,
        _as_size,
    ),
    "queue": Figure(1.0, 1024.0, _number, _as_count),
    "stroke": Figure(
        0.0001,
        1.0,
        _share,
        units.format_percent,
    ),
}

FLAT: Mapping[str, Figure] = {
    "read_latency": _duration(),
    "write_latency": _duration(),
    "jump": _duration(),
    "flush": _duration(),
    "overhead": _duration(1.0),
    "rate_read": _of_rate(),
    "rate_write": _of_rate(),
    "queue": Figure(1.0, 1024.0, _number, _as_count),
}

COLLECTING: Mapping[str, Figure] = {
    **FLAT,
    "erase_block": Figure(4096.0, 1 << 30, _bytes, _as_size),
    "spare": Figure(0.0, 10.0, _share, units.format_percent),
    "page_move": _duration(),
    "erase": _duration(),
}

MODELS: Mapping[str, NamedDisk] = {
    # a desktop's disk of 7,200 turns a minute, write cache on, command queue of 32; typical of data sheets of
    # 3.5-inch SATA disks of 1 TB around 2010: 8.5 ms average seek, about 1 ms track to track, rates of 120 to 200
    # MB/s outside and half of that inside, 32 to 64 MB of memory
    "disk-7200": NamedDisk(
        {
            "turns_per_minute": 7200.0,
            "seek_track": 0.8e-3,
            "seek_mean": 8.5e-3,
            "seek_full": 18e-3,
            "rate_outer": 160e6,
            "rate_inner": 80e6,
            "rate_wire": 300e6,
            "overhead": 0.1e-3,
            "read_ahead": float(8 << 20),
            "write_cache": float(16 << 20),
            "queue": 32.0,
            "stroke": 1.0,
        },
        "nearest",
    ),
    # a server's disk of 15,000 turns a minute, write cache off, command queue of 64; typical of data sheets of
    # 3.5-inch SAS disks of 300 to 600 GB around 2010: 3.4 ms average seek, 0.2 ms track to track, 6.6 ms full
    # stroke, 204 MB/s outside and 122 inside, 16 MB of memory
    "disk-15000": NamedDisk(
        {
            "turns_per_minute": 15000.0,
            "seek_track": 0.2e-3,
            "seek_mean": 3.4e-3,
            "seek_full": 6.6e-3,
            "rate_outer": 204e6,
            "rate_inner": 122e6,
            "rate_wire": 600e6,
            "overhead": 0.05e-3,
            "read_ahead": float(4 << 20),
            "write_cache": 0.0,
            "queue": 64.0,
            "stroke": 1.0,
        },
        "nearest",
    ),
    # a solid-state disk on SATA; typical of data sheets of 2.5-inch consumer disks around 2015: 550 and 520 MB/s,
    # 10,000 random reads and 40,000 random writes a second one at a time, 100,000 and 90,000 with 32 in flight
    "ssd-sata": NamedDisk(
        {
            "read_latency": 85e-6,
            "write_latency": 12e-6,
            "jump": 0.0,
            "flush": 0.5e-3,
            "overhead": 5e-6,
            "rate_read": 540e6,
            "rate_write": 510e6,
            "queue": 32.0,
        },
        "arrival",
    ),
    # an early solid-state disk on SATA, which collects garbage: overwritten pages are freed by moving live ones;
    # typical of data sheets of 2.5-inch consumer disks around 2009: 250 and 70 MB/s, 85 us a read and 115 us a
    # write; blocks of 512 KiB, 7 % spare (the difference between GB and GiB), a page moved at the rate of writing
    "ssd-2009": NamedDisk(
        {
            "read_latency": 85e-6,
            "write_latency": 115e-6,
            "jump": 0.0,
            "flush": 0.5e-3,
            "overhead": 10e-6,
            "rate_read": 250e6,
            "rate_write": 70e6,
            "queue": 32.0,
            "erase_block": float(512 << 10),
            "spare": 0.07,
            "page_move": 60e-6,
            "erase": 0.5e-3,
        },
        "arrival",
    ),
    # a slow stick on USB 2.0, one request at a time; typical of published measurements of cheap sticks: 30 MB/s
    # read, 8 MB/s written in order, some tens of random writes a second, since a block of flash is copied for each
    "usb-stick": NamedDisk(
        {
            "read_latency": 0.7e-3,
            "write_latency": 0.8e-3,
            "jump": 20e-3,
            "flush": 2e-3,
            "overhead": 0.1e-3,
            "rate_read": 30e6,
            "rate_write": 8e6,
            "queue": 1.0,
        },
        "arrival",
    ),
}


def figures_of(model: str) -> Mapping[str, Figure]:
    """Return the parameters of a predefined disk by key. Raises KeyError."""
    return _figures(MODELS[model].figures)


def _figures(values: Mapping[str, float]) -> Mapping[str, Figure]:
    if "turns_per_minute" in values:
        return TURNING
    return COLLECTING if "erase_block" in values else FLAT


def parse_disk(written: Any) -> DiskSpec | None:
    """Parse a disk: a name, or a table of ``model`` and the parameters that differ. "none" gives None.

    Raises ValueError, saying what was expected.
    """
    if written is None or isinstance(written, DiskSpec) or written == "none":
        return None if written == "none" else written
    table: dict[str, Any] = {"model": written} if isinstance(written, str) else written
    if not isinstance(table, dict) or not isinstance(table.get("model"), str):
        raise ValueError(
            'expected the name of a simulated disk, or a table such as { model = "disk-7200", write_cache = "none" }'
        )
    model = table["model"]
    if model not in MODELS:
        raise ValueError("; ".join(filter(None, unknown("simulated disk", model[:40], (*MODELS, "none")))))
    named, known = MODELS[model], figures_of(model)
    figures, order = dict(named.figures), named.order
    turning = known is TURNING
    for key, value in table.items():
        if key == "model":
            continue
        if key == "order" and turning:
            if value not in ORDERS:
                raise ValueError(f"disk order: expected one of {', '.join(ORDERS)}")
            order = value
            continue
        if key not in known:
            keys = (*known, "order") if turning else tuple(known)
            raise ValueError("; ".join(filter(None, unknown(f"parameter of {model}", key[:40], keys))))
        figures[key] = _within(key, known[key], value)
    _check_together(figures)
    changed = tuple(key for key in table if key != "model")
    return DiskSpec(model, turning, figures, order, changed)


def _within(key: str, figure: Figure, value: object) -> float:
    try:
        found = figure.read(value)
    except units.UnitError as error:
        raise ValueError(f"disk {key}: {error.message}") from error
    except ValueError as error:
        raise ValueError(f"disk {key}: {error}") from error
    if not figure.least <= found <= figure.most:
        raise ValueError(
            f"disk {key}: expected {figure.shown(figure.least)} to {figure.shown(figure.most)}, "
            f"found {figure.shown(found)}"
        )
    if key == "queue" and found != int(found):
        raise ValueError(f"disk queue: expected a whole number, found {found:g}")
    return found


def _check_together(figures: Mapping[str, float]) -> None:
    if "rate_inner" not in figures:
        return
    if figures["rate_inner"] > figures["rate_outer"]:
        raise ValueError("disk rate_inner: expected no more than rate_outer")
    track, mean, full = (figures[key] for key in ("seek_track", "seek_mean", "seek_full"))
    # the curve through the three points: see docs/labs.md
    if 15 * mean < 10 * track + 5 * full or 7 * track + 8 * full < 15 * mean:
        raise ValueError(
            "disk seek_track, seek_mean, seek_full: no increasing curve fits these three; expected a mean between "
            f"{units.format_duration((2 * track + full) / 3)} and "
            f"{units.format_duration((7 * track + 8 * full) / 15)}"
        )


def described(disk: DiskSpec) -> str:
    """Describe the disk in one line: its name, and each parameter with its unit."""
    known = _figures(disk.figures)
    parts = [f"{key} {known[key].shown(value)}" for key, value in disk.figures.items() if key in known]
    order = f", order {disk.order}" if disk.turning else ""
    return f"{disk.model}: {', '.join(parts)}{order}"
