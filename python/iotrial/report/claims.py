"""Comparison of published claims with measurements.

Only a trial of what a claim is about can judge it (see below); otherwise the outcome is *cannot say*, with every
reason. For a ratio r of a response at one level over another, with the interval [L, U] for the same pair, margin m, and
c = |ln r| (L and U are taken as logarithms in the direction of the claim), the first rule that applies decides:

1. an invalid trial, neither ratio nor direction in the claim, an unbounded interval, failed runs: *cannot say*;
2. r within the margin (the claim is that there is no difference): *confirmed* if the interval lies within the margin,
   *contradicted* if all of it lies beyond, *compatible* if it excludes 0 and contains r, otherwise *cannot say*;
3. the interval lies within the margin: *not confirmed*, there is no such effect;
4. the interval contains r: *confirmed* if L >= c/2 and U <= 2c, so that the claimed size is distinguished from none,
   from half of it and from its double; *compatible* if only L > 0; otherwise *cannot say*, since it contains no effect
   as well;
5. all of it lies beyond the margin on the other side: *contradicted*;
6. all of it lies beyond the margin on the claimed side: *smaller* or *larger than claimed*;
7. otherwise *not confirmed*: the published size is excluded, and whether there is an effect is undecided.

A claim that names the levels in the opposite order is compared with the inverse ratio.

A claim of a direction ("faster", without a size) is *confirmed* if the whole interval lies beyond the margin on that
side, *contradicted* if it lies beyond the margin on the other, *compatible* if only 0 is excluded on that side, *not
confirmed* if an effect beyond the margin on that side is excluded, otherwise *cannot say*. A claim that there is no
difference ("same") follows rule 2. A difference has no margin: there m is 0.

To judge a claim, a trial must match it in place, kind of device, engine, rate and levels. A claim declares what it
needs. What the trial was is read from the lab, host and study that it stored. A fact that a trial did not store is
unknown, and an unknown fact never counts as a match.

*Contradicted* also needs a plain word in the trial (the injected slowdown was seen, typical and mean runs agree), and
work of the published size. Work of another size (``scale``) can confirm the direction of a claim, or that there is no
difference, and nothing else.

A claim about a kind of disk may be judged on a model of that kind (``study.disks``), and says so. block/model holds the
models against their data sheets.

A published count is compared with the count measured here: it is right, within its ``tolerance``, or wrong, and the
outcome says by how much. The measured count is the median of all runs at the claim's level; its quartiles equal the
median if a program does the same thing every time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile
from math import inf, log, log1p
from typing import Annotated

from msgspec import Meta, structs

from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.evidence import EvidenceRow
from iotrial.report.interactions import Split, pair_of
from iotrial.report.notation import counted, joined, named_level, percent
from iotrial.report.phrases import interval, interval_of
from iotrial.stats.model import Conclusion, Effect, Verdict
from iotrial.stats.verdict import BUDGET_SPENT
from iotrial.store.model import objects_in
from iotrial.study import catalogue, select
from iotrial.study.disks import MODELS
from iotrial.study.model import Better, Claim, Says, Scale, Study
from iotrial.study.places import LAB_DEVICE
from iotrial.terminal import escape
from iotrial.units import UnitError, format_bit_rate, parse_bit_rate
from iotrial.workloads.database import DatabaseWork

LINK_RATE = "link.rate"
#: word of ``needs.disk`` for a modelled disk of any kind
MODELLED = "simulated"
#: what a kind of disk is as well
_ALSO = {"nvme": "solid-state"}
_DISKS = {
    "rotating": "a rotating disk",
    "solid-state": "a solid-state disk",
    "nvme": "an NVMe disk",
    "virtual": "a virtual machine's disk",
    MODELLED: "a modelled disk",
}


@dataclass(frozen=True, slots=True)
class Setup:
    """What a trial ran: its study, and what was stored about its lab and host."""

    study: Study
    lab: Mapping[str, object] = field(default_factory=dict)
    host: Mapping[str, object] = field(default_factory=dict)


def claims_of(study: Study) -> tuple[tuple[Claim, ...], bool]:
    """Return the claims to compare a trial of this study with, and whether they differ from those stored with it.

    For a study of the catalogue these are the claims in the catalogue today, provided its factors, levels and workloads
    still mean there what they meant when it ran.
    """
    if study.origin != study.name or study.name not in catalogue.names():
        return study.claims, False
    now = catalogue.find(study.name)
    if not _contained(study, now):
        return study.claims, False
    workloads = {workload.name for workload in study.workloads}
    of_trial = [claim for claim in now.claims if select.runs(claim, study.factors, workloads)]
    stored, today = ([_without_words(claim) for claim in own] for own in (study.claims, now.claims))
    differ = any(claim not in today for claim in stored) or any(
        _without_words(claim) not in stored for claim in of_trial
    )
    return now.claims, differ


def _without_words(claim: Claim) -> Claim:
    """Leave out what only people read, so that a claim in other words is the same claim."""
    return structs.replace(claim, source="", text="", note="")


def _contained(ran: Study, now: Study) -> bool:
    """Return whether everything that ran is still in the study under the same names, with the same meaning.

    If a kind of work is no longer run, the study asks the same question in another way, and only names can be compared.
    """
    factors = {factor.name: factor for factor in now.factors}
    works = {workload.name: workload.work for workload in now.workloads}
    renewed = any(workload.work.gone for workload in ran.workloads)
    return all(
        factor.name in factors
        and factor.role is factors[factor.name].role
        and all(
            level in factors[factor.name].levels
            or (renewed and any(level.label == one.label for one in factors[factor.name].levels))
            for level in factor.levels
        )
        for factor in ran.factors
    ) and all(
        works.get(workload.name) == workload.work or (workload.work.gone and workload.name in works)
        for workload in ran.workloads
    )


def not_run(claim: Claim, study: Study) -> str | None:
    """Describe the part of the claim that this trial did not run; None if it ran all of it."""
    missing = select.not_run(claim, study.factors, {workload.name for workload in study.workloads})
    return None if missing is None else f"the claim is about {escape(missing)}, which this trial did not run"


def mismatches(
    claim: Claim,
    setup: Setup,
    levels: Mapping[str, str],
    workload: str,
    *,
    shared: Collection[str] = (),
) -> tuple[str, ...]:
    """Return the reasons why a comparison under these conditions is not what the claim is about; empty if it is.

    ``shared``: the factors over which the comparison is an average that holds at each of their levels.
    """
    return tuple(_mismatches(claim, setup, levels, workload, shared))


def _mismatches(
    claim: Claim, setup: Setup, levels: Mapping[str, str], workload: str, shared: Collection[str]
) -> Iterator[str]:
    if claim.cannot:
        yield escape(claim.cannot)
    known = {*levels, *shared}
    pooled_over = [
        factor
        for factor in setup.study.treatment_factors
        if factor.name in claim.condition and factor.name not in known
    ]
    for factor in pooled_over:
        over = joined([escape(level.label) for level in factor.levels])
        wanted = escape(claim.condition[factor.name])
        yield f"the claim is about {escape(factor.name)} {wanted}, and effects here are averages over {over}"
    values = _settings_of(claim, levels, setup.study)
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
            yield "the claim is about a real processor, and the guest's processor is emulated"


def _settings_of(claim: Claim, levels: Mapping[str, str], study: Study) -> dict[str, tuple[str, ...]]:
    """Return the values that each knob has under these levels: by the fixed settings, and at both levels of the claim."""
    used = [*levels.items(), (claim.factor, claim.level), (claim.factor, claim.reference)]
    found: dict[str, dict[str, None]] = {}
    settings = [*study.fixed]
    for factor in study.factors:
        wanted = {label for name, label in used if name == factor.name}
        settings += [s for level in factor.levels if level.label in wanted for s in level.settings]
    for setting in settings:
        found.setdefault(setting.knob, {})[setting.value] = None
    return {knob: tuple(values) for knob, values in found.items()}


def _of_disk(wanted: Sequence[str], setup: Setup, places: Sequence[str]) -> Iterator[str]:
    found = disks(setup, places)
    if found and all(kind in wanted or _ALSO.get(kind or "") in wanted for kind in found):
        return
    if MODELLED in wanted and modelled(setup, places):
        return
    needed = " or ".join(_DISKS.get(kind, kind) for kind in wanted)
    unfit = [_DISKS[kind] for kind in found if kind is not None and kind not in wanted]
    here = f"this trial ran on {joined(unfit)}" if unfit else "this trial did not record what its disk is"
    yield f"the claim is about {needed}, and {here}"


def disks(setup: Setup, places: Sequence[str] = ()) -> tuple[str | None, ...]:
    """Return the distinct kinds of disk below these places (below all places of the trial if none are named).

    A modelled disk is of the kind that its model describes. A kind that was not recorded is None.
    """
    found: dict[str | None, None] = {}
    for name, place in _of_places(setup, places):
        if place.get("modelled"):
            model = MODELS.get(str(place["modelled"]).partition(":")[0])
            turns = model is not None and "turns_per_minute" in model.figures
            found[None if model is None else "rotating" if turns else "solid-state"] = None
        elif setup.host.get("virtual") or place.get("kind") == "guest":
            found["virtual"] = None
        else:
            found |= dict.fromkeys(_recorded(setup.lab, name))
    return tuple(found)


def modelled(setup: Setup, places: Sequence[str] = ()) -> bool:
    """Return whether any disk below these places is modelled."""
    return any(place.get("modelled") for _, place in _of_places(setup, places))


def _of_places(setup: Setup, places: Sequence[str]) -> Iterator[tuple[str, Mapping[str, object]]]:
    for place in objects_in(setup.lab, "places"):
        name = str(place.get("place", ""))
        if not places or name in places or name.partition(".")[0] in places:
            yield name, place


def _recorded(lab: Mapping[str, object], place: str) -> tuple[str | None, ...]:
    """Return the kinds of the disks below one place, which the lab stores by place and disk."""
    of_lab = lab.get("disks")
    if not isinstance(of_lab, Mapping):
        return (None,)
    below = of_lab.get(place, of_lab.get(place.partition(".")[0], of_lab.get("lab")))
    kinds = below.values() if isinstance(below, Mapping) else ()
    return tuple(kind if isinstance(kind, str) and kind in _DISKS else None for kind in kinds) or (None,)


def _of_devices(lab: Mapping[str, object]) -> Iterator[str]:
    known = objects_in(lab, "places")
    if len(known) + sum("log" in one for one in known) < 2:
        yield "the claim is about separate devices, and this trial had one"
    for one in objects_in(lab, "shared"):
        names, on = _words(one.get("places")), _words(one.get("disks"))
        yield f"the claim is about separate devices, and here {joined(names)} lie on one disk ({joined(on)})"


def _words(found: object) -> list[str]:
    return [escape(str(one)) for one in found] if isinstance(found, list | tuple) else []


def _of_engine(wanted: Sequence[str], study: Study, workload: str) -> Iterator[str]:
    works = {one.name: one.work for one in study.workloads}
    work = works.get(workload)
    engine = work.engine if isinstance(work, DatabaseWork) else "none"
    if engine not in wanted:
        yield f"the claim is about the engine {' or '.join(map(escape, wanted))}, and here it is {escape(engine)}"


def _of_rate(wanted: Sequence[str], study: Study, rates: Sequence[str]) -> Iterator[str]:
    link = study.lab.link
    found = {_rate(rate) for rate in rates} or ({format_bit_rate(link.rate_bits_per_s)} if link else set())
    if not found or not found <= set(wanted):
        here = f"the network here has {joined(sorted(found))}" if found else "this trial had no network"
        yield f"the claim is about {' or '.join(map(escape, wanted))}, and {here}"


def _rate(text: str) -> str:
    try:
        return format_bit_rate(parse_bit_rate(text))
    except UnitError:
        return escape(text)


NOT_COMPARABLE = "not comparable"
NOT_MEASURED = "not measured"


class Outcome(StrEnum):
    """The outcome for a claim."""

    CONFIRMED = "confirmed"
    COMPATIBLE = "compatible"
    NOT_CONFIRMED = "not confirmed"
    SMALLER = "smaller than claimed"
    LARGER = "larger than claimed"
    CONTRADICTED = "contradicted"
    CANNOT_SAY = "cannot say"


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A published number compared with the nearest measured effect.

    ``published`` and ``here`` are words; ``ratio``, ``low`` and ``high`` are what was measured, in the claim's direction.
    """

    claim: Claim
    condition: ConditionText | None
    response: str | None
    ratio: float | None
    low: float | None
    high: float | None
    outcome: Outcome
    why: str
    published: str
    here: str
    modelled: Annotated[bool, Meta(description="Whether a disk of the runs is a model of such a disk.")] = (
        False
    )

    @property
    def text(self) -> str:
        """The claim in the words of its source."""
        return self.claim.text

    @property
    def source(self) -> str:
        """Where it was published."""
        return self.claim.source

    @property
    def not_run(self) -> bool:
        """Whether the trial has nothing to compare, because it did not run what the claim is about."""
        return self.here == NOT_MEASURED

    @property
    def sentence(self) -> str:
        """E.g. "Mode 444 reads faster (a blog): not confirmed, an effect beyond 3 % is excluded here. Published: ..."."""
        return f"{quoted_claim(self.claim)}: {self.outcome.value}, {self.why}.{self.figures}"

    @property
    def figures(self) -> str:
        """The published and the measured numbers as a further sentence; empty if they cannot be compared."""
        if self.here in (NOT_COMPARABLE, NOT_MEASURED):
            return ""
        where = self.condition.behind if self.condition is not None else ""
        if self.claim.ratio is None and self.claim.value is None:
            return f" Here{where}{on_model(self)}: {self.here} ({_pair(self.claim)})."
        return f" Published: {self.published}. Here{where}{on_model(self)}: {self.here}."


