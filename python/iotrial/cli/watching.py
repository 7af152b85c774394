"""The view of a running trial: a live table on a terminal, plain lines in a pipe, nothing with --json."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
