"""A machine in a few words, from the facts that a trial keeps of it."""

from __future__ import annotations

from collections.abc import Mapping

from iotrial.legible import shown
from iotrial.report.notation import elided
from iotrial.units import format_bytes

_LONGEST = 60
_ROUNDED = 1 << 30


def machine_of(host: Mapping[str, object]) -> str:
    """E.g. "AMD EPYC × 2, 24 GiB, Debian GNU/Linux 12 (bookworm)"; the kernel is told apart, since it changes."""
    processor, count = _text(host, "processor"), host.get("processors")
    parts = [f"{processor} × {count}" if processor and isinstance(count, int) else processor]
    memory = host.get("memory_bytes")
    if isinstance(memory, int | float) and 0 < memory < 2**60:
        whole = round(memory / _ROUNDED) * _ROUNDED  # a kernel takes some, not always as much
        parts.append(format_bytes(whole or memory))
    parts.append(_text(host, "system"))
    return ", ".join(part for part in parts if part) or "not known"


def kernel_of(host: Mapping[str, object]) -> str:
    """The kernel's version, "" where nothing is known."""
    return _text(host, "kernel")


def _text(facts: Mapping[str, object], name: str) -> str:
    value = facts.get(name)
    return elided(shown(value), _LONGEST) if isinstance(value, str) else ""
