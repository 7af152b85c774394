"""README and some pages of docs show what the program prints: their commands are run and the output compared."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import program
from iotrial.report.live import live_lines
from iotrial.report.opening import packed_document
from iotrial.report.progress import EffectLine, Progress
from iotrial.stats.model import Conclusion

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text() + (ROOT / "docs/command-line.md").read_text()
ELLIPSIS = "..."


def fenced(kind: str) -> list[list[str]]:
    return [text.splitlines() for text in re.findall(rf"^```{kind}\n(.*?)^```", TEXT, re.M | re.S)]


def assert_shows(said: list[str], wanted: list[str]) -> None:
    """Every stretch of lines between two ellipses is there as it stands, in this order."""
    said = [line.rstrip() for line in said]
    place = 0
    stretches: list[list[str]] = [[]]
    for line in wanted:
        if line == ELLIPSIS:
            stretches.append([])
        else:
            stretches[-1].append(line)
    for number, stretch in enumerate(stretches):
        starts = range(place, len(said) - len(stretch) + 1) if number else range(1)
        found = next((at for at in starts if said[at : at + len(stretch)] == stretch), None)
        assert found is not None, "\n".join(["not shown:", *stretch, "but:", *said[place:]])
        place = found + len(stretch)


def output_of(command: str, folder: Path) -> list[str]:
    """Run a command of iotrial or python in the folder, as the shell would, and return its lines, messages first."""
    words, _, target = command.partition(" > ")
    program_name, *rest = shlex.split(words)
    if program_name == "iotrial":
        done = program.iotrial(*rest, cwd=folder)
    else:
        assert program_name == "python"
        done = subprocess.run(
            [sys.executable, *rest], cwd=folder, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    if target:
        (folder / target).write_text(done.stdout)
    return (done.stderr + done.stdout).splitlines()


@pytest.mark.parametrize("page", ["sharing.md", "evidence.md"])
def test_commands_on_stored_examples_show_what_is_written_below_them(
    page: str, state: Path, tmp_path: Path
) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    text = (ROOT / "docs" / page).read_text()
    blocks = [
        block
        for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S)
        if "docs/examples/" in block
    ]
    assert blocks
    for block in blocks:
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *wanted = part.splitlines()
            said = output_of(command, tmp_path)
            if wanted:
                assert_shows(said, wanted)


def test_a_made_up_meter_gives_each_load_the_watts_that_it_is_made_of(state: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    packed = "docs/catalogue/system/power.iotrial"
    for command in (
        f"iotrial import {packed}",
        f"python docs/examples/made_up_meter.py {packed} > readings.csv",
        "iotrial meter last readings.csv",
    ):
        output_of(command, tmp_path)
    report = json.loads("\n".join(output_of("iotrial report last --json", tmp_path)))
    joules = {
        row["treatment"]: row["value"] for row in report["evidence"] if row["metric"] == "energy_metered"
    }
    # 55 W idle and 120 W with all processors busy, for five seconds, read by a meter that is off by up to 1 W
    assert joules["idle"] == pytest.approx(5 * 55, rel=0.02)
    # less where a virtual machine did not get both of its processors
    assert joules["all processors"] == pytest.approx(5 * 120, rel=0.1)
    assert joules["idle"] < joules["one processor"] < joules["all processors"]


def kept_trial(words: list[str]) -> str:
    """Return the packed trial that this command line has made, as it says itself."""
    for file in sorted((ROOT / "docs" / "examples").glob("*.iotrial")):
        if packed_document(file).trial.header.options["argv"] == ["iotrial", *words]:
            return str(file.relative_to(ROOT))
    raise AssertionError(f"no trial in docs/examples is of {words}")


def test_the_commands_show_what_is_written_below_them(state: Path) -> None:
    # a block of one command and what it prints; lists of commands are tried in test_documentation.py
    blocks = [lines for lines in fenced("console") if not any(line.startswith("$ ") for line in lines[1:])]
    assert len(blocks) >= 2
    for command, *wanted in blocks:
        words = shlex.split(command.removeprefix("$ iotrial "))
        if words[0] == "try":  # the trial of that very line is kept
            words = ["report", kept_trial(words)]
        done = program.iotrial(*words, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
        assert_shows(done.stdout.splitlines(), wanted)


def test_a_running_trial_is_drawn_as_it_is_shown() -> None:
    """The numbers are those of a real trial of files/permissions, at a margin of 10 %."""
    (wanted,) = fenced("text")

    def line(
        condition: str, interval: tuple[float, ...], before: tuple[float, ...], *, going_on: bool
    ) -> EffectLine:
        low, value, high = interval
        verdict = {} if going_on else {"verdict": "equivalent", "conclusion": Conclusion.EQUIVALENT}
        ends = {"before_low": before[0], "before_high": before[1], "before_blocks": 19} if before else {}
        return EffectLine(condition, "mode", "0444", "0777", value, low, high, 30, **verdict, **ends)  # type: ignore[arg-type]

    effects = (
        line("workload probe, cache cold", (0.909, 1.008, 1.087), (), going_on=False),
        line("workload probe, cache warm", (0.878, 0.992, 1.106), (0.82, 1.22), going_on=True),
        line("workload md5sum, cache cold", (0.908, 0.977, 1.046), (0.885, 1.05), going_on=True),
        line("workload md5sum, cache warm", (0.923, 0.998, 1.094), (), going_on=False),
    )
    blocks = {"a": 38, "b": 38, "c": 20, "d": 15}
    progress = Progress(
        8,
        "files/permissions",
        3.57,
        30.0,
        blocks,
        0,
        0,
        effects,
        margin=0.1,
        conditions=4,
        conditions_decided=2,
    )
    assert_shows([one.plain for one in live_lines(progress, width=79, height=27)], wanted)
