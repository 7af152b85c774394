"""What the verbs that keep settings share: their options, their checks, and how they show what they would change."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from iotrial.cli.open_store import store_to_read
from iotrial.cli.output import warn
from iotrial.documents import JsonObject
from iotrial.durable import Damage
from iotrial.errors import PrivilegeError, RequestError
from iotrial.terminal import escape
from iotrial.tune.account import Account, account_of, in_force
from iotrial.tune.applied import AnyStep, Entry, FileStep, LiveStep, MountStep, ProfileStep, Record, Records
from iotrial.tune.machine import Machine

#: a tree of files to act on instead of this machine, for tests
_ROOT = "IOTRIAL_ROOT"


class FileChange(JsonObject, frozen=True):
    """A file that is written."""

    path: str
    diff: Annotated[str, Meta(description="unified")]


class LiveChange(JsonObject, frozen=True):
    """A setting of the running kernel."""

    target: str
    before: str
    after: str


def machine_here(*, writing: bool = True) -> Machine:
    """Return the machine. Raises PrivilegeError if it is this one and we are not root."""
    machine = Machine(Path(os.environ.get(_ROOT, "/")).absolute())
    if writing and machine.is_this and os.geteuid() != 0:
        raise PrivilegeError("settings of this machine", instead="`iotrial apply --dry-run`")
    return machine


def readable(records: Records) -> tuple[list[Record], list[Damage]]:
    """Return the records of applied settings, and those that cannot be read, of which it warns."""
    found, damaged = records.read()
    for damage in damaged:
        warn(f"a record of applied settings cannot be read: {damage}")
    return found, damaged


def account_here() -> Account:
    """Return the account of the store and of what is in force on this machine. Raises StoreError, RequestError."""
    records, _ = readable(Records(machine_here(writing=False)))
    store = store_to_read(needed=False)
    if store is None:
        return Account.of((), {}, ())
    with store:
        return account_of(store, in_force(records))


def diff_of(step: FileStep) -> str:
    """Return the change of a file as a unified diff."""
    before = "" if step.before is None else step.before.decode(errors="replace")
    lines = difflib.unified_diff(
        before.splitlines(), step.after.decode(errors="replace").splitlines(),
        "/dev/null" if step.before is None else step.path, step.path, lineterm="",
    )  # fmt: skip
    return "\n".join(escape(line.expandtabs()) for line in lines)


def files_of(steps: tuple[AnyStep, ...]) -> list[FileChange]:
    """Return the files that steps write."""
    return [FileChange(step.path, diff_of(step)) for step in steps if isinstance(step, FileStep)]


def live_of(steps: tuple[AnyStep, ...]) -> list[LiveChange]:
    """Return what steps set in the running kernel."""
    kinds = (LiveStep, MountStep, ProfileStep)
    return [LiveChange(step.target, step.before, step.after) for step in steps if isinstance(step, kinds)]


def entry_lines(entry: Entry) -> list[str]:
    """Describe a setting: value, class and consequence, evidence, where it is kept, and who else sets it."""
    choice = entry.choice
    lines = [
        f"{choice.name} = {choice.value}  [{choice.safety}: {choice.consequence}]",
        f"  {choice.evidence}",
        f"  kept in: {entry.mechanism}, {entry.file}",
    ]
    if choice.elsewhere:
        lines.append(f"  not shown to be better everywhere: {'; '.join(choice.elsewhere)}")
    return [*lines, *(f"  {rival}" for rival in entry.rivals)]


def record_for(ref: str | None, *, among: list[Record]) -> Record:
    """Return the record that a user means: by the trial's number or id, or the only one. Raises RequestError."""
    if ref is None:
        if len(among) == 1:
            return among[0]
        names = ", ".join(one.short for one in among)
        raise RequestError("several trials are applied: name one", hint=f"they are: {names}")
    found = [one for one in among if ref == str(one.number) and one.number] or [
        one for one in among if one.trial.startswith(ref)
    ]
    if len(found) != 1:
        names = ", ".join(f"{one.short} (trial {one.number})" for one in among) or "none"
        raise RequestError(f'no trial "{ref}" is applied', hint=f"those that are: {names}")
    return found[0]
