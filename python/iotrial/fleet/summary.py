"""What one host's trial says, as its part of the fleet's verdict needs it: primary effects, validity, properties.

Leaner than the host's own report: nothing that a fleet's report does not name is computed, so that a thousand hosts of a
thousand blocks each can be summed up. Effects and controls are those of the host's own report, by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from iotrial.analysis.analyse import analyse_condition
from iotrial.analysis.carryover import in_words
from iotrial.analysis.model import Effect, MeanRatio, SlowRuns, Span, Verdict
from iotrial.analysis.voids import compare_void_rates
from iotrial.legible import shown
from iotrial.report.opening import spec_of
from iotrial.report.safety import Risks, risks_of
from iotrial.store import Store
from iotrial.store.model import TrialHeader, TrialState
from iotrial.store.packed.consistency import check_stored
from iotrial.study.model import Better, Scale

_LONGEST_VALUE = 120


@dataclass(frozen=True, slots=True)
class HostTrial:
    """One host's trial. ``effects``: the primary ones; ``blocks``: complete ones, void ones too; ``problem``: why the
    trial cannot be read (only names are known then); ``invalid``: why its controls fail. ``controlled``: if it had any."""

    number: int
    id: str
    host: str
    study: str
    question: str
    state: TrialState
    started: str
    duration_s: float
    alpha: float
    margin: float
    blocks: int = 0
    void: int = 0
    reason: str | None = None
    problem: str | None = None
    invalid: tuple[str, ...] = ()
    controlled: bool = True
    effects: tuple[Effect, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    risks: Risks = field(default_factory=dict)


def summary_of(store: Store, number: int, host: str) -> HostTrial:
    """Reads and analyses one trial. Raises what ``Store.data`` raises."""
    data = store.data(number)
    check_stored(data)
    trial = data.trial
    header = trial.header
    spec = spec_of(header)
    effects: list[Effect] = []
    reasons: list[str] = []
    for condition in spec.conditions:
        found = analyse_condition(
            spec,
            condition.key,
            [block for block in data.blocks if block.condition == condition.key],
            data.blocks,
        )
        effects += found.effects
        reasons += [f"{one.response} {_missed(one.kind)}" for one in found.controls if not one.passed]
        if found.carry_over is not None and not found.carry_over.passed:
            reasons.append(in_words(found.carry_over))
    reasons += compare_void_rates(data.blocks)[1]
    return HostTrial(
        number=trial.number,
        id=header.id,
        host=host,
        study=header.study.name,
        question=header.study.question,
        state=trial.state,
        started=header.started,
        duration_s=trial.duration_s,
        alpha=header.alpha,
        margin=header.margin,
        blocks=len(data.blocks),
        void=sum(block.void is not None for block in data.blocks),
        reason=trial.reason,
        invalid=tuple(reasons),
        controlled=spec.controls,
        effects=tuple(effects),
        properties=properties_of(header),
        risks=risks_of(header.study),
    )


def properties_of(header: TrialHeader) -> dict[str, str]:
    """What hosts are told apart by, as words: kernel, system, processor, lab, file system, disk model."""
    host, lab = header.host, header.lab
    places = lab.get("places")
    listed = [place for place in places if isinstance(place, dict)] if isinstance(places, list) else []
    found: dict[str, object] = {
        "kernel": host.get("kernel"),
        "system": host.get("system"),
        "processor": host.get("processor"),
        "processors": host.get("processors"),
        "virtual": "yes" if host.get("virtual") else "no",
        "lab": lab.get("kind"),
        "file system": _all(place.get("filesystem") for place in listed),
        "disk": _all(place.get("model") for place in listed),
        "iotrial": header.version,
    }
    return {
        name: shown(str(value))[:_LONGEST_VALUE] for name, value in found.items() if value not in (None, "")
    }


def to_json(one: HostTrial) -> dict[str, object]:
    """What ``from_json`` takes."""
    found = {name: _plain(value) for name, value in asdict(one).items()}
    return {**found, "effects": [{n: _plain(v) for n, v in asdict(effect).items()} for effect in one.effects]}


def from_json(found: Mapping[str, Any]) -> HostTrial:
    """The inverse of ``to_json``. KeyError, TypeError or ValueError for anything else."""
    effects = tuple(_effect(one) for one in found["effects"])
    state = TrialState(found["state"])
    return HostTrial(**{**found, "state": state, "effects": effects, "invalid": tuple(found["invalid"])})


def _missed(kind: str) -> str:
    return "tells two identical arms apart" if kind == "negative" else "misses the injected slow-down"


def _all(values: Iterator[object]) -> str | None:
    found = dict.fromkeys(str(value) for value in values if value)
    return ", ".join(found) or None


def _effect(found: Mapping[str, Any]) -> Effect:
    cross = found["cross_check"]
    return Effect(
        **{
            **found,
            "scale": Scale(found["scale"]),
            "better": Better(found["better"]),
            "verdict": Verdict(found["verdict"]),
            "aliases": tuple(found["aliases"]),
            "cross_check": None if cross is None else (cross[0], cross[1]),
            "span": None if found["span"] is None else Span(**found["span"]),
            "slow_runs": SlowRuns.of(found.get("slow_runs")),
            "mean_ratio": MeanRatio.of(found.get("mean_ratio")),
        }
    )


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value
