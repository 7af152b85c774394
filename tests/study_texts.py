"""Parts of study files that many tests share."""

from __future__ import annotations

from collections.abc import Sequence


def reading(
    *,
    files: int = 5,
    cache: str | None = "cold",
    operations: Sequence[str] = ("open", "read-to-end", "close"),
) -> str:
    """A workload called ``read`` that reads files; where ``cache`` is None, a factor says how it begins."""
    words = ", ".join(f'"{word}"' for word in operations)
    begins = "" if cache is None else f'cache = "{cache}"\n'
    return f'[[workload]]\nname = "read"\nkind = "files"\nfiles = {files}\n{begins}operations = [{words}]\n'
