"""Whether a trial can judge a claim at all: it must be of the same place, kind of device, engine, rate and levels.

What a claim needs is declared with it; what a trial was is read from what it stored of its lab, its host and its study. A
fact that a trial did not store is unknown, and an unknown fact is never taken for the one that is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from iotrial.legible import shown
from iotrial.report.notation import joined
from iotrial.study import catalogue, select
from iotrial.study.model import Claim, DatabaseWork, Study
from iotrial.study.places import LAB_DEVICE
from iotrial.units import UnitError, format_bit_rate, parse_bit_rate

LINK_RATE = "link.rate"
_DISKS = {
    "rotating": "a rotating disk",
    "solid-state": "a solid-state disk",
    "virtual": "a virtual machine's disk",
    "simulated": "a simulated disk",
}


@dataclass(frozen=True, slots=True)
class Setup:
    """What a trial ran: its study, and what was stored of its lab and host."""

    study: Study
    lab: Mapping[str, object] = field(default_factory=dict)
    host: Mapping[str, object] = field(default_factory=dict)


def claims_of(study: Study) -> tuple[tuple[Claim, ...], bool]:
    """The claims to hold a trial of this study against, and whether they differ from those stored with it.

    A study of the catalogue is held against the claims that the catalogue has now, as long as its factors, levels and
    workloads still mean there what they meant when it ran.
    """
    if study.origin != study.name or study.name not in catalogue.names():
        return study.claims, False
    now = catalogue.find(study.name)
    if not _contained(study, now):
        return study.claims, False
    workloads = {workload.name for workload in study.workloads}
    of_trial = [claim for claim in now.claims if select.runs(claim, study.factors, workloads)]
    differ = any(claim not in now.claims for claim in study.claims) or any(
        claim not in study.claims for claim in of_trial
    )
    return now.claims, differ


def _contained(ran: Study, now: Study) -> bool:
    """Whether all that ran is still in the study under the same names, and with the same meaning."""
    factors = {factor.name: factor for factor in now.factors}
    works = {workload.name: workload.work for workload in now.workloads}
    return all(
        factor.name in factors
        and factor.role is factors[factor.name].role
        and all(level in factors[factor.name].levels for level in factor.levels)
        for factor in ran.factors
    ) and all(works.get(workload.name) == workload.work for workload in ran.workloads)


def not_run(claim: Claim, study: Study) -> str | None:
    """What the claim speaks of and this trial did not run, in words; None where it ran all of it."""
    missing = select.not_run(claim, study.factors, {workload.name for workload in study.workloads})
    return None if missing is None else f"the claim is about {shown(missing)}, which this trial did not run"


def mismatches(claim: Claim, setup: Setup, levels: Mapping[str, str], workload: str) -> tuple[str, ...]:
    """Why a comparison under these conditions is not what the claim speaks of; empty where it is."""
    return tuple(_mismatches(claim, setup, levels, workload))


def _mismatches(claim: Claim, setup: Setup, levels: Mapping[str, str], workload: str) -> Iterator[str]:
    if claim.cannot:
        yield shown(claim.cannot)
    pooled_over = [factor for factor in setup.study.treatment_factors if factor.name in claim.condition]
    for factor in pooled_over:
        over = joined([shown(level.label) for level in factor.levels])
        wanted = shown(claim.condition[factor.name])
        yield f"the claim is about {shown(factor.name)} {wanted}, and effects here are means over {over}"
    used = [*levels.items(), (claim.factor, claim.level), (claim.factor, claim.reference)]
    values = _settings(setup.study, used)
    if "disk" in claim.needs:
        yield from _of_disk(claim.needs["disk"], setup, values.get(LAB_DEVICE, ()))
    if "devices" in claim.needs:
        yield from _of_devices(setup.lab)
    if "engine" in claim.needs:
        yield from _of_engine(claim.needs["engine"], setup.study, workload)
    if "rate" in claim.needs:
        yield from _of_rate(claim.needs["rate"], setup.study, values.get(LINK_RATE, ()))
    if "processor" in claim.needs:
        guest = setup.lab.get("guest")
        if isinstance(guest, Mapping) and guest.get("accelerator") == "tcg":
            yield "the claim is about a real processor, and that of the guest here is emulated"


def _settings(study: Study, levels: Sequence[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """The values that these levels and the pinned settings give each knob."""
    found: dict[str, dict[str, None]] = {}
    settings = [*study.fixed]
    for factor in study.factors:
        wanted = {label for name, label in levels if name == factor.name}
        settings += [s for level in factor.levels if level.label in wanted for s in level.settings]
    for setting in settings:
        found.setdefault(setting.knob, {})[setting.value] = None
    return {knob: tuple(values) for knob, values in found.items()}


def _of_disk(wanted: Sequence[str], setup: Setup, places: Sequence[str]) -> Iterator[str]:
    found = disks(setup, places)
    if found and all(kind in wanted for kind in found):
        return
    needed = " or ".join(_DISKS.get(kind, kind) for kind in wanted)
    unfit = [_DISKS[kind] for kind in found if kind is not None and kind not in wanted]
    here = f"this trial ran on {joined(unfit)}" if unfit else "this trial did not record what its disk is"
    yield f"the claim is about {needed}, and {here}"


def disks(setup: Setup, places: Sequence[str] = ()) -> tuple[str | None, ...]:
    """The kinds of disk below these places (all of a trial's without any named), each once; None for one not recorded."""
    known = setup.lab.get("places")
    found: dict[str | None, None] = {}
    for place in known if isinstance(known, list | tuple) else ():
        if not isinstance(place, Mapping):
            continue
        name = str(place.get("place", ""))
        if places and name not in places and name.partition(".")[0] not in places:
            continue
        if place.get("modelled"):
            found["simulated"] = None
        elif setup.host.get("virtual") or place.get("kind") == "guest":
            found["virtual"] = None
        else:
            found |= dict.fromkeys(_recorded(setup.lab, name))
    return tuple(found)


def _recorded(lab: Mapping[str, object], place: str) -> tuple[str | None, ...]:
    """The kinds of the disks below one place, as the lab stored them by place and disk."""
    of_lab = lab.get("disks")
    if not isinstance(of_lab, Mapping):
        return (None,)
    below = of_lab.get(place, of_lab.get(place.partition(".")[0], of_lab.get("lab")))
    kinds = below.values() if isinstance(below, Mapping) else ()
    return tuple(kind if isinstance(kind, str) and kind in _DISKS else None for kind in kinds) or (None,)


def _of_devices(lab: Mapping[str, object]) -> Iterator[str]:
    places = lab.get("places")
    known = [one for one in places if isinstance(one, Mapping)] if isinstance(places, list | tuple) else []
    if len(known) + sum("log" in one for one in known) < 2:
        yield "the claim is about separate devices, and this trial had one"
    together = lab.get("shared")
    for one in together if isinstance(together, list | tuple) else ():
        if isinstance(one, Mapping):
            names, on = _words(one.get("places")), _words(one.get("disks"))
            yield f"the claim is about separate devices, and here {joined(names)} lie on one disk ({joined(on)})"


def _words(found: object) -> list[str]:
    return [shown(str(one)) for one in found] if isinstance(found, list | tuple) else []


def _of_engine(wanted: Sequence[str], study: Study, workload: str) -> Iterator[str]:
    works = {one.name: one.work for one in study.workloads}
    work = works.get(workload)
    engine = work.engine if isinstance(work, DatabaseWork) else "none"
    if engine not in wanted:
        yield f"the claim is about the engine {' or '.join(map(shown, wanted))}, and here it is {shown(engine)}"


def _of_rate(wanted: Sequence[str], study: Study, rates: Sequence[str]) -> Iterator[str]:
    link = study.lab.link
    found = {_rate(rate) for rate in rates} or ({format_bit_rate(link.rate_bits_per_s)} if link else set())
    if not found or not found <= set(wanted):
        here = f"the network here has {joined(sorted(found))}" if found else "this trial had no network"
        yield f"the claim is about {' or '.join(map(shown, wanted))}, and {here}"


def _rate(text: str) -> str:
    try:
        return format_bit_rate(parse_bit_rate(text))
    except UnitError:
        return shown(text)
