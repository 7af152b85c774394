"""Summary of a record: rates with exact bounds, over all trials with an outcome.

A trial that failed or was called invalid stays in every denominator. Bounds are those of Clopper and Pearson
(Biometrika 26, 1934), two-sided at 95 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from exact import bounds, rate
from trials.cells import Cell
from trials.record import INTERRUPTED, cell_of

__all__ = ["bounds", "rate", "summary"]

Line = dict[str, Any]


def summary(lines: Sequence[Line], torn: int) -> str:
    """Return Markdown: what was recorded and where, false alarms of identical arms, detection of injected slowdowns."""
    done = [line for line in lines if line["state"] != INTERRUPTED]
    by_cell: dict[Cell, list[Line]] = {}
    for line in done:
        by_cell.setdefault(cell_of(line), []).append(line)
    identical = {cell: rows for cell, rows in sorted(by_cell.items()) if cell.identical}
    injected = {cell: rows for cell, rows in sorted(by_cell.items()) if not cell.identical}
    parts = [_provenance(lines, torn), "", *_identical(identical), "", *_injected(injected)]
    return "\n".join(parts)


def _provenance(lines: Sequence[Line], torn: int) -> str:
    if not lines:
        return "No trial is recorded."
    states = Counter(line["state"] for line in lines)
    kept = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    seconds = sum(line.get("seconds_in_all") or 0.0 for line in lines)
    text = (
        f"{len(lines)} trials ({kept}), {lines[0]['at']} to {lines[-1]['at']}, {seconds / 3600:.1f} h in trials; "
        f"machines: {'; '.join(sorted({line['machine'] for line in lines}))}; "
        f"code: {', '.join(dict.fromkeys(line['commit'] for line in lines))}."
    )
    return text + (f" {torn} torn lines." if torn else "")


def _identical(cells: dict[Cell, list[Line]]) -> list[str]:
    """Tabulate false alarms: 0 excluded at any look (``p_anytime`` <= alpha), in trials that ran to their end."""
    out = [
        "**Identical arms: called different**, share of trials [95 % bounds]",
        "",
        "| workload | neighbour | trials | iotrial, a look after every block | all of A, then all of B: Welch |",
        "| --- | --- | --- | --- | --- |",
    ]
    for cell, rows in cells.items():
        n = len(rows)
        beside = [r["one_then_the_other"] for r in rows if r.get("one_then_the_other")]
        compared = [b for b in beside if b["different"] is not None]
        out.append(
            f"| {cell.workload} | {cell.neighbour} | {n} | {rate(sum(map(alarm, rows)), n)} | "
            f"{rate(sum(b['different'] for b in compared), len(compared))} |"
        )
    every = [r for rows in cells.values() for r in rows]
    out += ["", f"The interval misses 1 in {sum(not covered(r) for r in every)} trials; {_unusable(every)}."]
    return out


def _injected(cells: dict[Cell, list[Line]]) -> list[str]:
    """Tabulate detections: 0 excluded, on the right side, within the time."""
    out = [
        "**Injected slowdowns**: found = 0 excluded, on the right side; covered = the interval holds the truth",
        "",
        "| workload | neighbour | slowdown | trials | found | covered | found after, median (90 %) | "
        "verdict final after, median (90 %) | verdicts |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cell, rows in cells.items():
        n = len(rows)
        words = Counter(_wording(r) for r in rows)
        # trials that have not found, or not decided, took longer than any that did
        seen = [r.get("seen_after_seconds") if found(r) else None for r in rows]
        final = [r.get("seconds") if r.get("decided") else None for r in rows]
        out.append(
            f"| {cell.workload} | {cell.neighbour} | {cell.injected:.0%} | {n} | {rate(sum(map(found, rows)), n)} | "
            f"{rate(sum(map(covered, rows)), n)} | {_seconds(seen)} | {_seconds(final)} | "
            f"{', '.join(f'{c} {w}' for w, c in words.most_common())} |"
        )
    every = [r for rows in cells.values() for r in rows]
    out += [
        "",
        f"On the wrong side {sum(alarm(r) and not found(r) for r in every)}, {_unusable(every)}.",
    ]
    return out


def _unusable(lines: list[Line]) -> str:
    invalid, failed = (
        sum(r.get("valid") is False for r in lines),
        sum(r["state"] == "failed" for r in lines),
    )
    return f"called invalid {invalid}, failed {failed}"


def alarm(line: Line) -> bool:
    """Return whether a look after any block told the arms apart."""
    p, alpha = line.get("p_anytime"), line.get("alpha")
    return p is not None and alpha is not None and p <= alpha


def found(line: Line) -> bool:
    """Return whether 0 was excluded by an interval above it."""
    return alarm(line) and (line.get("low") or 0.0) > 1.0


def covered(line: Line) -> bool:
    """Return whether the interval covers the truth. A failed trial has no interval, and covers nothing."""
    if line["state"] == "failed" or line.get("reason") == "effect_not_constant":
        return False
    truth = 1.0 + line["injected"]
    low, high = line.get("low"), line.get("high")
    return (low is None or low <= truth) and (high is None or truth <= high)


def _wording(line: Line) -> str:
    if line["state"] == "failed":
        return "failed"
    verdict = str(line["verdict"])
    return f"{verdict}, detectably {line['detectably']}" if line.get("detectably") else verdict


def _seconds(values: Sequence[float | None]) -> str:
    return f"{_quantile(values, 0.5)} s ({_quantile(values, 0.9)} s)"


def _quantile(values: Sequence[float | None], share: float) -> str:
    """Return the smallest value that this share of the trials does not exceed; "-" if fewer have one."""
    known = sorted(v for v in values if v is not None)
    rank = max(1, -(-round(share * 1000) * len(values) // 1000))
    return "-" if len(known) < rank else f"{known[rank - 1]:.3g}"
