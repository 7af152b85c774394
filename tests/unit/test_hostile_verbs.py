"""Hostile files, names and stored trials, through the verbs themselves."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import hostile_trial
import pytest
from hostile_trial import ATTACKS, STEERING
from report_fixtures import trial

from iotrial.cli import main
from iotrial.store import Store
from values import replace

PAYLOADS = [attack for attack in ATTACKS if "\ud800" not in attack]

STUDY = """
[study]
name = "x"
question = "Is it?"
why = {why}
[[factor]]
name = "mode"
knob = {knob}
levels = ["0444", {level}]
[[workload]]
name = "w"
kind = "command"
files = 1
argv = ["cat", {argument}, "{{file}}"]
[[claim]]
source = "a blog"
text = {why}
factor = "mode"
level = "0444"
"""


Verb = Callable[..., str]


@pytest.fixture
def iotrial(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], state: Path) -> Verb:
    """Run the program in this process, check its output and return it."""

    def run(*arguments: str, statuses: set[int]) -> str:
        monkeypatch.setattr(sys, "argv", ["iotrial", *arguments])
        with pytest.raises(SystemExit) as ended:  # anything else would be a traceback
            main()
        printed = capfdbinary.readouterr()
        text = (printed.out + printed.err).decode()
        assert not {f"U+{ord(c):04X}" for c in text if c in STEERING}, text
        assert ended.value.code in statuses, text
        return text

    return run


def quoted(text: str) -> str:
    """Return a TOML string. JSON's escapes are valid in TOML, except surrogate pairs."""
    inside = "".join(json.dumps(c)[1:-1] if ord(c) < 0x10000 else f"\\U{ord(c):08x}" for c in text)
    return f'"{inside}"'


@pytest.mark.parametrize("field", ["why", "knob", "level", "argument"])
def test_a_study_file_of_attacks_is_refused_or_shown_and_steers_nothing(
    tmp_path: Path, iotrial: Verb, field: str
) -> None:
    file = tmp_path / "study.toml"
    for attack in ("".join(PAYLOADS), "a\nlab        image\ncommand    none"):
        plain = {"why": "why", "knob": "file.mode", "level": "0777", "argument": "-"}
        file.write_text(
            STUDY.format(**{key: quoted(value) for key, value in {**plain, field: attack}.items()})
        )
        iotrial("show", str(file), statuses={0, 2})
        text = iotrial("plan", str(file), "--lab", "directory", "--rounds", "1", statuses={0, 2})
        assert "\ncommand    none" not in text


@pytest.mark.parametrize("attack", ["".join(PAYLOADS[:5]), "\ud800/"], ids=["all", "surrogate"])
def test_arguments_of_attacks_are_answered_with_words(iotrial: Verb, attack: str) -> None:
    text = attack.replace("\x00", "").encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    for arguments in (
        ["show", text], ["run", text + ".toml"], [text], ["plan", "files/permissions", "--set", text],
        ["plan", "files/permissions", "--seed", text], ["plan", "files/permissions", "--time", text],
        ["report", text], ["plan", "files/permissions", "--alpha", text], ["show", "--workload", text],
    ):  # fmt: skip
        iotrial(*arguments, statuses={1, 2})


def test_a_stored_trial_of_attacks_is_listed_and_reported_safely(
    iotrial: Verb, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostile_trial, "ATTACKS", tuple(PAYLOADS))
    study = replace(hostile_trial.hostile_study(), name="../../\x1b[2J" + "x" * 200)
    header = replace(trial(study).header, id="0" * 32)
    store = Store.open(state / "trials.db")
    store.create_trial(header)
    del store
    for arguments in (["trials"], ["trials", "--json"], ["report", "1"], ["report", "1", "--json"]):
        iotrial(*arguments, statuses={0, 1, 2, 3})
    html, markdown = tmp_path / "r.html", tmp_path / "r.md"
    iotrial("report", "1", "--html", str(html), "--markdown", str(markdown), statuses={0, 1, 2, 3})
    iotrial("report", "1", "--html", "/proc/nothing/x.html", statuses={1, 2, 3})
    assert [path.name for path in state.parent.iterdir()] == ["iotrial"]
