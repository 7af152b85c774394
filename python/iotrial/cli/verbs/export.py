"""``iotrial export``: one stored trial as one file, for another machine or another program."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import click
from msgspec import Meta, field

from iotrial.cli.open_store import document_at, store_to_read
from iotrial.cli.options import force_option, json_option
from iotrial.cli.output import tell
from iotrial.documents import Count, JsonDocument, JsonObject, json_text
from iotrial.errors import RequestError, twice
from iotrial.output_files import output_file, refuse_taken
from iotrial.report import exports
from iotrial.store.packed import verify_packed
from iotrial.terminal import escape

if TYPE_CHECKING:
    from iotrial.report.document import Document
    from iotrial.store import Store
    from iotrial.store.model import StoredTrial

SUFFIX = ".iotrial"
PACKED = "packed"
FORMATS = (PACKED, *exports.names())
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")  # a store from elsewhere may hold any name


class Facts(JsonObject, frozen=True, forbid_unknown_fields=False):
    """What was written where; ``number`` is null for a packed trial that is not stored."""

    number: Count | None
    id: str
    kind: Annotated[str, Meta(extra_json_schema={"enum": list(FORMATS)})] = field(name="as")
    file: str
    bytes: Count
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Exported(JsonDocument, frozen=True):
    """iotrial export --json"""

    exported: Facts


@click.command("export")
@click.argument("trial", default="last")
@click.argument("file", required=False)
@click.option(
    "--as",
    "kind",
    type=click.Choice(FORMATS),
    default=PACKED,
    help="packed (the default; `import` reads it); csv or parquet: every run; json: the report; benchfmt: for "
    "benchstat.",
)
@click.option("--to", metavar="FILE", help="The same as FILE.")
@force_option
@json_option
def command(trial: str, file: str | None, kind: str, to: str | None, force: bool, as_json: bool) -> None:
    """Write a stored trial into FILE ("-": standard output): packed, for import, report or another run elsewhere; or
    in a format of other programs. TRIAL can be a packed trial, too."""
    if file is not None and to is not None:
        raise RequestError(twice("file", to))
    file = to if file is None else file
    if file == "-" and as_json:
        raise RequestError("FILE - and --json exclude each other")
    if kind != PACKED:
        document = document_at(trial)
        _export(document.trial, kind, file, _writer(document, kind), force=force, as_json=as_json)
        return
    store = store_to_read(needed=True)
    assert store is not None
    with store:
        found = store.find(trial)
        _export(
            found, kind, file, lambda part: _pack(store, found.number, part), force=force, as_json=as_json
        )


def _export(
    found: StoredTrial,
    kind: str,
    file: str | None,
    write: Callable[[BinaryIO], str],
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Write the whole file or none, and print its name. Raises RequestError if it exists already."""
    if file == "-":
        with tempfile.TemporaryFile() as whole:
            write(whole)
            whole.seek(0)
            shutil.copyfileobj(whole, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        return
    path = Path(file).expanduser() if file else Path(_name(found, kind))
    refuse_taken(path, force=force)
    with output_file(path, force=force) as part:
        digest = write(part)
        size = part.seek(0, 2)
    called = f"trial {found.number}" if found.number else f"trial {escape(found.header.id)[:12]}"
    if as_json:
        facts = Facts(found.number or None, found.header.id, kind, str(path), size, digest)
        click.echo(json_text(Exported(facts)))
    else:
        tell(f"{called} written to {escape(path)} ({size:,} bytes)", err=True)


def _name(found: StoredTrial, kind: str) -> str:
    """Return NUMBER-STUDY with the format's suffix, in the current folder."""
    suffix = SUFFIX if kind == PACKED else exports.format_of(kind).SUFFIX
    study = _UNFIT.sub("-", found.header.study.name)[:80]
    return f"{found.number}-{study}{suffix}" if found.number else f"{study.strip('.-') or 'trial'}{suffix}"


def _writer(document: Document, kind: str) -> Callable[[BinaryIO], str]:
    def write(file: BinaryIO) -> str:
        """Write the document and return the SHA-256 of all that was written."""
        exports.format_of(kind).write(document, file)
        file.flush()
        file.seek(0)
        digest = hashlib.sha256()
        while part := file.read(1 << 20):
            digest.update(part)
        return digest.hexdigest()

    return write


def _pack(store: Store, number: int, file: BinaryIO) -> str:
    """Pack a trial and verify the file. Return its digest."""
    digest = store.pack(number, file)
    file.flush()
    verify_packed(file, number)
    return digest
