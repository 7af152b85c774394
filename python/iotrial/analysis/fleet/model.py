"""What a comparison over hosts takes and gives, as frozen values on the contrast's own scale (natural log for ratios).

A host gives one estimate with its standard error and one e-value: no runs, so that a thousand hosts are a thousand lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class HostEffect:
    """One comparison as one host found it. ``error``: the standard deviation over blocks divided by the root of their number.

    ``log_e``: ln of the e-value against "no effect" after the last block. ``distrusted``: why nothing of this host counts;
    ``left_out``: why it is not averaged, where its evidence still counts. ``properties`` by name: kernel, file system.
    """

    host: str
    estimate: float | None
    error: float | None
    low: float | None
    high: float | None
    log_e: float
    blocks: int
    distrusted: str | None = None
    left_out: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def why_not_averaged(self) -> str | None:
        """The reason, None for a host that is in the mean."""
        return self.distrusted or self.left_out


@dataclass(frozen=True, slots=True)
class Evidence:
    """Against "no effect on any host". ``log_e`` is of half the sum of product and mean; at least ``least`` hosts have an
    effect, at the level that was asked for, whatever the dependence between hosts."""

    hosts: int
    log_product: float
    log_mean: float
    log_e: float
    least: int
    excluded: bool


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of the hosts' effects and the standard deviation ``spread`` between them, each with its interval.

    Two hosts have no interval for a new host. ``hosts`` were averaged.
    """

    hosts: int
    value: float
    low: float
    high: float
    error: float
    spread: float
    spread_low: float
    spread_high: float
    new_low: float | None
    new_high: float | None


@dataclass(frozen=True, slots=True)
class Outlier:
    """A host that lies further from what the others say than their spread explains; ``p`` is adjusted by Holm's method."""

    host: str
    distance: Annotated[float, Meta(description="Standard deviations from what the others say.")]
    p: Annotated[float, Meta(description="Adjusted by Holm's method.")]


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts that share a property. Ends are None for one host."""

    value: str
    hosts: int
    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Between two groups of a property, ``other`` minus ``base``; all intervals of the table hold together."""

    base: str
    other: str
    value: float
    low: float
    high: float

    @property
    def shown(self) -> bool:
        """Whether 0 is outside."""
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True, slots=True)
class Moderator:
    """One property, its groups by size, and differences to the largest of those that are large enough."""

    name: str
    groups: tuple[Group, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class FleetEffect:
    """One comparison over all hosts. ``word``: ``lower``, ``higher`` (than no effect), ``equivalent``, ``inconclusive``, or
    ``none`` where fewer than two hosts are averaged. ``comparisons``: how many differences share the table's level."""

    hosts: tuple[HostEffect, ...]
    alpha: float
    evidence: Evidence
    mean: Mean | None
    word: str
    outliers: tuple[Outlier, ...]
    outliers_sought: bool
    moderators: tuple[Moderator, ...]
    comparisons: int
