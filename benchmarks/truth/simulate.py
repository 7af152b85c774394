"""Simulations behind METHOD.md: what the design and the analysis promise, tried on noise of known truth.

    python benchmarks/truth/simulate.py                 all tables, two to three minutes on one core
    python benchmarks/truth/simulate.py false-alarms    one of them (see --help)
    python benchmarks/truth/simulate.py power-table     the table of python/iotrial/analysis/power.py

Seeds come from the system and are printed; ``--seed`` repeats a run.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from iotrial.analysis.anytime_t import t_interval
from iotrial.analysis.betting import log_paths
from iotrial.analysis.power import TABLE_ALPHAS, TABLE_BLOCKS

Rng = np.random.Generator


def normal(rng: Rng, trials: int, slots: int) -> np.ndarray:
    """Independent normal noise."""
    return rng.normal(size=(trials, slots))


def heavy(rng: Rng, trials: int, slots: int) -> np.ndarray:
    """Student's t with 3 degrees of freedom."""
    return rng.standard_t(3, size=(trials, slots))


def spiky(rng: Rng, trials: int, slots: int) -> np.ndarray:
    """Normal, and one run in twenty stalls for 5 to 50 standard deviations."""
    stalls = rng.random((trials, slots)) < 0.05
    return rng.normal(size=(trials, slots)) + stalls * rng.uniform(5, 50, size=(trials, slots))


def drifting(rng: Rng, trials: int, slots: int) -> np.ndarray:
    """Lag-1 autocorrelation .9 from run to run."""
    out = rng.normal(size=(trials, slots))
    for i in range(1, slots):
        out[:, i] = 0.9 * out[:, i - 1] + math.sqrt(1 - 0.81) * out[:, i]
    return out


