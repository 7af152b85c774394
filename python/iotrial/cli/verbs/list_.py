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
from iotrial.report.safety import worst
from iotrial.study.catalogue import entries, look_up, names
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
    chosen = [one.name for one in entries() if one.has(words)] if words else names()
    if not chosen:
        raise RequestError(
            f"no study matches {' and '.join(escape(word) for word in words)} in its name, title or question",
            hint="`iotrial list` shows all",
        )
    studies = [(name, look_up(name)) for name in chosen]
    if as_json:
        rows = [Row.of(s, name=n, time_s=s.budget.time_s, safety=worst(s)) for n, s in studies]
        click.echo(json_text(Studies(rows)))
        return
    width = max(len(name) for name, _ in studies)
    for name, study in studies:
        mark = " [data at risk]" if worst(study) is Safety.DATA_AT_RISK else ""
        tell(f"{name:<{width}}  {study.question}{mark}", fold=width + 2)
    tell("\n[data at risk]: a level of this study, if kept, may lose data in a power cut", err=True, fold=0)
    tell("Run a study: iotrial run NAME    Read about it: iotrial show NAME", err=True, fold=0)
