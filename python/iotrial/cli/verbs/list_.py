"""``iotrial list``: the studies of the catalogue."""

from __future__ import annotations

import json

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell
from iotrial.knobs.declaration import Safety
from iotrial.report.safety import worst
from iotrial.study.catalogue import find, names


@click.command("list")
@json_option
def command(as_json: bool) -> None:
    """Studies in the catalogue."""
    studies = [(name, find(name)) for name in names()]
    if as_json:
        rows = [
            {
                "name": n,
                "title": s.title,
                "question": s.question,
                "time_s": s.budget.time_s,
                "safety": worst(s).value,
            }
            for n, s in studies
        ]
        click.echo(json.dumps({"schema": 1, "studies": rows}, indent=1))
        return
    width = max(len(name) for name, _ in studies)
    for name, study in studies:
        mark = " [data at risk]" if worst(study) is Safety.DATA_AT_RISK else ""
        tell(f"{name:<{width}}  {study.question}{mark}", fold=width + 2)
    tell("\n[data at risk]: a level of it may cost data after a power cut, where somebody keeps it", err=True)
    tell("Run one: iotrial run NAME    Read about it: iotrial show NAME", err=True)
