"""The one way from a verb to the terminal for text: labels and messages from outside cannot steer it."""

from __future__ import annotations

import click

from iotrial.legible import shown_lines


def tell(text: str, *, err: bool = False) -> None:
    """Print text, line breaks kept, with whatever else steers a terminal made visible."""
    click.echo(shown_lines(text), err=err)
