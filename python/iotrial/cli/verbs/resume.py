"""``iotrial resume``: continue an interrupted trial with the same plan and seed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from iotrial.cli.options import force_option, html_option, json_option, trust_option
from iotrial.cli.resume_run import go_on, limits_so_far
from iotrial.cli.run_request import quantity_of
from iotrial.errors import RequestError
from iotrial.store.states import TrialState
from iotrial.units import parse_duration

if TYPE_CHECKING:
    from iotrial.design.plan import Plan
    from iotrial.runner.trial import Limits
    from iotrial.store.model import StoredTrial, TrialData


@click.command("resume")
@click.argument("trial", default="last")
@html_option
@force_option
@click.option("--time", metavar="DURATION", help="New total time budget, such as 10m.")
@trust_option
@json_option
def command(trial: str, html: str | None, force: bool, time: str | None, trust: bool, as_json: bool) -> int:
    wanted_s = quantity_of("--time", time, parse_duration)

    def chosen(data: TrialData, _: Plan) -> tuple[Limits, None]:
        limits = limits_so_far(data)
        return replace(limits, time_s=wanted_s or limits.time_s), None

    return go_on(
        trial,
        chosen,
        refuse=_refuse_ended,
        fleet_hint="`iotrial fleet resume` goes on with all hosts",
        trust=trust,
        as_json=as_json,
        html=html,
        force=force,
    )


def _refuse_ended(trial: StoredTrial) -> None:
    if trial.state in (TrialState.INTERRUPTED, TrialState.FAILED):
        return
    hint = f"`iotrial report {trial.number}` shows it"
    if trial.state is TrialState.DONE:
        hint += f"; `iotrial continue {trial.number}` measures more blocks"
    raise RequestError(f"trial {trial.number} is {trial.state.value}: nothing to resume", hint=hint)
