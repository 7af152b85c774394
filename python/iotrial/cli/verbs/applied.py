"""``iotrial applied``: what is in force, since when, on what evidence, and whether it still holds."""

from __future__ import annotations

import shlex
from typing import Annotated

import click
from msgspec import UNSET, Meta, UnsetType, structs

from iotrial.cli.finish import EXIT_FAIL_IF
from iotrial.cli.kept_settings import entry_lines, machine_here, readable
from iotrial.cli.options import json_option
from iotrial.cli.output import tell, warn
from iotrial.documents import JsonDocument, JsonObject, json_text
from iotrial.tune.applied import Entry, Record, Records, ReloadStep
from iotrial.tune.evidence import Held, measure_again
from iotrial.tune.machine import Machine
from iotrial.tune.places_to_keep import rivals_now


class Row(JsonObject, frozen=True):
    """One applied trial."""

    trial: str
    state: Annotated[
        str, Meta(description="kept; pending: waits for `iotrial keep`; reverted: taken back by itself")
    ]
    since: str
    due: Annotated[str | None, Meta(description="when it is taken back unless kept, ISO 8601")]
    why: Annotated[str, Meta(description="of one that was taken back")]
    evidence: str
    kernel_then: str
    kernel_now: str
    entries: list[Entry]
    drifted: Annotated[list[str], Meta(description="what is no longer as it was applied")]
    overridden: Annotated[list[str], Meta(description="who else sets the same now, and wins")]
    checked: (
        Annotated[list[Held], Meta(description="with --check: the evidence measured again")] | UnsetType
    ) = UNSET


class Applied(JsonDocument, frozen=True):
    """iotrial applied --json"""

    applied: list[Row]
    unreadable: Annotated[list[str], Meta(description="records that cannot be read, and why")]


@click.command("applied")
@click.option(
    "--check", is_flag=True, help="Measure the evidence again, in place, and say whether it still holds."
)
@click.option(
    "--fail-if",
    type=click.Choice(["gone"]),
    help="Exit with status 4 if a setting has drifted, is overridden, or no longer holds.",
)
@json_option
def command(check: bool, fail_if: str | None, as_json: bool) -> int:
    """Show the settings that `iotrial apply` has put in force, since when, and on what evidence."""
    machine = machine_here()
    found, damaged = readable(Records(machine))
    records = [one for one in found if one.in_force or one.why.startswith(("it was", "the machine"))]
    rows = []
    for record in records:
        row = _row(machine, record)
        if not as_json:
            _show(row)
        if check and record.state == "kept" and not record.command:
            warn(
                f"trial {record.short} was not made in place here, so it cannot be measured again on the applied settings; "
                "try the same settings with `iotrial try`"
            )
        elif check and record.state == "kept":
            if not as_json:
                tell(f"  measuring again: iotrial {shlex.join(record.command)}")
            row = Row.of(row, checked=list(measure_again(record)))
            if not as_json:
                _show_checked(row)
        rows.append(row)
    if as_json:
        click.echo(json_text(Applied(rows, [str(one) for one in damaged])))
    elif not rows and not damaged:
        tell("Nothing is applied. `iotrial apply TRIAL` keeps what a trial found better.")
    gone = any(row.drifted or row.overridden or _lost(row) for row in rows)
    return EXIT_FAIL_IF if fail_if and gone else 0


def _lost(row: Row) -> bool:
    """Return whether a setting was measured again and does not hold any more."""
    return any(held.holds is False for held in row.checked or [])


def _row(machine: Machine, record: Record) -> Row:
    steps = [step for step in record.steps if not isinstance(step, ReloadStep)] if record.in_force else []
    drifted = [f"{step.target}: {drift}" for step in steps if (drift := step.drift(machine)) is not None]
    return Row(
        trial=record.short,
        state=record.state,
        since=record.applied,
        due=record.due if record.unkept else None,
        why=record.why,
        evidence=record.origin,
        kernel_then=record.kernel,
        kernel_now=machine.kernel,
        entries=[structs.replace(entry, rivals=()) for entry in record.entries],
        drifted=drifted,
        overridden=[str(one) for one in rivals_now(machine, record) if one.wins],
    )


def _show(row: Row) -> None:
    if row.state == "reverted":
        tell(f"Trial {row.trial}, applied {row.since}, was taken back: {row.why}.")
        return
    until = f", waits for `iotrial keep` until {row.due}" if row.due else ""
    tell(f"Trial {row.trial}: {row.state} since {row.since}{until}")
    for entry in row.entries:
        tell("\n".join(f"  {line}" for line in entry_lines(entry)), fold=6)
    kernel = f"kernel {row.kernel_then}"
    if row.kernel_now != row.kernel_then:
        kernel = (
            f"kernel then {row.kernel_then}, now {row.kernel_now}: `iotrial applied --check` measures again"
        )
    tell(f"  evidence: {row.evidence}\n  {kernel}")
    for text in row.drifted:
        tell(f"  drifted: {text}", fold=6)
    for text in row.overridden:
        tell(f"  overridden: {text}", fold=6)
    if not row.drifted and not row.overridden:
        tell("  all of it is in force")


def _show_checked(row: Row) -> None:
    for held in row.checked or []:
        word = {True: "still holds", False: "NO LONGER HOLDS", None: "undecided this time"}[held.holds]
        tell(f"  {held.name} = {held.value}: {word}\n    then ({row.kernel_then}): {held.then}")
        tell(f"    now ({row.kernel_now}): {held.now}")
    if _lost(row):
        tell(f"  `iotrial revert {row.trial}` takes it back")
