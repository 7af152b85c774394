"""The user who runs the commands of a trial, and the one who does what root must not do."""

from __future__ import annotations

from iotrial.ownership import invoking_user
from iotrial.study.model import Study
from iotrial.study.server import NOBODY


def command_user(study: Study) -> tuple[int, int]:
    """Return uid and gid under which a study's commands run: those of the invoking user.

    If that is root, commands of an untrusted study run as nobody.
    """
    uid, gid = invoking_user()
    return (NOBODY, NOBODY) if uid == 0 and not study.trusted else (uid, gid)


def unprivileged_user() -> dict[str, int]:
    """Return uid and gid of the invoking user, or nobody's if that is root."""
    uid, gid = invoking_user()
    return {"uid": uid, "gid": gid} if uid != 0 else {"uid": NOBODY, "gid": NOBODY}
