"""Studies by name or path, which foreign ones need trust, and that listing names is cheap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from study_examples import WHOLE, changed, whole

from generators.indexes import catalogue_index
from iotrial.errors import StudyError, UnknownName
from iotrial.report.safety import worst
from iotrial.study import catalogue
from iotrial.study.reader import read_study
from iotrial.study.trust import demands, unmet


@pytest.mark.parametrize("name", catalogue.names())
def test_every_shipped_study_reads_and_says_what_it_asks(name: str) -> None:
    study = catalogue.find(name)
    assert study.trusted
    assert study.origin == name
    assert study.question.endswith("?")
    assert study.why
    assert catalogue.text(name) == study.text


def test_the_index_is_that_of_the_studies() -> None:
    assert catalogue.INDEX.read_text() == catalogue_index(), "make manual"
    assert tuple(entry.name for entry in catalogue.entries()) == catalogue.names()
    for entry in catalogue.entries():
        study = catalogue.find(entry.name)
        assert (entry.title, entry.question) == (study.title, study.question)
        assert (entry.time_s, entry.safety) == (study.budget.time_s, worst(study))


def test_a_study_that_changed_since_it_was_indexed_is_listed_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mount").mkdir()
    text = (catalogue.CATALOGUE / "mount" / "atime.toml").read_text()
    (tmp_path / "mount" / "atime.toml").write_text(text.replace('question = "', 'question = "In short: '))
    monkeypatch.setattr(catalogue, "_shipped", lambda: {"mount/atime": tmp_path / "mount" / "atime.toml"})
    (changed,) = catalogue.entries()
    assert changed.question.startswith("In short: ")
    assert changed.safety is None


def test_a_path_is_read_as_a_file_and_somebody_elses_is_trusted_only_where_the_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.toml").write_text(WHOLE)
    assert catalogue.find(str(tmp_path / "mine.toml")).trusted
    (tmp_path / "mine.toml").chmod(0o666)
    assert not catalogue.find(str(tmp_path / "mine.toml")).trusted
    assert catalogue.find(str(tmp_path / "mine.toml"), trusted=True).trusted
    monkeypatch.chdir(tmp_path)
    assert catalogue.find("mine.toml").name == "whole"
    (tmp_path / "plain").write_text(WHOLE)
    assert catalogue.find("plain").name == "whole"


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        catalogue.find("files/permission")
    assert '"files/permissions"' in (caught.value.hint or "")
    with pytest.raises(UnknownName):
        catalogue.find("files/../files/permissions")
    with pytest.raises(UnknownName):
        catalogue.find("x\0y")


def test_a_path_that_is_not_there_is_an_error_of_the_file() -> None:
    with pytest.raises(StudyError, match="No such file"):
        catalogue.find("./nowhere.toml")


def test_listing_names_does_not_import_the_reader() -> None:
    code = (
        "import sys; from iotrial.study import catalogue; catalogue.entries(); "
        "print([m for m in ('pydantic', 'iotrial.study.reader', 'numpy') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("name", ["application/opcode-cache", "mount/atime"])
def test_a_study_to_look_at_lacks_only_the_texts_of_files_and_the_lines_of_factors(name: str) -> None:
    seen, whole = catalogue.look_up(name), catalogue.find(name)
    assert all(factor.line is None for factor in seen.factors)
    assert all(factor.line for factor in whole.factors)
    factors = tuple(replace(factor, line=None) for factor in whole.factors)
    assert seen == replace(whole, factors=factors, text=seen.text)
    assert (seen.text == whole.text) == (name == "mount/atime")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "slow"', 'name = "slow"\nrun_as = "root"', "as root"),
        ('argv = ["md5sum", "{file}"]', 'argv = ["/bin/sh", "-c", "md5sum"]', "a shell (sh)"),
        ('argv = ["md5sum", "{file}"]', 'argv = ["env", "A=b", "bash"]', "a shell (bash)"),
        ('argv = ["md5sum", "{file}"]', 'argv = ["sudo", "md5sum"]', "a change of user (sudo)"),
        ('argv = ["md5sum", "{file}"]', 'argv = ["{dir}/x"]', "from a level or a file"),
    ],
)
def test_root_and_shells_need_trust(old: str, new: str, words: str) -> None:
    study = read_study(changed(old, new), "s.toml", trusted=False)
    assert len(unmet(study)) == 1
    assert words in unmet(study)[0]
    assert '"slow"' in unmet(study)[0]
    trusted = read_study(study.text, "s.toml", trusted=True)
    assert unmet(trusted) == ()
    assert demands(trusted) == demands(study)


def test_plain_commands_need_none() -> None:
    assert unmet(whole()) == ()
