"""Parse published percentages from a line of text and recompute them from the raw numbers.

A claim names a group, a number and its meaning: ``noatime 53.67 %``, ``0444 12 % faster than 0777 in md5sum``,
``btrfs 20 % faster where operation=write, partition=1``, ``with about 0.5 times without``. A recomputed number agrees if
rounding can turn it into the published one; "about" allows 10 %. If the claim as stated does not agree, common mistakes are
tried: "percent of" for "percent less", the wrong value as the base, the inverted ratio.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from statistics import median

from iotrial.audits.intervals import mean
from iotrial.audits.model import TIME_UNITS, AuditedPair, Cell, Claim, ClaimCheck, Condition, Reading
from iotrial.errors import RequestError

LONGEST = 300
ABOUT = -1  # decimals of a claim that says "about"
_HEAD = re.compile(
    r"(?P<group>\S.*?)\s+(?P<about>(?:about|some)\s+|~\s*)?(?P<number>[+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*"
    r"(?P<unit>%|percent|per cent|times|x)(?:\s+(?P<word>of|less|lower|more|higher|faster|slower))?"
    r"(?:\s+(?:(?:of|than|against|as)\s+)?(?P<reference>\S.*))?"
)
_WORDS = {
    "of": Reading.OF,
    "less": Reading.LESS,
    "lower": Reading.LESS,
    "more": Reading.MORE,
    "higher": Reading.MORE,
    "faster": Reading.FASTER,
    "slower": Reading.SLOWER,
}
_HINT = 'e.g. "noatime 53.67 % of strictatime", "0444 12 % faster than 0777 in md5sum where cache=cold"'


def parse_claim(text: str) -> Claim:
    """Parse a claim; RequestError if it is malformed."""
    if len(text) > LONGEST or "\n" in text:
        raise RequestError(f"a claim must be one line of at most {LONGEST} characters", hint=_HINT)
    head, _, where = text.partition(" where ")
    head, _, response = head.partition(" in ")
    match = _HEAD.fullmatch(head.strip())
    if match is None:
        raise RequestError(f'claim "{text}": expected a group, a number and % or times', hint=_HINT)
    number = float(match["number"])
    decimals = len(match["number"].partition(".")[2])
    if match["unit"] in ("times", "x"):
        reading = Reading.TIMES
    elif match["word"]:
        reading = _WORDS[match["word"]]
    elif match["number"][0] in "+-":
        reading = Reading.MORE
    else:
        reading = Reading.OF
    return Claim(
        text=text,
        group=match["group"],
        number=number,
        decimals=ABOUT if match["about"] else decimals,
        reading=reading,
        reference=match["reference"],
        response=response.strip() or None,
        condition=_condition(text, where),
    )


def _condition(text: str, where: str) -> Condition:
    pairs = []
    for part in where.split(",") if where.strip() else ():
        name, equals, level = part.partition("=")
        if not equals or not name.strip() or not level.strip():
            raise RequestError(
                f'claim "{text}": expected "where column=value", found "{part.strip()}"', hint=_HINT
            )
        pairs.append((name.strip(), level.strip()))
    return tuple(pairs)


def check_claim(claim: Claim, level: Cell, reference: Cell, comparison: AuditedPair | None) -> ClaimCheck:
    """Recompute one claim from the values of its two cells."""
    is_time = level.unit in TIME_UNITS
    tried = [
        (name, _bounds(level, pick), _bounds(reference, pick))
        for name, pick in _statistics(min(len(level.values), len(reference.values)))
    ]
    tried = [one for one in tried if one[1][0] > 0.0 and one[2][0] > 0.0]
    if not tried:
        return ClaimCheck(claim, None, "", False, None, "these values have no ratio", comparison)
    found = _quantity(claim.reading, is_time, _middle(tried[0][1]), _middle(tried[0][2]))
    for name, a, b in tried:
        if _agrees(claim, lambda x, y: _quantity(claim.reading, is_time, x, y), a, b):
            found = _quantity(claim.reading, is_time, _middle(a), _middle(b))
            return ClaimCheck(claim, found, name, True, None, "recomputes", comparison)
    for name, a, b in tried:
        for words, slip in _slips(claim.reading, is_time):
            if _agrees(claim, slip, a, b):
                return ClaimCheck(claim, found, name, False, words, f"recomputes only as {words}", comparison)
    return ClaimCheck(claim, found, tried[0][0], False, None, "does not recompute", comparison)


def claimed_ratio(claim: Claim, unit: str) -> float | None:
    """Return the ratio group / reference that a claim implies; None if that is not positive."""
    part = claim.number / 100.0
    match claim.reading:
        case Reading.TIMES:
            ratio = claim.number
        case Reading.OF:
            ratio = part
        case Reading.LESS:
            ratio = 1.0 - part
        case Reading.MORE:
            ratio = 1.0 + part
        case Reading.FASTER:
            ratio = 1.0 - part if unit in TIME_UNITS else 1.0 + part
        case Reading.SLOWER:
            ratio = 1.0 + part if unit in TIME_UNITS else 1.0 - part
    return ratio if ratio > 0.0 else None


def _statistics(n: int) -> list[tuple[str, Callable[[Sequence[float]], float]]]:
    if n == 1:
        return [("the only values", lambda values: values[0])]
    tried: list[tuple[str, Callable[[Sequence[float]], float]]] = [("means", mean)]
    if n > 2:
        tried.append(("means without the first run", lambda values: mean(values[1:])))
    tried += [("medians", median), ("smallest values", min), ("largest values", max)]
    return tried


def _bounds(cell: Cell, pick: Callable[[Sequence[float]], float]) -> tuple[float, float]:
    """Return the range of the statistic that is compatible with the rounding of the raw values."""
    value = pick(cell.values)
    half = max((one.step or 0.0 for one in cell.observations), default=0.0) / 2.0
    return value - half, value + half


def _middle(bounds: tuple[float, float]) -> float:
    return (bounds[0] + bounds[1]) / 2.0


def _quantity(reading: Reading, is_time: bool, a: float, b: float) -> float:
    if reading is Reading.FASTER:
        reading = Reading.LESS if is_time else Reading.MORE
    elif reading is Reading.SLOWER:
        reading = Reading.MORE if is_time else Reading.LESS
    match reading:
        case Reading.TIMES:
            return a / b
        case Reading.OF:
            return 100.0 * a / b
        case Reading.LESS:
            return 100.0 * (1.0 - a / b)
        case _:
            return 100.0 * (a / b - 1.0)


def _slips(reading: Reading, is_time: bool) -> list[tuple[str, Callable[[float, float], float]]]:
    """Return mistaken meanings that the number may have, the most likely first."""
    if reading is Reading.TIMES:
        return [("the inverted ratio (reference over group)", lambda a, b: b / a)]
    of = ("percent of the reference", lambda a, b: 100.0 * a / b)
    inverted = ("percent that the reference is of the group", lambda a, b: 100.0 * b / a)
    less = ("percent less than the reference", lambda a, b: 100.0 * (1.0 - a / b))
    more = ("percent more than the reference", lambda a, b: 100.0 * (a / b - 1.0))
    own_less = (
        "the difference divided by the group's own value, not by the reference's",
        lambda a, b: 100.0 * (b - a) / a,
    )
    own_more = (own_less[0], lambda a, b: 100.0 * (a - b) / a)
    speed = (
        "the gain in speed (the difference divided by the shorter time), not the time saved",
        own_less[1],
    )
    if reading is Reading.OF:
        return [less, more, inverted, own_less, own_more]
    if reading is Reading.FASTER:
        return [speed if is_time else own_more, of, inverted, more if is_time else less]
    if reading is Reading.LESS:
        return [own_less, of, inverted, more]
    return [own_more, of, inverted, own_less, less]


def _agrees(
    claim: Claim,
    quantity: Callable[[float, float], float],
    level: tuple[float, float],
    reference: tuple[float, float],
) -> bool:
    """Return whether values within the rounding of the raw numbers can round to the published number."""
    ends = [quantity(a, b) for a in level for b in reference]
    rounding = 0.5 * 10.0**-claim.decimals * (1.0 + 1e-9)
    half = abs(claim.number) / 10.0 if claim.decimals == ABOUT else rounding
    return (
        all(map(math.isfinite, ends))
        and min(ends) <= claim.number + half
        and max(ends) >= claim.number - half
    )
