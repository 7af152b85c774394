"""``iotrial list``: list the studies of the catalogue."""

from __future__ import annotations

from typing import Annotated

import click
from msgspec import Meta

from iotrial.cli.options import json_option
from iotrial.cli.output import tell
from iotrial.documents import JsonDocument, JsonObject, json_text
from iotrial.errors import RequestError
from iotrial.knobs.declaration import Safety
from iotrial.study.catalogue import Entry, entries, look_up
from iotrial.terminal import escape


class Row(JsonObject, frozen=True):
    """One study."""

    name: Annotated[str, Meta(description="what run, plan and show take")]
    title: str
    question: str
    time_s: Annotated[float, Meta(description="budget of measuring, in seconds")]
    safety: Annotated[Safety, Meta(description="the gravest of its settings")]


class Studies(JsonDocument, frozen=True):
    """iotrial list --json"""

    studies: list[Row]


@click.command("list")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@json_option
def command(words: tuple[str, ...], as_json: bool) -> None:
    """List the studies of the catalogue.

    With WORDs, only those with all of them in name, title or question. The first part of a name is its family:
    `iotrial list mount/`.
    """
    chosen = [one for one in entries() if one.has(words)]
    if not chosen:
        raise RequestError(
            f"no study matches {' and '.join(escape(word) for word in words)} in its name, title or question",
            hint="`iotrial list` shows all",
        )
    if as_json:
        click.echo(json_text(Studies([Row.of(one, safety=_safety(one)) for one in chosen])))
        return
    width = max(len(one.name) for one in chosen)
    for one in chosen:
        mark = " [data at risk]" if _safety(one) is Safety.DATA_AT_RISK else ""
        tell(f"{one.name:<{width}}  {one.question}{mark}", fold=width + 2)
    tell("\n[data at risk]: a level of this study, if kept, may lose data in a power cut", err=True, fold=0)
    tell("Run a study: iotrial run NAME    Read about it: iotrial show NAME", err=True, fold=0)


def _safety(entry: Entry) -> Safety:
    if entry.safety is not None:
        return Safety(entry.safety)
    from iotrial.report.safety import worst  # only for a study that has changed since it was indexed

    return worst(look_up(entry.name))
