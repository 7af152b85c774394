"""Extensions: a workload kind, a knob, an importer, a format and a verb are one file or one row each. They
are added here from another folder, without changing a file of iotrial, and used by the whole program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from study_texts import reading

PROGRAM = """
import importlib, sys
folder = sys.argv.pop(1)
for name in ("workloads", "knobs", "audits.importers", "report.exports", "cli.verbs"):
    importlib.import_module(f"iotrial.{name}").__path__.append(f"{folder}/{name}")
from iotrial.__main__ import run
run()
"""

KIND = '''
from typing import Annotated

from msgspec import Meta

from iotrial.study.schema import Duration, Problem
from iotrial.study.work import CPU_RESPONSES, Measured, Work, minimal_environment, time_response


class NapWork(Work, frozen=True, kw_only=True):
    """A pause of a set length."""

    kind = "nap"
    about = "A process that sleeps."
    documented = (time_response("wall", "time of the process"), *CPU_RESPONSES)
    options = ("length",)
    verb = "command"
    starts_programs = True

    length_s: Annotated[Duration, Meta(gt=0, le=1, description="how long it sleeps")] = 0.001

    def check(self):
        if self.length_s == 0.5:
            raise Problem("nobody sleeps for half a second", "length")

    def responses(self):
        return self.documented

    def described(self):
        return f"sleep {self.length_s:g} s"

    def probe_job(self, context):
        return {
            "steps": [{"name": "nap", "argv": ["sleep", str(self.length_s)]}],
            "environment": minimal_environment(),
            "timeout_s": 10.0,
        }

    def measured(self, answer, context):
        return Measured({"nap_programs": float(len(answer["steps"]))})

    def on_files(self):
        return False


WORK = NapWork
'''
STUDY = """
[study]
name = "napping"
question = "Does a longer nap take longer?"
margin = 0.1

[lab]
kind = "directory"

[[factor]]
name = "length"
knob = "work.option"
option = "length"
levels = ["1 ms", "9 ms"]

[[workload]]
name = "nap"
kind = "nap"
"""

KNOB = """
from iotrial.knobs.block import DeviceFile
from iotrial.knobs.declaration import HARMLESS

KNOBS = (
    DeviceFile(
        "toy.merging", "merging, by another name", "queue/nomerges", HARMLESS, neutral="0", words=("0", "2")
    ),
)
"""
TURNING = f"""
[study]
name = "turning"
question = "Does merging matter?"

[lab]
kind = "image"
size = "64 MiB"

[[factor]]
name = "merging"
knob = "toy.merging"
levels = ["0", "2"]

{reading(files=2, cache="warm")}
"""

IMPORTER = """
from iotrial.audits.model import Observation
from iotrial.audits.importers.contract import Format, Imported


def read(source, asked):
    lines = [line.split() for line in source.text.splitlines()[1:]]
    return Imported(
        tuple(
            Observation(group=group, response="toys", value=float(value), unit="s", place=float(place))
            for place, (group, value) in enumerate(lines)
        )
    )


FORMAT = Format("toy", "toy results", lambda text: text.startswith("TOY\\n"), read)
"""

FORMAT = """
SUFFIX = ".toy"


def write(document, file):
    file.write(f"{document.trial.header.study.name} {len(document.data.runs)}\\n".encode())
"""

VERB = """
import click


@click.command("greet", short_help="Say a word.")
@click.argument("word")
def command(word):
    click.echo(f"hello {word}")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("more")
    for name, text in (
        ("workloads/nap", KIND),
        ("knobs/toy", KNOB),
        ("audits.importers/toy", IMPORTER),
        ("report.exports/toy", FORMAT),
        ("cli.verbs/greet", VERB),
    ):
        path = folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def iotrial(folder: Path, *words: str, check: int = 0) -> str:
    """What it prints; a trial of a few blocks ends with status 6."""
    argv = [sys.executable, "-c", PROGRAM, str(folder), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == check or (check, done.returncode) == (0, 6), done.stderr
    return done.stdout if check == 0 else done.stderr


def test_a_kind_of_work_is_one_file(folder: Path, state: Path, tmp_path: Path) -> None:
    study = tmp_path / "nap.toml"
    study.write_text(STUDY)
    assert "length  duration, 1 ms  how long it sleeps" in iotrial(folder, "show", "--workload", "nap")
    iotrial(folder, "run", str(study), "--blocks", "10", "--no-stop", "--on", str(state.parent))
    report = json.loads(iotrial(folder, "report", "last", "--json"))
    (effect,) = [one for one in report["effects"] if one["primary"]]
    assert effect["verdict"] == "slower"
    assert effect["ratio"] > 2
    assert "sleep" in iotrial(folder, "report", "last", "--full")
    study.write_text(STUDY.replace('"9 ms"', '"500 ms"'))
    assert "nobody sleeps for half a second" in iotrial(folder, "plan", str(study), check=2)
    study.write_text(STUDY + "lenght = '1 ms'\n")
    said = iotrial(folder, "plan", str(study), check=2)
    assert f"{study}:19" in said
    assert 'did you mean "length"' in said


@pytest.mark.root
def test_a_knob_of_a_plain_file_is_one_row(folder: Path, state: Path, tmp_path: Path) -> None:
    study = tmp_path / "turning.toml"
    study.write_text(TURNING)
    iotrial(
        folder, "run", str(study), "--blocks", "2", "--no-stop", "--no-controls", "--on", str(state.parent)
    )
    report = json.loads(iotrial(folder, "report", "last", "--json"))
    assert report["trial"]["state"] == "done"
    assert "toy.merging" in iotrial(folder, "knobs", "--all")
    assert "Nothing to restore" in iotrial(folder, "restore")


def test_an_importer_is_one_file(folder: Path, state: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.txt"
    results.write_text("TOY\n" + "".join(f"{name} {value}\n" for value in (1, 2, 3) for name in "ab"))
    answer = json.loads(iotrial(folder, "audit", str(results), "--json"))
    assert json.dumps(answer).count('"toys"') > 0


def test_a_format_is_one_file(folder: Path, state: Path) -> None:
    packed = next((Path(__file__).parents[2] / "docs" / "catalogue").rglob("xfs-log-size.iotrial"))
    said = iotrial(folder, "export", str(packed), "-", "--as", "toy")
    name, runs = said.split()
    assert name == "filesystem/xfs-log-size"
    assert int(runs) > 100


def test_a_verb_is_one_file(folder: Path) -> None:
    assert iotrial(folder, "greet", "world") == "hello world\n"
    assert "greet" in iotrial(folder, "--help")