def on_model(held: HeldClaim) -> str:
    """Return words that a claim was judged on a model of a disk, with a blank before them; empty if not."""
    return " on a modelled disk" if held.modelled else ""


@dataclass(frozen=True, slots=True)
class ClaimGroup:
    """One claim with everything that it was compared with."""

    claim: Claim
    held: tuple[HeldClaim, ...]

    @property
    def outcome(self) -> Outcome | None:
        """The outcome if it is the same everywhere, else None."""
        outcomes = {one.outcome for one in self.held}
        return outcomes.pop() if len(outcomes) == 1 else None

    @property
    def not_run(self) -> bool:
        """Whether the trial ran nothing of what the claim is about."""
        return all(one.not_run for one in self.held)

    @property
    def sentence(self) -> str:
        """The claim's sentence; for several conditions a count of outcomes."""
        first = self.held[0]
        if len(self.held) == 1:
            return first.sentence
        count = Counter(one.outcome.value for one in self.held)
        found = ", ".join(f"{outcome} in {number}" for outcome, number in count.most_common())
        found = f"compared with {len(self.held)} conditions: {found}"
        if self.outcome is not None:
            found = f"{self.outcome.value} in all {len(self.held)} conditions"
            if len({one.why for one in self.held}) == 1:
                found += f", {first.why}"
        numbers = "" if self.claim.ratio is None else f" Published: {first.published}."
        return f"{quoted_claim(self.claim)}: {found}.{numbers}"


