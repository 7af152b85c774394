"""A study that another user could have written needs consent before its commands run; the user's own does
not. Real files of real users, as root, behind sudo, and as nobody."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import iotrial, run_json, stored_runs, write_study

from as_nobody import NOBODY
from iotrial.ownership import other_writer_of_open
from iotrial.study.reader import load

pytestmark = pytest.mark.root

AS_NOBODY = str(Path(__file__).parents[1] / "as_nobody.py")
STRANGER = 12345
READING = """
[study]
name = "reading"
question = "Does the option matter?"
[lab]
kind = "directory"
[budget]
time = "20 s"
blocks = 1
[[factor]]
name = "option"
knob = "command.argument"
placeholder = "{option}"
levels = ["-q", "-c"]
[[workload]]
name = "grep"
kind = "command"
cache = "as-is"
files = 4
argv = ["grep", "{option}", "x", "SECRET"]
expect_exit = EXIT
"""
FIO = """
[study]
name = "job"
question = "Does the mode matter?"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0600", "0644"]
[[workload]]
name = "fio"
kind = "fio"
file = "job.fio"
pick = ["jobs.job.read.iops"]
"""


def belongs_to_a_stranger(study: Path) -> None:
    os.chown(study, STRANGER, STRANGER)


def everybody_may_write(study: Path) -> None:
    study.chmod(0o646)


def a_group_may_write(study: Path) -> None:
    os.chown(study, 0, STRANGER)
    study.chmod(0o664)


def a_user_in_an_access_list_may_write(study: Path) -> None:
    # version 2; the owner rw, user 12345 rw, the group nothing, the mask rw, others nothing (acl(5))
    entries = ((1, 6, -1), (2, 6, STRANGER), (4, 0, -1), (16, 6, -1), (32, 0, -1))
    value = b"".join(
        tag.to_bytes(2, "little") + rights.to_bytes(2, "little") + (who % 2**32).to_bytes(4, "little")
        for tag, rights, who in entries
    )
    os.setxattr(study, "system.posix_acl_access", (2).to_bytes(4, "little") + value)


def the_folder_is_a_strangers(study: Path) -> None:
    os.chown(study.parent, STRANGER, STRANGER)


def everybody_may_write_in_a_folder_above(study: Path) -> None:
    study.parent.parent.chmod(0o777)


def a_strangers_link_leads_to_it(study: Path) -> None:
    true = study.rename(study.parent.parent / "true.toml")
    study.symlink_to(true)
    os.chown(study, STRANGER, STRANGER, follow_symlinks=False)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = tmp_path / "above" / "folder"
    folder.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text("x\n")
    secret.chmod(0o600)
    return Path(write_study(folder, READING.replace("SECRET", str(secret)).replace("EXIT", "0")))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder on a disk, owned by root, that every user can enter, unlike the state folder."""
    with tempfile.TemporaryDirectory(prefix="iotrial-consent-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.parametrize(
    "strange",
    [
        belongs_to_a_stranger,
        everybody_may_write,
        a_group_may_write,
        a_user_in_an_access_list_may_write,
        the_folder_is_a_strangers,
        everybody_may_write_in_a_folder_above,
        a_strangers_link_leads_to_it,
    ],
)
def test_a_study_is_from_elsewhere_where_somebody_else_could_have_written_it(
    study: Path, strange: Callable[[Path], None]
) -> None:
    assert load(study).trusted
    strange(study)
    assert not load(study).trusted
    assert load(study, trusted=True).trusted


def test_a_file_in_a_sticky_folder_and_one_with_the_groups_of_the_system_are_the_users_own(
    study: Path,
) -> None:
    study.parent.chmod(0o1777)
    study.chmod(0o664)
    assert load(study).trusted
    os.chown(study, 0, NOBODY)  # the primary group of another user
    assert not load(study).trusted


