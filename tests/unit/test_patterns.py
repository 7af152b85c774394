"""Patterns of users: what they mean, what is refused, and that none of them takes longer than linear time."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from iotrial.errors import RequestError
from iotrial.live.sources import MetricLost
from iotrial.live.sources.exposed import selector_of
from iotrial.live.sources.followed_log import found_in, regex_of
from iotrial.patterns import MOST_INSTRUCTIONS, Pattern, PatternError, TooMuchWork

#: each takes Python's re seconds to ages for some kilobytes
SLOW = [
    (r"([0-9.]+) ms", "1"),
    (r"^(?:[0-9]+)+,([0-9]+)$", "1"),
    (r"(\d+)+ ms", "7"),
    (r"(?:a|a)*(b)", "a"),
    (r"(?:a|aa)+(\d)", "a"),
    (r"(.*)*x", "y"),
    (r"(?:\s*\S+\s*)*took (\d+)", "a "),
    (r"(\w+\s?)+!", "word "),
    (r'"((?:[^"\\]|\\.)*)*"', '\\"'),
    (r"(?:.*,){11}P(\d)", "1,"),
    (r"(?:[^ ]* ){1,30}(x)", "GET /index.html "),
    (r"(?:https?://\S*)*end=(\d+)", "http://a/"),
]


def spent(call: object, *arguments: object) -> float:
    """Return the least time of the processor that a call takes of three, in seconds."""
    found = []
    for _ in range(3):
        began = time.process_time()
        call(*arguments)  # type: ignore[operator]
        found.append(time.process_time() - began)
    return min(found)


@pytest.mark.parametrize(("pattern", "unit"), SLOW)
def test_a_slow_pattern_takes_time_in_proportion_to_the_text(pattern: str, unit: str) -> None:
    compiled = Pattern(pattern, lines=True)
    texts = [unit * (n // len(unit)) for n in (100_000, 400_000)]
    first, second = (spent(lambda text: list(compiled.each(text)), text) for text in texts)
    # 16 times as long if it were quadratic
    assert second < 8 * max(first, 0.005)


@pytest.mark.parametrize(("pattern", "unit"), SLOW)
def test_a_slow_pattern_does_not_hold_up_a_followed_log(pattern: str, unit: str) -> None:
    compiled = regex_of(pattern)
    lines = [(unit * 16_384)[:16_384].encode()] * 20
    assert found_in(lines, compiled, "x").lines == 0


def test_what_matches_is_what_matches_in_python() -> None:
    draw = random.Random(48)
    parts = [
        "a",
        "b",
        "[ab]",
        "[^a]",
        ".",
        "a*",
        "b+",
        "(?:ab)?",
        "a{1,2}",
        "^",
        "$",
        r"\d",
        r"\b",
        "(?:a|bb)",
        "x?",
    ]
    found = 0
    for _ in range(3000):
        pattern = "".join(draw.choices(parts, k=draw.randint(0, 3))) + "(" + draw.choice(parts) + ")"
        pattern += "".join(draw.choices(parts, k=draw.randint(0, 3)))
        if re.search(r"[*+?}]\+|\*\*|[*+?}][*+?]", pattern):
            continue
        text = "".join(draw.choices("ab 1\nx", k=draw.randint(1, 12)))
        every = list(Pattern(pattern, lines=True).each(text))
        wanted = [match[1] for match in re.finditer(pattern, text, re.MULTILINE)]
        # an empty match right after another one counts in Python
        if "" in wanted:
            continue
        found += len(wanted)
        assert every == wanted, (pattern, text)
    assert found > 500


def test_text_may_be_of_any_script_and_bytes_of_any_kind() -> None:
    assert list(Pattern("(µ.)s").each("12 µ±s\udcff")) == ["µ±"]
    match = Pattern("µ([0-9]+).", of_bytes=True).search("µ12".encode() + b"\xff")
    assert match is not None
    assert match[1] == b"12"
    assert list(Pattern("(é|x)?y").each("y")) == [None]
    # digits of other scripts are no digits
    assert list(Pattern(r"(\d)").each("١2")) == ["2"]


@pytest.mark.parametrize(
    ("pattern", "says", "hint"),
    [
        (r"(a)\1", "backreferences", "write the part again"),
        (r"(?P<x>a)(?P=x)", "backreferences", "write the part again"),
        (r"(?=a)(b)", "lookahead", "match what is around"),
        (r"(?!a)(b)", "lookahead", "match what is around"),
        (r"(?<=a)(b)", "lookbehind", "match what is around"),
        (r"(?<!a)(b)", "lookbehind", "match what is around"),
        (r"(a++)", "possessive", "leave out"),
        (r"(?>a)(b)", "atomic", "leave out"),
        (r"(a)?(?(1)b|c)", "conditions", "two patterns"),
        (r"(?#a)(b)", "comments", "leave them out"),
        (r"(?x) (b)", "flags", "leave them out"),
        (r"(b)\Z", r"\Z", r"write \z"),
        (r"(b{,5})", "{,5} is no count", "write {0,5}"),
        (r"(b{1,1001})", "invalid repetition size", None),
        (r"(", "missing )", None),
        (r"([\pL\pN]{500})", "too large|pattern too large", None),
    ],
)
def test_what_takes_more_than_linear_time_is_refused_with_the_reason(
    pattern: str, says: str, hint: str | None
) -> None:
    with pytest.raises(PatternError) as caught:
        Pattern(pattern)
    assert re.search(
        says.replace("(", r"\(").replace(")", r"\)").replace("{", r"\{").replace("\\Z", r"\\Z"),
        str(caught.value),
    )
    assert hint is None or hint in (caught.value.hint or "")


def test_no_text_of_a_thousand_characters_makes_a_large_pattern() -> None:
    draw = random.Random(480)
    parts = ["a{900}", "(?:", ")", "{0,30}", "|", r"\pL", "[^a]", ".", "*", "(.*)", r"[\w-]", "x"]
    kept = 0
    for _ in range(2000):
        text = "".join(draw.choices(parts, k=draw.randint(1, 60)))
        try:
            compiled = Pattern(text)
        except PatternError:
            continue
        kept += 1
        assert compiled._instructions <= MOST_INSTRUCTIONS
    assert kept > 50


def test_a_search_that_would_take_too_long_is_not_begun() -> None:
    with pytest.raises(TooMuchWork, match="print less, or shorten the pattern"):
        list(Pattern("([ab]{400}c)").each("ab" * (4 << 20)))


def test_matches_that_look_far_ahead_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iotrial.patterns.MOST_CPU_S", 0.2)
    began = time.process_time()
    with pytest.raises(TooMuchWork, match="processor time"):
        list(Pattern("(a).*z|(?:b)|a").each("a" * 1_000_000))
    assert time.process_time() - began < 10
    monkeypatch.setattr("iotrial.live.sources.followed_log.MOST_CPU_S", 0.0)
    with pytest.raises(MetricLost, match="processor time"):
        found_in([b"a" * 10_000] * 100, regex_of("a"), "x")


def test_a_signal_is_not_held_up_by_a_search() -> None:
    """With Python's re, the handler of this signal ran 25 s later."""
    program = """
        import signal, sys, time
        from iotrial.patterns import Pattern
        text = "1" * 700_000
        def ended(*_):
            sys.exit(7)
        signal.signal(signal.SIGINT, ended)
        pattern = Pattern("([0-9.]+) ms")
        print("ready", flush=True)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            list(pattern.each(text))
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 7


def test_a_selector_of_prometheus_matches_whole_labels_with_its_syntax() -> None:
    selector = selector_of('x{a=~"b.*",c!~"(d|e)+"}')
    assert selector.takes({"a": "b\nc", "c": "f"})
    assert not selector.takes({"a": "ab"})
    assert not selector.takes({"a": "b", "c": "dede"})
    with pytest.raises(RequestError, match="lookahead"):
        selector_of('x{a=~"(?=b).*"}')
    assert not selector_of('x{a=~"(a+)+b"}').takes({"a": "a" * 60_000})
