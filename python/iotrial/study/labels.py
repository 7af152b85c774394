"""Comparison of level labels: "10KiB", "10 kib" and "10 KiB" are the same label."""

from __future__ import annotations

from collections.abc import Iterable


def fold(label: str) -> str:
    """Normalise a label: no whitespace, case folded."""
    return "".join(label.split()).casefold()


def match(text: str, labels: Iterable[str]) -> str | None:
    """Return the label that equals ``text`` exactly or after ``fold``; None if there is none."""
    labels = tuple(labels)
    if text in labels:
        return text
    folded = fold(text)
    return next((label for label in labels if fold(label) == folded), None)
