"""The repository and the indexes that application/git makes before each run, without a lab: read by git, and by the format
of an index (gitformat-index(5))."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from iotrial.study import catalogue
from iotrial.workloads.command import CommandWork

pytestmark = pytest.mark.slow
STUDY = catalogue.find("application/git")
(LEVELS,) = [
    {level.label: level.settings[0].value for level in factor.levels}
    for factor in STUDY.factors
    if factor.name == "setting"
]


def done(argv: tuple[str, ...], folder: Path, setting: str) -> str:
    """Run a command of the study in a folder as ``{dir}``."""
    work = STUDY.workloads[0].work
    assert isinstance(work, CommandWork)
    words = [word.replace("{dir}", str(folder)).replace("{setting}", setting) for word in argv]
    own = {name: value.replace("{setting}", setting) for name, value in work.environment}
    environment: Mapping[str, str] = {"PATH": os.environ["PATH"], **own}
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, bytes]]:
    """Do a run of every level; return the folder and the index of each, as it was before the timed part."""
    folder, work = tmp_path_factory.mktemp("git"), STUDY.workloads[0].work
    assert isinstance(work, CommandWork)
    kept = {}
    for label, setting in LEVELS.items():
        done(work.prepare, folder, setting)
        index = folder / "tree" / ".git" / f"index-{setting}"
        kept[label] = index.read_bytes()
        written = index.stat()
        status, *others = work.steps
        assert "nothing to commit" in done(status.argv, folder, setting)
        assert index.stat().st_ino == written.st_ino, "status wrote the index, so it was not up to date"
        for step in others:
            done(step.argv, folder, setting)
        assert (folder / "tree" / ".git" / "HEAD").read_text() == "ref: refs/heads/other\n"
    return folder, kept


def test_the_tree_has_the_files_folders_and_commits_that_the_study_names(
    indexes: tuple[Path, Mapping[str, bytes]],
) -> None:
    tree = indexes[0] / "tree"
    files = [path for path in tree.rglob("*.txt") if path.is_file()]
    assert len(files) == 20_000
    assert len({path.parent for path in files}) == 1_000
    assert {path.stat().st_size for path in files} == {525}

    def counted(*words: str) -> int:
        argv = ["git", "-c", f"safe.directory={tree}", "-C", str(tree), *words]
        return len(subprocess.run(argv, capture_output=True, check=True).stdout.splitlines())

    assert counted("rev-list", "main") == 6_000
    assert counted("rev-list", "--merges", "main") == 1_000
    assert counted("diff", "--name-only", "main", "other") == 1_000
    assert (tree / ".git" / "objects" / "info" / "commit-graph").stat().st_size > 6_000 * 36


def test_each_setting_has_an_index_of_its_own_in_the_form_that_it_asks_for(
    indexes: tuple[Path, Mapping[str, bytes]],
) -> None:
    kept = indexes[1]
    assert {label for label, data in kept.items() if data[4:8] == b"\0\0\0\x04"} == {
        "index.version 4",
        "feature.manyFiles",
    }
    assert {label for label, data in kept.items() if b"UNTR" in data} == {
        "core.untrackedCache",
        "feature.manyFiles",
    }