def in_brief(groups: Sequence[ClaimGroup]) -> Iterator[str]:
    """Yield the claims as texts: those with the same answer, for the same reason, in one.

    Claims on what the trial did not run are counted, not quoted; of others that it cannot judge, those of one source share a
    text.
    """
    alike: dict[object, list[ClaimGroup]] = {}
    for group in groups:
        if not group.not_run:
            first = group.held[0]
            one = len(group.held) == 1
            where = first.condition.key if first.condition is not None else ""
            answer = (first.outcome, first.why, where, first.here, _pair(first.claim) * bool(first.figures))
            alike.setdefault(answer if one else id(group), []).append(group)
    unjudged: dict[str, list[str]] = {}
    for members in alike.values():
        first = members[0].held[0]
        sources = [one.claim.source for one in members]
        if first.here == NOT_COMPARABLE and len(set(sources)) == 1:
            quoted = joined(dict.fromkeys(quoted_claim(one.claim, source=False) for one in members))
            unjudged.setdefault(sources[0], []).append(f"{quoted}: {first.outcome.value}, {first.why}.")
        elif len(members) == 1:
            yield members[0].sentence
        else:
            yield _alike(members)
    for source, texts in unjudged.items():
        yield " ".join([f"{escape(source)}:"] * bool(source) + texts)
    if number := sum(group.not_run for group in groups):
        noun = counted(number, "published claim")
        yield f"{noun}: cannot say, about levels, conditions or work that this trial did not run or compare."


