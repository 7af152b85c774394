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
from iotrial.durable import Damage
from iotrial.errors import LabError, RestoreError
from iotrial.polling import attempts
from iotrial.tune import watchdog
from iotrial.tune.applied import Record, Records, ReloadStep
from iotrial.tune.applied import revert as take_back
from iotrial.tune.machine import Machine

#: how long the timer and the boot unit try to read a record
_PATIENT_S = 4.0


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
@click.option(
    "--force",
    is_flag=True,
    help="Take back also what somebody else has changed since, and end it even if a part fails; "
    "a record that cannot be read is set aside.",
)
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
    with records.lock(insist=unkept):
        found, damaged = _read(records, patient=unkept)
        in_force = [one for one in reversed(found) if one.in_force]
        chosen, unread = _chosen(trial, in_force, damaged)
        if unkept:
            chosen = [one for one in chosen if one.is_due(machine)]
        rows = [
            _taken_back(records, one, force=force, why=_why(one, machine.boot, unkept=unkept))
            for one in chosen
        ]
        rows += [_damaged_row(records, one, force=force and not unkept) for one in unread]
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
    if unkept:
        for row in rows:
            _log(machine, row)
    if left:
        again = "fix the cause, then run `iotrial revert` again; --force overwrites what others have changed since"
        raise RestoreError(
            f"{len(left)} could not be taken back: {left[0]}",
            hint="--force ended it: nothing tries again" if force else again,
        )


def _read(records: Records, *, patient: bool) -> tuple[list[Record], list[Damage]]:
    """Read all records. ``patient``: if one cannot be read, try again for some seconds."""
    found, damaged = records.read()
    for _ in attempts(_PATIENT_S if patient and damaged else 0.0, every_s=0.5):
        if not damaged:
            break
        found, damaged = records.read()
    return found, damaged


def _chosen(
    trial: str | None, in_force: list[Record], damaged: list[Damage]
) -> tuple[list[Record], list[Damage]]:
    """Return the records that are meant, and the unreadable files that are meant. Raises RequestError."""
    if trial is None:
        return in_force, damaged
    named = [one for one in damaged if one.path.stem and trial.startswith(one.path.stem)]
    return ([], named) if named else ([record_for(trial, among=in_force)], [])


def _damaged_row(records: Records, damage: Damage, *, force: bool) -> Row:
    """Report a record that cannot be read; with ``force`` it is set aside, and nothing of it is taken back."""
    problem = f"{damage}" + (f" ({damage.hint})" if damage.hint else "")
    if force and damage.path.suffix == ".json":
        try:
            problem += f"; set aside as {records.set_aside(damage).name}"
        except LabError as error:
            problem += f"; {error.message}"
    return Row(damage.path.stem, [], [problem])


def _log(machine: Machine, row: Row) -> None:
    """Tell the system log what the timer or the boot unit did."""
    outcome = f"not kept in time; {len(row.restored)} as before" if row.restored else "nothing taken back"
    watchdog.log(f"settings of trial {row.trial}: {'; '.join((outcome, *row.problems))}", machine)


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
    return watchdog.NOT_IN_TIME if record.boot == boot else "the machine was started again before it was kept"
