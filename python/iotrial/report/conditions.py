"""Conditions in words: "cache warm, size 10 KiB" instead of ``cache=warm,size=10 KiB,workload=probe``.

Runs and blocks identify their condition by a key, effects by its levels. Both are mapped to one value here, ordered as
the study declares its factors, so that every table and figure lists conditions in the same order. Conditions that were
constant in the whole trial are named once (``constant``), not with every condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from iotrial.design.plan import condition_key
from iotrial.stats.model import Effect
from iotrial.study.model import Study
from iotrial.terminal import escape

EVERYWHERE = "all conditions"


@dataclass(frozen=True, slots=True)
class ConditionText:
    """One condition. ``levels`` are as stored (without the workload); ``parts`` and ``text`` are ready for display."""

    key: str
    workload: str
    levels: Mapping[str, str]
    parts: tuple[tuple[str, str], ...]
    order: tuple[int, ...] = field(default=())

    @property
    def text(self) -> str:
        """E.g. "cache warm, size 10 KiB"; "all conditions" if pooled or without conditions."""
        return ", ".join(f"{name} {label}" for name, label in self.parts) or EVERYWHERE

    @property
    def behind(self) -> str:
        """The same to follow a word: " (cache warm, size 10 KiB)"; empty if pooled or without conditions."""
        return f" ({self.text})" if self.parts else ""

    @property
    def labels(self) -> Mapping[str, str]:
        """The levels with the workload, if it is known."""
        return {**self.levels, "workload": self.workload} if self.workload else self.levels


class Conditions:
    """The conditions of one study, by key or by levels."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._workloads = [workload.name for workload in study.workloads]
        self._positions = {
            factor.name: {level.label: i for i, level in enumerate(factor.levels)}
            for factor in study.condition_factors
        }
        self._constant = {f.name: f.levels[0].label for f in study.condition_factors if len(f.levels) == 1}
        self._by_key: dict[str, ConditionText] = {}

    @property
    def constant(self) -> str:
        """The conditions that this trial did not vary, e.g. "size 10 KiB, filesystem ext4"; empty if there are none."""
        return ", ".join(f"{escape(name)} {escape(label)}" for name, label in self._constant.items())

    def of_key(self, key: str) -> ConditionText:
        """Return the condition of this key. A key of another form is shown unchanged."""
        if key not in self._by_key:
            levels = parse_key(key)
            workload = levels.pop("workload", self._workloads[0] if self._workloads else "")
            self._by_key[key] = self._made(key, workload, levels)
        return self._by_key[key]

    def of_effect(self, effect: Effect) -> ConditionText:
        """Return the condition of an effect."""
        return self.of_levels(effect.condition, effect.workload)

    def of_levels(self, levels: Mapping[str, str], workload: str = "") -> ConditionText:
        """Return the condition of these levels. ``levels`` may contain the workload, which then overrides ``workload``."""
        plain = {name: label for name, label in levels.items() if name != "workload"}
        name = levels.get("workload", workload)
        key = condition_key(name, plain)
        if key not in self._by_key:
            self._by_key[key] = self._made(key, name, plain)
        return self._by_key[key]

    def _made(self, key: str, workload: str, levels: Mapping[str, str]) -> ConditionText:
        names = [name for name in self._positions if name in levels]
        names += sorted(name for name in levels if name not in self._positions)
        names = [name for name in names if levels[name] != self._constant.get(name)]
        parts = [(escape(name), escape(levels[name])) for name in names]
        if len(self._workloads) > 1 and workload:
            parts.insert(0, ("workload", escape(workload)))
        order = [self._workloads.index(workload) if workload in self._workloads else len(self._workloads)]
        order += [self._positions[name].get(levels.get(name, ""), -1) for name in self._positions]
        return ConditionText(key, workload, dict(levels), tuple(parts), tuple(order))


def parse_key(key: str) -> dict[str, str]:
    """Parse a condition's key: ``name=label`` pairs joined by commas, with special characters escaped by ``\\``."""
    levels: dict[str, str] = {}
    name: str | None = None
    text = ""
    characters = iter(key)
    for character in characters:
        if character == "\\":
            text += next(characters, "")
        elif character == "=" and name is None:
            name, text = text, ""
        elif character == ",":
            levels[name if name is not None else "condition"] = text
            name, text = None, ""
        else:
            text += character
    if text or name is not None:
        levels[name if name is not None else "condition"] = text
    return levels
