"""The results of a fleet in sentences, of which the first can stand alone, and what such a report can claim."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from iotrial.fleet.verdict import FleetComparison, FleetReport, HostRow, on_scale, why_invalid
from iotrial.report.notation import counted, elided, interval_numbers, joined, percent, plain, quantity
from iotrial.report.phrases import (
    interval,
    interval_of,
    is_speed,
    label,
    level_name,
    response_name,
    size_in_words,
    statement,
    still_possible,
)
from iotrial.report.risks import explained, risk_note, risk_of
from iotrial.stats.fleet.combine import FEWEST_BLOCKS
from iotrial.stats.fleet.outliers import FEWEST as FEWEST_FOR_OUTLIERS
from iotrial.stats.model import EQUIVALENT_WORDS, Conclusion, Verdict
from iotrial.study.model import Scale
from iotrial.terminal import escape

_MOST_NAMED = 5
_OPPOSITES = ({"faster", "slower"}, {"better", "worse"}, {"higher", "lower"})
_LONGEST_NAME = 40
_LARGE_FACTOR = 3.0
#: above these a spread (SD as a factor) and a prediction interval (ratio of its ends) are uninformative
_HOPELESS_FACTOR, _HOPELESS_RANGE = 10.0, 100.0
_LONGEST_REASON = 60


def headline(report: FleetReport) -> str:
    """Return the first sentence. It warns if the faster level puts data at risk on average."""
    return f"{_found(report).removesuffix('.')}{danger(report)}."


def danger(report: FleetReport) -> str:
    """Return the headline's warning about levels that are faster on average and put data at risk, or ""."""
    return risk_note([one.mean for one in primary(report) if one.mean is not None], report.risks)


def mean_verdict(one: FleetComparison, report: FleetReport) -> tuple[str, str]:
    """Return the verdict on the mean over hosts, and the risk mark of a level that puts data at risk, or ""."""
    return (
        ("no verdict", "")
        if one.mean is None
        else (one.mean.conclusion.words, risk_of(one.mean, report.risks))
    )


def _found(report: FleetReport) -> str:
    main = primary(report)
    if not main:
        return f"No verdict: none of {counted(len(report.hosts), 'host')} has a comparison."
    if len(main) == 1:
        return _sentence(report, main[0])
    spoken = [one for one in main if one.mean is not None]
    if not spoken:
        return f"No verdict over hosts: {_too_few(report, main[0])}."
    counts = Counter(one.mean.conclusion.words for one in spoken if one.mean is not None)
    over = f"On average over {_over(report, spoken[0])}"
    if len(counts) == 1 and len(spoken) == len(main):
        return f"{over}, all {len(main)} comparisons are {spoken[0].mean.conclusion.words}."  # type: ignore[union-attr]
    words = joined(f"{word} in {number}" for word, number in counts.most_common())
    return f"{over}, of {counted(len(main), 'comparison')}: {words}."


def details(report: FleetReport) -> Iterator[str]:
    """Yield the sentences after the headline: those of the only comparison, or of what several have in common."""
    main = primary(report)
    if report.running:
        yield (
            f"{counted(report.running, 'host')} still running: the mean is provisional. Its interval is valid "
            f"only once, after the last host; the hosts' own verdicts are valid at any time."
        )
    yield from explained(report.risks)
    if report.shared and main:
        yield f"Measured with {_levels(report.shared)}."
    if len(main) == 1:
        yield from comparison_details(report, main[0])
    if len(main) > 1:
        named = [f"{title(one)} ({_names(_outlying(one))})" for one in main if _outlying(one)]
        if named:
            yield f"Outlying hosts: {joined(named[:_MOST_NAMED])}."
        if unsound := [reason for one in report.hosts if (reason := why_invalid(one)) is not None]:
            of = counted(len(report.hosts), "host")
            yield f"Not averaged: {len(unsound):,} of {of} ({_counted_reasons(unsound)})."
    if report.replaced:
        yield (
            f"{counted(len(report.replaced), 'trial')} of this fleet "
            f"{'is' if len(report.replaced) == 1 else 'are'} ignored: the host has a newer one."
        )


