"""What a page answers, before it becomes HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HTML = "text/html"


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    body: bytes
    kind: str = HTML
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def download(body: bytes, kind: str, name: str) -> Reply:
    """A file to be saved under this name, which must be plain ASCII without quotes: it becomes part of a header."""
    assert name.isascii()
    assert name.isprintable()
    assert not set(name) & set('"\\;')
    return Reply(body, kind, headers={"content-disposition": f'attachment; filename="{name}"'})
