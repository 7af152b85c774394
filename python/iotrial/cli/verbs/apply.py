"""``iotrial apply``: write the settings that a trial found better where the system keeps them, and set them now."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from msgspec import Meta

from iotrial.cli.consent import agree
from iotrial.cli.kept_settings import (
    FileChange,
    LiveChange,
    account_here,
    entry_lines,
    files_of,
    live_of,
    machine_here,
)
from iotrial.cli.open_store import document_at
from iotrial.cli.options import force_option, json_option
from iotrial.cli.output import tell, warn
from iotrial.cli.run_request import quantity_of
from iotrial.documents import JsonDocument, json_text
from iotrial.errors import LabError, RequestError, StoreError
from iotrial.output_files import file_in, folder_below, held_folder, read_in, refuse_taken_in
from iotrial.report.notation import counted, some
from iotrial.terminal import escape
from iotrial.tune import watchdog
from iotrial.tune.account import within_account
from iotrial.tune.applied import Entry, Record, Records
from iotrial.tune.applied import apply as make
from iotrial.tune.applied import revert as take_back
from iotrial.tune.choice import Chosen, LeftOut, chosen, selected, without_unmeasured
from iotrial.tune.evidence import Origin, origin_of, rerun_words
from iotrial.tune.places_to_keep import NotKept, Plan, mechanism_of, plan
from iotrial.tune.playbook import playbook
from iotrial.tune.snippets import cloud_init, nixos
from iotrial.units import format_duration, parse_duration

if TYPE_CHECKING:
    from iotrial.report.document import Document
    from iotrial.tune.machine import Machine

#: shortest and longest time in which settings wait to be kept
_LEAST_S, _MOST_S = 10.0, 86_400.0
#: what --print accepts
FORMATS = {"ansible": playbook, "cloud-init": cloud_init, "nixos": nixos}


class Applying(JsonDocument, frozen=True):
    """iotrial apply --json"""

    trial: str
    state: Annotated[
        str, Meta(description="pending: set, waits for `iotrial keep`; planned: nothing was changed")
    ]
    due: Annotated[str | None, Meta(description="when everything is taken back, ISO 8601")]
    guard: Annotated[str | None, Meta(description="what takes it back, in words")]
    evidence: str
    entries: list[Entry]
    files: list[FileChange]
    live: list[LiveChange]
    left_out: Annotated[list[str], Meta(description="levels and settings that are not applied, and why")]
    warnings: list[str]


@click.command("apply")
@click.argument("trial", default="last")
@click.option(
    "--only",
    multiple=True,
    metavar="KNOB",
    help="Only this setting; needed for one that puts data at risk, or is beyond the account of errors.",
)
@click.option(
    "--replace-unmeasured",
    "unmeasured",
    multiple=True,
    metavar="KNOB",
    help="Set this one even if the trial has not measured the value that it replaces.",
)
@click.option(
    "--in",
    "folder",
    metavar="FOLDER",
    help="Set the mount and disks that hold this folder (default: the trial's own).",
)
@click.option(
    "--within",
    default="10 min",
    metavar="DURATION",
    help="Take everything back after this time unless kept (10 min).",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be written and set.")
@click.option("--output", metavar="DIR", help="Write the files below this folder instead, and set nothing.")
@click.option(
    "--print",
    "printed",
    type=click.Choice(list(FORMATS)),
    help="Print them for this system of configuration instead, and set nothing.",
)
@click.option("--ansible", "printed", flag_value="ansible", hidden=True)
@force_option
@click.option("--yes", is_flag=True, help="Apply what is listed, without asking.")
@json_option
def command(
    trial: str,
    only: tuple[str, ...],
    unmeasured: tuple[str, ...],
    folder: str | None,
    within: str,
    dry_run: bool,
    output: str | None,
    force: bool,
    printed: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Keep the settings that a trial found better than its reference.

    Each is set now, and written where the system keeps such settings, with its evidence in a comment. Everything is taken
    back unless `iotrial keep` comes in time, also if the machine is started again before. `iotrial revert` takes it back
    later.
    """
    within_s = quantity_of("--within", within, parse_duration) or 0.0
    if not _LEAST_S <= within_s <= _MOST_S:
        raise RequestError(f"--within {within}: expected 10 s to 24 h")
    writing = not (dry_run or output or printed)
    machine = machine_here(writing=writing)
    document = document_at(trial)
    origin = origin_of(document, machine)
    records = Records(machine)
    if writing:
        _take_back_interrupted(records)
    what = _kept(selected(chosen(document, named=only), only), only)
    what, beyond = within_account(account_here(), document.trial.header.id, what, only)
    if not what.choices:
        raise RequestError(
            f"nothing was changed: {'; '.join(some([str(one) for one in what.left_out], 6))}",
            hint="`iotrial account` shows what was asked on this machine",
        )
    planned = plan(machine, what.choices, folder or origin.folder, here=not (output or printed))
    if not (output or printed):  # those are for another machine, with unknown values
        measured = without_unmeasured(document, what, planned.replaced, unmeasured)
        if not measured.choices:
            left = set(measured.left_out) - set(what.left_out)
            raise RequestError(
                f"nothing was changed: {'; '.join(sorted(map(str, left)))}",
                hint="settings that are named are set without that evidence",
            )
        if measured != what:
            what, planned = measured, plan(machine, measured.choices, folder or origin.folder)
    guard = watchdog.guard_for(machine)
    warnings = [*([origin.elsewhere] if origin.elsewhere else []), *beyond, *planned.warnings]
    shown = partial(
        Applying,
        trial=document.trial.header.id,
        evidence=origin.text,
        entries=list(planned.entries),
        files=files_of(planned.steps),
        live=live_of(planned.steps),
        left_out=[str(one) for one in what.left_out],
        warnings=warnings,
    )
    if printed:
        tell(FORMATS[printed](planned))
        return
    for text in warnings:
        warn(text)
    if output:
        _write_into(Path(output).expanduser(), planned, force=force)
    elif not as_json:
        _show(planned, what, origin, machine)
    if not writing:
        if as_json:
            click.echo(json_text(shown(state="planned", due=None, guard=None)))
        elif output:
            tell(f"Wrote {counted(len(planned.files), 'file')} below {escape(output)}; nothing was set.")
        return
    with records.lock():
        _check_free(records, document.trial.header.id, planned)
    if not yes:
        agree("Make these changes?", "--yes")
    with records.lock():
        _check_free(records, document.trial.header.id, planned)
        if plan(machine, what.choices, folder or origin.folder) != planned:
            raise RequestError("the settings of the machine have changed meanwhile; nothing was changed")
        record = _record(document, planned, guard, machine, within_s, folder or origin.folder, origin)
        made = make(records, record, partial(watchdog.arm, machine, guard.kind))
    if as_json:
        click.echo(json_text(shown(state=made.state, due=made.due, guard=guard.says)))
        return
    tell(
        f"\nApplied. Run `iotrial keep` within {format_duration(within_s)} (until {made.due}), or everything is taken back.\n"
        f"{guard.says[:1].upper()}{guard.says[1:]}."
    )