def comparison_details(report: FleetReport, one: FleetComparison) -> Iterator[str]:
    """Yield details of one comparison: individual hosts, spread, evidence, outliers, hosts left out."""
    own = Counter(
        row.effect.conclusion.words
        for row in one.rows
        if row.effect is not None and row.part.distrusted is None
    )
    if own:
        text = joined(f"{number:,} {verdict}" for verdict, number in own.most_common())
        yield f"Individual hosts: {text}. Each verdict is that of the host's own trial, at its own error level."
    if own and own.keys() <= EQUIVALENT_WORDS and own.total() == len(one.rows) > 1:
        yield f"That every host is equivalent is wrong with probability {one.found.alpha:g} at most, for all together."
    if any(pair <= {word.removeprefix("probably ") for word in own} for pair in _OPPOSITES):
        yield "Hosts differ in direction, and the mean averages over both."
    if (spread := spread_words(one)) is not None:
        yield spread
    yield evidence_words(one)
    if out := _outlying(one):
        yield f"Outlying: {_names(out)}. Their effect does not fit the spread between the others."
    if missing := [row for row in one.rows if row.why is not None]:
        text = _counted_reasons([reason_of(row) for row in missing])
        yield f"Not averaged: {counted(len(missing), 'host')} of {len(report.hosts)} ({text})."
    differing = [
        f"{escape(table.name)} {label(found.other)} against {label(found.base)}"
        for table in one.found.moderators
        for found in table.differences
        if found.shown
    ]
    if differing:
        yield f"The effect is associated with {joined(differing[:_MOST_NAMED])}: an observation, not a proven cause."


def claims(report: FleetReport) -> Iterator[str]:
    """Yield what the report can and cannot claim, for its end."""
    yield (
        'The evidence against "no effect on any host" shows that at least one host has an effect, not which one or in '
        "which direction. It is valid at any time, for hosts that stopped early, and for hosts that share a server, because "
        "each host randomises its own order."
    )
    yield (
        "The mean applies to other hosts only as far as these hosts are a random sample of them. Its interval "
        "is valid once, after the last host, and assumes that effects are roughly normally distributed between "
        "hosts and that hosts are independent: hosts on one server or hypervisor may not be, and then count for less."
    )
    yield (
        "A host that stops as soon as its verdict is clear keeps some of the luck that stopped it: METHOD.md "
        "says how far that moves the mean. `--no-stop` avoids it."
    )
    yield (
        "Not averaged: hosts that are invalid, failed or still running, had a change of their effect, or have fewer than "
        f"{FEWEST_BLOCKS} usable blocks. No host is left out because of the size of its effect; outliers are "
        f"named and stay in the mean."
    )
    yield (
        "Properties of hosts are observational: kernels were not assigned at random, and hosts that differ in "
        "one property differ in others."
    )
    yield f"A host's own interval misses the true effect with probability {report.alpha:g} at most; of many hosts, some do."


def primary(report: FleetReport) -> tuple[FleetComparison, ...]:
    """Return the comparisons used in sentences: the main effects, or all comparisons if there are none."""
    main = tuple(one for one in report.comparisons if one.like.kind == "main")
    return main or report.comparisons


def title(one: FleetComparison) -> str:
    """E.g. "atime noatime against strictatime (cache cold), read time", without what all comparisons share."""
    like = one.like
    place = f" ({_levels(one.place)})" if one.place else ""
    response = "" if is_speed(like) else f", {response_name(like)}"
    return f"{level_name(like)} against {label(like.reference)}{place}{response}"


def short_title(one: FleetComparison) -> str:
    """E.g. "atime noatime / strictatime", for a table that shows the condition elsewhere."""
    like = one.like
    response = "" if is_speed(like) else f", {response_name(like)}"
    return f"{level_name(like)} / {label(like.reference)}{response}"


