"""``iotrial show``: what a study asks, why, what was claimed, what it varies."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell
from iotrial.errors import RequestError
from iotrial.report.drawing import WIDTH, drawn
from iotrial.report.safety import safety_json, study_safety_lines
from iotrial.study.catalogue import find
from iotrial.study.codec import study_to_json
from iotrial.study.reference import describe


@click.command("show", short_help="What a study asks, why, and how it is designed.")
@click.argument("study", required=False)
@click.option("--workload", metavar="KIND", help="Keys and responses of a kind of workload (files, command).")
@json_option
def command(study: str | None, workload: str | None, as_json: bool) -> None:
    """A study's question, claims and design; or a kind of workload."""
    if workload is not None:
        described = describe(workload)
        if as_json:
            click.echo(json.dumps({"schema": 1, "workload": described}, indent=1))
        else:
            tell(described)
        return
    if study is None:
        raise RequestError("show what?", hint="name a study (`iotrial list`), or --workload files")
    _show(study, as_json)


def _show(name: str, as_json: bool) -> None:
    study = find(name)
    shape, lines = drawn(study)
    if as_json:
        body = {
            "schema": 1,
            "study": study_to_json(study)["study"],
            "shape": asdict(shape),
            "safety": safety_json(study),
        }
        click.echo(json.dumps(body, indent=1))
        return
    tell(click.wrap_text(f"{study.name}: {study.question}", WIDTH) + "\n")
    tell(click.wrap_text(study.why, WIDTH, preserve_paragraphs=True) + "\n")
    for line in lines:
        tell(line)
    for line in study_safety_lines(study):
        tell(line, fold=11)
    for claim in study.claims:
        tell(f"\n{_set_in('claimed', claim.text)}\n{_set_in('', claim.source)}")
        for fact, words in claim.needs.items():
            tell(_set_in("", f"needs: {fact} {' or '.join(words)}"))
        if claim.cannot:
            tell(_set_in("", f"cannot be judged by this study: {claim.cannot}"))
        if claim.note:
            tell(_set_in("", f"note: {claim.note}"))


def _set_in(name: str, prose: str) -> str:
    """Prose beside the names of rows: a line of it cannot pass for a row."""
    return click.wrap_text(prose, 80, initial_indent=f"{name:<11}", subsequent_indent=" " * 11)
