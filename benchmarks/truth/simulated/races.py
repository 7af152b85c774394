"""Races of ``iotrial best`` with planted truth: how often a wrong setting is recommended, and how many runs a race needs.

For comparison, what people do: run every setting k times, one after the other, and take the best mean; or let Optuna
propose one run at a time and take its best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from exact import rate
from iotrial.report.best import as_good, keeps_the_gain
from iotrial.report.opening import packed_document
from iotrial.stats.eprocess import Wanted, intervals
from iotrial.stats.model import Effect
from iotrial.stats.race import ArmState, Rules, loss, race
from iotrial.stats.verdict import judge
from iotrial.study.model import Better, Response, Scale
from simulated.noise import Floats, Noise, Rng, autocorrelated, drifting, heavy_tailed, normal

ALPHA, MARGIN = 0.05, math.log1p(0.05)
#: standard deviation of one run, as a share
SCATTER = 0.04
MOST_BLOCKS = 120
TRIALS = 100
_TIME = Response("work", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
CATALOGUE = Path(__file__).resolve().parents[3] / "docs" / "catalogue"
#: trials whose runs serve as noise: of each kind of work one with many runs
RECORDED = (
    "block/queue",
    "filesystem/small-files",
    "mount/atime",
    "application/compress",
    "files/permissions",
)
NOISES: Mapping[str, Noise] = {
    "normal": normal,
    "heavy-tailed": heavy_tailed,
    "autocorrelated": autocorrelated,
    "drifting": drifting,
}


@cache
def _recorded(name: str) -> Floats:
    """Return a stored trial's noise: logarithms of its main response in time order, less the median of arm and condition."""
    document = packed_document(CATALOGUE / f"{name}.iotrial")
    main = {one.workload: one.name for one in reversed(document.trial.header.study.responses) if one.primary}
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run in document.data.runs:
        workload = document.conditions.of_key(run.condition).workload
        value = run.responses.get(main.get(workload, ""), 0.0)
        if run.failure is None and run.kind == "treatment" and value > 0.0:
            groups.setdefault((run.condition, run.arm), []).append((run.started_s, math.log(value)))
    found = [
        (at, value - float(np.median([v for _, v in group])))
        for group in groups.values()
        for at, value in group
    ]
    return np.array([value for _, value in sorted(found)])


def recorded(rng: Rng, trials: int, slots: int) -> Floats:
    """Return runs of real trials, from a random place on, around again at the end; in units of ``SCATTER``."""
    found = np.empty((trials, slots))
    for row in found:
        series = _recorded(RECORDED[rng.integers(len(RECORDED))])
        row[:] = series[(rng.integers(series.size) + np.arange(slots)) % series.size]
    return found / SCATTER


def sets(arms: int) -> dict[str, Floats]:
    """Return the true effects of each set of arms, as logarithms; the first is today's setting."""
    one_good = np.zeros(arms)
    one_good[-1] = -0.15
    bad = np.full(arms, 0.25)
    bad[0], bad[-1] = 0.0, -0.12
    return {
        "spread": np.concatenate([[0.0], np.linspace(-0.3, 0.4, arms - 1)]),
        "mostly bad": bad,
        "all equal": np.zeros(arms),
        "one good": one_good,
        "interaction": _interaction(arms),
    }


def _interaction(arms: int) -> Floats:
    """Return all combinations of two-level settings, of which the first two are worse alone and better together."""
    found = np.zeros(arms)
    for arm in range(arms):
        first, second = arm & 1, arm >> 1 & 1
        found[arm] = 0.06 * (first + second) - 0.3 * (first and second) + 0.1 * (arm >> 2 & 1)
    return found


@dataclass(frozen=True, slots=True)
class _Raced:
    runs: int
    pick: int | None
    values: Floats


class _Machine:
    """A machine that is measured run after run."""

    def __init__(self, rng: Rng, noise: Noise, effects: Floats, slots: int, scatter: float = SCATTER) -> None:
        self._noise = scatter * noise(rng, 1, slots)[0]
        self._effects = effects
        self.runs = 0

    def run(self, arm: int) -> float:
        """Return the logarithm of a time."""
        self.runs += 1
        return float(self._effects[arm] + self._noise[self.runs - 1])


