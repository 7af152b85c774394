"""``iotrial plan``: show what a run would do, before anything is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import click
from msgspec import Meta

from iotrial.cli.options import GroupedCommand, json_option, study_options
from iotrial.cli.output import tell
from iotrial.cli.planned_changes import Place, intent_lines, places_of
from iotrial.cli.run_request import find_study, request_of, resolve_study
from iotrial.design.model import ArmKind
from iotrial.documents import Amount, Count, JsonDocument, JsonObject, Labels, json_text
from iotrial.errors import RequestError
from iotrial.report.designs import Design, design_of, plan_lines
from iotrial.report.notation import counted, percent
from iotrial.report.safety import LevelSafety, every_level
from iotrial.runner.planning import default_folder, look_at_disks, make_plan
from iotrial.runner.same_disk import Together, sharing
from iotrial.stats.forecast import Forecast, Predicted, Range
from iotrial.stats.spec import Spec
from iotrial.study.model import TYPICAL, Study
from iotrial.terminal import escape
from iotrial.units import UnitError, format_duration, format_percent, parse_duration

if TYPE_CHECKING:
    from iotrial.runner.pilot import Pilot
    from iotrial.stats.forecast import Forecast


# Print a pilot's prediction: as lines, or as the ``prediction`` of ``plan --json`` (schemas/plan.schema.json).


class PilotFacts(JsonObject, frozen=True):
    """What the pilot measured, and what making the lab took."""

    seconds: Amount
    setup_s: Amount
    blocks: Count
    void: Count
    failures: Count


class Prediction(JsonObject, frozen=True, kw_only=True):
    """Seconds of measuring, the making of the lab apart; null: never, or not known."""

    pilot: PilotFacts
    assumes: str = "no effect; likely is the median, low to high hold four trials of five"
    seconds: Range
    conditions: tuple[Predicted, ...]


def forecast_lines(found: Forecast, pilot: Pilot, study: Study) -> Iterator[str]:
    """Format the prediction as text: each condition, then the whole trial."""
    yield (
        f"pilot      {counted(pilot.blocks, 'block')} of copies of the reference in "
        f"{format_duration(pilot.seconds)}, "
        f"after {format_duration(pilot.setup_s)} for making the lab"
    )
    for count, what in ((pilot.void, "void block"), (pilot.failures, "failed run")):
        if count:
            yield f"           {counted(count, what)} in the pilot: find the cause first, or the trial will meet it too"
    yield "           all its arms were the same treatment: it predicts the time, not the answer"
    yield (
        f"to a verdict for a margin of {format_percent(study.margin)}, if there is no effect: median (range of "
        f"four trials of five)"
    )
    for one in found.predicted:
        yield f"  {escape(one.condition)}, {escape(one.response)}" + (
            f", {one.stratum}" if one.stratum else ""
        )
        yield f"    {_words(one)}"
    yield f"all of them decided: {_range(found.seconds)}"
    yield "           a large effect is decided sooner; one near the margin takes several times as long"


def _words(one: Predicted) -> str:
    if one.reason is not None:
        return f"not predicted: {escape(one.reason)}; try a longer pilot, such as --pilot 1m"
    assert one.scatter is not None
    blocks = one.blocks
    count = (
        "never"
        if blocks.likely is None
        else f"{_whole(blocks.likely)} blocks ({_whole(blocks.low)} to {_whole(blocks.high)})"
    )
    held = ", limited by the positive control" if one.held_up_by else ""
    budget = "nothing" if one.resolvable is None else percent(one.resolvable)
    return (
        f"{_range(one.seconds)}: {count}{held}; a block {format_duration(one.block_s or 0.0)}, "
        f"scatter {percent(one.scatter.sd)}; smallest effect the budget can detect: {budget}"
    )


def _range(found: Range) -> str:
    if found.likely is None:
        return "never" if found.low is None else f"perhaps never, at best {format_duration(found.low)}"
    high = "never" if found.high is None else format_duration(found.high)
    low = "?" if found.low is None else format_duration(found.low)
    return f"{format_duration(found.likely)} ({low} to {high})"


def _whole(value: float | None) -> str:
    return "never" if value is None else f"{value:,.0f}"


def prediction(found: Forecast, pilot: Pilot) -> Prediction:
    """Build the ``prediction`` part of the JSON document."""
    return Prediction(pilot=PilotFacts.of(pilot), seconds=found.seconds, conditions=found.predicted)


#: where the second column begins
_COLUMN = 11
#: how long a pilot takes if the user does not say
_PILOT = "10s"


class Run(JsonObject, frozen=True, forbid_unknown_fields=False):
    """One run of a block; ``files``: the indices of its files, null where every arm works on all."""

    slot: int
    arm: str
    kind: ArmKind
    treatment: Labels
    files: tuple[int, ...] | None


class Block(JsonObject, frozen=True, forbid_unknown_fields=False):
    """One block of one condition, its runs in their order."""

    round: int
    condition: str
    block: int
    controls: bool
    runs: list[Run]


class Statistic(JsonObject, frozen=True):
    """What equivalence of a mean or a quantile takes at least."""

    workload: str
    response: str
    statistic: str
    blocks_at_least: Count


class Planned(JsonDocument, frozen=True, forbid_unknown_fields=False):
    """iotrial plan --json

    What a run would do, and with --pilot how long it will take to a verdict.
    """

    study: str
    lab: str
    folder: str
    disk: Mapping[str, Any] | None
    places: Annotated[list[Place], Meta(description="The places that the study declares.")]
    shared: Annotated[tuple[Together, ...], Meta(description="Places that lie on the same disks.")]
    seed: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    seed_chosen: bool
    primary_effects: Count
    conditions: list[str]
    design: Design
    statistics: list[Statistic]
    changes: tuple[str, ...]
    notes: tuple[str, ...]
    safety: Annotated[
        tuple[LevelSafety, ...], Meta(description="What every level does to the safety of data.")
    ]
    blocks: list[Block]
    prediction: Annotated[Prediction | None, Meta(description="Null without --pilot.")]


@click.command("plan", cls=GroupedCommand)
@click.argument("study", required=False)
@study_options
@click.option(
    "--rounds",
    type=click.IntRange(1, 10000),
    metavar="N",
    default=2,
    show_default=True,
    help="Number of rounds to list.",
)
@click.option(
    "--pilot",
    is_flag=False,
    flag_value=_PILOT,
    metavar="[DURATION]",
    help="Measure copies of the reference for this long (10s), and predict the time to a verdict.",
)
@json_option
def command(study: str | None, rounds: int, pilot: str | None, as_json: bool, **values: Any) -> int:
    """Show the design, the order of runs, and every change that a run would make to this machine."""
    study, pilot_s = _pilot_seconds(study, pilot)
    request = request_of(values)
    chosen, request = find_study(study, request)
    resolved = resolve_study(chosen, request)
    plan = make_plan(resolved, request.seed, controls=request.controls)
    folder = default_folder(resolved, request.on)
    disks = look_at_disks(resolved)
    found = None
    if pilot_s is not None:
        # a plan that measures nothing needs no conductor
        from iotrial.cli.pilot_run import piloted

        found = piloted(resolved, plan, pilot_s, request, folder=folder, quiet=as_json)
    ending = 128 + found[0].ended.signal if found is not None and found[0].ended.signal is not None else 0
    listed = [
        Block(
            number,
            condition.key,
            number,
            block.controls,
            [Run(run.slot, run.arm.name, run.arm.kind, run.arm.treatment, run.files) for run in block.runs],
        )
        for number in range(rounds)
        for condition in plan.round(number, plan.conditions)
        for block in [plan.block(condition, number)]
    ]
    if as_json:
        document = Planned.of(
            resolved,
            study=resolved.study.name,
            folder=folder,
            disk=next((disk for disk in disks if "place" not in disk), None),
            places=places_of(resolved, folder, disks),
            shared=sharing(resolved, folder),
            seed=plan.seed,
            seed_chosen=request.seed is not None,
            primary_effects=plan.primary_effects,
            conditions=[c.key for c in plan.conditions],
            design=design_of(plan),
            statistics=_statistics(plan),
            safety=every_level(resolved.study),
            blocks=listed,
            prediction=None if found is None else prediction(found[1], found[0]),
        )
        click.echo(json_text(document))
        return ending
    _print(resolved, plan, folder, disks, listed)
    if found is None:
        tell(
            "\ntime to a verdict: unknown before a measurement; `--pilot` measures for 10 s and predicts it",
            fold=2,
        )
        return ending
    tell("")
    for line in forecast_lines(found[1], found[0], resolved.study):
        tell(line, fold=_COLUMN)
    return ending


def _pilot_seconds(study: str | None, text: str | None) -> tuple[str | None, float | None]:
    """Return STUDY and the seconds of ``--pilot`` (None: not given). ``--pilot STUDY`` is read as the user
    meant it.

    Raises RequestError if the text is neither a duration nor a study.
    """
    if text is None:
        return study, None
    try:
        seconds = parse_duration(text)
    except UnitError as error:
        if study is None:  # the option has consumed the study's name
            return text, parse_duration(_PILOT)
        raise RequestError(f"--pilot: {error.message}", hint=error.hint) from error
    if seconds <= 0:
        raise RequestError("--pilot must be more than 0 s")
    return study, seconds


def _statistics(plan: Any) -> list[Statistic]:
    """Return the minimum of blocks for each response with a mean or a quantile."""
    responses = [response for response in plan.study.responses if response.statistic != TYPICAL]
    if not responses:
        return []
    # numpy, which hardly any plan needs
    from iotrial.stats.run_statistics import fewest_blocks

    spec = Spec.from_plan(plan)
    return [
        Statistic.of(response, response=response.name, blocks_at_least=fewest_blocks(response, spec))
        for response in responses
    ]


def _print(
    resolved: Any, plan: Any, folder: str, disks: tuple[dict[str, Any], ...], listed: list[Block]
) -> None:
    study = resolved.study
    tell(f"{study.name}: {study.question}\n", fold=2)
    for line in intent_lines(resolved, folder, disks):
        tell(line, fold=_COLUMN)
    for line in plan_lines(plan):
        tell(line, fold=_COLUMN)
    keys = [condition.key.replace(",", ", ") for condition in plan.conditions]
    tell(f"conditions {len(keys)}: " + "\n           ".join(keys), fold=13)
    tell(
        f"budget     {format_duration(study.budget.time_s)}, at most {study.budget.blocks} blocks per condition",
        fold=_COLUMN,
    )
    tell(
        f"statistics margin {format_percent(study.margin)}, "
        f"alpha {study.alpha:g} shared by {plan.primary_effects} primary effects",
        fold=_COLUMN,
    )
    for one in _statistics(plan):
        tell(
            f"           {one.statistic} of {one.response} ({one.workload}): no verdict of equivalence before "
            f"{one.blocks_at_least:,} blocks per condition, however small the scatter"
            + (
                f"; the budget ends at {study.budget.blocks:,}"
                if one.blocks_at_least > study.budget.blocks
                else ""
            ),
            fold=_COLUMN,
        )
    tell(f"seed       {plan.seed} (without --seed, a run chooses its own at random)\n", fold=_COLUMN)
    tell("first blocks, with the runs in order:")
    for block in listed:
        order = " ".join(run.arm for run in block.runs)
        tell(f"  {block.condition} block {block.block}: {order}", fold=6)
