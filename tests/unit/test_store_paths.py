"""Location of the state folder and the store, by environment and user."""

from __future__ import annotations

import os
from pathlib import Path

from iotrial.paths import state_folder, store_path


def test_the_state_folder_follows_xdg_then_the_user() -> None:
    assert state_folder({"XDG_STATE_HOME": "/x/state"}, uid=1000) == Path("/x/state/iotrial")
    assert state_folder({"XDG_STATE_HOME": "/x/state"}, uid=0) == Path("/x/state/iotrial")
    assert state_folder({"HOME": "/home/ann"}, uid=1000) == Path("/home/ann/.local/state/iotrial")
    assert state_folder({"HOME": "/root"}, uid=0) == Path("/var/lib/iotrial")


def test_a_relative_or_empty_xdg_folder_is_ignored() -> None:
    for stated in ("", "state", "./state"):
        assert state_folder({"XDG_STATE_HOME": stated, "HOME": "/home/ann"}, uid=1000) == Path(
            "/home/ann/.local/state/iotrial"
        )


def test_the_store_may_be_named_and_else_lies_in_the_state_folder() -> None:
    assert store_path({"IOTRIAL_STORE": "/x/y.db", "HOME": "/h"}, uid=1000) == Path("/x/y.db")
    assert store_path({"HOME": "/home/ann"}, uid=1000) == Path("/home/ann/.local/state/iotrial/trials.db")
    assert store_path({}, uid=0) == Path("/var/lib/iotrial/trials.db")


def test_tests_do_not_see_the_users_trials(disk_folder: Path) -> None:
    assert store_path(os.environ, uid=os.geteuid()).is_relative_to(disk_folder)
