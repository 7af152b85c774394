"""Line numbers of paths in TOML that is easy to misparse."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iotrial.study.source import Locator

TRICKY = '''\
# [[factor]] in a comment
title = "no [[factor]] here # nor a comment"
why = """
[[factor]]
name = "not this one"
a quote: \\""" and two more: ""
"""
literal = \'\'\'
[[factor]]
it\'s\'\'\'

[[factor]]   # the first
name = "one"
levels = [
  "a",  # with ] and "quotes" in the comment
  [ "nested", 3 ],

  { label = "tuned", set = { "mount.atime" = "noatime", x.y = 1 } },
]

[[factor]]
"quoted key" = 1
'name' = "two"
dotted . key = true
levels = ["x", "y]", 'z"',]

[ workload . environment ]
KEY = 1979-05-27 07:32:00 # a date with a blank

[[factor]]
  [factor.only]
  size = ["4 KiB"]
  [[factor.step]]
  argv = ["a"]
  [[factor.step]]
  argv = ["b",
    "c"]
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("why",), 3),
        (("literal",), 8),
        (("factor", 0), 12),
        (("factor", 0, "name"), 13),
        (("factor", 0, "levels"), 14),
        (("factor", 0, "levels", 0), 15),
        (("factor", 0, "levels", 1, 1), 16),
        (("factor", 0, "levels", 2, "label"), 18),
        (("factor", 0, "levels", 2, "set", "mount.atime"), 18),
        (("factor", 0, "levels", 2, "set", "x", "y"), 18),
        (("factor", 1), 21),
        (("factor", 1, "quoted key"), 22),
        (("factor", 1, "name"), 23),
        (("factor", 1, "dotted", "key"), 24),
        (("factor", 1, "levels", 2), 25),
        (("workload", "environment", "KEY"), 28),
        (("factor", 2), 30),
        (("factor", 2, "only", "size", 0), 32),
        (("factor", 2, "step", 0, "argv"), 34),
        (("factor", 2, "step", 1, "argv", 1), 37),
    ],
)
def test_each_path_of_a_tricky_document_has_its_line(path: tuple[str | int, ...], line: int) -> None:
    tomllib.loads(TRICKY)
    assert Locator(TRICKY).line(*path) == line


def test_lines_count_the_same_with_carriage_returns() -> None:
    assert Locator(TRICKY.replace("\n", "\r\n")).line("factor", 2, "step", 1, "argv", 1) == 37


def test_what_is_missing_has_the_line_of_its_table() -> None:
    assert Locator(TRICKY).line("factor", 1, "reference") == 21
    assert Locator(TRICKY).line("nowhere") is None


def _leaves(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path


_scalars = st.sampled_from(
    ["1", "true", "-1.5", '"a # b"', "'[x]'", '"\\""', "2020-01-01", '"""\n[[t]]\n"""', "'''\na'''", '""']
)
_gaps = st.sampled_from(["", " ", "\n", " # ] } [[x]]\n", "\n\n"])
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(st.tuples(inner, _gaps, _gaps), max_size=4).map(
        lambda items: "[" + ",".join(f"{before}{value}{after}" for value, before, after in items) + "]"
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["top", "[t]", "[[l]]", "[[l.m]]"]), st.lists(_values, max_size=3)),
        max_size=6,
    )
)
def test_every_key_that_the_parser_finds_stands_on_its_line(sections: list[tuple[str, list[str]]]) -> None:
    lines, number, headers = [], 0, set()
    for header, values in sections:
        if header in headers and header == "[t]":
            continue
        if header != "top":
            headers.add(header)
            lines.append(header if header != "[[l.m]]" or "[[l]]" in headers else "[[n]]")
        for value in values:
            number += 1
            lines.append(f"key{number} = {value}")
    text = "\n".join(lines)
    rows = text.split("\n")
    locator = Locator(text)
    for path in _leaves(tomllib.loads(text)):
        keys = [part for part in path if isinstance(part, str)]
        named = path[: path.index(keys[-1]) + 1]
        line = locator.line(*named)
        assert line is not None
        assert rows[line - 1].startswith(f"{keys[-1]} =")


@settings(deadline=None)
@given(st.text(alphabet="[]{}\"'#=.,\nab1 \\"))
def test_no_text_breaks_the_scanner(text: str) -> None:
    Locator(text).line("a", 0)
