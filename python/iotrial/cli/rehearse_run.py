"""``run --rehearse``: check in seconds whether a study runs here at all. Nothing is measured or stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from iotrial.cli.consent import seek_consent
from iotrial.cli.output import tell
from iotrial.cli.run_request import resolve_study
from iotrial.design.plan import new_seed
from iotrial.documents import JsonDocument, JsonObject, json_text
from iotrial.errors import RequestError
from iotrial.runner.planning import default_folder
from iotrial.runner.progress import Silent
from iotrial.runner.rehearsal import Rehearsed, ShortPlan, conduct_rehearsal, cut_down
from iotrial.study.model import LabKind
from iotrial.terminal import escape
from iotrial.units import format_duration

if TYPE_CHECKING:
    from iotrial.cli.run_request import RunRequest
    from iotrial.runner.rehearsal import Rehearsal
    from iotrial.study.model import Study


class Outcome(JsonObject, frozen=True):
    """What each workload did."""

    failures: Annotated[int, Meta(ge=0, description="Runs that failed.")]
    notes: Annotated[tuple[str, ...], Meta(description="What the works used besides the lab.")]
    workloads: tuple[Rehearsed, ...]


class Rehearsing(JsonDocument, frozen=True):
    """iotrial run --rehearse --json

    Whether a study runs here: one block of it, cut down; nothing of it was measured.
    """

    rehearsal: Outcome
    study: str
    lab: LabKind


def refuse_what_needs_numbers(options: Mapping[str, object]) -> None:
    """Raise RequestError for options that need a report."""
    for option, value in options.items():
        if value:
            raise RequestError(
                f"--rehearse and {option}: a rehearsal measures nothing, so there is no report",
                hint="omit one of the two",
            )


def rehearsed(chosen: Study, request: RunRequest, *, as_json: bool) -> int:
    """Rehearse the study as the user narrowed it. Return 1 if a run failed, 128 + the signal if one ended it,
    else 0."""
    resolved = resolve_study(cut_down(chosen), request)
    plan = ShortPlan(resolved.study, request.seed or new_seed(), controls=False)
    folder = default_folder(resolved, request.on)
    seek_consent(resolved, folder, trust=request.trust, yes=request.yes)
    done = conduct_rehearsal(resolved, plan, Silent(), folder=folder)
    if as_json:
        tell(json_text(Rehearsing.of(resolved, rehearsal=Outcome.of(done), study=chosen.name), indent=None))
    else:
        _print(chosen, done)
    if done.ended.signal is not None:
        return 128 + done.ended.signal
    return 1 if done.failures else 0


def _print(chosen: Study, done: Rehearsal) -> None:
    tell(f"rehearsal of {chosen.name}: one shortened block. Nothing was measured or stored.\n")
    for one in done.workloads:
        levels = ", ".join(f"{name} {label}" for name, label in one.levels.items())
        tell(f"{one.workload}{f' ({levels})' if levels else ''}: {one.runs} runs, {_outcome_text(one)}")
    for note in done.notes:
        tell(f"note: {escape(note)}")
    rest = "The study cannot run here as it is." if done.failures else "The study can run here."
    tell(f"\n{rest} A trial takes up to {format_duration(chosen.budget.time_s)}: iotrial run {chosen.origin}")


def _outcome_text(one: Rehearsed) -> str:
    parts = [f"{count} failed: {text}" for text, count in one.failures.items()]
    parts += [
        f"{count} void ({rule}), which can happen with so little work" for rule, count in one.void.items()
    ]
    return "; ".join(parts) or "all as expected"
