"""A console whose reader may go away: rich would end the process then, and with it a trial before it is put back."""

from __future__ import annotations

import rich.console


class Console(rich.console.Console):
    """As rich's, but a broken pipe is the exception that it is."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
