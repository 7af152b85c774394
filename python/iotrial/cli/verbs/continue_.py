"""``iotrial continue``: measure more blocks of a finished trial, from the same plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iotrial.cli.options import (
    COUNT,
    force_option,
    html_option,
    json_option,
    no_stop_option,
    trust_option,
    yes_option,
)
from iotrial.cli.resume_run import go_on, limits_so_far
from iotrial.cli.run_request import quantity_of
from iotrial.errors import RequestError
from iotrial.runner.trial import Limits, is_decided
from iotrial.stats.analyse import Spec
from iotrial.store.checksums import now
from iotrial.store.event_records import MOST_BLOCKS
from iotrial.store.model import Continuation
from iotrial.store.states import TrialState
from iotrial.terminal import escape
from iotrial.units import parse_duration

if TYPE_CHECKING:
    from iotrial.design.plan import Plan
    from iotrial.store.model import StoredTrial, TrialData


@click.command("continue")
@click.argument("trial", default="last")
@click.option("--time", metavar="DURATION", help="Measure this much longer, such as 5m.")
@click.option("--blocks", type=COUNT, metavar="N", help="Maximum number of additional blocks per condition.")
@no_stop_option
@yes_option
@html_option
@force_option
@trust_option
@json_option
def command(
    trial: str,
    time: str | None,
    blocks: int | None,
    no_stop: bool,
    yes: bool,
    html: str | None,
    force: bool,
    trust: bool,
    as_json: bool,
) -> int:
    """Measure more blocks of a finished trial.

    They are the next blocks of its plan, with the same seed. Its error level holds as before: the method lets one look at
    any time and go on. What is undecided goes on until it is decided or the budget is spent. Without --time and --blocks the
    budget is that of the trial once more; --time alone sets no limit to blocks.

    A trial of settings in use asks before it switches them again.
    """
    if trial.endswith(".iotrial"):
        raise RequestError(
            f'"{escape(trial)}" is a packed trial: only the machine that measured a trial can '
            "continue it, from its own store",
            hint=f"`iotrial run --like {escape(trial)}` runs its study here as a new trial",
        )
    wanted_s = quantity_of("--time", time, parse_duration)

    def chosen(data: TrialData, plan: Plan) -> tuple[Limits, Continuation]:
        return _further(data, plan, wanted_s, blocks, no_stop=no_stop)

    return go_on(
        trial,
        chosen,
        refuse=_refuse_not_done,
        fleet_hint="`iotrial fleet run` runs its study as a new trial on all hosts",
        trust=trust,
        as_json=as_json,
        html=html,
        force=force,
        yes=yes,
    )


def _refuse_not_done(trial: StoredTrial) -> None:
    number = trial.number
    hints = {
        TrialState.RUNNING: "wait until it ends, or interrupt it and `iotrial resume` it",
        TrialState.INTERRUPTED: f"`iotrial resume {number}` completes it",
        TrialState.FAILED: f"`iotrial resume {number}` tries again",
        TrialState.INVALID: "its controls failed, and more blocks cannot fix that; "
        f"`iotrial report {number}` shows the likely cause",
    }
    if trial.state in hints:
        raise RequestError(
            f"trial {number} is {trial.state.value}: only a finished trial can be continued",
            hint=hints[trial.state],
        )


def _further(
    data: TrialData, plan: Plan, wanted_s: float | None, wanted_blocks: int | None, *, no_stop: bool
) -> tuple[Limits, Continuation]:
    """Return the new limits of the whole trial. Raises RequestError if nothing is left to measure."""
    number, options = data.trial.number, data.trial.header.options
    stop = limits_so_far(data).stop_when_decided and not no_stop
    if stop and is_decided(plan, Spec.from_plan(plan, options), data):
        raise RequestError(
            f"trial {number} is decided: more blocks would change no verdict",
            hint=f"`iotrial continue {number} --no-stop` measures more anyway, for narrower intervals",
        )
    spent_s = max((run.started_s for run in data.runs), default=0.0)
    ended = max((end.block + 1 for end in data.ends), default=0)
    if ended >= MOST_BLOCKS:
        raise RequestError(f"trial {number} has {ended:,} blocks, the maximum of a trial")
    more_s = wanted_s or float(str(options["time_s"]))
    most = MOST_BLOCKS if wanted_s else int(str(options["blocks"]))
    limits = Limits(
        spent_s + more_s, min(MOST_BLOCKS, ended + (wanted_blocks or most)), stop_when_decided=stop
    )
    return limits, Continuation(now(), limits.time_s, limits.blocks, not stop)