def _alike(groups: Sequence[ClaimGroup]) -> str:
    """Return one text for claims with the same answer; what the names of their sources begin with is said once."""
    first = groups[0].held[0]
    sources = [escape(one.claim.source).split(", ") for one in groups]
    shared = [
        parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*sources, strict=False))
    ]
    quoted = []
    for group, source in zip(groups, sources, strict=True):
        ratio = (
            "" if first.here == NOT_COMPARABLE or group.claim.ratio is None else f"{group.claim.ratio:.3g}"
        )
        rest = ", ".join(filter(None, (ratio, *source[len(shared) :])))
        quoted.append(quoted_claim(group.claim, source=False) + (f" ({rest})" if rest else ""))
    here = ""
    if first.here != NOT_COMPARABLE:
        behind = first.condition.behind if first.condition is not None else ""
        here = f" Here{behind}{on_model(first)}: {first.here} ({_pair(first.claim)})."
    claims = counted(len(groups), "published claim")
    where = f"{', '.join(shared)}: " if any(shared) else ""
    return f"{claims}: {first.outcome.value}, {first.why}.{here} {where}{joined(dict.fromkeys(quoted))}."


def quoted_claim(claim: Claim, *, source: bool = True) -> str:
    """Quote the claim, and its source."""
    text = f"\u201c{escape(claim.text)}\u201d" if claim.text else _published(claim)
    return f"{text} ({escape(claim.source)})" if claim.source and source else text


