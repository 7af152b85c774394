"""Cache states: brought about before the timed part, verified by its outcome.

The check is the same for every arm: bytes that reached the lab from its device during the timed
part, at least what the work had to read where it was cold, none where it was warm. Asking the page
cache (mincore, cachestat) needs an open file, and opening it would cache the very inode that was to
be cold; so residency is evidence only.
"""

from __future__ import annotations

from iotrial.errors import RequestError, UnsupportedLevel
from iotrial.lab.knob import Subject, a_lab

ON_A_DISK = ("cold-files", "cold-data", "cold-system", "warm", "as-is")
#: states by kind of lab; the first is what ``cold`` means there
STATES: dict[str, tuple[str, ...]] = {
    "image": ON_A_DISK,
    "device": ON_A_DISK,
    "guest": ON_A_DISK,
    "directory": ("cold-data", "cold-system", "warm", "as-is"),
}

NEEDS_ROOT = frozenset({"cold-files", "cold-system"})
ALL = ("cold", "cold-data", "cold-files", "cold-system", "warm", "as-is")


def resolve(state: str, lab: str) -> str:
    """The state that a name means in a kind of lab. Raises UnsupportedLevel with what the lab has."""
    states = STATES[lab]
    if state == "cold":
        return states[0]
    if state not in states:
        raise UnsupportedLevel(
            f'cache state "{state}": {a_lab(lab)} cannot bring it about',
            hint="it has: cold, " + ", ".join(states),
        )
    return state


def needs_fresh_mount(state: str) -> bool:
    """Whether the state is reached through an unmount."""
    return state == "cold-files"


def prepare(subject: Subject, state: str) -> None:
    """Bring the cache to the state; the last thing before the timed part. ``cold-files`` was the
    mount's to do."""
    files = subject.files
    if state in ("cold-data", "cold-system"):
        subject.place.syncfs()
    if state == "cold-data":
        if files is None:
            raise RequestError("cache state cold-data: this workload has no files to make cold")
        subject.worker.call("evict", set=files.set, files=files.wire)
    elif state == "cold-system":
        subject.worker.call("drop_caches", what=3)
    elif state == "warm" and files is not None:
        subject.worker.call("warm", set=files.set, files=files.wire, view=subject.work.view, names=True)


def void_rule(state: str, *, bytes_read: int, bytes_expected: int) -> str | None:
    """The rule that throws a block out, or None. ``bytes_expected``: what the work reads when
    nothing is cached."""
    if state.startswith("cold") and bytes_read < bytes_expected:
        return "cold_was_not_cold"
    if state == "warm" and bytes_read > 0:
        return "warm_was_not_warm"
    return None