def alternating(rng: Rng, trials: int, slots: int) -> np.ndarray:
    """A disturbance of every second run, of a size that changes slowly, and a slow-down in the middle."""
    sign = np.where(np.arange(slots) % 2 == 0, 1.0, -1.0)
    late = (np.arange(slots) > slots // 2) * rng.normal(0, 5, size=(trials, 1))
    return sign * np.abs(drifting(rng, trials, slots)) * 2 + late + 0.5 * rng.normal(size=(trials, slots))


NOISE: dict[str, Callable[[Rng, int, int], np.ndarray]] = {
    "normal": normal,
    "t, 3 degrees of freedom": heavy,
    "stalls (1 run in 20)": spiky,
    "autocorrelated (.9)": drifting,
    "alternating + step": alternating,
}


def contrasts(rng: Rng, noise: np.ndarray, *, order: str = "drawn") -> np.ndarray:
    """D of blocks of two identical arms from runs in time order (trials by 2 n)."""
    trials, slots = noise.shape
    first, second = noise[:, 0::2], noise[:, 1::2]
    if order == "drawn":
        flip = np.where(rng.random((trials, slots // 2)) < 0.5, 1.0, -1.0)
        return flip * (second - first)
    if order == "ABAB":
        return second - first
    return noise[:, slots // 2 :] - noise[:, : slots // 2]  # all of A, then all of B


def false_alarms(rng: Rng) -> None:
    """A look after every block, at .05, at no effect."""
    trials, blocks = 5000, 400
    print(
        f"\n### False alarms at .05: two identical arms, {trials} trials looked at after each of {blocks} blocks\n"
    )
    print(
        "| noise | e-process | t test, every look | anytime-valid t | e-process, ABAB | e-process, A then B |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for name, make in NOISE.items():
        noise = make(rng, trials, 2 * blocks)
        drawn = contrasts(rng, noise)
        cells = [
            alarm_rate(drawn),
            share(repeated_t(drawn)),
            share(anytime_t_alarm(drawn)),
            alarm_rate(contrasts(rng, noise, order="ABAB")),
            alarm_rate(contrasts(rng, noise, order="AABB")),
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def alarm_rate(d: np.ndarray, alpha: float = 0.05) -> str:
    return share(largest(d) >= math.log(1 / alpha))


def largest(d: np.ndarray) -> np.ndarray:
    """ln f(0) of each row, a few hundred at a time."""
    return np.concatenate([log_paths(part).max(axis=1) for part in np.array_split(d, -(-len(d) // 250))])


def share(hits: np.ndarray) -> str:
    return f"{hits.mean():.3f}"


def repeated_t(d: np.ndarray) -> np.ndarray:
    """Whether a t test at .05 ever rejects, looking after every block from the 8th."""
    n = np.arange(1, d.shape[1] + 1)
    mean = np.cumsum(d, axis=1) / n
    variance = np.maximum(np.cumsum(d**2, axis=1) - n * mean**2, 1e-300) / np.maximum(n - 1, 1)
    t = np.abs(mean) / np.sqrt(variance / n)
    # two-sided 5 % point of Student's t (Cornish-Fisher), good to .01 from 7 degrees of freedom
    z, df = 1.959964, np.maximum(n - 1, 1)
    limit = z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    return (t >= limit)[:, 7:].any(axis=1)


def anytime_t_alarm(d: np.ndarray, alpha: float = 0.05) -> np.ndarray:
    """Whether the anytime-valid t interval ever excludes 0, looking after every block."""
    out = np.zeros(d.shape[0], dtype=bool)
    for row in range(d.shape[0]):
        for n in range(2, d.shape[1] + 1, 1 if d.shape[1] <= 60 else 7):
            found = t_interval(d[row, :n], alpha)
            if found is not None and not found[0] <= 0.0 <= found[1]:
                out[row] = True
                break
    return out


def coverage(rng: Rng) -> None:
    """The true effect stays inside at every look."""
    trials, blocks = 10000, 400
    print(
        f"\n### Trials in which the interval ever misses the true effect: {trials} trials, {blocks} blocks\n"
    )
    print("| noise of the contrast | at .05 | at .01 | at .001 |")
    print("| --- | --- | --- | --- |")
    shapes = {
        "normal": rng.normal(size=(trials, blocks)),
        "t, 3 degrees of freedom": rng.standard_t(3, size=(trials, blocks)),
        "symmetric spikes": rng.normal(size=(trials, blocks))
        * np.where(rng.random((trials, blocks)) < 0.05, 20, 1),
        "growing scale": rng.normal(size=(trials, blocks)) * np.linspace(0.2, 5, blocks),
        "skewed (exponential - 1)": rng.exponential(size=(trials, blocks)) - 1,
    }
    for name, d in shapes.items():
        reached = largest(d)
        cells = [share(reached >= math.log(1 / alpha)) for alpha in (0.05, 0.01, 0.001)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def controls(rng: Rng) -> None:
    """How often a sound trial of many cells is called invalid."""
    trials, cells, blocks = 1000, 48, 200
    print(
        f"\n### Sound trials called invalid: {trials} trials of {cells} conditions, {blocks} control blocks\n"
    )
    print("| noise | .001 shared over 96 control effects | .001 for each |")
    print("| --- | --- | --- |")
    for name in ("normal", "t, 3 degrees of freedom", "stalls (1 run in 20)"):
        reached = np.empty((trials, 2 * cells))
        for trial in range(trials):
            d = contrasts(rng, NOISE[name](rng, 2 * cells, 2 * blocks))
            reached[trial] = largest(d)
        shared = (reached >= math.log(2 * cells / 0.001)).any(axis=1)
        each = (reached >= math.log(1 / 0.001)).any(axis=1)
        print(f"| {name} | {share(shared)} | {share(each)} |", flush=True)


def voids(rng: Rng) -> None:
    """Rules for throwing blocks out, on identical arms that stall in one run of ten."""
    trials, blocks = 5000, 400
    print(f"\n### False alarms at .05 by void rule: {trials} trials of two identical arms, {blocks} blocks\n")
    print("| rule | false alarms |")
    print("| --- | --- |")
    stall = rng.random((trials, blocks, 2)) < 0.1
    y = 0.1 * rng.normal(size=(trials, blocks, 2)) + stall * rng.uniform(0.5, 2, size=(trials, blocks, 2))
    d = y[:, :, 1] - y[:, :, 0]
    half = stall & (rng.random(stall.shape) < 0.5)
    rules = {
        "nothing thrown out": np.zeros((trials, blocks), dtype=bool),
        "block void where any run stalled": stall.any(axis=2),
        "block void where either arm's check failed (half of the stalls)": half.any(axis=2),
        "block void where arm B stalled": stall[:, :, 1],
        "block void in half of arm B's stalls": half[:, :, 1],
    }
    for name, gone in rules.items():
        # a void block has factor 1: x_b = 0 leaves the products as they are, and the others in order
        kept = [row[~out] for row, out in zip(d, gone, strict=True)]
        alarms = np.array([log_paths(row[None, :]).max() >= math.log(20) for row in kept])
        print(f"| {name} | {share(alarms)} |", flush=True)


def paths(rng: Rng, blocks: int, reach: float, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Candidates d and ln f_n(d), candidates by blocks, for one normal series of SD 1 and effect 0."""
    d = rng.normal(size=blocks)
    grid = np.linspace(-reach, reach, points)
    parts = [
        log_paths(d[None, :] - part[:, None])
        for part in np.array_split(grid, max(1, points * blocks // 40000))
    ]
    return grid, np.maximum.accumulate(np.concatenate(parts), axis=1)


def hulls(grid: np.ndarray, log_f: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Low and high after every block (infinite where the grid ends), to the grid's step."""
    left = log_f < math.log(1 / alpha)
    low = grid[np.argmax(left, axis=0)]
    high = grid[grid.size - 1 - np.argmax(left[::-1], axis=0)]
    return np.where(left[0], -np.inf, low), np.where(left[-1], np.inf, high)


def stopping(rng: Rng) -> None:
    """When to stop: as soon as 0 is excluded, or at a width."""
    trials, blocks, sd, margin = 1000, 1000, 0.08, 0.03
    print(
        f"\n### Stopping rules: margin 3 %, block SD .08, {trials} trials of at most {blocks} blocks, alpha .05\n"
    )
    print("Each cell: share called slower / equivalent, and the median number of blocks.\n")
    print("| true effect | once 0 is excluded | go on to the width | a third of it inside the margin |")
    print("| --- | --- | --- | --- |")
    limit = math.log1p(margin)
    ends = []
    for _ in range(trials):
        grid, log_f = paths(rng, blocks, 3.0, 601)
        ends.append(hulls(grid * sd, log_f, 0.05))
    for effect in (0.0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.1, 0.3):
        shift = math.log1p(effect)
        found: list[list[tuple[str, int]]] = [[], [], []]
        for low, high in ends:
            lo, hi = low + shift, high + shift
            inside = (lo >= -limit) & (hi <= limit)
            out = (lo > 0) | (hi < 0)
            with np.errstate(invalid="ignore"):
                estimate, half = np.abs(lo + hi) / 2, (hi - lo) / 2
            width = half <= np.maximum(limit, estimate / 4)
            third = width & ((estimate > limit) | (half <= limit / 3))
            for rule, enough in enumerate((True, width, third)):
                stop = inside | (out & enough)
                n = int(np.argmax(stop)) if stop.any() else blocks - 1
                verdict = "equivalent" if inside[n] else "slower" if lo[n] > 0 else "other"
                found[rule].append((verdict, n + 1))
        cells = []
        for rows in found:
            slower, same = (sum(v == word for v, _ in rows) / trials for word in ("slower", "equivalent"))
            cells.append(f"{slower:.2f} / {same:.2f}, {np.median([n for _, n in rows]):.0f}")
        print(f"| {effect:.0%} | {' | '.join(cells)} |", flush=True)


def reaches(rng: Rng, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Half-width and farther end, in block SDs (trials by alphas by blocks): no effect, normal contrasts."""
    last = max(TABLE_BLOCKS)
    at = np.array(TABLE_BLOCKS) - 1
    outward = np.concatenate([np.linspace(0.0, 0.4, 49), np.geomspace(0.4, 60.0, 72)[1:]])
    grid = np.concatenate([-outward[:0:-1], outward])
    near = np.abs(grid) <= 0.9
    half = np.full((trials, len(TABLE_ALPHAS), at.size), np.inf)
    far = half.copy()
    for trial in range(trials):
        d = rng.normal(size=last)
        log_f = np.full((grid.size, at.size), np.inf)
        early = at < 400
        first = np.maximum.accumulate(log_paths(d[None, :400] - grid[:, None]), axis=1)
        log_f[:, early] = first[:, at[early]]
        for part in np.array_split(np.flatnonzero(near), 12):
            full = np.maximum.accumulate(log_paths(d[None, :] - grid[part, None]), axis=1)
            log_f[np.ix_(part, np.flatnonzero(~early))] = full[:, at[~early]]
        for i, alpha in enumerate(TABLE_ALPHAS):
            for j in range(at.size):
                low, high = crossing(grid, log_f[:, j], math.log(1 / alpha))
                half[trial, i, j] = (high - low) / 2
                far[trial, i, j] = max(-low, high)
    return half, far


def crossing(grid: np.ndarray, log_f: np.ndarray, threshold: float) -> tuple[float, float]:
    """The outermost points below the threshold, interpolated."""
    left = np.flatnonzero(log_f < threshold)
    if left.size == 0:
        return math.nan, math.nan
    ends = []
    for inner, step in ((left[0], -1), (left[-1], 1)):
        outer = inner + step
        if not 0 <= outer < grid.size:
            ends.append(step * math.inf)
        elif math.isinf(log_f[outer]):
            ends.append(grid[inner])
        else:
            part = (threshold - log_f[inner]) / (log_f[outer] - log_f[inner])
            ends.append(grid[inner] + part * (grid[outer] - grid[inner]))
    return ends[0], ends[1]


def power_table(rng: Rng) -> None:
    """The tables of python/iotrial/analysis/power.py, as Python."""
    half, far = reaches(rng, 600)
    print(f"_BLOCKS = {TABLE_BLOCKS}")
    print(f"_ALPHAS = {TABLE_ALPHAS}")
    for name, values in (
        ("_HALF_WIDTH", np.nanquantile(half, 0.5, axis=0, method="higher")),
        ("_REACH", np.nanquantile(far, 0.8, axis=0, method="higher")),
    ):
        print(f"{name} = (")
        for row in values:
            print("    (" + ", ".join("inf" if math.isinf(v) else f"{v:.4g}" for v in row) + "),")
        print(")")


def widths(rng: Rng) -> None:
    """How narrow the interval gets, in block SDs."""
    trials = 400
    half, far = reaches(rng, trials)
    shown = [TABLE_BLOCKS.index(n) for n in (8, 14, 20, 40, 100, 200, 500, 1000, 2000, 4000)]
    print(
        f"\n### Half-width in block SDs by number of blocks: median; 80 %: farther end ({trials} normal series)\n"
    )
    print("| alpha | " + " | ".join(str(TABLE_BLOCKS[j]) for j in shown) + " |")
    print("| --- |" + " --- |" * len(shown))
    for i in (0, 2, 5):
        cells = [np.nanquantile(half[:, i, j], 0.5, method="higher") for j in shown]
        print(
            f"| {TABLE_ALPHAS[i]} | " + " | ".join("-" if math.isinf(c) else f"{c:.2f}" for c in cells) + " |"
        )
    for i in (0, 2, 5):
        cells = [np.nanquantile(far[:, i, j], 0.8, method="higher") for j in shown]
        print(
            f"| {TABLE_ALPHAS[i]} (80 %) | "
            + " | ".join("-" if math.isinf(c) else f"{c:.2f}" for c in cells)
            + " |"
        )


TABLES = {
    "false-alarms": false_alarms,
    "coverage": coverage,
    "controls": controls,
    "voids": voids,
    "stopping": stopping,
    "widths": widths,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", choices=[*TABLES, "power-table", []], help="which; all if none")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(6), "big"))
    asked = parser.parse_args()
    began = time.perf_counter()
    if asked.tables == ["power-table"]:
        print(f"# seed {asked.seed}")
        power_table(np.random.default_rng(asked.seed))
        return
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()},")
    print(f"Python {platform.python_version()}, numpy {np.__version__}, seed {asked.seed}")
    for i, name in enumerate(asked.tables or TABLES):
        TABLES[name](np.random.default_rng([asked.seed, i]))
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
