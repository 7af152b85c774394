"""``iotrial ack``: the lines that clients and dumps print for ``iotrial powercut``, with checksums of values."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import click

from iotrial.cli.options import refuse_together
from iotrial.cli.output import tell
from iotrial.errors import RequestError
from iotrial.powercut.service import ACKNOWLEDGES, BEGINS

_DIGITS = 16


@click.command("ack")
@click.argument("words", nargs=-1, required=True, metavar="KEY [FILE]")
@click.option("--begins", is_flag=True, help="The operation is only sent: print `begins KEY VALUE`.")
@click.option(
    "--found", is_flag=True, help="Print KEY and VALUE of each of these files; its name is the key."
)
def command(words: tuple[str, ...], *, begins: bool, found: bool) -> None:
    """Print a line for `iotrial powercut`: acknowledged KEY VALUE.

    VALUE is the beginning of the SHA-256 of FILE, or of standard input (-); without FILE there is none. For clients and
    dumps that are shell scripts:

      ./put mail-17 < mail && iotrial ack mail-17 mail

      iotrial ack --found "$IOTRIAL_DIR"/*
    """
    refuse_together(begins=begins, found=found)
    if found:
        for name in words:
            tell(f"{Path(name).name} {_checksum(name)}")
        return
    if len(words) > 2:
        raise RequestError(f"expected KEY and at most one FILE, found {len(words)} words")
    if any(sign.isspace() for sign in words[0]):
        raise RequestError(f'"{words[0]}": a key has no blanks')
    value = f" {_checksum(words[1])}" if len(words) > 1 else ""
    tell(f"{BEGINS if begins else ACKNOWLEDGES}{words[0]}{value}")


def _checksum(name: str) -> str:
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise RequestError(f"{name}: {error.strerror}") from error
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