def grouped(held: Sequence[HeldClaim]) -> tuple[ClaimGroup, ...]:
    """Group the results by claim, in order."""
    groups: list[tuple[Claim, list[HeldClaim]]] = []
    for one in held:
        if not groups or groups[-1][0] is not one.claim:
            groups.append((one.claim, []))
        groups[-1][1].append(one)
    return tuple(ClaimGroup(claim, tuple(members)) for claim, members in groups)


def hold_claims(
    claims: Sequence[Claim],
    effects: Sequence[Effect],
    conditions: Conditions,
    *,
    margin: float,
    valid: bool = True,
    setup: Setup | None = None,
    evidence: Sequence[EvidenceRow] = (),
    apart: Sequence[Split] = (),
) -> tuple[HeldClaim, ...]:
    """Compare every claim with the matching effects, or with ``evidence`` if a count was published.

    There is one entry for each condition that a claim may mean. ``setup`` is what the trial stored about itself. Without
    it, a claim that requires anything of the lab cannot be judged. ``apart``: the main effects whose average describes
    nothing; their cells are compared in their place.
    """
    setup = setup or Setup(conditions.study)
    held: list[HeldClaim] = []
    for claim in claims:
        if claim.value is not None:
            held += hold_value(claim, evidence, valid=valid, setup=setup)
            continue
        matching = [effect for effect in effects if _speaks_of(claim, effect, setup)]
        if claim.response is None and any(effect.primary for effect in matching):
            matching = [effect for effect in matching if effect.primary]
        if any(effect.kind == "main" for effect in matching):
            matching = [effect for effect in matching if effect.kind == "main"]
        if not matching:
            why = not_run(claim, setup.study)
            if why is None and not claim.cannot:
                why = "this trial did not compare these levels under that condition"
            here = NOT_COMPARABLE if why is None else NOT_MEASURED
            held.append(unjudged(claim, (escape(claim.cannot), why or ""), here))
            continue
        matching = [one for effect in matching for one in _cells_or_average(claim, effect, apart)]
        shared = _same_at_every_level(claim, effects, setup.study)
        unlike = [
            mismatches(
                claim, setup, effect.condition, effect.workload, shared=shared.get(effect.workload, ())
            )
            for effect in matching
        ]
        for effect, reasons in zip(matching, unlike, strict=True):
            if not reasons:
                places = _settings_of(claim, effect.condition, setup.study).get(LAB_DEVICE, ())
                on_model = modelled(setup, places)
                held.append(_held(claim, effect, conditions, margin=margin, valid=valid, on_model=on_model))
        if all(unlike):
            held.append(unjudged(claim, min(unlike, key=len)))
    return tuple(held)


def _cells_or_average(claim: Claim, effect: Effect, apart: Sequence[Split]) -> list[Effect]:
    split = next((one for one in apart if one.main is effect), None)
    if split is None:
        return [effect]
    cells = [
        replace(cell, condition={**effect.condition, split.other: at})
        for at, cell in split.cells
        if claim.condition.get(split.other, at) == at
    ]
    return cells if all(cell.kind == "cell" for cell in cells) else [effect]


