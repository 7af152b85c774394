"""Knobs whose level is a size: accepted values, and errors for all others."""

from __future__ import annotations

import pytest

from iotrial.errors import UnsupportedLevel
from iotrial.lab import registry
from iotrial.study.model import Setting

TAKEN = {
    "raid.chunk": {"64 KiB": "64 KiB", "0.5 MiB": "512 KiB"},
    "nas.transfer": {"32 KiB": "32 KiB", "1024 KiB": "1 MiB"},
    "nas.read_ahead": {"4 KiB": "4 KiB", "64 MiB": "64 MiB", "15 MiB": "15 MiB", "default": "default"},
    "guest.memory": {"256 MiB": "256 MiB", "1 GiB": "1 GiB"},
    "memory.limit": {"16 MiB": "16777216", "none": "none"},
    "file.size": {"1 B": "1", "4 GiB": "4294967296"},
    "matrix.record_size": {"4 KiB": "4096"},
}
REFUSED = {
    "raid.chunk": ("2 KiB", "128 MiB", "96 KiB"),
    "nas.transfer": ("2 KiB", "2 MiB", "48 KiB"),
    "nas.read_ahead": ("2 KiB", "128 MiB", "6 KiB"),
    "guest.memory": ("64 MiB", "65 GiB", "200.5 MiB"),
    "memory.limit": ("15 MiB", "16390 KiB"),
    "file.size": ("0 B", "4.5 GiB"),
    "matrix.record_size": ("1 B", "1 TiB"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_size_is_read_in_any_of_its_units(name: str) -> None:
    for text, wanted in TAKEN[name].items():
        assert registry.knob(name).parse(Setting(name, text)) == wanted


@pytest.mark.parametrize("name", REFUSED)
def test_a_size_that_is_none_of_its_levels_is_refused_with_those_that_are(name: str) -> None:
    for text in (*REFUSED[name], "64", "soon"):
        with pytest.raises(UnsupportedLevel, match=f"knob {name}: ") as refused:
            registry.knob(name).parse(Setting(name, text))
        assert refused.value.hint