def place_words(one: FleetComparison) -> str:
    """Return a comparison's condition without what all share: "workload probe, cache cold"; empty if there is none."""
    return _levels(one.place)


def spread_words(one: FleetComparison) -> str | None:
    """Describe how much hosts differ, and what to expect of a further one."""
    mean, like = one.found.mean, one.like
    if mean is None:
        return None
    few = f"{counted(mean.hosts, 'host')} with intervals as wide as these"
    if like.scale is Scale.LOG:
        ends = [math.exp(min(end, 50.0)) for end in (mean.spread, mean.spread_low, mean.spread_high)]
        if ends[2] > _HOPELESS_FACTOR:
            further = (
                "nor the effect on another host" if mean.hosts > 2 else "and two hosts cannot predict a third"
            )
            return f"How much true effects differ between hosts cannot be estimated from {few}, {further}."
        numbers = interval_numbers(ends[0], ends[1], ends[2], null=1.0)
        if ends[2] > _LARGE_FACTOR:
            numbers = plain(ends[0]), plain(ends[1]), plain(ends[2])
        text = f"by a factor of {numbers[0]} [{numbers[1]}, {numbers[2]}]"
    else:
        size, low, high = (
            quantity(end, like.unit) for end in (mean.spread, mean.spread_low, mean.spread_high)
        )
        text = f"by {size} [{low}, {high}]"
    differ = f"True effects differ between hosts {text} (one standard deviation)"
    if mean.new_host_low is None or mean.new_host_high is None:
        return f"{differ}; two hosts cannot predict a third."
    if like.scale is Scale.LOG and mean.new_host_high - mean.new_host_low > math.log(_HOPELESS_RANGE):
        return f"{differ}. The effect on another host cannot be estimated from {few}."
    new = interval_of(
        like,
        (on_scale(mean.value, like), on_scale(mean.new_host_low, like), on_scale(mean.new_host_high, like)),
    )
    between = new.partition("[")[2].partition("]")[0].replace(", ", " and ")
    return f"{differ}. Expected on another host like these: between {between} ({_covered(one.found.alpha)})."


def evidence_words(one: FleetComparison) -> str:
    """Describe the e-values against "no effect on any host"."""
    found = one.found.evidence
    if not found.hosts:
        return "No evidence for or against an effect: no host can be used."
    wanted = plain(1 / one.found.alpha)
    value = e_value_words(found.log_e)
    if not found.excluded:
        return f'"No effect on any host" is not excluded: e-value {value}, needs {wanted}.'
    least = ""
    if found.least_hosts_with_an_effect > 1:
        least = f" At least {found.least_hosts_with_an_effect:,} of {found.hosts:,} hosts have one."
        if found.least_hosts_with_an_effect == found.hosts:
            least = " Both hosts have one." if found.hosts == 2 else f" All {found.hosts:,} hosts have one."
    return f'"No effect on any host" is excluded: e-value {value}, needed {wanted}.{least}'


def e_value_words(log_e: float) -> str:
    """Format as a number, or as a power of ten if far from 1."""
    ten = log_e / math.log(10)
    if math.isinf(ten):
        return "0"
    return plain(math.exp(log_e)) if -2 < ten < 4 else f"10^{ten:.0f}"


def reason_of(row: HostRow) -> str:
    """Return why a host is not averaged."""
    return row.why or ""


def note_of(row: HostRow) -> str:
    """Return the note on a host in a table: outlying, why it is not averaged, interrupted, without controls."""
    parts = []
    if row.outlier is not None:
        side = "above" if row.outlier.distance > 0 else "below"
        parts.append(f"outlying: {abs(row.outlier.distance):.1f} SD {side} the others")
    if row.why is not None:
        parts.append(f"not averaged: {escape(row.why)}")
    if row.trial.state.value == "interrupted":
        parts.append("interrupted")
    if not row.trial.controlled and row.trial.problem is None:
        parts.append("without controls")
    return "; ".join(parts)