def _same_at_every_level(
    claim: Claim, effects: Sequence[Effect], study: Study
) -> Mapping[str, Collection[str]]:
    """Return, by workload, the factors that do not change the claim's effect at the level that the claim names: their
    interaction is excluded."""
    found: dict[str, set[str]] = {}
    for effect in effects:
        if effect.kind == "interaction" and effect.conclusion.equivalent:
            pair = pair_of(effect, study)
            ends = () if pair is None else ((pair.first, pair.second), (pair.second, pair.first))
            for own, (name, level, reference) in ends:
                same = own[0] == claim.factor and {own[1], own[2]} == {claim.level, claim.reference}
                if same and claim.condition.get(name) in (level, reference):
                    found.setdefault(effect.workload, set()).add(name)
    return found


def unjudged(claim: Claim, reasons: Sequence[str], here: str = NOT_COMPARABLE) -> HeldClaim:
    """Build the result for a claim that this trial cannot judge, with all reasons."""
    why = "; ".join(filter(None, reasons))
    return HeldClaim(claim, None, None, None, None, None, Outcome.CANNOT_SAY, why, _published(claim), here)


def _speaks_of(claim: Claim, effect: Effect, setup: Setup) -> bool:
    """Return whether the claim is about this effect: one factor, never an interaction, even if its labels look alike."""
    if (
        effect.kind not in ("main", "pooled")
        or effect.factor != claim.factor
        or {effect.level, effect.reference} != {claim.level, claim.reference}
    ):
        return False
    if claim.workload not in (None, effect.workload) or claim.response not in (None, effect.response):
        return False
    here = {**effect.condition, "workload": effect.workload}
    treatments = {
        factor.name for factor in setup.study.treatment_factors
    }  # _mismatches says why these do not fit
    return all(here.get(name) == label for name, label in claim.condition.items() if name not in treatments)


def _held(
    claim: Claim, effect: Effect, conditions: Conditions, *, margin: float, valid: bool, on_model: bool
) -> HeldClaim:
    here = effect.value, effect.low, effect.high
    if effect.level != claim.level:
        turned = _inverse if effect.scale is Scale.LOG else _negative
        here = turned(effect.value), turned(effect.high), turned(effect.low)
    outcome, why = _judge(claim, effect, here[1:], margin=margin, valid=valid)
    if outcome is Outcome.CONTRADICTED and (reason := _not_enough(claim, effect)):
        outcome, why = Outcome.CANNOT_SAY, f"here it is another effect, but {reason}"
    elif claim.scale and outcome is not Outcome.CANNOT_SAY:
        outcome, why = _of_another_size(claim, outcome, why, margin)
    return HeldClaim(
        claim,
        conditions.of_effect(effect),
        effect.response,
        *here,
        outcome,
        why,
        _published(claim),
        interval(effect) if effect.conclusion is Conclusion.VARIES else interval_of(effect, here),
        on_model,
    )


def _of_another_size(claim: Claim, outcome: Outcome, why: str, margin: float) -> tuple[Outcome, str]:
    """Return what work of another size than the published one says: a direction, or that there is no difference."""
    scale = f"the work here is {escape(claim.scale)}"
    if outcome is Outcome.NOT_CONFIRMED:
        return Outcome.CANNOT_SAY, f"{why}, but {scale}"
    sized = claim.ratio is not None and abs(log(claim.ratio)) > log1p(margin)
    if sized and outcome is not Outcome.COMPATIBLE:
        return Outcome.CONFIRMED, f"the same direction; no size is compared, since {scale}"
    return outcome, f"{why}; {scale}"


def _not_enough(claim: Claim, effect: Effect) -> str:
    """Return why an effect that disagrees with the claim does not contradict it; empty if it does."""
    if effect.conclusion.value.startswith("probably_"):
        return "not plainly: its interval reaches into the margin, or the injected slowdown was not seen"
    mean = None if effect.mean_ratio is None else effect.mean_ratio.ratio
    if mean is not None and effect.value is not None and (mean > 1.0) is not (effect.value > 1.0):
        return "the mean runs differ the other way than typical runs"
    return f"the work here is {escape(claim.scale)}" if claim.scale else ""


