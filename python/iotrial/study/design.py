"""The ``[design]`` table: which treatments a block holds, and which interactions are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iotrial.study import wire
from iotrial.study.labels import match
from iotrial.study.model import Design, DesignKind, Factor, Role
from iotrial.study.source import Source

LEAST_RESOLUTION, DEFAULT_RESOLUTION, LARGEST_RESOLUTION = 3, 4, 6
MAX_REPEATS = 100
ALL = "all"


def read_design(source: Source, table: dict[str, Any], factors: Sequence[Factor]) -> Design:
    """The design of these factors; a full factorial where the file says nothing."""
    read = source.table(wire.DesignTable, table, "design")
    kind = DesignKind(read.kind)
    if read.resolution is not None and kind is not DesignKind.FRACTIONAL:
        raise source.error(f'a "{kind.value}" design has no choice of resolution', "design", "resolution")
    if read.fold_over is not None and kind not in (DesignKind.FRACTIONAL, DesignKind.PLACKETT_BURMAN):
        raise source.error(f'a "{kind.value}" design cannot be folded over', "design", "fold_over")
    whole = any(factor.whole_plot for factor in factors)
    if read.repeats is not None and not whole:
        raise source.error(
            "without a whole-plot factor there is nothing to repeat within",
            "design",
            "repeats",
            hint='give the factor that is costly to change plot = "whole", or a workload replicates',
        )
    return Design(
        kind=kind,
        resolution=DEFAULT_RESOLUTION if read.resolution is None else read.resolution,
        fold_over=bool(read.fold_over),
        interactions=_interactions(source, read.interactions, factors),
        repeats=1 if read.repeats is None else read.repeats,
    )


def _interactions(
    source: Source, texts: Sequence[str], factors: Sequence[Factor]
) -> tuple[tuple[str, str], ...]:
    """Pairs of treatment factors, in the study's order; ``["all"]`` means every pair."""
    names = [factor.name for factor in factors if factor.role is Role.TREATMENT]
    if [text.casefold() for text in texts] == [ALL]:
        return tuple((a, b) for i, a in enumerate(names) for b in names[i + 1 :])
    pairs: list[tuple[str, str]] = []
    for index, text in enumerate(texts):
        first, colon, second = text.partition(":")
        path = ("design", "interactions", index)
        if not colon:
            raise source.error(
                f'"{text}" names no pair of factors', *path, hint='write "one:other", or ["all"]'
            )
        found = []
        for part in (first, second):
            name = match(part, names)
            if name is None:
                raise source.unknown("treatment factor", part.strip(), names, *path)
            found.append(name)
        if found[0] == found[1]:
            raise source.error(f'"{found[0]}" cannot interact with itself', *path)
        pair = (found[0], found[1]) if names.index(found[0]) < names.index(found[1]) else (found[1], found[0])
        if pair in pairs:
            raise source.error(f'the interaction "{pair[0]}:{pair[1]}" is named twice', *path)
        pairs.append(pair)
    return tuple(pairs)