def _kept(what: Chosen, only: tuple[str, ...]) -> Chosen:
    """Leave out settings for which the system has no place, unless they are named. Raises if nothing remains."""
    kept, left = [], list(what.left_out)
    reason: NotKept | None = None
    for choice in what.choices:
        try:
            mechanism_of(choice)
        except NotKept as error:
            if only:
                raise
            reason = error
            left.append(LeftOut(choice.factor, choice.level, error.message))
        else:
            kept.append(choice)
    if not kept:
        if reason is not None:
            raise reason
        raise RequestError(
            "the trial has no setting to apply: none is decided to be better than its reference; nothing was changed",
            hint="; ".join(some([str(one) for one in left], 6)) or "`iotrial report` shows what was found",
        )
    return Chosen(tuple(kept), tuple(left))


def _take_back_interrupted(records: Records) -> None:
    """Revert what a killed ``apply`` or ``revert`` left, so that it is not taken for the original state. Raises LabError."""
    with records.lock():  # while it is held, only this process works on records
        for one in records.all():
            if one.state not in ("applying", "reverting"):
                continue
            disarm = partial(watchdog.disarm, records.machine, one.timer)
            left = take_back(records, one, why="it was cut off", disarm=disarm).problems
            if left:
                raise LabError(
                    f"trial {one.short} could not be taken back completely: {'; '.join(left)}",
                    hint="`iotrial revert` tries again; with --force also what others have changed since",
                )
            warn(
                f"the settings of trial {one.short} were taken back: `iotrial apply` or `revert` had been cut off"
            )


