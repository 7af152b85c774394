"""Frozen input and output values of a comparison over hosts, on the contrast's own scale (natural log for ratios).

A host contributes one estimate with its standard error and one e-value, but no runs, so a thousand hosts are a thousand
lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from iotrial.documents import Unbounded


@dataclass(frozen=True, slots=True)
class HostEffect:
    """One host's result of a comparison. ``error``: standard deviation over blocks over the square root of their number.

    ``log_e``: ln of the e-value against "no effect" after the last block. ``distrusted``: the reason to ignore this host
    entirely; ``left_out``: the reason to leave it out of the mean although its evidence counts. ``properties`` by name:
    kernel, file system.
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
        """The reason; None for a host that is in the mean."""
        return self.distrusted or self.left_out


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence against no effect on any host.

    At least ``least_hosts_with_an_effect`` have one, at the requested level and for any dependence between hosts.
    """

    hosts: int
    log_e: Annotated[
        Unbounded,
        Meta(
            description="Natural logarithm of the e-value against no effect on any host: half the sum of product and mean."
        ),
    ]
    log_e_product: Unbounded
    log_e_mean: Unbounded
    excluded: bool
    least_hosts_with_an_effect: int


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over hosts, and the spread between them. ``hosts``: number of averaged hosts."""

    hosts: int
    value: float
    low: float
    high: float
    error: float
    spread: Annotated[
        float,
        Meta(description="One standard deviation of true effects between hosts: a factor, or a difference."),
    ]
    spread_low: float
    spread_high: float
    new_host_low: Annotated[
        float | None,
        Meta(description="Where a further host like these is expected; null for two hosts."),
    ]
    new_host_high: float | None


@dataclass(frozen=True, slots=True)
class Outlier:
    """A host further from the others' mean than their spread explains; ``p`` is adjusted by Holm's method."""

    host: str
    distance: Annotated[float, Meta(description="Standard deviations from what the others say.")]
    p: Annotated[float, Meta(description="Adjusted by Holm's method.")]


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts that share a property."""

    value: str
    hosts: int
    mean: float
    low: float | None  # the ends are None for a single host
    high: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between two groups of a property; the intervals of a table hold simultaneously."""

    base: str
    other: str
    value: Annotated[float, Meta(description="Other over base, or other minus base.")]
    low: float
    high: float

    @property
    def shown(self) -> bool:
        """True if 0 is outside the interval."""
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True, slots=True)
class Moderator:
    """One property, its groups by size, and the differences of sufficiently large groups from the largest one."""

    name: str
    groups: tuple[HostGroup, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class FleetEffect:
    """One comparison over all hosts. ``word``: ``lower``, ``higher`` (than no effect), ``equivalent``, ``inconclusive``, or
    ``none`` if fewer than two hosts are averaged. ``comparisons``: number of differences that share the table's level."""

    hosts: tuple[HostEffect, ...]
    alpha: float
    evidence: Evidence
    mean: Mean | None
    word: str
    outliers: tuple[Outlier, ...]
    outliers_sought: bool
    moderators: tuple[Moderator, ...]
    comparisons: int
