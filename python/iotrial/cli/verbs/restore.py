"""``iotrial restore``: put back what a trial that was cut off has left."""

from __future__ import annotations

import json

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.output import tell


@click.command("restore")
@json_option
def command(as_json: bool) -> None:
    """Put back what a cut-off trial has left."""
    from iotrial.errors import RestoreError
    from iotrial.lab.journal import Journal
    from iotrial.lab.knob import Undone
    from iotrial.lab.lock import MachineLock
    from iotrial.lab.restore import Restored, restore
    from iotrial.lab.target import Target
    from iotrial.paths import state_folder
    from iotrial.probe.client import Probe

    journal = Journal(state_folder() / "journal")
    results: tuple[Restored, ...] = ()
    with MachineLock():
        if journal.pending():
            with Probe(isolate=False) as probe:
                results = restore(journal, Target(probe))
    words = {
        Undone.RESTORED: "restored",
        Undone.ALREADY: "stood already as before",
        Undone.GONE: "gone by itself",
        Undone.FOREIGN: "neither ours nor the original: left alone",
        None: "could not be restored",
    }
    rows = [
        {
            "knob": r.entry.knob,
            "target": r.entry.target,
            "original": r.entry.original,
            "outcome": words[r.outcome],
            "problem": r.problem,
            "kept": r.kept,
        }
        for r in results
    ]
    if as_json:
        click.echo(json.dumps({"schema": 1, "restored": rows}, indent=1))
    elif not rows:
        tell("Nothing to restore.")
    for row in [] if as_json else rows:
        tell(
            f"{row['knob']} on {row['target']}: {row['outcome']}"
            + (f" ({row['problem']})" if row["problem"] else "")
        )
    kept = [row for row in rows if row["kept"]]
    if kept:
        raise RestoreError(
            f"{len(kept)} of {len(rows)} could not be put back and stay in the journal",
            hint=f"look at them; the entries are in {journal.folder}",
        )