def _judge(
    claim: Claim,
    effect: Effect,
    ends: tuple[float | None, float | None],
    *,
    margin: float,
    valid: bool,
) -> tuple[Outcome, str]:
    """Apply the rules in the module docstring; ``ends`` are the ends of the interval for the claim's own pair."""
    if not valid:
        return Outcome.CANNOT_SAY, "the trial is invalid"
    if effect.conclusion is Conclusion.VARIES:
        return Outcome.CANNOT_SAY, "its conditions do not agree, so their mean describes none of them"
    if claim.ratio is None and claim.says is None:
        return Outcome.CANNOT_SAY, "the claim gives neither ratio nor direction"
    if effect.scale is not Scale.LOG and claim.ratio is not None:
        return Outcome.CANNOT_SAY, "the claim is a ratio, the effect here a difference"
    low, high = ends
    if claim.ratio is not None and (low is None or high is None):
        return Outcome.CANNOT_SAY, "the interval is not bounded yet"
    if effect.verdict is Verdict.INCONCLUSIVE and (effect.failures or effect.reason != BUDGET_SPENT):
        return Outcome.CANNOT_SAY, "the comparison is inconclusive"
    as_log = effect.scale is Scale.LOG
    a = -inf if low is None else log(low) if as_log else low
    b = inf if high is None else log(high) if as_log else high
    within = log1p(margin) if as_log else 0.0
    beyond = f"beyond {percent(margin)}" if as_log else "of any size"
    equivalent = effect.verdict is Verdict.EQUIVALENT
    claimed = None if claim.ratio is None else log(claim.ratio)
    if claim.says is Says.SAME or (claimed is not None and abs(claimed) <= within):
        return _no_difference(claimed, a, b, within, beyond, equivalent=equivalent)
    if claimed is None:
        return _direction(claim, effect, a, b, within, beyond)
    if equivalent:
        return Outcome.NOT_CONFIRMED, f"an effect {beyond} is excluded here"
    if claimed < 0:
        a, b = -b, -a
    return _size(abs(claimed), a, b, within, beyond)


def _no_difference(
    claimed: float | None, a: float, b: float, within: float, beyond: str, *, equivalent: bool
) -> tuple[Outcome, str]:
    if equivalent:
        size = "the claim has no size" if claimed is None else f"none {beyond} was published"
        return Outcome.CONFIRMED, f"a difference {beyond} is excluded here, and {size}"
    if a > within or b < -within:
        return Outcome.CONTRADICTED, "the claim says there is no difference, here there is one"
    if claimed is not None and a <= claimed <= b and (a > 0 or b < 0):
        return (
            Outcome.COMPATIBLE,
            f"the interval contains the published ratio, and also a difference {beyond}",
        )
    return Outcome.CANNOT_SAY, f"whether there is a difference {beyond} is undecided"


def _size(size: float, a: float, b: float, within: float, beyond: str) -> tuple[Outcome, str]:
    """Judge a claimed log ratio beyond the margin, taken as positive, by the interval [a, b] in its direction."""
    if a <= size <= b:
        if a >= size / 2 and b <= 2 * size:
            return Outcome.CONFIRMED, (
                "the interval contains the published ratio, and excludes half and twice the effect"
            )
        if a <= 0:
            return Outcome.CANNOT_SAY, "the interval contains both the published ratio and no effect"
        also = [f"effects that are not {beyond}"] if a <= within else []
        also += ["less than half of the effect"] if a < size / 2 else []
        also += ["more than twice the effect"] if b > 2 * size else []
        return Outcome.COMPATIBLE, f"the interval contains the published ratio, and also {joined(also)}"
    if b < -within:
        return Outcome.CONTRADICTED, "the effect here points the other way"
    if a > size:
        return Outcome.LARGER, "the same direction, but the interval excludes the published size"
    if a > within:
        return Outcome.SMALLER, "the same direction, but the interval excludes the published size"
    return (
        Outcome.NOT_CONFIRMED,
        f"the published size is excluded; whether there is an effect {beyond} is undecided",
    )


