"""Skewed runs and stalls in one arm: how often each word is wrong, with the median where contrasts are skewed and without.

And in all arms: how soon the injected slowdown is seen, and how often an identical copy is called different.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from exact import bounds, rate
from iotrial.design.model import ArmKind, Condition
from iotrial.stats.contrast import PairedRuns, Runs
from iotrial.stats.controls import judge_controls
from iotrial.stats.eprocess import Wanted, excluded, intervals
from iotrial.stats.model import Interval, Observation, ObservedBlock, Verdict
from iotrial.stats.run_statistics import means
from iotrial.stats.skew import CAP, contradicts, typical_interval
from iotrial.stats.spec import Spec
from iotrial.stats.verdict import judge
from iotrial.study.model import Better, Response, Scale
from simulated.noise import Floats, Rng
from simulated.stalls import _ALIKE, _bursts

TIME = Response("w", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
MARGIN, SD, BLOCKS, ALPHA = 0.03, 0.05, 160, 0.05
LIMIT = math.log1p(MARGIN)
LOOKS = sorted(
    {*range(8, 21, 2), *(round(20 * 1.12**step) for step in range(19)), BLOCKS} & set(range(BLOCKS + 1))
)
Draw = Callable[[Rng, int], tuple[Floats, Floats]]


def _calm(rng: Rng, n: int) -> Floats:
    return rng.normal(0.0, SD / math.sqrt(2.0), n)


def _stalls(level: float, reference: float, times: float) -> Draw:
    def draw(rng: Rng, n: int) -> tuple[Floats, Floats]:
        return tuple(_calm(rng, n) + math.log(times) * (rng.random(n) < p) for p in (level, reference))  # type: ignore[return-value]

    return draw


def _bursty(rng: Rng, n: int) -> tuple[Floats, Floats]:
    return _calm(rng, n) + math.log(2.0) * _bursts(rng, n, 0.1, 8.0), _calm(rng, n)


def _t3(rng: Rng, n: int) -> tuple[Floats, Floats]:
    x, y = SD / math.sqrt(6.0) * rng.standard_t(3, (2, n))
    return x, y


#: the settings of ``stats.skew`` were chosen on these ...
CHOSEN: dict[str, Draw] = {
    "5 % of B's runs doubled": _stalls(0.05, 0.0, 2.0),
    "2 % of B's runs tenfold": _stalls(0.02, 0.0, 10.0),
    "30 % of B's runs x 1.5": _stalls(0.3, 0.0, 1.5),
    "exponential time added to B, mean 10 %": lambda rng, n: (
        _calm(rng, n) + np.log1p(rng.exponential(0.1, n)),
        _calm(rng, n),
    ),
    "10 % of B's runs doubled, 8 in a row": _bursty,
}
#: ... and are judged on these
HELD_OUT: dict[str, Draw] = {
    "20 % of B's runs doubled": _stalls(0.2, 0.0, 2.0),
    "7 % of B's runs tripled": _stalls(0.07, 0.0, 3.0),
    "40 % of B's, 20 % of A's runs halved": _stalls(0.4, 0.2, 0.5),
    "a third of B's runs 100 times as fast": _stalls(0.32, 0.0, 0.01),
    "run SD .25 in B, .035 in A": lambda rng, n: (rng.normal(0.0, 0.25, n), _calm(rng, n)),
    "Pareto time added to B (1.5)": lambda rng, n: (
        _calm(rng, n) + np.log1p(0.05 * rng.pareto(1.5, n)),
        _calm(rng, n),
    ),
}
SYMMETRIC: dict[str, Draw] = {
    "normal": _stalls(0.0, 0.0, 2.0),
    "heavy-tailed (t, 3 df)": _t3,
    "5 % of all runs tenfold": _stalls(0.05, 0.05, 10.0),
}
WORDS = ("direction", "probable", "typical", "equivalent")


def skewed_table(rng: Rng, scale: float) -> str:
    """Tabulate the words where medians are equal, and *equivalent* where they differ by exactly the margin."""
    trials = max(20, int(200 * scale))
    out = [
        f"**Skewed runs: {trials} trials of at most {BLOCKS} blocks, run SD {SD / math.sqrt(2):.1%}, margin {MARGIN:.0%}, "
        f"alpha {ALPHA}; symmetric bets alone / as published**",
        "",
        "Medians equal, a look after every second block and then at 12 % growth, until the verdict is final. The last column "
        f"has medians that differ by exactly the margin. 0.000: at most {bounds(0, trials)[1]:.3f}, by its 95 % bound.",
        "",
        "| runs | ratio of means | faster, slower | probably | typical runs equivalent | equivalent | blocks "
        "| equivalent of any kind at the margin |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for title, cases in (("chosen on", CHOSEN), ("held out", HELD_OUT), ("symmetric", SYMMETRIC)):
        for name, draw in cases.items():
            big = draw(rng, 400_000)
            median = float(np.median(big[0]) - np.median(big[1]))
            mean = float(np.exp(big[0] - median).mean() / np.exp(big[1]).mean())
            arms = [(y - median, x) for y, x in (draw(rng, BLOCKS) for _ in range(trials))]
            none = _ends(arms)
            edge = _ends([(y + LIMIT, x) for y, x in arms])
            counts = [Counter(word for word, _ in found) for found in none]
            cells = [" / ".join(f"{one[word] / trials:.3f}" for one in counts) for word in WORDS]
            blocks = " / ".join(f"{np.median([n for _, n in found]):.0f}" for found in none)
            wrong = [sum(word in ("typical", "equivalent") for word, _ in found) for found in edge]
            at_margin = " / ".join(f"{one / trials:.3f}" for one in wrong)
            out.append(f"| {name} ({title}) | {mean:.3f} | {' | '.join(cells)} | {blocks} | {at_margin} |")
    return "\n".join(out)


def _changing(start: int, change: float, stalling: float = 0.0) -> Draw:
    """An effect that begins at a block, with stalls of both arms or without."""

    def draw(rng: Rng, n: int) -> tuple[Floats, Floats]:
        level, reference = _stalls(stalling, stalling, 3.0)(rng, n)
        return level + change * (np.arange(n) >= start), reference

    return draw


#: blocks that may contradict each other: by stalls alone, or because the effect changes
CONTRADICTING: dict[str, Draw] = {
    **{f"stalls: {name}": draw for name, draw in {**CHOSEN, **HELD_OUT, **SYMMETRIC}.items()},
    "effect: 20 % from block 20 on": _changing(20, math.log(1.2)),
    "effect: 20 % from block 60 on": _changing(60, math.log(1.2)),
    "effect: 8 % from block 40 on": _changing(40, math.log(1.08)),
    "both: 20 % from block 40 on, 5 % of all runs tripled": _changing(40, math.log(1.2), 0.05),
    "both: 8 % from block 40 on, 10 % of all runs tripled": _changing(40, math.log(1.08), 0.1),
}


_CONTRADICTING_AT = (24, 48, 96, BLOCKS)


def contradictions_table(rng: Rng, scale: float) -> str:
    """Tabulate what is said where blocks contradict each other, by whether stalls or a change of the effect are the cause."""
    trials = max(20, int(200 * scale))
    out = [
        f"**Blocks that contradict each other: {trials} trials, looks after "
        f"{', '.join(map(str, _CONTRADICTING_AT))} blocks, alpha {ALPHA}** [95 % bounds]",
        "",
        "Share of trials in which the bets on symmetric runs find a contradiction at a look, and what is said there at last.",
        "",
        "| cause: noise | contradiction | stalls named | chance, or the effect changed | effect changed |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, draw in CONTRADICTING.items():
        arms, last = [draw(rng, BLOCKS) for _ in range(trials)], [""] * trials
        for n in _CONTRADICTING_AT:
            values = [level[:n] - reference[:n] for level, reference in arms]
            found = intervals([Wanted(one, ALPHA, LIMIT) for one in values])
            for trial, ((level, reference), one) in enumerate(zip(arms, found, strict=True)):
                if one.empty or one.leaning:
                    pairs = PairedRuns(level[:n, None], reference[:n, None])
                    one = typical_interval(one, values[trial].tolist(), pairs, TIME, ALPHA, LIMIT)
                    last[trial] = "stalls" if one.skewed else "empty" if one.empty else "leaning"
        said = Counter(last)
        cells = [rate(trials - said[""], trials)]
        cells += [f"{said[word] / trials:.3f}" for word in ("stalls", "leaning", "empty")]
        out.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(out)


def _ends(arms: list[tuple[Floats, Floats]]) -> list[list[tuple[str, int]]]:
    """Return the word and the block with which each trial ends, by the symmetric bets alone, then as published."""
    found: list[dict[int, tuple[str, int]]] = [{}, {}]
    for n in LOOKS:
        going = [trial for trial in range(len(arms)) if any(trial not in one for one in found)]
        wanted = [Wanted(arms[trial][0][:n] - arms[trial][1][:n], ALPHA, LIMIT) for trial in going]
        for trial, one in zip(going, intervals(wanted), strict=True):
            level, reference = arms[trial]
            for plain, ended in zip((True, False), found, strict=True):
                if trial not in ended:
                    word, decided = _word(one, level[:n], reference[:n], plain=plain)
                    if decided or n == BLOCKS:
                        ended[trial] = word, n
    return [[ended[trial] for trial in range(len(arms))] for ended in found]


def _word(found: Interval, level: Floats, reference: Floats, *, plain: bool) -> tuple[str, bool]:
    pairs = PairedRuns(level[:, None], reference[:, None])
    mean, against = None, False
    if not plain:
        found = typical_interval(found, (level - reference).tolist(), pairs, TIME, ALPHA, LIMIT)
        mean, against = means(pairs, ALPHA, cap=CAP, margin=MARGIN), contradicts(pairs, found)
    judged = judge(found, TIME, margin=MARGIN, contradicted=against, means=mean)
    if judged.verdict is Verdict.EQUIVALENT:
        return ("typical" if mean is not None and not mean.equivalent else "equivalent"), judged.decided
    if judged.verdict is Verdict.INCONCLUSIVE:
        return "undecided", judged.decided
    low = -math.inf if found.low is None else found.low
    high = math.inf if found.high is None else found.high
    return ("direction" if low > LIMIT or high < -LIMIT else "probable"), judged.decided


_ARMS = {
    "reference": ArmKind.TREATMENT,
    "control:negative": ArmKind.NEGATIVE,
    "control:positive": ArmKind.POSITIVE,
}
_INJECTED, _SEEN_AT = 1.0 + 2.0 * MARGIN, (24, 48, 100)
_CONDITION = Condition(0, "workload=w", "w", {})
_SPEC = Spec(
    conditions=(_CONDITION,),
    terms=(),
    control_weights={
        ArmKind.NEGATIVE: {"control:negative": 1.0, "reference": -1.0},
        ArmKind.POSITIVE: {"control:positive": 1.0, "reference": -1.0},
    },
    responses=(TIME,),
    alpha=ALPHA,
    margin=MARGIN,
    controls=True,
    injected=_INJECTED,
    primary_effects=1,
)


def controls_table(rng: Rng, scale: float) -> str:
    """Tabulate the controls where the runs of all arms are skewed, by symmetric bets alone and as published."""
    trials = max(20, int(200 * scale))
    out = [
        f"**Controls under skew, the same noise in all arms: {trials} trials, slowdown {_INJECTED - 1:.0%}, alpha {ALPHA}; "
        "symmetric bets alone / as published**",
        "",
        f"The last two columns are at any of {len(_SEEN_AT)} looks [95 % bounds]: the copy and the size of the slowdown at "
        f"{_SPEC.control_alpha:g} each, a slowdown of none at alpha.",
        "",
        "| runs | "
        + " | ".join(f"slowdown seen by block {n}" for n in _SEEN_AT)
        + " | control failed | seen though none |",
        "| --- |" + " --- |" * (len(_SEEN_AT) + 2),
    ]
    cases: dict[str, Callable[[Rng, int], Floats]] = {
        f"{name} ({title})": (lambda rng, n, draw=draw: draw(rng, n)[0])
        for title, some in (("chosen on", CHOSEN), ("held out", HELD_OUT), ("symmetric", SYMMETRIC))
        for name, draw in some.items()
        if draw is not _bursty  # which stalls an arm, not a time
    }
    cases |= {f"{name} (held out)": draw for name, draw in _ALIKE.items()}
    in_arms = {
        name: (lambda rng, n, draw=draw: np.array([draw(rng, n) for _ in _ARMS]))
        for name, draw in cases.items()
    }
    in_arms["10 % of all runs doubled, 8 in a row (held out)"] = _bursts_in_time
    in_arms["5 % of all runs tenfold, 30 in a row (held out)"] = lambda rng, n: _bursts_in_time(
        rng, n, 0.05, 30.0, 10.0
    )
    for name, draw in in_arms.items():
        seen = np.zeros((2, len(_SEEN_AT)), dtype=int)
        failed, alarms = np.zeros(2, dtype=int), np.zeros(2, dtype=int)
        for _ in range(trials):
            found = _controls(draw(rng, _SEEN_AT[-1]), _INJECTED)
            seen += found[:, :, 0]
            failed += found[:, :, 1].any(axis=1)
            none = _controls(draw(rng, _SEEN_AT[-1]), 1.0)
            alarms += none[:, :, 0].any(axis=1)
        cells = [f"{a / trials:.2f} / {b / trials:.2f}" for a, b in seen.T]
        cells += [f"{a / trials:.3f} / {rate(int(b), trials)}" for a, b in (failed, alarms)]
        out.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(out)


def _bursts_in_time(rng: Rng, n: int, share: float = 0.1, length: float = 8.0, times: float = 2.0) -> Floats:
    """Return ln of run times by arm and block; stalls come in bursts over the runs in time order."""
    stalled = _bursts(rng, len(_ARMS) * n, share, length).reshape(n, len(_ARMS))
    slots = rng.random(stalled.shape).argsort(axis=1)
    return np.array(
        [_calm(rng, n) + math.log(times) * row for row in np.take_along_axis(stalled, slots, axis=1).T]
    )


def _controls(logs: Floats, slowdown: float) -> np.ndarray:
    """Return, by method and look, whether the slowdown was seen in either direction, and whether a control failed.

    ``logs``: ln of the run times of reference, copy and slowed run before the slowdown, by block.
    """
    logs = logs + np.array([[0.0], [0.0], [math.log(slowdown)]])
    values = np.exp(logs)
    blocks = [
        ObservedBlock(
            _CONDITION.key,
            index,
            tuple(
                Observation(arm, kind, {}, slot, 0.0, {TIME.name: float(values[slot, index])})
                for slot, (arm, kind) in enumerate(_ARMS.items())
            ),
        )
        for index in range(values.shape[1])
    ]
    out = np.zeros((2, len(_SEEN_AT), 2), dtype=bool)
    for look, n in enumerate(_SEEN_AT):
        slowed, copy = logs[2, :n] - logs[0, :n], logs[1, :n] - logs[0, :n]
        out[0, look] = (
            excluded(slowed, 0.0, ALPHA, margin=LIMIT, copies=copy),
            excluded(slowed, math.log(_INJECTED), _SPEC.control_alpha)
            or excluded(copy, 0.0, _SPEC.control_alpha),
        )
        negative, positive = judge_controls(_SPEC, _CONDITION, Runs(blocks[:n]))
        out[1, look] = positive.told_from_zero, not (negative.passed and positive.passed)
    return out
