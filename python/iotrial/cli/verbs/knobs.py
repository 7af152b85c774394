"""``iotrial knobs``: what can be turned, and how far on this machine."""

from __future__ import annotations

import json

import click

from iotrial.cli.options import as_json as json_option


@click.command("knobs")
@json_option
def command(as_json: bool) -> None:
    """Knobs that a study can turn."""
    from iotrial.lab import registry
    from iotrial.lab.knob import Stage

    rows = []
    for name, knob in registry.knobs().items():
        constants = (
            getattr(knob, "LEVELS", None) or getattr(knob, "KINDS", None) or getattr(knob, "STATES", None)
        )
        levels = list(constants) if constants else []
        rows.append(
            {
                "name": name,
                "title": knob.title,
                "stage": Stage(knob.stage).name.lower(),
                "option": knob.option,
                "levels": levels,
                "range": knob.open_levels,
            }
        )
    if as_json:
        click.echo(json.dumps({"schema": 1, "knobs": rows}, indent=1))
        return
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        what = ", ".join(row["levels"]) if row["levels"] else row["range"] or "asks the kernel"
        option = f"  (needs `{row['option']}`)" if row["option"] else ""
        click.echo(f"{row['name']:<{width}}  {row['title']}{option}\n{'':<{width}}    {what}")