def _direction(
    claim: Claim, effect: Effect, a: float, b: float, within: float, beyond: str
) -> tuple[Outcome, str]:
    """Judge a direction without a size by the interval [a, b]."""
    assert claim.says is not None
    if claim.says in (Says.FASTER, Says.SLOWER):
        named_so = effect.better is not Better.NONE and effect.verdict not in (Verdict.BETTER, Verdict.WORSE)
        if not named_so:
            return Outcome.CANNOT_SAY, f'{escape(effect.response)} cannot be called "{claim.says.value}"'
        rising = (claim.says is Says.FASTER) is (effect.better is Better.HIGHER)
    else:
        rising = claim.says is Says.HIGHER
    if not rising:
        a, b = -b, -a
    if a > within:
        return Outcome.CONFIRMED, "the same direction; the claim has no size"
    if b < -within:
        return Outcome.CONTRADICTED, "the effect here points the other way"
    if effect.verdict is Verdict.EQUIVALENT:
        return Outcome.NOT_CONFIRMED, f"an effect {beyond} is excluded here"
    if a > 0:
        return Outcome.COMPATIBLE, f"the same direction, but whether the effect is {beyond} is undecided"
    if b <= within:
        return Outcome.NOT_CONFIRMED, f"an effect {beyond} in that direction is excluded here"
    return Outcome.CANNOT_SAY, "the comparison is inconclusive"


def _published(claim: Claim) -> str:
    if claim.ratio is None:
        return f"{escape(claim.text)} ({_pair(claim)})"
    return f"ratio {claim.ratio:.3g} ({_pair(claim)})"


def _pair(claim: Claim) -> str:
    return f"{named_level(escape(claim.factor), escape(claim.level))} against {escape(claim.reference)}"


def _inverse(number: float | None) -> float | None:
    return 1 / number if number else None


def _negative(number: float | None) -> float | None:
    return None if number is None else -number


def hold_value(
    claim: Claim, evidence: Sequence[EvidenceRow], *, valid: bool, setup: Setup | None = None
) -> tuple[HeldClaim, ...]:
    """Compare the claim with every condition that it may mean; if there are none, return one entry that says so."""
    rows = [row for row in evidence if _speaks_of_value(claim, row)]
    if not rows:
        why = (setup and not_run(claim, setup.study)) or "this trial has no such runs"
        return (unjudged(claim, (escape(claim.cannot), why), NOT_MEASURED),)
    if setup is None:
        return tuple(_against(claim, row, valid=valid) for row in rows)
    unlike = [mismatches(claim, setup, row.condition.levels, row.condition.workload) for row in rows]
    if all(unlike):
        return (unjudged(claim, min(unlike, key=len)),)
    pairs = zip(rows, unlike, strict=True)
    return tuple(_against(claim, row, valid=valid) for row, reasons in pairs if not reasons)


def _speaks_of_value(claim: Claim, row: EvidenceRow) -> bool:
    here = row.condition.labels
    return (
        row.is_response
        and row.metric == claim.response
        and row.condition.workload == claim.workload
        and row.treatment == claim.level
        and all(here.get(name) == label for name, label in claim.condition.items())
    )


def _against(claim: Claim, row: EvidenceRow, *, valid: bool) -> HeldClaim:
    assert claim.value is not None
    here = f"{_count(row.value)} in the median of {row.runs} runs"
    if row.low == row.high:
        here = f"{_count(row.value)} in {row.runs} runs"
    difference = row.value - claim.value
    if not valid:
        return _held_value(claim, row, Outcome.CANNOT_SAY, "the trial is invalid", here)
    if difference == 0:
        return _held_value(claim, row, Outcome.CONFIRMED, "the same number", here)
    if abs(difference) <= claim.tolerance:
        within = f"within the {_count(claim.tolerance)} that differ between builds of a program"
        return _held_value(claim, row, Outcome.CONFIRMED, within, here)
    if difference > 0:
        return _held_value(claim, row, Outcome.LARGER, f"{_count(difference)} more", here)
    return _held_value(claim, row, Outcome.SMALLER, f"{_count(-difference)} fewer", here)


def _held_value(claim: Claim, row: EvidenceRow, outcome: Outcome, why: str, here: str) -> HeldClaim:
    level = named_level(escape(claim.factor), escape(claim.level))
    published = f"{_count(claim.value or 0.0)} {escape(claim.response or '')} ({level})"
    return HeldClaim(claim, row.condition, claim.response, None, None, None, outcome, why, published, here)


def _count(value: float) -> str:
    """Format in full: rounded, two different counts would look the same."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
