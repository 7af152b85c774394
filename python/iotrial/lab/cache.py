"""Cache states: set up before the timed part, verified by the reads during it.

The check is the same for every arm. It counts the bytes read from the lab's device during the timed part:
a cold run must read at least what the work needs, a warm run must read nothing. Querying the page cache
(mincore, cachestat) needs an open file, and opening it would cache the very inode that has to be cold.
So residency is supporting evidence only.
"""

from __future__ import annotations

from iotrial.errors import RequestError, UnsupportedLevel
from iotrial.knobs.knob import RunContext, a_lab
from iotrial.stats.voids import Void
from iotrial.study.places import CACHE_STATES_OF

#: in place: how the files that the work reads are brought to a state
_OF_FILES = {"cold-data": "evict_files", "warm": "warm_files"}
#: what ``cold-data`` is not, for a user who wants ``cold``
LEFT_WARM = (
    "cold-data: the data of the files that are read are evicted before each run; names and inodes stay in memory "
    "(cold-system drops them, with all caches of the machine)"
)
#: evidence of a run: bytes of its files that the kernel kept in memory
KEPT = "cache_kept_bytes"


def resolve(state: str, lab: str) -> str:
    """Return the state that a name means in this kind of lab. Raises UnsupportedLevel, listing the lab's states."""
    states = CACHE_STATES_OF[lab]
    if state == "cold":
        return states[0]
    if state not in states:
        raise UnsupportedLevel(
            f'cache state "{state}": {a_lab(lab)} cannot prepare it',
            hint="known: cold, " + ", ".join(states),
        )
    return state


def needs_fresh_mount(state: str) -> bool:
    """Return whether the state requires an unmount."""
    return state == "cold-files"


def writes_back(state: str) -> bool:
    """Return whether bringing a lab to this state writes all dirty data: an unmount does, and ``prepare`` before it evicts.

    A further sync would only cost another flush of the disk.
    """
    return state in ("cold-files", "cold-data", "cold-system")


def prepare(context: RunContext, state: str) -> None:
    """Bring the cache to this state, as the last step before the timed part.

    Of the page cache ``cold-files`` leaves nothing to do here: the fresh mount has emptied it.
    """
    files = context.files
    if state.startswith("cold"):
        context.place.empty_device_cache()
    if state in ("cold-data", "cold-system"):
        context.place.syncfs()
    if context.place.data is not None and state in _OF_FILES:
        done = context.worker.call(_OF_FILES[state], paths=list(context.own_files))
        if "left_bytes" in done:
            context.work.evidence[KEPT] = float(done["left_bytes"])
    elif state == "cold-data":
        if files is None:
            raise RequestError("cache state cold-data: this workload has no files to evict from the cache")
        context.worker.call("evict", set=files.set, files=files.wire)
    elif state == "cold-system":
        context.worker.call("drop_caches", what=3)
    elif state == "warm" and files is not None:
        context.worker.call("warm", set=files.set, files=files.wire, view=context.work.view, names=True)


def void_rule(
    state: str, *, bytes_read: int, bytes_expected: int, bytes_kept: int = 0, most_kept: int = 0
) -> Void | None:
    """Return the rule that voids a block, or None.

    ``bytes_expected``: what the work reads with an empty cache. ``bytes_kept``: what the kernel kept of its files.
    """
    if state.startswith("cold") and bytes_kept > most_kept:
        return Void.COLD_DATA_WAS_KEPT
    if state.startswith("cold") and bytes_read < bytes_expected:
        return Void.COLD_WAS_NOT_COLD
    if state == "warm" and bytes_read > 0:
        return Void.WARM_WAS_NOT_WARM
    return None
