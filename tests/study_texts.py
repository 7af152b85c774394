"""Parts of study files shared by many tests."""

from __future__ import annotations

from collections.abc import Sequence


def reading(
    *,
    files: int = 5,
    cache: str | None = "cold",
    operations: Sequence[str] = ("open", "read-to-end", "close"),
) -> str:
    """Return a workload called ``read`` that reads files. With ``cache`` None, a factor sets the state of the
    cache."""
    words = ", ".join(f'"{word}"' for word in operations)
    begins = "" if cache is None else f'cache = "{cache}"\n'
    return f'[[workload]]\nname = "read"\nkind = "files"\nfiles = {files}\n{begins}operations = [{words}]\n'
