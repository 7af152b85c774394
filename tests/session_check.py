"""A pytest plugin: checks that tests leave nothing behind, and isolates parallel workers from each other.

Each pytest-xdist worker has its own mounts and /run, and so its own machine lock and lab folder; it checks
these itself. The state that workers share (loop devices, sysctls) is compared by the process that starts
them, before they begin and after they have ended: a worker would see the changes of the others.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from contextlib import suppress
from typing import Any

import pytest

from left_behind import host_state, left_by_tests, own_state

_CLONE_NEWNS = 0x20000
_LIBC = ctypes.CDLL(None, use_errno=True)
#: Not visible outside. The machine's own /run stays below the new one, with links to what programs look for
#: there (sockets, device names), except for locks and records about mounts and devices.
_OWN_RUN = """
set -e
mount --make-rprivate /
new=$(mktemp -d)
mount -t tmpfs -o mode=0755 run "$new"
mkdir -m 1777 "$new/lock"
mkdir "$new/machine"
mount --rbind /run "$new/machine"
for path in /run/*; do
    case ${path#/run/} in
    iotrial* | lock | mount | blkid) ;;
    *) ln -s "machine/${path#/run/}" "$new/" ;;
    esac
done
mount -n --move "$new" /run
rmdir "$new"
"""

#: the kernel removes loop devices a moment after the last process that held them
GONE_WITHIN_S = 3.0

State = dict[str, str]
_before = pytest.StashKey[State]()
_changed = pytest.StashKey[dict[str, Any]]()


def mounts_of_our_own() -> None:
    """Move this process, and all that it starts from now on, to a mount namespace with a /run of its own."""
    if _LIBC.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["sh", "-c", _OWN_RUN], check=True)


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def state_of(config: pytest.Config) -> State:
    return own_state() if is_worker(config) else host_state()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if is_worker(session.config) and os.geteuid() == 0:
        with suppress(PermissionError):  # root in a container: there the tests cannot mount anything either
            mounts_of_our_own()
    session.config.stash[_before] = state_of(session.config)
    session.config.stash[_changed] = {}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if config.option.collectonly:
        return
    until = time.monotonic() + GONE_WITHIN_S
    while (
        changed := left_by_tests(config.stash[_before], state_of(config), stand_ins=True)
    ) and time.monotonic() < until:
        time.sleep(0.1)
    if is_worker(config):
        config.workeroutput["changed"] = changed  # type: ignore[attr-defined]
        return
    config.stash[_changed].update(changed)
    if config.stash[_changed] and session.exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect what a worker found; it comes with its last message. A worker that has crashed sends none, and
    fails by that."""
    for key, values in getattr(node, "workeroutput", {}).get("changed", {}).items():
        node.config.stash[_changed][f"{node.gateway.id} {key}"] = values


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    changed = config.stash.get(_changed, {})
    if changed:
        terminalreporter.section("the tests changed this machine", red=True, bold=True)
        for key, (before, after) in changed.items():
            terminalreporter.write_line(f"{key}: {before!r} before, {after!r} now")
