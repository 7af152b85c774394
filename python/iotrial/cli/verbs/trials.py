"""``iotrial trials``: what the store holds."""

from __future__ import annotations

import json

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell, warn
from iotrial.legible import shown
from iotrial.paths import store_path
from iotrial.store.outline import outlines
from iotrial.units import format_duration


@click.command("trials")
@json_option
def command(as_json: bool) -> None:
    """Stored trials, newest last."""
    trials, warnings = outlines(store_path())
    for warning in warnings:
        warn(warning)
    for lost in trials:
        if lost.problem is not None:
            warn(f"trial {lost.number} cannot be read: {lost.problem}")
    sound = [trial for trial in trials if trial.state is not None]
    if as_json:
        rows = [
            {
                "number": trial.number,
                "id": trial.id,
                "study": trial.study,
                "state": str(trial.state),
                "started": trial.started,
                "duration_s": trial.duration_s,
                "imported": trial.imported,
            }
            for trial in sound
        ]
        lost_rows = [
            {"number": lost.number, "problem": lost.problem} for lost in trials if lost.problem is not None
        ]
        click.echo(json.dumps({"schema": 1, "trials": rows, "damaged": lost_rows}, indent=1))
        return
    if not trials:
        tell("No trials yet. Start with: iotrial run files/permissions")
    lasted = [format_duration(trial.duration_s) for trial in sound]
    width = max(map(len, lasted), default=0)
    lines = []
    for trial, took in zip(sound, lasted, strict=True):
        when = trial.started[:16].replace("T", " ")
        mark = "  (imported)" if trial.imported is not None else ""
        if trial.fleet and trial.member:
            mark += f"  (host {shown(trial.member)})"
        lines.append(
            f"{trial.number:>5}  {when}  {trial.state!s:<11} {took:>{width}}  {shown(trial.study)}{mark}"
        )
    if lines:
        tell("\n".join(lines))  # at once: a line by itself costs more than what it says
