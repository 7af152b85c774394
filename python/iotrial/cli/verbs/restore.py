"""``iotrial restore``: undo what an interrupted trial has left changed, or dismiss entries that cannot be
restored."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import click
from msgspec import UNSET, Meta, UnsetType

from iotrial.cli.options import json_option
from iotrial.cli.output import confirmed, tell
from iotrial.cli.recordings import end, left_running
from iotrial.documents import JsonDocument, JsonObject, Labels, json_text
from iotrial.durable import Damage
from iotrial.errors import RequestError, RestoreError, UnknownName
from iotrial.knobs.knob import Undone
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.lock import MachineLock
from iotrial.lab.restore import restore
from iotrial.lab.target import Target
from iotrial.paths import state_folder
from iotrial.probe.client import Probe

if TYPE_CHECKING:
    from iotrial.lab.restore import Restored

#: bytes shown of a file that cannot be read as an entry
_SHOWN_BYTES = 4096


class Row(JsonObject, frozen=True):
    """What became of one entry of the journal."""

    number: Annotated[
        int | None,
        Meta(description="of the entry, for --accept; null: the file has none; 0: all entries were removed"),
    ]
    knob: Annotated[str, Meta(description='"unknown": the entry cannot be read')]
    target: Annotated[str, Meta(description="what was changed; of an entry that cannot be read, its file")]
    original: Annotated[
        str | None, Meta(description="what stood there before; null: the entry cannot be read")
    ]
    outcome: Annotated[str, Meta(description="in words")]
    problem: str | None
    kept: Annotated[bool, Meta(description="still in the journal")]


class Dismissed(JsonObject, frozen=True, kw_only=True):
    """All that is known of an entry; of one that cannot be read, its file."""

    number: int
    knob: str | UnsetType = UNSET
    address: Labels | UnsetType = UNSET
    original: Annotated[str, Meta(description="what stood there before")] | UnsetType = UNSET
    ours: Annotated[tuple[str, ...], Meta(description="what the trial may have set")] | UnsetType = UNSET
    identity: Labels | UnsetType = UNSET
    boot_id: str | UnsetType | None = UNSET
    trial: str | UnsetType = UNSET
    target: str
    problem: Annotated[str | None, Meta(description="why the entry cannot be read")]
    text: Annotated[str | None, Meta(description="the beginning of a file that cannot be read as an entry")]


class Restoring(JsonDocument, frozen=True):
    """iotrial restore --json"""

    restored: list[Row]
    accepted: (
        Annotated[
            list[Dismissed],
            Meta(
                description="with --accept: the entries that were dismissed, in full; nothing of them was put back"
            ),
        ]
        | UnsetType
    ) = UNSET


@click.command("restore")
@click.option(
    "--accept",
    "accepted",
    multiple=True,
    type=click.IntRange(0),
    metavar="N",
    help="Dismiss entry N: show it and delete it without undoing the change.",
)
@click.option("--end", "ending", is_flag=True, help="End what a killed `iotrial record` left running.")
@json_option
def command(accepted: tuple[int, ...], ending: bool, as_json: bool) -> None:
    """Undo what a trial that was cut off left behind, and name what a killed recording left running."""
    journal = Journal(state_folder() / "journal")
    if not accepted and not any(journal.read()):
        _restore(journal, ending=ending, as_json=as_json)  # needs no lock
        return
    with MachineLock(restoring=True):
        if accepted:
            _dismiss(journal, tuple(dict.fromkeys(accepted)), as_json=as_json)
        else:
            _restore(journal, ending=ending, as_json=as_json)


def _restore(journal: Journal, *, ending: bool, as_json: bool) -> None:
    entries, damaged = journal.read()
    results: tuple[Restored, ...] = ()
    if entries:
        with Probe(isolate=False) as probe:
            results = restore(journal, Target(probe))
    running = _running_rows(ending=ending, as_json=as_json)
    undone = [*map(_row, results), *map(_damaged_row, damaged)]
    rows = [*undone, *running]
    if as_json:
        click.echo(json_text(Restoring(rows)))
    elif not rows:
        tell("Nothing to restore.")
    for row in [] if as_json else rows:
        number = "" if row.number is None else f"{row.number}: "
        what = row.target if row.original is None else f"{row.knob} on {row.target}"
        tell(f"{number}{what}: {row.outcome}" + (f" ({row.problem})" if row.problem else ""))
    kept = [row for row in undone if row.kept]
    if not kept and any(row.kept for row in running):
        left = sum(row.kept for row in running)
        raise RestoreError(
            f"an interrupted `iotrial record` left {left} process{'es' * (left > 1)} running",
            hint="`iotrial restore --end` ends them",
        )
    if kept:
        numbers = [row.number for row in kept if row.number is not None]
        dismiss = f"; `iotrial restore --accept {numbers[0]}` dismisses entry {numbers[0]}" if numbers else ""
        if any(damage.path == journal.folder for damage in damaged):
            failed = "the undo journal cannot be read; nothing in it was undone"
        else:
            failed = f"{len(kept)} of {len(undone)} could not be undone and stay in the journal"
        raise RestoreError(
            failed,
            hint=f"fix the cause, then run `iotrial restore` again; the entries are in {journal.folder}{dismiss}",
        )


def _row(result: Restored) -> Row:
    words = {
        Undone.RESTORED: "restored",
        Undone.ALREADY: "already as before",
        Undone.GONE: "already gone",
        Undone.FOREIGN: "left alone" if result.problem else "changed by another program: left alone",
        None: "could not be restored",
    }
    outcome = words[result.outcome]
    return Row.of(result.entry, outcome=outcome, problem=result.problem, kept=result.kept)


def _running_rows(*, ending: bool, as_json: bool) -> list[Row]:
    """Name what a killed recording left running, and end it with ``--end`` or a "yes" on a terminal."""
    found = left_running()
    if found and not ending and not as_json and sys.stdin.isatty() and sys.stderr.isatty():
        for one in found:
            tell(f"An interrupted `iotrial record` left running: {one}", err=True)
        ending = confirmed("End " + ("it?" if len(found) == 1 else "them?"))
    there = set(end(found) if ending else found)
    return [
        Row(
            None,
            "recording",
            str(one),
            None,
            "still running" if one in there else "ended",
            "left by an interrupted `iotrial record`",
            kept=one in there,
        )
        for one in found
    ]


def _damaged_row(damage: Damage) -> Row:
    hint = f"; {damage.hint}" if damage.hint else ""
    outcome = "removed" if damage.number == 0 else "cannot be read"
    return Row(damage.number, "unknown", str(damage.path), None, outcome, f"{damage.reason}{hint}", kept=True)


def _dismiss(journal: Journal, numbers: tuple[int, ...], *, as_json: bool) -> None:
    entries, damaged = journal.read()
    known: dict[int, Entry | Damage] = {one.number: one for one in damaged if one.number is not None}
    known |= {entry.number: entry for entry in entries}
    missing = [number for number in numbers if number not in known]
    if missing:
        raise UnknownName("entry of the undo journal", str(missing[0]), map(str, known), where="--accept")
    rows = [_in_full(number, known[number]) for number in numbers]
    for number, row in zip(numbers, rows, strict=True):
        for line in _shown(known[number], row):
            tell(line, err=as_json)
    _ask(len(rows))
    for number in numbers:
        one = known[number]
        journal.dismiss(one.path if isinstance(one, Damage) else journal.path(number))
    if as_json:
        click.echo(json_text(Restoring([], rows)))
    else:
        what = "1 entry" if len(rows) == 1 else f"{len(rows)} entries"
        tell(f"Dismissed {what}. Nothing was undone.")


def _in_full(number: int, one: Entry | Damage) -> Dismissed:
    if isinstance(one, Entry):
        return Dismissed.of(one, problem=None, text=None)
    text = None
    if one.path.is_file() and not one.path.is_symlink():
        with one.path.open("rb") as file:
            text = file.read(_SHOWN_BYTES).decode(errors="replace")
    return Dismissed(number=number, target=str(one.path), problem=one.reason, text=text)


def _shown(one: Entry | Damage, row: Dismissed) -> list[str]:
    if isinstance(one, Damage):
        lines = [f"Entry {row.number} cannot be read ({row.problem}): {row.target}"]
        return lines if row.text is None else [*lines, f"  its file: {row.text}"]
    return [
        f"Entry {one.number}: {one.knob} on {one.target}",
        f"  before the trial: {one.original}",
        f"  set by the trial: {', '.join(one.ours)}",
        *(f"  {key}: {value}" for key, value in one.identity.items()),
        f"  trial: {one.trial or 'unknown'}",
        *([f"  only until the boot with id {one.boot_id} ends"] if one.boot_id else []),
    ]


def _ask(count: int) -> None:
    """Ask for confirmation on a terminal; elsewhere the option itself is the consent. Raises RequestError."""
    what = "It" if count == 1 else f"These {count}"
    on_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    if on_terminal and not confirmed(f"{what} will not be undone, now or later. Dismiss?"):
        raise RequestError("nothing was dismissed", hint="type yes to dismiss what is shown")
