"""Every numeric option of every verb, with what is no number or out of range: an error that names the option, status 2."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from iotrial.cli import cli, main

#: how the help names the value of a numeric option
NUMBERS = {"N", "P", "PORT", "SECONDS", "DURATION", "[DURATION]", "PERIOD",
        "PERCENT", "SIZE", "LEVEL", "FROM-TO", "+HH:MM"}  # fmt: skip
#: words before and after the option with which a verb comes to look at it, and does nothing else
WORDS = {
    "try": (["--plan", "block.read_ahead_kb=128,256"], ["--", "true"]),
    "best": (["--plan", "--over", "block.read_ahead_kb=128,256"], ["--", "true"]),
    "live": (["--plan", "block.read_ahead_kb=128,256", "--metric", "cpu"], []),
    "run": (["files/permissions", "--lab", "directory", "--on", "/nowhere"], []),
    "fleet run": (["files/permissions", "--lab", "directory", "--scheduler", "tcp://127.0.0.1:1"], []),
    "plan": (["files/permissions", "--lab", "directory"], []),
    "record": (["-o", "/nowhere/x"], ["--", "true"]),
    "powercut": (["--dump", "true"], ["--", "true", "{dir}"]),
    "ci": (["--base", "true", "--head", "true"], []),
    "apply": (["1", "--dry-run"], []),
    "meter": (["1", "/nowhere"], []),
    "resume": (["1"], []),
    "continue": (["1"], []),
    "refine": (["1"], []),
    "serve": (["--host", "nowhere.invalid"], []),
    "audit": (["/nowhere"], []),
    "doctor": ([], []),
    "restore": ([], []),
}
WRONG = ("nan", "inf", "-inf", "-1", "1e400", "9" * 25, "")
#: numbers after all
RIGHT = {("--seed", "9" * 25), ("--shift", "-1")}


def commands(
    group: click.Group, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


def numeric() -> Iterator[tuple[str, str]]:
    """Yield the verb and the name of each option that takes a number."""
    for words, command in commands(cli):
        for one in command.params:
            typed = isinstance(one.type, click.types.IntRange | click.types.FloatRange)
            if isinstance(one, click.Option) and (typed or one.metavar in NUMBERS):
                yield " ".join(words), one.opts[-1]


def test_the_options_are_found() -> None:
    found = set(numeric())
    assert {verb for verb, _ in found} == set(WORDS)
    assert {("meter", "--shift"), ("audit", "--margin"), ("restore", "--accept")} <= found


@pytest.mark.parametrize(("verb", "option"), list(numeric()))
def test_a_wrong_number_is_an_error_that_names_its_option(
    verb: str,
    option: str,
    state: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before, after = WORDS[verb]
    monkeypatch.chdir(tmp_path)
    wrong = []
    for value in WRONG:
        if (option, value) in RIGHT:
            continue
        monkeypatch.setattr(sys, "argv", ["iotrial", *verb.split(), *before, f"{option}={value}", *after])
        try:
            main()
        except SystemExit as ended:
            status: object = ended.code
        except Exception as error:
            status = repr(error)
        said = capfd.readouterr().err
        named = (
            option.strip("-") in said.replace(" ", "-") or f"No such option '{value[:2]}'" in said
        )  # --pilot may have no value
        if status != 2 or not named:
            wrong.append((value, status, said[-300:]))
    assert not wrong