def _raced(rng: Rng, noise: Noise, effects: Floats, scatter: float = SCATTER, every: int = 1) -> _Raced:
    """Run a race. ``every``: blocks from one look to the next."""
    arms = effects.size
    machine = _Machine(rng, noise, effects, MOST_BLOCKS * arms, scatter)
    rules = Rules(ALPHA, MARGIN, 1.0)
    values: Floats = np.empty((arms, 0))
    inside = list(range(arms))
    found: list[ArmState] = []
    while values.shape[1] < MOST_BLOCKS:
        block: Floats = np.full((arms, 1), np.nan)
        for arm in rng.permutation(inside):
            block[arm, 0] = machine.run(int(arm))
        values = np.hstack([values, block])
        if values.shape[1] % every:
            continue
        found = race(values, 0, rules)
        inside = [arm for arm, one in enumerate(found) if one.left is None or arm == 0]
        if any(one.good for one in found):
            break
    picks = [arm for arm, one in enumerate(found) if one.good]
    picks.sort(key=lambda arm: (arm.bit_count(), float(np.nanmean(values[arm] - values[0]))))
    return _Raced(machine.runs, picks[0] if picks else None, values)


def _to_verdicts(rng: Rng, noise: Noise, effects: Floats) -> int:
    """Run every setting in every block until each comparison with today's has a verdict; return the number of runs."""
    arms = effects.size
    machine = _Machine(rng, noise, effects, MOST_BLOCKS * arms)
    values: Floats = np.empty((arms, 0))
    waiting = list(range(1, arms))
    while waiting and values.shape[1] < MOST_BLOCKS:
        block: Floats = np.empty((arms, 1))
        for arm in rng.permutation(arms):
            block[arm, 0] = machine.run(int(arm))
        values = np.hstack([values, block])
        found = intervals([Wanted(values[arm] - values[0], ALPHA / (arms - 1), MARGIN) for arm in waiting])
        verdicts = [judge(one, _TIME, margin=math.expm1(MARGIN)) for one in found]
        waiting = [arm for arm, one in zip(waiting, verdicts, strict=True) if not one.decided]
    return machine.runs


def _best_mean(rng: Rng, noise: Noise, effects: Floats, each: int) -> int:
    machine = _Machine(rng, noise, effects, each * effects.size)
    means = [np.mean([machine.run(arm) for _ in range(each)]) for arm in range(effects.size)]
    return int(np.argmin(means))


def _by_optuna(rng: Rng, noise: Noise, effects: Floats, runs: int) -> int:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    machine = _Machine(rng, noise, effects, runs)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=int(rng.integers(1 << 31))))
    arms = list(range(effects.size))
    study.optimize(lambda trial: machine.run(trial.suggest_categorical("arm", arms)), n_trials=runs)
    return int(study.best_params["arm"])


def _wrong(effects: Floats, pick: int | None) -> bool:
    """Return whether a pick is worse than today's setting, or than the best by the margin or more."""
    if pick is None:
        return False
    return bool(effects[pick] - effects.min() >= MARGIN or (pick != 0 and effects[pick] >= effects[0]))


def _worse(effects: Floats, pick: int) -> bool:
    return bool(effects[pick] > effects[0])


def races(rng: Rng, scale: float) -> str:
    """Return the table of races: wrong recommendations, races without one, and runs, with those of verdicts on all.

    Each row holds all noises; runs and shares are those of the noises with the fewest and the most.
    """
    trials, others = max(4, round(TRIALS * scale)), max(3, round(TRIALS * scale / 5))
    lines = [
        f"**{trials} races for each of {len(NOISES)} noises; margin 5 %, alpha 5 %, a run scatters by {SCATTER:.0%}**",
        "",
        "Runs and shares are medians, of the noises with the fewest and the most. Controls are not counted.",
        "",
        "| settings | set | wrong | no answer | runs, median | all to verdicts | share |",
        "|---|---|---|---|---|---|---|",
    ]
    for arms in (8, 16):
        for name, effects in sets(arms).items():
            wrong = silent = 0
            runs, full = [], []
            for noise in NOISES.values():
                found = [_raced(rng, noise, effects) for _ in range(trials)]
                runs.append(float(np.median([one.runs for one in found])))
                full.append(float(np.median([_to_verdicts(rng, noise, effects) for _ in range(others)])))
                wrong += sum(_wrong(effects, one.pick) for one in found)
                silent += sum(one.pick is None for one in found)
            shares = [own / all_ for own, all_ in zip(runs, full, strict=True)]
            lines.append(
                f"| {arms} | {name} | {wrong} of {trials * len(NOISES)} | {silent} | {min(runs):.0f} to {max(runs):.0f} | "
                f"{min(full):.0f} to {max(full):.0f} | {min(shares):.2f} to {max(shares):.2f} |"
            )
    return "\n".join(lines)


