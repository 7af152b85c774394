"""``iotrial export``: one stored trial as one file, for another machine."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell

if TYPE_CHECKING:
    from iotrial.store import Store

SUFFIX = ".iotrial"
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")  # a store that somebody else made may hold any name


@click.command("export")
@click.argument("trial", default="last")
@click.argument("file", required=False)
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
@json_option
def command(trial: str, file: str | None, force: bool, as_json: bool) -> None:
    """Pack a stored trial into FILE ("-": standard output), to be imported, reported or run again elsewhere."""
    from iotrial.cli.storing import store_to_read
    from iotrial.errors import RequestError
    from iotrial.legible import shown
    from iotrial.store.packed.file import refuse_present, written_whole

    if file == "-" and as_json:
        raise RequestError("standard output takes either the packed trial or --json", hint="name a file")
    store = store_to_read(needed=True)
    assert store is not None
    with store:
        found = store.find(trial)
        if file == "-":
            with tempfile.TemporaryFile() as whole:
                _pack(store, found.number, whole)
                shutil.copyfileobj(whole, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            return
        name = f"{found.number}-{_UNFIT.sub('-', found.header.study.name)[:80]}{SUFFIX}"
        path = Path(file).expanduser() if file else Path(name)
        refuse_present(path, force=force)
        with written_whole(path, force=force) as part:
            digest = _pack(store, found.number, part)
            size = part.seek(0, 2)
    if as_json:
        facts = {
            "number": found.number,
            "id": found.header.id,
            "file": str(path),
            "bytes": size,
            "sha256": digest,
        }
        click.echo(json.dumps({"schema": 1, "exported": facts}, indent=1))
    else:
        tell(f"trial {found.number} is in {shown(path)} ({size:,} bytes)", err=True)


def _pack(store: Store, number: int, file: BinaryIO) -> str:
    """Packs, and reads back what was packed: a file that could not be imported is never handed out."""
    from iotrial.errors import RequestError, StoreError
    from iotrial.store.packed import read_packed

    digest = store.pack(number, file)
    file.flush()
    file.seek(0)
    try:
        for _ in read_packed(file, f"trial {number}, packed"):
            pass
    except RequestError as error:
        raise StoreError(f"trial {number} cannot be exported: {error.message}", hint=error.hint) from error
    file.seek(0)
    return digest