def host_verdict(row: HostRow) -> str:
    """Return the host's own verdict; "no verdict" if its result does not count."""
    if row.effect is None or row.part.distrusted is not None:
        return "no verdict"
    word = row.effect.conclusion.words
    return f"{word}, detectably {escape(row.effect.detectably)}" if row.effect.detectably else word


def host_name(row: HostRow) -> str:
    """Return the host's name, sanitised and shortened for a table."""
    return elided(escape(row.trial.host), _LONGEST_NAME)


def mean_words(one: FleetComparison) -> str:
    """Return the interval of the mean, or "no mean"."""
    return "no mean" if one.mean is None else interval(one.mean)


def _sentence(report: FleetReport, one: FleetComparison) -> str:
    if one.mean is None:
        return f"No verdict over hosts: {_too_few(report, one)}."
    over = f"On average over {_over(report, one)}"
    if one.mean.conclusion is Conclusion.VARIES:
        return f"{over}, {title(one)} differs by condition: {interval(one.mean)}."
    match one.mean.verdict:
        case Verdict.EQUIVALENT:
            same = "as fast as" if is_speed(one.mean) else "the same as"
            reference = label(one.mean.reference)
            within = f"within {percent(report.margin)}: {interval(one.mean)}"
            return f"{over}, {level_name(one.mean)} is {same} {reference} {within}."
        case Verdict.INCONCLUSIVE:
            return f"{over}, {title(one)} is undecided: {interval(one.mean)}. {still_possible(one.mean)}."
        case _:
            return f"{over}, {statement(one.mean)}: {size_in_words(one.mean)}."


def _levels(levels: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{escape(name)} {escape(value)}" for name, value in levels)


def _counted_reasons(found: Sequence[str]) -> str:
    reasons = Counter(elided(escape(reason), _LONGEST_REASON) for reason in found)
    return "; ".join(f"{number} × {reason}" for reason, number in reasons.most_common(_MOST_NAMED))


def _covered(alpha: float) -> str:
    """Format 1 - alpha with as many digits as alpha needs: "95 %", "99.6 %"."""
    for decimals in range(6):
        text = f"{100 * (1 - alpha):.{decimals}f}"
        if abs(float(text) - 100 * (1 - alpha)) <= 10 * alpha:
            return f"{text} %"
    return f"1 - {alpha:.2g}"


def _over(report: FleetReport, one: FleetComparison) -> str:
    averaged = len(one.averaged)
    if averaged == len(report.hosts):
        return counted(averaged, "host")
    return f"{averaged:,} of {counted(len(report.hosts), 'host')}"


def _too_few(report: FleetReport, one: FleetComparison) -> str:
    averaged = one.averaged
    if not averaged:
        return f"none of {counted(len(report.hosts), 'host')} can be averaged"
    (row,) = averaged
    return f"1 of {counted(len(report.hosts), 'host')} counts, {host_name(row)}: {host_verdict(row)}"


def _outlying(one: FleetComparison) -> list[HostRow]:
    return [row for row in one.ordered if row.outlier is not None]


def _names(rows: Sequence[HostRow]) -> str:
    named = [f"{host_name(row)} at {_own(row)}" for row in rows[:_MOST_NAMED]]
    return joined([*named, f"{len(rows) - _MOST_NAMED} more"] if len(rows) > _MOST_NAMED else named)


def _own(row: HostRow) -> str:
    return "?" if row.effect is None else interval(row.effect)


def outliers_sought(one: FleetComparison) -> str:
    """Describe the search for outlying hosts and its result."""
    if not one.found.outliers_sought:
        return f"Outliers are only looked for among {FEWEST_FOR_OUTLIERS} or more averaged hosts."
    found = len(one.found.outliers)
    return f"{counted(found, 'outlying host') if found else 'No outlying host'} at {one.found.alpha:g} over all hosts (Holm)."
