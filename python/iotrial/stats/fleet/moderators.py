"""Moderator analysis: how the effect varies with host properties such as kernel, disk or file system.

It is observational: kernels are not assigned to hosts at random, and hosts that differ in kernel differ in much else. Groups
of at least three hosts are compared with the largest group, in one random-effects model with one mean per group and a common
spread (Knapp and Hartung, Statistics in Medicine 22, 2003). All differences of a table share its level equally (Bonferroni).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from iotrial.stats.fleet.model import Difference, HostGroup, Moderator
from iotrial.stats.fleet.spread import Floats, checked, fit, mean_of
from iotrial.stats.student import quantile

#: minimum number of hosts in a compared group
FEWEST = 3


@dataclass(frozen=True, slots=True)
class _Property:
    """One property and the positions of the hosts that have each value, the largest group first."""

    name: str
    places: Mapping[str, list[int]]

    @property
    def compared(self) -> list[str]:
        large = [value for value, places in self.places.items() if len(places) >= FEWEST]
        return large if len(large) > 1 else []


def moderators(
    properties: Sequence[Mapping[str, str]], estimates: Floats, errors: Floats, alpha: float
) -> tuple[tuple[Moderator, ...], int]:
    """Return a table of host properties, and the number of differences that share ``alpha``.

    ``properties``: one mapping per host, in the order of the estimates. Omitted are properties that are the same on all
    hosts, or different on every host.
    """
    values, variances = checked(estimates, errors)
    listed = [one for one in _properties(properties) if 1 < len(one.places) < len(properties)]
    comparisons = sum(len(one.compared) - 1 for one in listed if one.compared)
    each = alpha / comparisons if comparisons else alpha
    found = []
    for one in listed:
        groups = tuple(
            _group(value, values[places], np.sqrt(variances[places]), alpha)
            for value, places in one.places.items()
        )
        found.append(Moderator(one.name, groups, tuple(_differences(one, values, variances, each))))
    return tuple(found), comparisons


def _properties(properties: Sequence[Mapping[str, str]]) -> list[_Property]:
    found = []
    for name in dict.fromkeys(name for of_host in properties for name in of_host):
        places: dict[str, list[int]] = defaultdict(list)
        for at, of_host in enumerate(properties):
            if name in of_host:
                places[of_host[name]].append(at)
        by_size = sorted(places.items(), key=lambda item: (-len(item[1]), item[0]))
        found.append(_Property(name, dict(by_size)))
    return found


def _group(value: str, estimates: Floats, errors: Floats, alpha: float) -> HostGroup:
    if estimates.size < 2:
        return HostGroup(value, 1, float(estimates[0]), None, None)
    mean = mean_of(estimates, errors, alpha)
    return HostGroup(value, mean.hosts, mean.value, mean.low, mean.high)


def _differences(one: _Property, values: Floats, variances: Floats, alpha: float) -> list[Difference]:
    names = one.compared
    if not names:
        return []
    members = np.zeros((1, len(names), values.size))
    for row, name in enumerate(names):
        members[0, row, one.places[name]] = 1.0
    found = fit(values, variances, members)
    freedom = int(members.sum()) - len(names)
    reach = quantile(alpha, freedom)
    means, weights = found.means[0].tolist(), found.weights[0].tolist()
    differences = []
    for row, name in enumerate(names[1:], start=1):
        value = means[row] - means[0]
        half = reach * math.sqrt(1 / weights[row] + 1 / weights[0])
        differences.append(Difference(names[0], name, value, value - half, value + half))
    return differences
