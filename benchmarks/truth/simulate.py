"""Simulations behind docs/method-details.md: the guarantees of design and analysis, tested on noise with known truth.

    python benchmarks/truth/simulate.py                      all tables, to standard output
    python benchmarks/truth/simulate.py false-alarms power   some of them (see --help)
    python benchmarks/truth/simulate.py --scale .1           with a tenth of the trials
    python benchmarks/truth/simulate.py --write PAGE --write PAGE    each into the page that has its place: `make method`
    python benchmarks/truth/simulate.py power-table          the table of python/iotrial/stats/power.py

Seeds come from the system and are printed; ``--seed`` repeats the noise of a run (run orders are redrawn).
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from marked import put
from simulated import (
    account,
    alarms,
    budgets,
    carry,
    designs,
    families,
    fleets,
    levels,
    power,
    powercuts,
    races,
    skewed,
    stalls,
    stopping,
    switchback,
    tried,
    widths,
    words,
)

Table = Callable[[np.random.Generator, float], str]

TABLES: dict[str, Table] = {
    "false-alarms": alarms.false_alarms,
    "orders": alarms.orders,
    "coverage": alarms.coverage,
    "assumptions": alarms.assumptions,
    "power": power.power,
    "stopping": stopping.stopping,
    "widths": widths.widths,
    "factorial": designs.factorial,
    "whole-plots": designs.whole_plots,
    "responses": families.many_responses,
    "controls": families.controls,
    "voids": families.voids,
    "changes": levels.changes_of_level,
    "ends": levels.ends,
    "fleet-evidence": fleets.evidence_table,
    "fleet-mean": fleets.mean_table,
    "fleet-stopped": fleets.stopped_table,
    "conclusions": words.conclusions,
    "equivalence": alarms.equivalence,
    "detection": alarms.detection,
    "unequal-scatter": alarms.unequal,
    "carry-over": carry.carry_over,
    "dependence": carry.dependence_table,
    "wash-in": carry.stages_table,
    "skewed-runs": skewed.skewed_table,
    "slow-run-alarms": stalls.slow_run_alarms,
    "slow-runs": stalls.slow_runs_table,
    "mean-ratio": stalls.mean_ratio_table,
    "statistics": stalls.statistics_table,
    "capped-means": stalls.capped_means_table,
    "budget": budgets.budget,
    "budget-errors": budgets.budget_errors,
    "races": races.races,
    "equal-races": races.equal_races,
    "recorded-races": races.recorded_races,
    "usual-choice": races.usual_choice,
    "switchback-alarms": switchback.false_alarms,
    "switchback-carry-over": switchback.carried_over,
    "switchback-residue": switchback.residues,
    "switchback-washout": switchback.washouts,
    "audit-family": families.audited_responses,
    "races-left-out": races.left_out,
    "switching-costs": switchback.switching_costs,
    "building-up": switchback.building_up,
    "durability-runs": powercuts.durability_runs,
    "skewed-controls": skewed.controls_table,
    "wash-in-drawn": carry.held_out_table,
    "contradictions": skewed.contradictions_table,
    "capped-bets": tried.capped_bets,
    "averaged-races": tried.averaged_races,
    "large-effects": tried.large_effects_first,
    "account": account.account,
    "steady-state": levels.steady_states,
}

#: tables that have no place in the documents, which give their results in a sentence
PRINTED_ONLY = frozenset(
    {
        "audit-family",
        "averaged-races",
        "capped-bets",
        "capped-means",
        "contradictions",
        "dependence",
        "wash-in",
        "durability-runs",
        "large-effects",
        "equal-races",
        "races-left-out",
        "orders",
        "assumptions",
        "stopping",
        "voids",
        "factorial",
        "whole-plots",
        "responses",
        "controls",
        "coverage",
        "equivalence",
        "detection",
        "budget-errors",
        "changes",
        "ends",
        "fleet-evidence",
        "fleet-stopped",
        "unequal-scatter",
        "mean-ratio",
        "skewed-controls",
        "slow-run-alarms",
        "statistics",
        "slow-runs",
        "recorded-races",
        "usual-choice",
        "switchback-carry-over",
        "switchback-residue",
        "switching-costs",
        "building-up",
        "switchback-washout",
    }
)


def main() -> None:
    """Make the requested tables, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", help=f"all if none; of {', '.join(TABLES)}, power-table")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(6), "big"))
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of trials in each table")
    parser.add_argument(
        "--write",
        type=Path,
        action="append",
        metavar="PAGE",
        help="a page with marked places for tables; may be repeated, and each table goes to the first with a place for it",
    )
    arguments = parser.parse_args()
    if arguments.tables == ["power-table"]:
        print(f"# seed {arguments.seed}")
        print(widths.power_table(np.random.default_rng(arguments.seed)))
        return
    unknown = set(arguments.tables) - set(TABLES)
    if unknown:
        parser.error(f"no table is called {', '.join(sorted(unknown))}")
    for name in arguments.tables or [one for one in TABLES if not (arguments.write and one in PRINTED_ONLY)]:
        began = time.perf_counter()
        table = TABLES[name](
            np.random.default_rng([arguments.seed, list(TABLES).index(name)]), arguments.scale
        )
        text = f"{table}\n\n{_provenance(arguments.seed, arguments.scale, time.perf_counter() - began)}"
        if arguments.write:
            put(_page_of(name, arguments.write), f"simulated: {name}", text)
            print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        else:
            print(f"{text}\n", flush=True)


def _page_of(table: str, pages: list[Path]) -> Path:
    """Return the first page with a place for the table; the first of all (where ``put`` fails) if there is none."""
    return next((page for page in pages if f"<!-- simulated: {table} -->" in page.read_text()), pages[0])


def _provenance(seed: int, scale: float, seconds: float) -> str:
    size = "" if scale == 1.0 else f" --scale {scale:g}"
    return (
        f"<sub>{datetime.now(UTC):%Y-%m-%d}, seed {seed}{size}, {seconds:.0f} s on {os.cpu_count()} CPUs, "
        f"Python {platform.python_version()}, numpy {np.__version__}</sub>"
    )


if __name__ == "__main__":
    main()
