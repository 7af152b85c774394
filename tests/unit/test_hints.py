"""Hints make progress, never lead back to the same refusal, and name packages that exist."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from iotrial.errors import IotrialError, MissingTool
from iotrial.runner.requirements import PACKAGES, package_of
from iotrial.runner.resolve import resolve
from iotrial.study.catalogue import entries, find
from iotrial.study.work import HasPrograms

LABS = ("directory", "image", "device", "guest")
#: the ways in which hints offer labs
OFFERS = (r"--lab (\w+)", r"it needs: ([\w, ]+)", r"a lab of kind (.*?), as root")


def refusal(name: str, lab: str, *, root: bool) -> IotrialError | None:
    try:
        resolve(find(name), root=root, lab=lab)
    except MissingTool:
        return None  # reports which program this machine lacks
    except IotrialError as error:
        return error
    return None


def offered(hint: str) -> set[str]:
    told = " ".join(found for pattern in OFFERS for found in re.findall(pattern, hint))
    return {word for word in re.findall(r"\w+", told) if word in LABS}


@pytest.mark.parametrize("name", [entry.name for entry in entries()])
def test_the_labs_that_a_hint_offers_serve_the_study(name: str) -> None:
    for lab in LABS:
        for root in (False, True):
            error = refusal(name, lab, root=root)
            if error is None or error.hint is None:
                continue
            assert lab not in offered(error.hint), f"{error}: {error.hint}"
            for other in offered(error.hint):
                with_root = root or "sudo" in error.hint or "as root" in error.hint
                if error.hint.startswith("run it with sudo, or "):
                    with_root = root  # the hint offers this as an alternative to root
                again = refusal(name, other, root=with_root)
                if again is not None:  # it only remains to name a disk
                    assert "no disk given" in str(again), f"{error}: {error.hint}, but {other}: {again}"


def test_some_hints_do_offer_labs() -> None:
    """Make sure that the test above has hints to follow."""
    assert offered("run it with sudo, or use --lab directory") == {"directory"}
    assert offered("it needs: device, guest, image (as root)") == {"device", "guest", "image"}
    hints = [
        error.hint or "" for entry in entries() if (error := refusal(entry.name, "directory", root=True))
    ]
    assert sum(bool(offered(hint)) for hint in hints) > 10


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("dpkg") is None, reason="no Debian")
def test_a_program_that_is_installed_comes_from_the_package_that_a_hint_would_name() -> None:
    looked_at = 0
    for program, package in PACKAGES.items():
        place = shutil.which(program, path="/usr/bin:/bin")
        if place is None:
            continue
        owners = [
            subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, check=False).stdout.split(
                ":"
            )[0]
            for path in (place, place.removeprefix("/usr"))
        ]
        found = [owner for owner in owners if owner and not owner.startswith("diversion")]
        if found:  # otherwise it is the link of an alternative
            # A package of that name provides it, or one of its dependencies, such as gcc-12 or
            # python3-minimal.
            assert any(re.match(rf"{re.escape(package.removesuffix('-cli'))}\b", owner) for owner in found), (
                program,
                found,
            )
            looked_at += 1
    assert looked_at > 8


@pytest.mark.parametrize(
    ("program", "package"),
    [("sleep", "coreutils"), ("ps", "procps"), ("mount", "mount"), ("no-such-program", "no-such-program")],
)
def test_a_program_for_a_guest_is_fetched_from_the_package_that_has_it_here(
    program: str, package: str
) -> None:
    assert program not in PACKAGES
    assert package_of(program) == package


def test_programs_of_the_catalogue_that_run_in_guests_have_a_package() -> None:
    """apt-get fetches only packages that exist: ``sleep`` is in coreutils."""
    named = {
        program
        for entry in entries()
        if (study := find(entry.name)).lab.kind == "guest"
        for workload in study.workloads
        if isinstance(workload.work, HasPrograms)
        for program in workload.work.named_programs()
        if "{" not in program
    }
    assert {"find", "sleep"} <= named
    for program in sorted(named):
        known = subprocess.run(["dpkg-query", "-s", package_of(program)], capture_output=True, check=False)
        assert shutil.which(program) is None or known.returncode == 0, program
