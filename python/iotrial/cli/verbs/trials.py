"""``iotrial trials``: list the trials in the store."""

from __future__ import annotations

from typing import Annotated

import click
from msgspec import Meta

from iotrial.cli.options import json_option
from iotrial.cli.output import tell, warn
from iotrial.documents import Count, JsonDocument, JsonObject, json_text
from iotrial.paths import store_path
from iotrial.report.notation import day_and_time
from iotrial.store.outline import outlines
from iotrial.store.states import TrialState
from iotrial.terminal import escape
from iotrial.units import format_duration


class Row(JsonObject, frozen=True):
    """One trial that can be read."""

    number: Annotated[int, Meta(ge=0, description="in this store")]
    id: str
    study: str
    state: TrialState
    started: Annotated[str, Meta(description="ISO 8601")]
    duration_s: float
    imported: Annotated[str | None, Meta(description="null: measured here")]


class Damaged(JsonObject, frozen=True):
    """One that cannot be read."""

    number: Count
    problem: str


class Trials(JsonDocument, frozen=True):
    """iotrial trials --json"""

    trials: list[Row]
    damaged: Annotated[list[Damaged], Meta(description="trials that cannot be read")]


@click.command("trials")
@json_option
def command(as_json: bool) -> None:
    """List stored trials, newest last."""
    trials, warnings = outlines(store_path())
    for warning in warnings:
        warn(warning)
    for lost in trials:
        if lost.problem is not None:
            warn(f"trial {lost.number} cannot be read: {lost.problem}")
    sound = [trial for trial in trials if trial.state is not None]
    if as_json:
        damaged = [Damaged.of(lost) for lost in trials if lost.problem is not None]
        click.echo(json_text(Trials([Row.of(trial) for trial in sound], damaged)))
        return
    if not trials:
        tell("No trials yet. Start with: iotrial run files/permissions")
    lasted = [format_duration(trial.duration_s) for trial in sound]
    width = max(map(len, lasted), default=0)
    lines = []
    for trial, took in zip(sound, lasted, strict=True):
        when = day_and_time(trial.started)
        mark = "  (imported)" if trial.imported is not None else ""
        if trial.fleet and trial.member:
            mark += f"  (host {escape(trial.member)})"
        lines.append(
            f"{trial.number:>5}  {when}  {trial.state!s:<11} {took:>{width}}  {escape(trial.study)}{mark}"
        )
    if lines:
        tell("\n".join(lines))  # one call: printing line by line costs more than formatting them
