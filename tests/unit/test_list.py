"""``list`` filters by words; a wrong name gets a short hint; the help of ``run`` groups its options."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from iotrial.cli.options import OTHERS
from iotrial.cli.verbs.list_ import command
from iotrial.cli.verbs.plan import command as plan
from iotrial.cli.verbs.run import command as run
from iotrial.errors import RequestError, UnknownName


def listed(*words: str) -> list[dict[str, str]]:
    done = CliRunner().invoke(command, [*words, "--json"])
    assert done.exit_code == 0, done.output
    found: list[dict[str, str]] = json.loads(done.stdout)["studies"]
    return found


def test_words_are_looked_for_in_name_title_and_question_and_all_must_be_there() -> None:
    every = listed()
    assert len(every) > 60
    assert [one["name"] for one in listed("mount/")] == [
        one["name"] for one in every if one["name"].startswith("mount/")
    ]
    both = listed("READ", "mount")
    assert both
    assert len(both) < len(listed("read"))
    for one in both:
        text = " ".join((one["name"], one["title"], one["question"])).casefold()
        assert "read" in text
        assert "mount" in text


def test_words_that_no_study_has_are_an_error() -> None:
    done = CliRunner().invoke(command, ["no-such-word"])
    assert isinstance(done.exception, RequestError)
    assert "no-such-word" in str(done.exception)


def test_many_names_are_not_dumped() -> None:
    names = [f"family/study-{number}" for number in range(50)]
    assert len(str(UnknownName("study", "zzz", names).hint)) < 100
    assert UnknownName("study", "family/studi-7", names).hint == 'did you mean "family/study-7"?'
    assert str(UnknownName("port", "zzz", names).hint).endswith("and 38 more")
    assert UnknownName("port", "zzz", ["a", "b"]).hint == "known: a, b"


@pytest.mark.parametrize("verb", [run, plan])
def test_help_has_every_option_once_and_the_others_last(verb: click.Command) -> None:
    help_text = CliRunner().invoke(verb, ["--help"]).output
    for param in verb.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert help_text.count(f"\n  {param.opts[0]} ") == 1, param.opts
    headings = [line for line in help_text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert len(headings) > 3
    assert headings[-1] == f"{OTHERS}:"
