"""User code against iotrial type-checks with mypy as strictly as iotrial itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RIGHT = """
from collections.abc import Sequence
from pathlib import Path

import iotrial
from iotrial import Effect, Effects, Trial, Verdict


def slower(trial: Trial) -> Sequence[Effect]:
    return trial.effects.primary.where(lambda one: one.verdict is Verdict.SLOWER)


def types_of(path: Path) -> str:
    trial: Trial = iotrial.open(path)
    effects: Effects = trial.effects[:3]
    first: Effect = effects[0]
    ratio: float | None = first.ratio
    number: int | None = trial.number
    condition: str = first.condition["size"]
    runs: list[float] = [run.responses["wall"] for run in trial.runs if run.counted]
    kind: str = trial.controls[0].kind
    trial.frame("runs").to_parquet("it")
    return f"{trial.verdict} {ratio} {number} {condition} {runs} {kind} {trial.machine['kernel']}"


found: iotrial.BlockComparison = iotrial.compare_blocks([1.0], [2.0], alpha=0.01)
low: float | None = found.low
audit: iotrial.Audit = iotrial.audit({"off": [1.0, 2.0], "on": [1.5]})
sentence: str = audit.findings[0]
study: iotrial.Study = iotrial.find_study("files/permissions")
trials: iotrial.Trials = iotrial.trials()
last: Trial = iotrial.trial("last", store="x.db")
try:
    iotrial.run(study, "--time", "5s")
except iotrial.RequestError as error:
    hint: str | None = error.hint
"""

WRONG = """
import iotrial

iotrial.open("x.iotrial").frame("nonsense")
iotrial.trial(1.5)
iotrial.compare_blocks([1.0], [2.0], scale="logarithm")
x: int = iotrial.open("x.iotrial").verdict
iotrial.nonsense()
"""


def mypy(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "user.py"
    file.write_text(text)
    config = folder / "mypy.ini"
    config.write_text(
        f"[mypy]\nstrict = True\nmypy_path = {ROOT / 'python'}\n[mypy-pandas.*]\nignore_missing_imports = True\n"
    )
    words = [
        "--config-file",
        str(config),
        "--cache-dir",
        str(folder / "cache"),
        "--follow-imports",
        "silent",
        str(file),
    ]
    return subprocess.run([sys.executable, "-m", "mypy", *words], capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_script_of_a_user_is_typed_and_wrong_ones_are_found(tmp_path: Path) -> None:
    done = mypy(RIGHT, tmp_path)
    assert done.returncode == 0, done.stdout
    done = mypy(WRONG, tmp_path)
    lines = {line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line}
    assert lines == {"4", "5", "6", "7", "8"}, done.stdout


def test_it_is_marked_as_typed() -> None:
    assert (ROOT / "python" / "iotrial" / "py.typed").exists()
