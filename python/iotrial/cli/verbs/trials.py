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
    from iotrial.cli.storing import store_to_read, warn
    from iotrial.units import format_duration

    store = store_to_read(needed=False)
    trials, damaged = store.listing() if store is not None else ((), ())
    for lost in damaged:
        warn(f"trial {lost.number} cannot be read: {lost.problem}")
    if as_json:
        rows = [
            {
                "number": t.number,
                "id": t.header.id,
                "study": t.header.study.name,
                "state": t.state.value,
                "started": t.header.started,
                "duration_s": t.duration_s,
                "imported": t.imported,
            }
            for t in trials
        ]
        lost_rows = [{"number": lost.number, "problem": lost.problem} for lost in damaged]
        click.echo(json.dumps({"schema": 1, "trials": rows, "damaged": lost_rows}, indent=1))
        return
    if not trials and not damaged:
        tell("No trials yet. Start with: iotrial run files/permissions")
    width = max((len(format_duration(t.duration_s)) for t in trials), default=0)
    for t in trials:
        when = t.header.started[:16].replace("T", " ")
        lasted = f"{format_duration(t.duration_s):>{width}}"
        mark = "  (imported)" if t.imported is not None else ""
        tell(f"{t.number:>5}  {when}  {t.state.value:<11} {lasted}  {shown(t.header.study.name)}{mark}")
