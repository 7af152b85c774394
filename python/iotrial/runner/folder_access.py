"""Checks that the users who work in a folder can enter it."""

from __future__ import annotations

from collections.abc import Mapping

from iotrial.design.plan import Plan
from iotrial.errors import LabError
from iotrial.lab.place import Place
from iotrial.runner.invoking_user import unprivileged_user
from iotrial.runner.resolve import Resolved
from iotrial.study.places import IN_PLACE
from iotrial.study.server import NOBODY


def check_reach(resolved: Resolved, plan: Plan, owner: Mapping[str, int] | None, place: Place) -> None:
    """Check that every user who works in the lab can enter it: root's state folder is closed to others.

    ``owner``: owner of its files. Raises LabError with the user and a remedy.
    """
    users = [] if owner is None else [owner]
    if resolved.root and any(
        turn.knob.name == "process.user" and turn.value == "unprivileged"
        for turns in (*resolved.turns.values(), resolved.pinned)
        for turn in turns
    ):
        users.append({"uid": NOBODY, "gid": NOBODY})
    served = any(one.work.never_root() for one in plan.study.workloads)
    if resolved.root and served and owner is None:
        users.append(unprivileged_user())
    in_place = resolved.lab == IN_PLACE and resolved.study.quick
    for user in users:
        found = place.target.call("run", argv=["test", "-x", f"{place.root}/."], cwd="/", user=user)
        if found["exit"] != 0:
            raise LabError(
                f"lab in {place.root}: user {user['uid']}, who works in it, cannot enter it",
                hint=f"name a folder that this user can enter with {'--in' if in_place else '--on'} FOLDER",
            )
