"""The manual page and the help texts: complete, up to date, and at most 80 columns wide."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from generators.manual import STATUSES, manual
from iotrial import errors
from iotrial.cli import cli, finish

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "iotrial.data" / "data" / "share" / "man" / "man1" / "iotrial.1"
CONTEXT = click.Context(cli, info_name="iotrial")
VERBS = {name: cli.get_command(CONTEXT, name) for name in cli.list_commands(CONTEXT)}


def formatted() -> str:
    """Return the page as formatted by groff, without overstrikes, 78 columns wide."""
    argv = ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=78n", str(PAGE)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text() == manual(), "run `make manual`"


def test_the_page_has_every_verb_and_every_option() -> None:
    text = manual().replace("\\-", "-").replace("\\", "")
    for name, verb in VERBS.items():
        assert f".SS {name}\n" in text
        assert verb is not None
        for param in verb.params:
            if isinstance(param, click.Option) and not param.hidden:
                assert all(f"fB{option}fR" in text for option in param.opts), (name, param.opts)


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_groff_sets_the_page_without_a_complaint_in_80_columns() -> None:
    text = formatted()
    assert max(map(len, text.splitlines())) <= 80
    assert "--set FACTOR=LEVEL,LEVEL" in text
    assert "128 + N" in text


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="no mandoc")
def test_mandoc_finds_nothing_to_complain_of() -> None:
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "style", str(PAGE)], capture_output=True, text=True, check=False
    )
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("name", VERBS)
def test_help_fits_80_columns_and_every_option_is_explained(name: str) -> None:
    verb = VERBS[name]
    assert verb is not None
    text = CliRunner().invoke(cli, [name, "--help"], terminal_width=80).output
    assert max(map(len, text.splitlines())) <= 80
    assert verb.help
    for param in verb.params:
        shown = isinstance(param, click.Option) and not param.hidden
        assert not shown or param.help, (name, param.name)
        assert isinstance(param, click.Argument) or "FLOAT" not in text


def test_the_list_of_verbs_cuts_no_sentence() -> None:
    text = CliRunner().invoke(cli, ["--help"], terminal_width=80).output
    assert "..." not in text.partition("Ask:")[2]
    assert max(map(len, text.splitlines())) <= 80


def test_every_verb_gives_json() -> None:
    without = [
        name
        for name, verb in VERBS.items()
        if verb and not isinstance(verb, click.Group) and not any(p.name == "as_json" for p in verb.params)
    ]
    # serve answers browsers, mcp agents; ack prints lines for powercut
    assert set(without) <= {"ack", "mcp", "serve"}


def test_the_statuses_are_those_of_the_errors_and_of_a_trial_that_ended() -> None:
    raised = {
        value.exit_status
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.IotrialError)
    }
    named = {int(status) for status, _ in STATUSES if status.isdigit()}
    assert named == raised | {0, finish.EXIT_INVALID, finish.EXIT_FAIL_IF, finish.EXIT_NO_ANSWER}


def test_the_documentation_has_the_same_statuses() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    told = dict(re.findall(r"^\| `([^`]+)` \| (.+?) \|$", page, re.M))
    assert dict(STATUSES) == {status: text for status, text in told.items() if status in dict(STATUSES)}


def test_verbs_are_grouped_and_try_comes_first() -> None:
    text = CliRunner().invoke(cli, ["--help"], terminal_width=80).output
    headings = re.findall(r"^(\w+):$", text, re.MULTILINE)
    assert headings == ["Options", "Ask", "Look", "Keep", "Share", "Maintain"]
    assert text.partition("Ask:")[2].split()[0] == "try"
    assert re.search(r"Start with\s+`iotrial try`", text)


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_an_example_with_options_that_it_has(name: str) -> None:
    text = CliRunner().invoke(cli, [name, "--help"], terminal_width=80).output
    found = re.search(rf"^\s+(?:Example: )?(iotrial {name}\b.*|eval .*iotrial {name}.*)$", text, re.MULTILINE)
    assert found, text
    if f"Example: iotrial {name}" in text:
        words = shlex.split(found[1])[1:]
        assert CliRunner().invoke(cli, [*words, "--help"]).exit_code == 0, found[1]
        options = [word for word in words if word.startswith("-")]
        verb = VERBS[name]
        assert verb is not None
        known = [option for param in verb.params for option in param.opts]
        assert set(options) <= set(known), found[1]
