"""``iotrial plan``: what a run would do, before anything is done."""

from __future__ import annotations

import json
from typing import Any

import click

from iotrial.analysis.run_statistics import fewest_blocks
from iotrial.analysis.spec import Spec
from iotrial.cli.asking import asked_of, find_study, resolve_study
from iotrial.cli.forecast_view import forecast_json, forecast_lines
from iotrial.cli.intent_view import intent_lines, places_json
from iotrial.cli.options import as_json as json_option
from iotrial.cli.options import study_options
from iotrial.cli.output import tell
from iotrial.cli.piloting import DEFAULT, pilot_seconds, piloted
from iotrial.conduct.sharing import sharing
from iotrial.conduct.start import default_folder, look_at_disks, make_plan
from iotrial.documents import plain
from iotrial.report.designs import design_json, design_of, plan_lines
from iotrial.report.safety import every_level
from iotrial.study.model import TYPICAL
from iotrial.units import format_duration, format_percent

#: where the second column begins
_COLUMN = 11


@click.command("plan", short_help="What a run would do and change, before it does.")
@click.argument("study", required=False)
@study_options
@click.option(
    "--rounds",
    type=click.IntRange(1, 10000),
    metavar="N",
    default=2,
    show_default=True,
    help="How many rounds to list.",
)
@click.option(
    "--pilot",
    is_flag=False,
    flag_value=DEFAULT,
    metavar="[DURATION]",
    help="Measure copies of the reference for so long (10s), and predict the time to a verdict.",
)
@json_option
def command(study: str | None, rounds: int, pilot: str | None, as_json: bool, **values: Any) -> int:
    """The design, the order of runs, and every change to this machine that a run would make."""
    study, pilot_s = pilot_seconds(study, pilot)
    asked = asked_of(values)
    chosen, asked = find_study(study, asked)
    resolved = resolve_study(chosen, asked)
    plan = make_plan(resolved, asked.seed, controls=asked.controls)
    folder = default_folder(resolved, asked.on)
    disks = look_at_disks(resolved)
    found = None if pilot_s is None else piloted(resolved, plan, pilot_s, asked, folder=folder, quiet=as_json)
    ending = 128 + found[0].ended.signal if found is not None and found[0].ended.signal is not None else 0
    listed = [
        {
            "round": number,
            "condition": condition.key,
            "block": number,
            "controls": block.controls,
            "runs": [
                {
                    "slot": run.slot,
                    "arm": run.arm.name,
                    "kind": run.arm.kind.value,
                    "treatment": dict(run.arm.treatment),
                    "files": None if run.files is None else list(run.files),
                }
                for run in block.runs
            ],
        }
        for number in range(rounds)
        for condition in plan.round(number, plan.conditions)
        for block in [plan.block(condition, number)]
    ]
    if as_json:
        document = {
            "schema": 1,
            "study": resolved.study.name,
            "lab": resolved.lab,
            "folder": folder,
            "disk": next((disk for disk in disks if "place" not in disk), None),
            "places": places_json(resolved, folder, disks),
            "shared": [group.facts() for group in sharing(resolved, folder)],
            "seed": plan.seed,
            "seed_chosen": asked.seed is not None,
            "primary_effects": plan.primary_effects,
            "conditions": [c.key for c in plan.conditions],
            "design": design_json(design_of(plan)),
            "statistics": _statistics(plan),
            "changes": list(resolved.changes),
            "notes": list(resolved.notes),
            "safety": plain(every_level(resolved.study)),
            "blocks": listed,
            "prediction": None if found is None else forecast_json(found[1], found[0]),
        }
        click.echo(json.dumps(document, indent=1))
        return ending
    _print(resolved, plan, folder, disks, listed)
    if found is None:
        tell(
            "\ntime to a verdict: not known before something is measured; `--pilot` measures for 10 s and predicts it",
            fold=2,
        )
        return ending
    tell("")
    for line in forecast_lines(found[1], found[0], resolved.study):
        tell(line, fold=_COLUMN)
    return ending


def _statistics(plan: Any) -> list[dict[str, Any]]:
    """What equivalence of a mean or a quantile takes at least, of each response that asks for one."""
    spec = Spec.from_plan(plan)
    return [
        {
            "workload": response.workload,
            "response": response.name,
            "statistic": response.statistic,
            "blocks_at_least": fewest_blocks(response, spec),
        }
        for response in plan.study.responses
        if response.statistic != TYPICAL
    ]


def _print(
    resolved: Any, plan: Any, folder: str, disks: tuple[dict[str, Any], ...], listed: list[dict[str, Any]]
) -> None:
    study = resolved.study
    tell(f"{study.name}: {study.question}\n", fold=2)
    for line in intent_lines(resolved, folder, disks):
        tell(line, fold=_COLUMN)
    for line in plan_lines(plan):
        tell(line, fold=_COLUMN)
    tell(
        f"conditions {len(plan.conditions)}: " + "\n           ".join(c.key for c in plan.conditions), fold=13
    )
    tell(
        f"budget     {format_duration(study.budget.time_s)}, at most {study.budget.blocks} blocks of each condition",
        fold=_COLUMN,
    )
    tell(
        f"statistics margin {format_percent(study.margin)}, "
        f"alpha {study.alpha:g} shared by {plan.primary_effects} primary effects",
        fold=_COLUMN,
    )
    for one in _statistics(plan):
        tell(
            f"           {one['statistic']} of {one['response']} ({one['workload']}): no verdict of equivalence before "
            f"{one['blocks_at_least']:,} blocks of a condition, however alike its runs are"
            + (
                f"; the budget ends at {study.budget.blocks:,}"
                if one["blocks_at_least"] > study.budget.blocks
                else ""
            ),
            fold=_COLUMN,
        )
    tell(f"seed       {plan.seed} (a run without --seed draws its own)\n")
    tell("first blocks, each in the order of its runs:")
    for block in listed:
        order = " ".join(run["arm"] for run in block["runs"])
        tell(f"  {block['condition']} block {block['block']}: {order}", fold=6)
