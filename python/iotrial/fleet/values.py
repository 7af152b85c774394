"""Reading values that came from another machine: each with its type and its limit.

A host may be broken or taken over. What it sends is text; here it becomes plain JSON that is not too long, too deep or
beyond 64 bits, and from there a value of a known type. Everything else is a ``Distrusted``.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from iotrial.errors import IotrialError
from iotrial.legible import shown

MAX_DEPTH = 20
MAX_NAME = 63
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
FLEET_ID = re.compile(r"[0-9a-f]{32}")


class Distrusted(IotrialError):
    """Something that a host sent and that cannot be what it should be. Nothing of it was kept."""

    code = "bad_host"


def parsed(text: object, *, longest: int, what: str) -> dict[str, Any]:
    """The JSON object in a text from outside. Raises Distrusted where it is none, or longer than ``longest`` characters."""
    if not isinstance(text, str):
        raise Distrusted(f"{what}: wanted text, found {type(text).__name__}")
    if len(text) > longest:
        raise Distrusted(f"{what}: {len(text):,} characters, more than the {longest:,} that it may have")
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_without_doubles)
        check_plain(value, MAX_DEPTH)
        text.encode()
        if "\\ud" in text.lower():  # half a character, which nothing could print
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Distrusted(f"{what}: {shown(str(error)[:200])}") from error
    if not isinstance(value, dict):
        raise Distrusted(f"{what}: wanted an object")
    return value


class Fields:
    """The fields of one object, each read once, by type. Every method raises Distrusted; ``done`` where some are left."""

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, dict):
            raise Distrusted(f"{what}: wanted an object")
        self._left = dict(value)
        self._what = what

    def done(self) -> None:
        for name in self._left:
            raise Distrusted(f"{self._what}: unknown key {shown(name[:80])}")

    def take(self, name: str) -> Any:
        if name not in self._left:
            raise Distrusted(f'{self._what}: lacks "{name}"')
        return self._left.pop(name)

    def rest(self) -> dict[str, Any]:
        """What has not been read yet, which counts as read."""
        left, self._left = self._left, {}
        return left

    def text(self, name: str, longest: int) -> str:
        value = self.take(name)
        if not isinstance(value, str) or len(value) > longest:
            raise self._wrong(name, f"text of at most {longest} characters")
        return value

    def matching(self, name: str, pattern: re.Pattern[str]) -> str:
        value = self.take(name)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self._wrong(name, f"text of the form {pattern.pattern}")
        return value

    def whole(self, name: str, least: int, most: int) -> int:
        value = self.take(name)
        if type(value) is not int or not least <= value <= most:
            raise self._wrong(name, f"a whole number from {least} to {most}")
        return value

    def number(self, name: str, least: float, most: float) -> float:
        value = self.take(name)
        if type(value) not in (int, float) or not math.isfinite(value) or not least <= value <= most:
            raise self._wrong(name, f"a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def words(self, name: str, most: int, longest: int) -> tuple[str, ...]:
        value = self.take(name)
        if (
            not isinstance(value, list)
            or len(value) > most
            or not all(isinstance(word, str) and len(word) <= longest for word in value)
        ):
            raise self._wrong(name, f"at most {most} texts of at most {longest} characters")
        return tuple(value)

    def list(self, name: str, most: int) -> list[Any]:
        value = self.take(name)
        if not isinstance(value, list) or len(value) > most:
            raise self._wrong(name, f"a list of at most {most}")
        return value

    def table(self, name: str, most: int) -> dict[str, Any]:
        value = self.take(name)
        if not isinstance(value, dict) or len(value) > most:
            raise self._wrong(name, f"an object of at most {most} keys")
        return value

    def _wrong(self, name: str, wanted: str) -> Distrusted:
        return Distrusted(f'{self._what}: "{name}" is not {wanted}')


def check_plain(value: object, depth: int) -> None:
    """ValueError where a value of plain JSON is nested deeper than ``depth``, or holds a number that is not finite or beyond
    64 bits."""
    kind = type(value)
    if kind is dict or kind is list:
        _check_inside(value, depth)  # type: ignore[arg-type]
    else:
        _check_inside((value,), 1)


def _check_inside(values: dict[str, object] | list[object] | tuple[object, ...], depth: int) -> None:
    if depth == 0:
        raise ValueError("is nested too deeply")
    for value in values.values() if type(values) is dict else values:
        kind = type(value)  # exactly: a bool is no whole number here
        if kind is float:
            if not math.isfinite(value):  # type: ignore[arg-type]
                raise ValueError("a number is not finite")
        elif kind is int:
            if not -(2**63) <= value < 2**63:  # type: ignore[operator]
                raise ValueError("a whole number does not fit into 64 bits")
        elif kind is dict or kind is list:
            _check_inside(value, depth - 1)  # type: ignore[arg-type]


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no finite number")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found
