"""``iotrial show``: show a study's question, reason, claims and factors."""

from __future__ import annotations

import re
from typing import Annotated, Any

import click
from msgspec import UNSET, Meta, UnsetType, to_builtins

from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell
from iotrial.documents import JsonDocument, json_text
from iotrial.errors import RequestError
from iotrial.report.drawing import Shape, drawn
from iotrial.report.safety import LevelSafety, every_level, study_safety_lines
from iotrial.study.catalogue import find
from iotrial.study.reference import describe

#: where the second column begins
_COLUMN = 11


class Shown(JsonDocument, frozen=True):
    """iotrial show STUDY --json, or show --workload KIND --json"""

    study: (
        Annotated[
            dict[str, Any],
            Meta(
                description="the study as trials store it",
                extra_json_schema={
                    "required": ["name", "question", "factors", "workloads", "responses", "margin", "alpha"]
                },
            ),
        ]
        | UnsetType
    ) = UNSET
    shape: Annotated[Shape, Meta(description="the design at the defaults")] | UnsetType = UNSET
    safety: (
        Annotated[tuple[LevelSafety, ...], Meta(description="what every level does to the safety of data")]
        | UnsetType
    ) = UNSET
    workload: Annotated[str, Meta(description="the reference of a kind of workload, as text")] | UnsetType = (
        UNSET
    )


@click.command("show", short_help="Show a study: its question, why it matters, its design.")
@click.argument("study", required=False)
@click.option("--workload", metavar="KIND", help="Keys and responses of a kind of workload (files, command).")
@json_option
def command(study: str | None, workload: str | None, as_json: bool) -> None:
    """A study's question, claims and design; or a kind of workload."""
    if workload is not None:
        described = describe(workload)
        if as_json:
            click.echo(json_text(Shown(workload=described)))
        else:
            tell(described)
        return
    if study is None:
        raise RequestError(
            "no study given",
            hint="give a study (`iotrial list`), or --workload KIND, such as --workload files",
        )
    _show(study, as_json)


def _show(name: str, as_json: bool) -> None:
    study = find(name)
    shape, lines = drawn(study)
    if as_json:
        click.echo(json_text(Shown(to_builtins(study), shape, every_level(study))))
        return
    tell(f"{study.name}: {_one_line(study.question)}\n", fold=0)
    for paragraph in re.split(r"\n\s*\n", study.why.strip()):
        tell(f"{_one_line(paragraph)}\n", fold=0)
    for line in lines:
        tell(line, fold=_COLUMN)
    for line in study_safety_lines(study):
        tell(line, fold=_COLUMN)
    for claim in study.claims:
        tell("")
        _tell_row("claimed", claim.text)
        _tell_row("", claim.source)
        for fact, words in claim.needs.items():
            _tell_row("", f"needs: {fact} {' or '.join(words)}")
        if claim.cannot:
            _tell_row("", f"this study cannot check it: {claim.cannot}")
        if claim.note:
            _tell_row("", f"note: {claim.note}")


def _tell_row(name: str, prose: str) -> None:
    """Print prose next to a row name, on one line, so that no part of it can pass for a row."""
    tell(f"{name:<{_COLUMN}}{_one_line(prose)}", fold=_COLUMN)


def _one_line(prose: str) -> str:
    return " ".join(prose.split())
