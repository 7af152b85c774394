"""Regular expressions that a user gives, in time linear in the text.

Python's ``re`` tries one way through a pattern after the other, so that some patterns take years for a short text, and
it holds the interpreter while it does. RE2 reads each byte once for each part of the pattern, without holding the
interpreter. What it cannot do, backreferences and lookaround, is refused when the pattern is given.
Syntax: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from iotrial.terminal import escape

#: instructions of a compiled pattern; RE2 needs up to some nanoseconds for each byte and instruction
MOST_INSTRUCTIONS = 1000
#: product of the bytes of a text and the instructions of the pattern: about four seconds at worst
MOST_WORK = 1 << 30
#: time of the processor for all matches in a text
MOST_CPU_S = 3.0
_CANNOT = (
    (re.compile(r"\(\?<?[=!]"), "lookahead and lookbehind", "match what is around the group as well"),
    (re.compile(r"\\[1-9]|\(\?P="), "backreferences", "write the part again"),
    (re.compile(r"\(\?>|[*+?}]\+"), "atomic groups and possessive quantifiers", "leave out the > or +"),
    (re.compile(r"\(\?\("), "conditions", "write two patterns joined by |"),
    (re.compile(r"\(\?#|\(\?[a-zA-Z]*[aLux]"), "comments and the flags a, L, u and x", "leave them out"),
    (re.compile(r"\\Z"), r"\Z", r"write \z"),
)
#: Python takes {,5} for a count, RE2 for text
_NO_COUNT = re.compile(r"(?<!\\)\{,[0-9]+\}")


class PatternError(ValueError):
    """A pattern that cannot be used; ``hint`` says what can be written instead."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class TooMuchWork(ValueError):
    """A search was not begun, or ended early, because it would take too long."""


class Pattern:
    """A compiled pattern. ``groups``: the number of its groups."""

    def __init__(self, text: str, *, of_bytes: bool = False, lines: bool = False) -> None:
        """Compile a pattern for str, or for bytes. ``lines``: ^ and $ also match at the ends of lines.

        Raises PatternError.
        """
        import re2  # takes 10 ms, which a command without a pattern does not pay

        if count := _NO_COUNT.search(text):
            found = count.group()
            raise PatternError(f"{found} is no count", hint=f"write {{0{found[1:]}")
        options = re2.Options()
        options.log_errors = False
        if of_bytes:
            options.encoding = re2.Options.Encoding.LATIN1
        try:
            encoded = text.encode("utf-8", "surrogateescape")
            self._found = re2.compile(b"(?m)" * lines + encoded, options)
        except re2.error as error:
            raise _refusal(text, error) from None
        self.groups: int = self._found.groups
        self._instructions: int = max(self._found.programsize, self._found.reverseprogramsize)
        if self._instructions > MOST_INSTRUCTIONS:
            raise PatternError(
                f"too large: it needs {self._instructions} instructions, the maximum is {MOST_INSTRUCTIONS}",
            )

    def search(self, text: bytes) -> Any:
        """Return the first match, by groups; None if there is none. Raises TooMuchWork."""
        self._check(len(text))
        return self._found.search(text)

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches. Raises TooMuchWork."""
        content = text.encode("utf-8", "surrogateescape")
        self._check(len(content))
        return self._found.fullmatch(content) is not None

    def each(self, text: str) -> Iterator[str | None]:
        """Yield the first group of all matches in order; None where it took no part. Raises TooMuchWork.

        A single search is linear in the text. All together are not where each looks far beyond its own match, so they
        have a limit of time.
        """
        content = text.encode("utf-8", "surrogateescape")
        self._check(len(content))
        until_s = time.thread_time() + MOST_CPU_S
        for found in self._found.finditer(content):
            if time.thread_time() > until_s:
                raise TooMuchWork(
                    f"the pattern takes more than {MOST_CPU_S:g} s of processor time for {len(content)} bytes"
                )
            group = found[1]
            yield None if group is None else group.decode("utf-8", "surrogateescape")

    def _check(self, size: int) -> None:
        if size * self._instructions > MOST_WORK:
            raise TooMuchWork(
                f"{size} bytes are too many for a pattern of {self._instructions} instructions: print less, or shorten "
                "the pattern"
            )


def _refusal(text: str, error: Exception) -> PatternError:
    for shape, what, instead in _CANNOT:
        if shape.search(text):
            return PatternError(f"patterns are matched in linear time, which rules out {what}", hint=instead)
    reason = error.args[0] if error.args else b""
    reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    return PatternError(escape(reason[:200]))
