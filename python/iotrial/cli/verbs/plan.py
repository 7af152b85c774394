"""``iotrial plan``: what a run would do, before anything is done."""

from __future__ import annotations

import json
from typing import Any

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.options import asked_of, find_study, resolve_study, study_options
from iotrial.cli.output import tell


@click.command("plan")
@click.argument("study", required=False)
@study_options
@click.option(
    "--rounds", type=click.IntRange(1, 10000), default=2, show_default=True, help="How many rounds to list."
)
@json_option
def command(study: str | None, rounds: int, as_json: bool, **values: Any) -> None:
    """The design, the order of runs, and every change to this machine that a run would make."""
    from iotrial.conduct.start import default_folder, look_at_disk, make_plan

    asked = asked_of(values)
    chosen, asked = find_study(study, asked)
    resolved = resolve_study(chosen, asked)
    plan = make_plan(resolved, asked.seed, controls=asked.controls)
    folder = default_folder(resolved, asked.on)
    disk = look_at_disk(resolved)
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
            "disk": disk,
            "seed": plan.seed,
            "seed_chosen": asked.seed is not None,
            "primary_effects": plan.primary_effects,
            "conditions": [c.key for c in plan.conditions],
            "changes": list(resolved.changes),
            "notes": list(resolved.notes),
            "blocks": listed,
        }
        click.echo(json.dumps(document, indent=1))
        return
    _print(resolved, plan, folder, disk, listed)


def _print(
    resolved: Any, plan: Any, folder: str, disk: dict[str, Any] | None, listed: list[dict[str, Any]]
) -> None:
    from iotrial.report.intent import intent_lines
    from iotrial.units import format_duration, format_percent

    study = resolved.study
    tell(f"{study.name}: {study.question}\n")
    for line in intent_lines(resolved, folder, disk):
        tell(line)
    arms = ", ".join(arm.name for arm in plan.arms(controls=True))
    tell(f"arms       {arms}")
    tell(f"conditions {len(plan.conditions)}: " + "\n           ".join(c.key for c in plan.conditions))
    tell(
        f"budget     {format_duration(study.budget.time_s)}, at most {study.budget.blocks} blocks of each condition"
    )
    tell(
        f"statistics margin {format_percent(study.margin)}, "
        f"alpha {study.alpha:g} shared by {plan.primary_effects} primary effects"
    )
    tell(f"seed       {plan.seed} (a run without --seed draws its own)\n")
    tell("first blocks, each in the order of its runs:")
    for block in listed:
        order = " ".join(run["arm"] for run in block["runs"])
        tell(f"  {block['condition']} block {block['block']}: {order}")
