"""``iotrial revert``: take back what ``iotrial apply`` has set and written."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import click
from msgspec import Meta

from iotrial.cli.kept_settings import machine_here, record_for
from iotrial.cli.options import json_option
from iotrial.cli.output import tell
from iotrial.documents import JsonDocument, JsonObject, json_text
from iotrial.errors import RestoreError
from iotrial.tune import watchdog
from iotrial.tune.applied import Record, Records, ReloadStep
from iotrial.tune.applied import revert as take_back


class Row(JsonObject, frozen=True):
    """One trial that was taken back."""

    trial: str
    restored: Annotated[list[str], Meta(description="settings and files that are as they were before")]
    problems: Annotated[list[str], Meta(description="what could not be taken back, and why")]


class Reverted(JsonDocument, frozen=True):
    """iotrial revert --json"""

    reverted: list[Row]


@click.command("revert")
@click.argument("trial", required=False)
@click.option("--force", is_flag=True, help="Take back also what somebody else has changed since.")
@click.option(
    "--unkept", is_flag=True, help="Only what was not kept in time; the timer and the next boot run this."
)
@json_option
def command(trial: str | None, force: bool, unkept: bool, as_json: bool) -> None:
    """Take back what `iotrial apply` has set: files and live settings are as they were before.

    Without TRIAL: everything that is applied, newest first.
    """
    machine = machine_here()
    records = Records(machine)
    with records.lock():
        standing = [one for one in reversed(records.all()) if one.in_force]
        chosen = standing if trial is None else [record_for(trial, among=standing)]
        if unkept:
            chosen = [one for one in chosen if one.is_due(machine)]
        rows = [
            _taken_back(records, one, force=force, why=_why(one, machine.boot, unkept=unkept))
            for one in chosen
        ]
    if as_json:
        click.echo(json_text(Reverted(rows)))
    elif not rows:
        tell("Nothing is applied.")
    for row in [] if as_json else rows:
        tell(f"Trial {row.trial}: {len(row.restored)} as before")
        for text in row.restored:
            tell(f"  {text}")
        for text in row.problems:
            tell(f"  not taken back: {text}")
    left = [problem for row in rows for problem in row.problems]
    if left:
        raise RestoreError(
            f"{len(left)} could not be taken back: {left[0]}",
            hint="fix the cause, then run `iotrial revert` again; --force overwrites what others have changed since",
        )


def _taken_back(records: Records, record: Record, *, force: bool, why: str) -> Row:
    done = take_back(
        records, record, why=why, force=force, disarm=partial(watchdog.disarm, records.machine, record.timer)
    )
    failed = [problem.partition(": ")[0] for problem in done.problems]
    targets = dict.fromkeys(step.target for step in record.steps if not isinstance(step, ReloadStep))
    return Row(record.short, [one for one in targets if one not in failed], list(done.problems))


def _why(record: Record, boot: str, *, unkept: bool) -> str:
    if not unkept:
        return "reverted by the user"
    return (
        "it was not kept in time"
        if record.boot == boot
        else "the machine was started again before it was kept"
    )
