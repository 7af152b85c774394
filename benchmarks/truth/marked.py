"""Documents with marked places for generated tables."""

from __future__ import annotations

import re
from pathlib import Path


def put(document: Path, mark: str, text: str) -> None:
    """Replace the text between ``<!-- mark -->`` and the next ``<!-- end -->``. ValueError if there is no such place."""
    before = document.read_text()
    place = re.compile(rf"(<!-- {re.escape(mark)} -->\n).*?(<!-- end -->)", re.DOTALL)
    after, count = place.subn(lambda match: f"{match[1]}\n{text}\n\n{match[2]}", before)
    if count != 1:
        raise ValueError(f"{document}: wanted one place marked {mark}, found {count}")
    document.write_text(after)
