"""A plan shows all programs that it would start, in full and legibly, before anything is changed."""

from __future__ import annotations

from accounting_fixtures import STUDY, study

from iotrial.cli.planned_changes import intent_lines
from iotrial.runner.resolve import resolve
from iotrial.study import catalogue
from iotrial.study.model import Study


def said(of: Study) -> list[str]:
    return [line.strip() for line in intent_lines(resolve(of, root=True, lab="image"), "/x")]


def reading(given: str) -> Study:
    work = f"\n[[workload]]\nname = 'w'\nkind = 'command'\nargv = ['cat']\nstdin = {given}\n"
    return study(STUDY[: STUDY.index("[[workload]]")] + work)


def test_a_short_input_stands_in_its_line() -> None:
    assert "with the input 'a b'" in said(reading('"a b"'))


def test_an_input_of_several_lines_stands_line_by_line() -> None:
    lines = said(reading('"one\\ntwo\\n\\nfour\\n"'))
    at = lines.index("with the input")
    assert lines[at + 1 : at + 5] == ["one", "two", "", "four"]


def test_a_long_input_of_somebody_else_is_shown_whole() -> None:
    lines = said(reading('"' + "".join(f"line {i}\\n" for i in range(40)) + '"'))
    assert [f"line {i}" for i in range(40)] == [line for line in lines if line.startswith("line ")]


def test_of_a_long_input_that_ships_its_length_is_shown() -> None:
    cached = catalogue.find("application/opcode-cache")
    text = cached.workloads[0].work.make_input  # type: ignore[union-attr]
    told = f"with an input of {text.count(chr(10))} lines, {len(text.encode()):,} bytes, which ships with iotrial"
    assert told in said(cached)
    assert not any("<?php" in line for line in said(cached))
