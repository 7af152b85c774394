"""How labels of levels are compared: "10KiB", "10 kib" and "10 KiB" are one label."""

from __future__ import annotations

from collections.abc import Iterable


def fold(label: str) -> str:
    """What two spellings of one label have in common: no blanks, no case."""
    return "".join(label.split()).casefold()


def match(text: str, labels: Iterable[str]) -> str | None:
    """The label that ``text`` means, exactly or but for blanks and case; None where there is none."""
    labels = tuple(labels)
    if text in labels:
        return text
    folded = fold(text)
    return next((label for label in labels if fold(label) == folded), None)
