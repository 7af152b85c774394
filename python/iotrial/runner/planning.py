"""What is settled before a trial starts: its folder, its plan, and the disks that it would use."""

from __future__ import annotations

import os
from pathlib import Path

from iotrial.design.plan import CONTROLS_FIRST, Plan, new_seed
from iotrial.errors import RequestError
from iotrial.lab.folder import settled
from iotrial.lab.guard import claim
from iotrial.lab.journal import Journal
from iotrial.lab.lock import MachineLock
from iotrial.lab.restore import refuse_leftovers
from iotrial.lab.target import Target
from iotrial.ownership import invoking_user
from iotrial.paths import state_folder
from iotrial.probe.client import Probe
from iotrial.runner.resolve import Resolved
from iotrial.study.places import IN_PLACE
from iotrial.study.work import makes_files


def default_folder(resolved: Resolved, on: str | None) -> str:
    """Return the folder for images or lab folders that the user has not located: ``on``, else one in the state folder.

    Raises RequestError for an unusable folder, whether this one or one that a place names.
    """
    owners = {0, os.geteuid(), invoking_user()[0]} if resolved.root else None
    for site in resolved.sites:
        if site.where.folder is not None:
            _check_folder(resolved, site.where.folder, f"--place {site.name}={site.where.folder}", owners)
    if resolved.lab == IN_PLACE:
        # a folder that is only read may be anybody's
        writes = any(makes_files(one.work) for one in resolved.study.workloads)
        folder, option = str(Path(on or ".").expanduser()), f"--in {on or '.'}"
        return _check_folder(resolved, folder, option, owners if writes else None, writable=writes)
    state = state_folder()
    there = next(folder for folder in (state, *state.parents) if folder.exists())
    try:
        settled(str(there), "the state folder", owners)
    except OSError as error:
        raise RequestError(
            f"state folder {state}: {there} is not a folder ({error.strerror})",
            hint="move it away, or set $XDG_STATE_HOME to another folder",
        ) from error
    if not on:
        return str(state / "lab")
    return _check_folder(resolved, str(Path(on).expanduser()), f"--on {on}", owners)


def _check_folder(
    resolved: Resolved, folder: str, option: str, owners: set[int] | None, *, writable: bool = True
) -> str:
    """Return the folder with symbolic links resolved. Root refuses one that users other than ``owners`` could replace."""
    try:
        found = settled(folder, option, owners)
    except OSError as error:
        raise RequestError(
            f"{option}: there is no such folder", hint="create it, or name an existing folder"
        ) from error
    if writable and not os.access(found, os.W_OK):
        raise RequestError(
            f"{option}: not writable for {'root' if resolved.root else 'you'}", hint="name a writable folder"
        )
    return found


def make_plan(resolved: Resolved, seed: str | None, *, controls: bool) -> Plan:
    """Return the plan of a resolved study, with a new seed unless the user chose one (32 hexadecimal digits)."""
    return Plan(
        resolved.study,
        seed or new_seed(),
        controls=controls,
        controls_first=CONTROLS_FIRST,
        after_itself=True,
    )


def look_at_disks(resolved: Resolved) -> tuple[dict[str, object], ...]:
    """Claim the disks that a run would use, check them as a run would, and release them.

    Nothing is written. Returns facts of each disk. Raises what the guard raises.
    """
    disks = [(site, site.where.consent) for site in resolved.sites if site.where.consent is not None]
    if not disks:
        return ()
    found: list[dict[str, object]] = []
    with MachineLock(), Probe(isolate=False) as probe:
        refuse_leftovers(Journal(state_folder() / "journal"))  # perhaps of a trial on this very disk
        for site, consent in disks:  # keep all claims until the probe ends: two places must be two disks
            disk = claim(Target(probe), consent, site.size_bytes)
            found.append(
                {
                    "path": consent.path,
                    "device": disk.device,
                    "model": disk.model,
                    "name": disk.name,
                    "bytes": disk.size_bytes,
                    "lab_bytes": site.size_bytes,
                    "discard_contents": consent.discard_contents,
                    **({"place": site.name} if site.name else {}),
                }
            )
    return tuple(found)
