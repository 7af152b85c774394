"""Many effects in one trial, and rules for void blocks."""

from __future__ import annotations

import math

import numpy as np

from exact import rate
from iotrial.audits.audit import audit
from iotrial.audits.model import Dataset, Observation, Standing
from iotrial.stats.betting import log_paths
from iotrial.stats.ebh import discoveries
from simulated import order
from simulated.noise import NOISES, Rng
from simulated.process import alarms, largest


def controls(rng: Rng, scale: float) -> str:
    """Tabulate how often a valid trial with many conditions is called invalid."""
    trials, conditions, blocks = max(20, int(500 * scale)), 48, 200
    effects = 2 * conditions
    out = [
        f"**Sound trials called invalid: {trials} trials of {conditions} conditions, {blocks} control blocks** [95 % bounds]",
        "",
        f"| noise | .001 shared over {effects} control effects | .001 for each |",
        "| --- | --- | --- |",
    ]
    for name in list(NOISES)[:3]:
        reached = np.empty((trials, effects))
        for trial in range(trials):
            noise = NOISES[name](rng, effects, 2 * blocks)
            arms = order.by_arm(noise, order.quick_orders(rng, effects, blocks, 2))
            reached[trial] = largest(arms[:, :, 1] - arms[:, :, 0])
        shared = int((reached >= math.log(effects / 0.001)).any(axis=1).sum())
        each = int((reached >= math.log(1 / 0.001)).any(axis=1).sum())
        out.append(f"| {name} | {rate(shared, trials)} | {rate(each, trials)} |")
    return "\n".join(out)


def voids(rng: Rng, scale: float) -> str:
    """Compare rules for discarding blocks, on identical arms that stall in one run of ten."""
    trials, blocks = max(50, int(2000 * scale)), 400
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
    out = [
        f"**False alarms at .05 by void rule: {trials} trials of two identical arms, {blocks} blocks** [95 % bounds]",
        "",
        "| rule | false alarms |",
        "| --- | --- |",
    ]
    for name, gone in rules.items():
        kept = [row[~void] for row, void in zip(d, np.asarray(gone), strict=True)]
        hits = sum(bool(log_paths(row[None, :]).max() >= math.log(20)) for row in kept)
        out.append(f"| {name} | {rate(hits, trials)} |")
    return "\n".join(out)


def many_responses(rng: Rng, scale: float) -> str:
    """Apply e-BH to correlated responses, of which some move."""
    trials, responses, moved, blocks = max(50, int(500 * scale)), 20, 5, 100
    out = [
        f"**Exploratory responses: {responses}, of which {moved} move by 1 block SD; {trials} trials of {blocks} blocks, "
        "alpha .05**",
        "",
        "| correlation | false among discoveries, mean | moved ones found | any false: e-BH | any false: each at .05 |",
        "| --- | --- | --- | --- | --- |",
    ]
    for share in (0.0, 0.5, 0.95):
        false_share, found, any_false, any_each = [], [], 0, 0
        for _ in range(trials):
            common = rng.normal(size=(1, blocks))
            d = math.sqrt(share) * common + math.sqrt(1 - share) * rng.normal(size=(responses, blocks))
            d[:moved] += 1.0
            log_m = log_paths(d)
            chosen = np.array(discoveries(np.exp(np.minimum(log_m[:, -1], 600.0)).tolist(), 0.05))
            false_share.append(chosen[moved:].sum() / max(1, chosen.sum()))
            found.append(chosen[:moved].mean())
            any_false += bool(chosen[moved:].any())
            any_each += alarms(d[moved:]) > 0
        out.append(
            f"| {share:.2f} | {np.mean(false_share):.3f} | {np.mean(found):.2f} | {rate(any_false, trials)} | "
            f"{rate(any_each, trials)} |"
        )
    return "\n".join(out)


def audited_responses(rng: Rng, scale: float) -> str:
    """Audit tables of ten responses of two identical groups; an alarm is any response that is called different."""
    tables, responses, runs = max(50, int(1000 * scale)), 10, 6
    out = [
        f"**Audits of {tables} tables: {responses} responses of two identical groups of {runs} runs, any called different**",
        "",
        "| noise | shared over the table | Welch at .05 for each |",
        "| --- | --- | --- |",
    ]
    for name in list(NOISES)[:2]:
        shared = each = 0
        for _ in range(tables):
            times = np.exp(0.1 * NOISES[name](rng, responses * 2, runs).reshape(responses, 2, runs))
            seen = [
                Observation(group, f"response {at}", "s", float(value))
                for at, row in enumerate(times)
                for group, own in zip("ab", row, strict=True)
                for value in own
            ]
            found = audit(Dataset("", "", tuple(seen))).comparisons
            shared += any(one.standing in (Standing.APART, Standing.CONFOUNDED) for one in found)
            each += any(not (one.welch.low or 0.0) <= 1.0 <= (one.welch.high or 0.0) for one in found)
        out.append(f"| {name} | {rate(shared, tables)} | {rate(each, tables)} |")
    return "\n".join(out)