def test_behind_sudo_files_of_its_caller_are_his_own(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    belongs_to_a_stranger(study)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    assert load(study).trusted
    monkeypatch.setenv("SUDO_UID", str(STRANGER + 1))
    assert not load(study).trusted


def test_a_job_file_counts_as_the_study_that_names_it(study: Path) -> None:
    study.write_text(FIO)
    job = study.parent / "job.fio"
    job.write_text("[job]\nrw=read\nsize=1m\n")
    assert load(study).trusted
    belongs_to_a_stranger(job)
    assert not load(study).trusted


def test_the_file_that_was_opened_is_judged_and_not_the_one_that_has_its_name_now(study: Path) -> None:
    own = study.with_name("own")
    shutil.copy(study, own)
    belongs_to_a_stranger(study)
    with study.open() as file:
        own.replace(study)  # as if it had always been root's
        assert other_writer_of_open(file.fileno(), study)
    foreign = study.with_name("foreign")
    shutil.copy(study, foreign)
    with study.open() as file:
        assert other_writer_of_open(file.fileno(), study) is None
        foreign.replace(study)
        assert other_writer_of_open(file.fileno(), study)


def test_the_users_own_study_runs_unasked_as_he_does_and_somebody_elses_by_his_consent_as_nobody(
    state: Path, study: Path, open_folder: Path
) -> None:
    words = (str(study), "--no-controls", "--blocks", "1", "--on", str(open_folder))
    run_json(*words)  # grep succeeds: root may read the file
    first = stored_runs(state)
    assert first
    assert {run["failure"] for run in first} == {None}
    belongs_to_a_stranger(study)
    for verb in (("run",), ("run", "--rehearse"), ("plan", "--pilot")):
        refused = iotrial(*verb, *words, check=2)
        assert "comes from elsewhere" in refused.stderr
        assert "grep: grep {option} x" in refused.stderr  # the command is shown
        assert refused.stderr.split("hint:")[1].split()[-2:] == ["add", "--trust"]
    assert stored_runs(state) == first
    study.write_text(study.read_text().replace("expect_exit = 0", "expect_exit = 2"))  # grep fails as nobody
    run_json(*words, "--trust")
    assert {run["failure"] for run in stored_runs(state)} == {None}
    study.write_text(study.read_text().replace("expect_exit = 2", 'expect_exit = 0\nrun_as = "root"'))
    run_json(*words, "--trust")
    assert {run["failure"] for run in stored_runs(state)} == {None}


def test_a_study_that_the_user_calls_foreign_is_asked_about_although_the_file_is_his(study: Path) -> None:
    assert "comes from elsewhere" in iotrial("run", str(study), "--foreign", check=2).stderr


def test_a_study_from_elsewhere_without_commands_runs_unasked(state: Path, study: Path) -> None:
    text = study.read_text()
    factor = text.index("[[factor]]")
    study.write_text(
        text[:factor] + '[[factor]]\nname = "mode"\nknob = "file.mode"\nlevels = ["0600", "0644"]\n'
        '[[workload]]\nname = "read"\nkind = "files"\n'
        'operations = ["open", "read-to-end", "close"]\nfiles = 4\ncache = "as-is"\n'
    )
    belongs_to_a_stranger(study)
    run_json(str(study), "--no-controls", "--blocks", "1")


@pytest.mark.parametrize(
    ("owner", "asked"), [(NOBODY, False), (0, False), (STRANGER, True)], ids=["his", "root's", "another's"]
)
def test_a_user_is_asked_about_files_of_others_and_not_about_his_own_or_roots(
    everybody: Path, study: Path, owner: int, *, asked: bool
) -> None:
    home = everybody / "home"
    text = study.read_text().replace("expect_exit = 0", "expect_exit = 2")
    own = everybody / "study.toml"
    own.write_text(text)
    os.chown(own, owner, owner)
    done = subprocess.run(
        [sys.executable, AS_NOBODY, "run", str(own), "--no-controls", "--blocks", "1", "--json"],
        env={
            **os.environ,
            "XDG_STATE_HOME": str(home),
            "HOME": str(home),
            "IOTRIAL_PROBE": str(everybody / "ioprobe"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == (2 if asked else 6), done.stderr
    assert ("comes from elsewhere" in done.stderr) == asked


SHELL = """
[study]
name = "shell"
question = "Does the mode matter?"
[budget]
time = "20 s"
blocks = 1
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0600", "0644"]
[[workload]]
name = "env"
kind = "command"
cache = "as-is"
files = 4
argv = ["sh", "-c", 'cat "$@" > /dev/null; env > SEEN', "sh", "{files}"]
"""


def test_commands_see_nothing_of_the_environment_of_the_users_shell_and_root_finds_its_programs_without_it(
    state: Path, tmp_path: Path
) -> None:
    evil, called = tmp_path / "bin", tmp_path / "called"
    evil.mkdir()
    for program in ("mkfs.ext4", "sh", "mount", "losetup"):
        (evil / program).write_text(f"#!/bin/sh\n: > {called}\n")
        (evil / program).chmod(0o755)
    seen = tmp_path / "seen"
    study = write_study(tmp_path, SHELL.replace("SEEN", str(seen)))
    hooks = {"BASH_ENV": "/x", "ENV": "/x", "PERL5OPT": "-Mx", "TAR_OPTIONS": "-v", "GIT_SSH_COMMAND": "/x"}
    done = subprocess.run(
        [sys.executable, "-m", "iotrial", "run", study, "--lab", "image", "--size", "64MiB", "--no-controls", "--json"],
        env={**os.environ, **hooks, "PATH": f"{evil}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode in (0, 6), done.stderr
    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert names <= {"PATH", "HOME", "LC_ALL", "PWD", "OLDPWD", "SHLVL", "_", "IOTRIAL_SESSION"}
    assert str(evil) not in seen.read_text()
    assert not called.exists()
