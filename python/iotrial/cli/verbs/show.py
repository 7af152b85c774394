"""``iotrial show``: what a study asks, why, what was claimed, what it varies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell

if TYPE_CHECKING:
    from iotrial.study.model import Study


@click.command("show")
@click.argument("study", required=False)
@click.option("--workload", metavar="KIND", help="Keys and responses of a kind of workload (files, command).")
@json_option
def command(study: str | None, workload: str | None, as_json: bool) -> None:
    """A study's question, claims and design; or a kind of workload."""
    from iotrial.errors import RequestError

    if workload is not None:
        from iotrial.study.kinds import describe

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
    from iotrial.study.catalogue import find
    from iotrial.study.codec import study_to_json
    from iotrial.study.model import Role
    from iotrial.units import format_duration, format_percent

    study = find(name)
    if as_json:
        click.echo(json.dumps({"schema": 1, "study": study_to_json(study)}, indent=1))
        return
    tell(f"{study.name}: {study.question}\n")
    tell(click.wrap_text(study.why, 88, preserve_paragraphs=True) + "\n")
    for role in Role:
        for factor in (f for f in study.factors if f.role is role):
            words = []
            for level in factor.levels:
                mark = " (reference)" if role is Role.TREATMENT and level.label == factor.reference else ""
                rest = " (on request)" if role is Role.CONDITION and level.label not in factor.default else ""
                words.append(level.label + mark + rest)
            tell(f"{role.value:<10} {factor.name}: {', '.join(words)}")
    for workload in study.workloads:
        primary = [r.name for r in study.responses if r.workload == workload.name and r.primary]
        extra = "" if workload.default else " (on request)"
        tell(f"workload   {workload.name}{extra}: {workload.kind}, primary response {', '.join(primary)}")
    for line in _design(study):
        tell(line)
    tell(
        f"budget     {format_duration(study.budget.time_s)}, margin {format_percent(study.margin)}, alpha {study.alpha:g}"
    )
    for claim in study.claims:
        tell(f"\nclaimed    {_indented(claim.text)}\n           {claim.source}")
        if claim.note:
            tell(f"           note: {_indented(claim.note)}")


def _design(study: Study) -> tuple[str, ...]:
    """The design of a study of several factors at its defaults, without its rows (`plan` has them)."""
    from iotrial.design.plan import Plan
    from iotrial.errors import RequestError
    from iotrial.report.designs import design_lines, design_of
    from iotrial.study.select import select

    if len(study.treatment_factors) < 2:
        return ()
    try:
        return tuple(design_lines(design_of(Plan(select(study), "0" * 32)), rows=False))
    except RequestError as error:
        return (f"design     cannot be made at the default levels: {error.message}",)


def _indented(prose: str) -> str:
    """Prose beside the names of rows: a line of it cannot pass for a row."""
    return prose.replace("\n", "\n           ")
