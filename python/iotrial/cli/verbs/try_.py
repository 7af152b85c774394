"""``iotrial try``: put settings on trial with a command of the user's, without a study file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from iotrial.cli.finish import Outputs, refuse_unwritable, write_report
from iotrial.cli.options import (
    AFTER,
    OwnCommand,
    compared,
    fail_option,
    force_option,
    json_option,
    level_and_seed,
    margin_option,
    no_controls_option,
    page_option,
    stopping_options,
    sure,
    time_option,
)
from iotrial.cli.output import tell
from iotrial.cli.own_command import (
    ORIGIN,
    REPLAY_LABS,
    own_command_options,
    own_request,
    plan_option,
    replay_group,
    save_option,
    wish_of,
)
from iotrial.cli.planned_changes import intent_lines
from iotrial.cli.run_request import narrowed, quantity_of, resolve_study
from iotrial.cli.trial_run import run_trial
from iotrial.runner.planning import default_folder
from iotrial.runner.quick_study import left_out, study_text
from iotrial.study.reader import read_study
from iotrial.units import parse_duration, parse_margin


@click.command("try", cls=OwnCommand)
@click.argument("settings", nargs=-1, metavar="[KNOB=LEVEL,LEVEL]...")
@own_command_options
@compared(
    "--today", is_flag=True, help="Compare with today's value of each setting too, and make it the reference."
)
@compared(
    "--command",
    "commands",
    multiple=True,
    metavar="LINE",
    help="Compare the command with this one (a line for the shell; may be repeated).",
)
@replay_group(
    "--lab",
    type=click.Choice(REPLAY_LABS),
    help="in-place (default); image: on a new file system, for settings that one in use cannot have.",
)
@plan_option
@time_option("1 min")
@sure(
    "--fewer",
    is_flag=True,
    help="If the time is too short for all levels, compare as many as fit: those that are named first.",
)
@margin_option("5 %")
@level_and_seed
@stopping_options
@no_controls_option
@save_option
@page_option
@click.option("--export-markdown", "markdown", metavar="FILE", help="Write a Markdown report.")
@click.option("--export-json", "json_file", metavar="FILE", help="Write the JSON report to this file.")
@force_option
@fail_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, settings: tuple[str, ...], as_json: bool, **values: Any) -> int:
    """Does a setting make my command, or what I recorded of it, faster?

    The settings act on what holds the folder, and are put back. Each block runs the command once with each level, in
    random order, until the answer is known.

      iotrial try block.read_ahead_kb=128,1024 --cache cold -- grep -r error /var/log

      iotrial try -L level 1,9 -- gzip -{level} -c data.sql

      iotrial try vm.swappiness=10,60 --response 'tps=regex:tps = ([0-9.]+)' --unit tps=1/s -- pgbench -T 5

      iotrial try block.scheduler=none,mq-deadline --replay app.iotrace
    """
    outputs = Outputs(
        as_json=as_json,
        html=values["html"],
        markdown=values["markdown"],
        json_file=values["json_file"],
        fail_if=values["fail_if"],
        page=False,
        force=values["force"],
    )
    outputs.check()
    refuse_unwritable(values["save"], force=values["force"])
    quantity_of("--time", values["time"], parse_duration)
    quantity_of("--margin", values["margin"], parse_margin)
    wish = wish_of(settings, ctx.meta.get(AFTER, ()), values)
    request = own_request(values)
    text = study_text(wish)
    study = read_study(text, ORIGIN, trusted=True)
    for sentence in left_out(wish):
        tell(f"note: {sentence}", err=True, fold=6)
    if values["save"]:
        write_report(text, Path(values["save"]), force=values["force"])
    chosen = narrowed(study, request)
    if values["plan"]:
        resolved = resolve_study(chosen, request)
        for line in intent_lines(resolved, default_folder(resolved, request.on)):
            tell(line)
        return 0
    return run_trial(chosen, request, outputs)