def _check_free(records: Records, trial: str, planned: Plan) -> None:
    """Raise RequestError if something waits to be kept, or one of the settings is applied already."""
    wanted = {step.target for step in planned.steps if step.target.startswith(("/sys", "/proc", "mount "))}
    found, damaged = records.read()
    if damaged:
        raise LabError(
            f"a record of applied settings cannot be read: {damaged[0]}; nothing was changed",
            hint=damaged[0].hint or "`iotrial revert` names it; with --force it is set aside",
        )
    for one in found:
        if one.state == "pending":
            raise RequestError(
                f"trial {one.short} waits to be kept; nothing was changed",
                hint="`iotrial keep` or `iotrial revert` first",
            )
        if one.in_force and one.trial == trial:
            raise RequestError(
                f"trial {one.short} is applied since {one.applied}", hint="`iotrial applied` shows it"
            )
        taken = wanted & {step.target for step in one.steps} if one.in_force else set()
        if taken:
            raise RequestError(
                f"{min(taken)} is already applied from trial {one.short}; nothing was changed",
                hint=f"`iotrial revert {one.short}` first",
            )


def _record(
    document: Document,
    planned: Plan,
    guard: watchdog.Guard,
    machine: Machine,
    within_s: float,
    folder: str | None,
    origin: Origin,
) -> Record:
    trial = document.trial
    now = datetime.now(UTC)
    return Record(
        trial=trial.header.id,
        number=trial.number,
        state="applying",
        applied=now.isoformat(timespec="seconds"),
        kernel=machine.kernel,
        boot=machine.boot,
        due_s=machine.uptime_s + within_s,
        due=(now + timedelta(seconds=within_s)).isoformat(timespec="seconds"),
        origin=origin.elsewhere or origin.text,
        command=rerun_words(trial.header, imported=trial.imported is not None),
        folder=folder or "",
        entries=planned.entries,
        steps=planned.steps,
        guard=guard.steps,
        covers_reboot=guard.covers_reboot,
        timer=guard.kind,
    )


def _show(planned: Plan, what: Chosen, origin: Origin, machine: Machine) -> None:
    """Print settings, live changes, diffs, and what is left out."""
    for entry in planned.entries:
        tell("\n".join(entry_lines(entry)), fold=4)
    tell(f"\nEvidence: {origin.text}; kernel now {machine.kernel}.")
    for one in live_of(planned.steps):
        tell(f"now: {one.target}: {one.before} -> {one.after}")
    for file in files_of(planned.steps):
        tell(f"\n{file.diff}")
    for left in what.left_out:
        tell(f"not applied: {left}", fold=4)


def _write_into(folder: Path, planned: Plan, *, force: bool) -> None:
    """Write the files below a folder. Raises RequestError, before anything is written, if one exists with another content
    or a link is in its place, and StoreError on an I/O error."""
    try:
        with held_folder(folder, make=0o777) as held, ExitStack() as opened:
            todo: list[tuple[int, Path, bytes]] = []
            for step in planned.files:
                path = Path(step.path.lstrip("/"))
                below = opened.enter_context(folder_below(held, path.parts[:-1], folder))
                if read_in(below, path.name) != step.after:
                    todo.append((below, folder / path, step.after))
            for below, place, _ in todo:
                refuse_taken_in(below, place, force=force)
            for below, place, content in todo:
                with file_in(below, place.name, place, force=force) as file:
                    file.write(content)
    except OSError as error:
        raise StoreError(f"cannot write below {escape(folder)}: {error.strerror}") from error
