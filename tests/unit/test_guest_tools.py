"""Programs for a guest come from its unpacked packages, never from this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from iotrial.errors import LabError
from iotrial.guest.tools import Tools


@pytest.mark.parametrize("name", ["true", "/usr/bin/true"])
def test_a_program_is_found_in_the_packages_by_name_and_by_path(tmp_path: Path, name: str) -> None:
    own = tmp_path / "usr/bin/true"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\n")
    assert list(Tools(tmp_path).entries([name])) == ["/usr/bin/true"]


def test_one_that_only_this_machine_has_is_missing(tmp_path: Path) -> None:
    here = shutil.which("true")
    assert here is not None
    assert here.startswith("/")
    with pytest.raises(LabError, match="no package provides the program"):
        Tools(tmp_path).entries([here])
