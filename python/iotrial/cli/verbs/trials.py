"""``iotrial trials``: what the store holds."""

from __future__ import annotations

import json

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell
from iotrial.legible import shown


@click.command("trials")
@json_option
def command(as_json: bool) -> None:
    """Stored trials, newest last."""
    from iotrial.paths import store_path
    from iotrial.store import Store
    from iotrial.units import format_duration

    path = store_path()
    trials = Store.open(path, read_only=True).trials() if path.exists() else ()
    if as_json:
        rows = [
            {
                "number": t.number,
                "id": t.header.id,
                "study": t.header.study.name,
                "state": t.state.value,
                "started": t.header.started,
                "duration_s": t.duration_s,
            }
            for t in trials
        ]
        click.echo(json.dumps({"schema": 1, "trials": rows}, indent=1))
        return
    if not trials:
        tell("No trials yet. Start with: iotrial run files/permissions")
    for t in trials:
        when = t.header.started[:16].replace("T", " ")
        tell(
            f"{t.number:>5}  {when}  {t.state.value:<11} {format_duration(t.duration_s):>8}  {shown(t.header.study.name)}"
        )
