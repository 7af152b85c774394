"""``iotrial live``: try settings under a service in use, judged by its own metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from iotrial.cli.finish import Outputs, refuse_unwritable, write_report
from iotrial.cli.options import (
    GroupedCommand,
    compared,
    force_option,
    in_group,
    json_option,
    level_and_seed,
    margin_option,
    page_option,
    refuse_together,
    stopping_options,
    time_option,
    where,
    yes_option,
)
from iotrial.cli.output import tell
from iotrial.cli.own_command import ORIGIN, level_option, own_request, plan_option, save_option
from iotrial.cli.planned_changes import typed_intent_lines
from iotrial.cli.run_request import RunRequest, narrowed, quantity_of, resolve_study
from iotrial.cli.trial_run import carry_out, run_trial
from iotrial.errors import RequestError
from iotrial.lab.in_place import holding_of
from iotrial.live.metrics import Metrics
from iotrial.live.question import PORT, LiveWish, folder_on, live_space, live_study_text, today_in_words
from iotrial.report.notation import quantity
from iotrial.runner.planning import default_folder
from iotrial.stats.switchback import FEWEST_SWITCHES, possible_error, proposed_washout
from iotrial.store.checks import LEAD_IN, WINDOW
from iotrial.store.model import TrialData
from iotrial.study.model import Study
from iotrial.study.reader import read_study
from iotrial.study.scales import Scale
from iotrial.units import format_duration, format_percent, parse_duration, parse_fraction, parse_margin
from iotrial.workloads.live import work_of

safety = in_group("What stops it")


@click.command("live", cls=GroupedCommand)
@click.argument("settings", nargs=-1, metavar="KNOB=LEVEL,LEVEL...")
@level_option
@compared(
    "--metric",
    "metrics",
    multiple=True,
    metavar="SOURCE",
    help="A number of the service; the first is judged, others are explored (may be repeated).",
)
@compared("--window", metavar="DURATION", default="30 s", help="The counted part of a window (30 s).")
@compared("--washout", metavar="DURATION", default="10 s", help="What is left out after each switch (10 s).")
@compared(
    "--pilot",
    is_flag=True,
    help="Only find out how long the washout must be: a few blocks without one; their result is not shown.",
)
@safety(
    "--guard",
    "guards",
    multiple=True,
    metavar="CONDITION",
    help="Stop and set today's settings when 'METRIC worse by 20 %' is shown, or the current value is beyond a limit: "
    "'METRIC > 50 ms', 'METRIC > 50 ms for 5 s' (may be repeated).",
)
@safety(
    "--most-share",
    metavar="PERCENT",
    help="Most of the time that settings may differ from today's, such as 20 %.",
)
@safety(
    "--quiet-hours",
    metavar="FROM-TO",
    help="Hours of the day (local time) in which it rests with today's settings, such as 22:00-06:00.",
)
@where(
    "--in", "on", metavar="FOLDER", help="A folder of the service: its mount and disk are set (default: .)."
)
@where("--device", "disk", metavar="DEVICE", help="Instead of --in: the disk in use, such as /dev/sda.")
@plan_option
@yes_option
@time_option("8 h")
@margin_option("5 %")
@level_and_seed
@stopping_options
@click.option(
    "--openmetrics",
    "port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve the state of the trial on http://127.0.0.1:PORT/metrics while it runs (0: a free port).",
)
@save_option
@page_option
@force_option
@json_option
def command(settings: tuple[str, ...], as_json: bool, **values: Any) -> int:
    """Does a setting make my service faster, while it works?

    Pairs of time windows, one with each setting, in random order. Settings are switched while the service runs, read back,
    and set as they were at the end, on Ctrl-C, and if iotrial dies or hangs. Today's settings are always one of them, and
    what the others are compared with.

      iotrial live block.read_ahead_kb=128,1024 --in /srv --metric 'ms=command:./p99.sh' --guard 'ms worse by 20 %'

    docs/live.md describes the sources of metrics: promql:, openmetrics:, command:, log:, device:, psi:, cpu.
    """
    refuse_unwritable(values["save"], values["html"], force=values["force"])
    quantity_of("--time", values["time"], parse_duration)
    quantity_of("--margin", values["margin"], parse_margin)
    quantity_of("--most-share", values["most_share"], parse_fraction)
    if values["quiet_hours"] == "":
        raise RequestError('--quiet-hours "": expected a time of day and another', hint="such as 22:00-06:00")
    for name in ("window", "washout"):
        quantity_of(f"--{name}", values[name], parse_duration)
    folder = _folder(values.pop("disk"), values["on"])
    space = live_space(settings, folder, values.pop("levels"))
    pilot, counted_s = values.pop("pilot"), parse_duration(values["window"])
    if pilot:
        values["blocks"] = values["blocks"] or BLOCKS
        values["window"], values["washout"] = _together(values["window"], values["washout"]), "0 s"
    wish = LiveWish(
        settings=settings,
        metrics=values["metrics"],
        window=values["window"],
        washout=values["washout"],
        guards=values["guards"],
        most_share=values["most_share"],
        quiet_hours=values["quiet_hours"],
        margin=values["margin"],
        time=values["time"],
    )
    text = live_study_text(wish, space, folder)
    study = read_study(text, ORIGIN, trusted=True)
    if values["save"]:
        write_report(text, Path(values["save"]), force=values["force"])
    request = own_request({**values, "on": folder, "copy_from": None, "size": None, "no_controls": True})
    chosen = narrowed(study, request)
    tell(today_in_words(space), err=not values["plan"])
    if values["plan"]:
        resolved = resolve_study(chosen, request)
        for line in typed_intent_lines(resolved, default_folder(resolved, request.on)):
            tell(line)
        return 0
    with Metrics(work_of(chosen), holding_of(folder).whole).running():
        pass  # a metric without a number is an error of the request, and no failed trial
    if pilot:
        return _pilot(chosen, request, counted_s)
    outputs = Outputs(as_json=as_json, html=values["html"], page=False, force=values["force"])
    options = {} if values["port"] is None else {PORT: values["port"]}
    return run_trial(chosen, request, outputs, options=options)


def _together(window: str, washout: str) -> str:
    return f"{parse_duration(window) + parse_duration(washout):g} s"


def _pilot(study: Study, request: RunRequest, counted_s: float) -> int:
    """Run a pilot, and print the washout that it proposes, for windows with this counted part."""
    # quiet: nobody is to see which setting is better
    store, ended = carry_out(study, replace(request, no_stop=True), quiet=True)
    if ended.signal is not None:
        return 128 + ended.signal
    found = proposal(store.data(ended.trial.header.id), counted_s=counted_s)
    if found is None:
        tell("washout: not known, the pilot has too few switches of a kind; give it more --blocks")
    elif math.isinf(found.washout_s):
        tell("washout: longer than the pilot's windows show; give it a longer --window")
    else:
        response = study.responses[0]
        error = found.possible_error
        size = (
            format_percent(math.expm1(error))
            if response.scale is Scale.LOG
            else quantity(error, response.unit)
        )
        tell(f"washout: {format_duration(found.washout_s)} is enough, as far as this pilot shows")
        tell(
            f"not excluded: a window after it is off by up to {size} by what is left of the setting before; a pilot with "
            "more --blocks excludes smaller errors"
        )
    return 0


def _folder(disk: str | None, on: str | None) -> str:
    refuse_together(**{"in": on is not None, "device": disk is not None})
    return folder_on(disk) if disk is not None else str(Path(on or ".").resolve())


# How long must a washout be? Blocks without one show the course of the metric after a switch.


#: blocks of a pilot with two settings: enough for four switches of each kind, but for an unlikely draw
BLOCKS = 12
#: mean error that is left in a window, as a part of the margin
_SHARE = 0.2
_Series = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """The proposed washout in seconds, infinite if the pilot's windows were too short, and what it may overlook.

    ``possible_error``: the largest error of a window after it that the pilot does not exclude, on the metric's scale of
    comparison (natural logarithm, or the metric's unit).
    """

    washout_s: float
    possible_error: float


def proposal(data: TrialData, *, counted_s: float) -> Proposal | None:
    """Return the proposed washout, in whole seconds; None with too few switches."""
    header = data.trial.header
    tolerance = _SHARE * math.log1p(header.margin)
    series: list[_Series] = []
    kinds: list[tuple[str, str]] = []
    for kind, one in _switches(data):
        series.append(one)
        kinds.append(kind)
    kept = [place for place, kind in enumerate(kinds) if kinds.count(kind) >= FEWEST_SWITCHES]
    if not kept:
        return None
    series, kinds = [series[place] for place in kept], [kinds[place] for place in kept]
    found = proposed_washout(series, kinds, counted_s=counted_s, tolerance=tolerance)
    if math.isinf(found):
        return Proposal(math.inf, math.inf)
    washout_s = float(math.ceil(found))
    return Proposal(washout_s, possible_error(series, kinds, washout_s=washout_s, counted_s=counted_s))


def _switches(data: TrialData) -> Iterator[tuple[tuple[str, str], _Series]]:
    """Yield each switch that is not void: from and to which arm, and the judged metric since, on its scale of comparison."""
    response = data.trial.header.study.responses[0]
    void = {(block.condition, block.index) for block in data.blocks if block.void is not None}
    before = ""
    led = False
    for run in data.runs:
        kept = run.checks.get(WINDOW)
        lead_in = kept.get(LEAD_IN) if isinstance(kept, dict) else None
        lead_in = lead_in if isinstance(lead_in, str) else None
        led = led or lead_in is not None
        # earlier versions had today's settings between blocks, and no lead-in
        kind = (lead_in or (before if run.slot or led else ""), run.arm)
        before = run.arm
        if (run.condition, run.block) in void or not isinstance(kept, dict):
            continue
        switched_s = float(kept["switched_s"])
        pairs = zip(kept["at_s"], kept[response.name], strict=True)
        found = [
            (at - switched_s, math.log(value) if response.scale is Scale.LOG else value)
            for at, value in pairs
            if value is not None and (value > 0.0 or response.scale is not Scale.LOG)
        ]
        if len(found) > 1:
            yield kind, found