def equal_races(rng: Rng, scale: float) -> str:
    """Return the table of races where all settings are equal: how many recommend another than today's, and how many none."""
    trials = max(4, round(2.6 * TRIALS * scale))
    lines = [
        f"**Races of equal settings, {trials} a cell; margin 5 %, alpha 5 %, a run scatters by {SCATTER:.0%}**",
        "",
        "| noise | 8 settings: wrong | no answer | 16 settings: wrong | no answer |",
        "|---|---|---|---|---|",
    ]
    for name, noise in NOISES.items():
        cells = []
        for arms in (8, 16):
            effects = sets(arms)["all equal"]
            picks = [_raced(rng, noise, effects).pick for _ in range(trials)]
            cells += [str(sum(_wrong(effects, pick) for pick in picks)), str(picks.count(None))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _binary(rng: Rng, settings: int, each: float | None) -> Floats:
    """Return the effects of all combinations of two-level settings, in the logarithm.

    ``each``: the gain of each setting in margins; None for random ones that interact.
    """
    alone = np.full(settings, -(each or 0.0) * MARGIN)
    both = np.zeros((settings, settings))
    if each is None:
        alone = rng.uniform(-2.0, 1.0, settings) * MARGIN
        both = rng.normal(0.0, 0.3 * MARGIN, (settings, settings))
    found = np.zeros(2**settings)
    for arm in range(found.size):
        on = [at for at in range(settings) if arm >> at & 1]
        found[arm] = alone[on].sum() + sum(both[i, j] for i in on for j in on if i < j)
    return found


def _confirming(values: Floats, margin: float) -> list[Effect]:
    """Return the effects of a confirmation. ``values``: today's, the winner's, and those without each of its settings."""
    today, winner, *lacking = values
    pairs = [
        (winner - today, "winner", "today"),
        *((one - winner, f"{at}", "winner") for at, one in enumerate(lacking)),
    ]
    wanted = [Wanted(pair[0], ALPHA / len(pairs), math.log1p(margin)) for pair in pairs]
    found = []
    for (_, level, reference), one in zip(pairs, intervals(wanted), strict=True):
        verdict = judge(one, _TIME, margin=margin)
        ends = [None if end is None else math.exp(end) for end in (one.low, one.high)]
        bounds = None if one.bounds is None else (math.exp(one.bounds[0]), math.exp(one.bounds[1]))
        found.append(
            Effect(
                "main", "settings", level, reference, {}, "work", "wall", "s", Scale.LOG, Better.LOWER, True, 1.0,
                ends[0], ends[1], ALPHA, 1.0, verdict.verdict, verdict.detectably, verdict.reason, verdict.detectable,
                one.blocks, 0, verdict.decided, None, margin, bounds=bounds,
            )
        )  # fmt: skip
    return found


@dataclass(frozen=True, slots=True)
class _Recommended:
    """What ``best`` recommends at the end, with the rule of one margin and with one margin for each stage."""

    once: int | None
    twice: int | None
    dropped: tuple[bool, bool]


def _confirmed(rng: Rng, noise: Noise, effects: Floats, raced: _Raced, scatter: float) -> _Recommended:
    """Confirm the winner of a race on fresh blocks, and leave out a setting that is not needed."""
    winner = raced.pick
    if not winner:  # today's settings, or a race without an end, which promises nothing
        return _Recommended(winner, winner, (False, False))
    lacking = [winner & ~(1 << at) for at in range(winner.bit_length()) if winner >> at & 1]
    lacking = lacking if len(lacking) > 1 else []
    spent = loss(raced.values, 0, Rules(ALPHA, MARGIN, 1.0), winner, apart_from=lacking)
    picks, dropped = [], []
    for margin, once in ((math.expm1(max(1e-5, MARGIN - spent)), True), (math.expm1(MARGIN), False)):
        arms = [0, winner, *lacking]
        noises = scatter * noise(rng, 1, MOST_BLOCKS * len(arms))[0].reshape(MOST_BLOCKS, len(arms))
        order = rng.permuted(np.tile(np.arange(len(arms)), (MOST_BLOCKS, 1)), axis=1)
        values = (effects[arms] + np.take_along_axis(noises, order, axis=1)).T
        for blocks in (*range(10, MOST_BLOCKS, 10), MOST_BLOCKS):
            found = _confirming(values[:, :blocks], margin)
            if all(one.decided for one in found):
                break
        whole, *without = found
        idle = [
            arm
            for arm, one in zip(lacking, without, strict=True)
            if as_good(one) and (not once or keeps_the_gain(one, whole, without))
        ]
        picks.append((idle[0] if idle else winner) if whole.conclusion.improves else 0)
        dropped.append(bool(idle))
    return _Recommended(picks[0], picks[1], (dropped[0], dropped[1]))


def left_out(rng: Rng, scale: float) -> str:
    """Return the table of recommendations after the confirmation: one margin in all, or one for each stage.

    Each trial draws its own effects. A recommendation is wrong if it is worse than today's settings, or worse by the margin
    or more than a combination that raced, in a race that came to its end.
    """
    trials = max(4, round(2 * TRIALS * scale))
    lines = [
        f"**{trials} searches a row among all combinations of two-level settings; margin 5 %, alpha 5 %**",
        "",
        "| settings | each gains | noise, scatter | wrong, one margin in all | one for each stage | left out | each |",
        "|---|---|---|---|---|---|---|",
    ]
    for settings, each, scatter, name in (
        (3, 0.6, 0.01, "normal"),
        (3, 0.7, 0.02, "heavy-tailed"),
        (4, 0.55, 0.01, "drifting"),
        (3, None, 0.01, "normal"),
        (3, None, 0.02, "heavy-tailed"),
        (2, None, 0.02, "autocorrelated"),
    ):
        wrong, dropped = np.zeros(2, dtype=int), np.zeros(2, dtype=int)
        for _ in range(trials):
            effects = _binary(rng, settings, each)
            raced = _raced(rng, NOISES[name], effects, scatter, every=5)
            found = _confirmed(rng, NOISES[name], effects, raced, scatter)
            dropped += found.dropped
            wrong += [_wrong(effects, found.once), _wrong(effects, found.twice)]
        gain = "random" if each is None else f"{each:g} margins"
        cells = " | ".join([*(rate(int(n), trials) for n in wrong), *(f"{n / trials:.2f}" for n in dropped)])
        lines.append(f"| {settings} | {gain} | {name}, {scatter:.0%} | {cells} |")
    return "\n".join(lines)


def recorded_races(rng: Rng, scale: float) -> str:
    """Return the table of races with planted effects on the noise of real trials."""
    trials = max(4, round(TRIALS * scale))
    lines = [
        f"**{trials} races a row on the runs of five trials of the catalogue, effects planted; margin 5 %, alpha 5 %**",
        "",
        f"| settings | set | wrong | no answer in {MOST_BLOCKS} blocks | runs, median |",
        "|---|---|---|---|---|",
    ]
    for arms in (8, 16):
        for name, effects in sets(arms).items():
            found = [_raced(rng, recorded, effects) for _ in range(trials)]
            wrong = sum(_wrong(effects, one.pick) for one in found)
            silent = sum(one.pick is None for one in found)
            runs = np.median([one.runs for one in found])
            lines.append(f"| {arms} | {name} | {wrong} of {trials} | {silent} | {runs:.0f} |")
    return "\n".join(lines)


def usual_choice(rng: Rng, scale: float) -> str:
    """Return the table of the usual practice: how often it picks a setting that is worse than today's."""
    trials, few = max(4, round(4 * TRIALS * scale)), max(4, round(TRIALS * scale / 2))
    lines = [
        "**The usual practice: how often the pick is worse than today's setting**",
        "",
        "All runs of one setting, then all of the next. In the first set a third of the settings are worse by 3 %, the "
        "rest equal.",
        "",
        "| settings | set | noise | best mean of 1 run | of 3 | of 10 | Optuna, as many runs as a race |",
        "|---|---|---|---|---|---|---|",
    ]
    for arms in (8, 16):
        chosen = {"nearly equal": 0.03 * (np.arange(arms) % 3 == 1), **sets(arms)}
        for name in ("nearly equal", "mostly bad", "one good"):
            effects = chosen[name]
            for noise_name, noise in NOISES.items():
                shares = [
                    np.mean([_worse(effects, _best_mean(rng, noise, effects, each)) for _ in range(trials)])
                    for each in (1, 3, 10)
                ]
                runs = _raced(rng, noise, effects).runs
                optuna = np.mean(
                    [_worse(effects, _by_optuna(rng, noise, effects, min(runs, 150))) for _ in range(few)]
                )
                cells = " | ".join(f"{share:.0%}" for share in (*shares, optuna))
                lines.append(f"| {arms} | {name} | {noise_name} | {cells} |")
    return "\n".join(lines)
