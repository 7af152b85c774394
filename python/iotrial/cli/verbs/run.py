"""``iotrial run``: run a trial and report its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import click
from msgspec import Meta

from iotrial.cli.consent import seek_consent
from iotrial.cli.finish import EXIT_NO_ANSWER, Outputs
from iotrial.cli.options import (
    GroupedCommand,
    fail_option,
    force_option,
    html_option,
    json_option,
    markdown_option,
    refuse_together,
    study_options,
)
from iotrial.cli.output import tell
from iotrial.cli.run_request import find_study, request_of, resolve_study, sampling_period
from iotrial.cli.trial_run import run_trial
from iotrial.design.plan import new_seed
from iotrial.documents import JsonDocument, JsonObject, json_text
from iotrial.errors import RequestError
from iotrial.report.notation import joined
from iotrial.report.phrases import void_in_words
from iotrial.runner.planning import default_folder
from iotrial.runner.progress import Silent
from iotrial.runner.rehearsal import (
    Rehearsed,
    ShortPlan,
    available_memory,
    conduct_rehearsal,
    cut_down,
    too_large_to_be_warm,
)
from iotrial.stats.voids import Void
from iotrial.study.model import LabKind
from iotrial.terminal import escape
from iotrial.units import format_bytes, format_duration

if TYPE_CHECKING:
    from iotrial.cli.run_request import RunRequest
    from iotrial.runner.rehearsal import Rehearsal
    from iotrial.study.model import Study


#: options of earlier versions, for many hosts
_GONE = ("fleet", "hosts", "ssh_config", "keys", "grace")


@click.command("run", cls=GroupedCommand)
@click.argument("study", required=False)
@study_options
@html_option
@markdown_option
@force_option
@fail_option
@click.option(
    "--sample",
    metavar="PERIOD",
    help="Sample processors, page cache and device during runs at this interval (10ms to 1min), for the HTML report.",
)
@click.option(
    "--rehearse",
    is_flag=True,
    help="Only check whether the study can run here: one shortened block, nothing measured or stored.",
)
@click.option("--fleet", hidden=True)
@click.option("--hosts", hidden=True)
@click.option("--ssh-config", hidden=True)
@click.option("--keys", hidden=True)
@click.option("--grace", hidden=True)
@json_option
def command(
    study: str | None,
    html: str | None,
    markdown: str | None,
    force: bool,
    fail_if: tuple[str, ...],
    sample: str | None,
    rehearse: bool,
    as_json: bool,
    **values: Any,
) -> int:
    """Run a study on this machine: one of the catalogue, a TOML file, or that of a packed trial (--like)."""
    for name in _GONE:
        if values.pop(name) is not None:
            from iotrial.cli.verbs.fleet import INSTEAD

            raise RequestError(
                f"--{name.replace('_', '-')}: a trial on many hosts is `iotrial fleet run`", hint=INSTEAD
            )
    outputs = Outputs(as_json=as_json, html=html, markdown=markdown, fail_if=fail_if, force=force)
    outputs.check()
    request = request_of(values)
    sample_s = sampling_period(sample)
    chosen, request = find_study(study, request)
    if rehearse:
        refuse_what_needs_numbers(
            {"--html": html, "--markdown": markdown, "--fail-if": fail_if, "--sample": sample}
        )
        return rehearsed(chosen, request, as_json=as_json)
    return run_trial(chosen, request, outputs, sample_s=sample_s)


# ``run --rehearse``: check in seconds whether a study runs here at all. Nothing is measured or stored.


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
        refuse_together(**{"rehearse": True, option.removeprefix("--"): value})


def rehearsed(chosen: Study, request: RunRequest, *, as_json: bool) -> int:
    """Rehearse the study as the user narrowed it. Return 1 if a run failed, 6 if all blocks of a workload would be void,
    128 + the signal if one ended it, else 0."""
    resolved = resolve_study(cut_down(chosen), request)
    plan = ShortPlan(resolved.study, request.seed or new_seed(), controls=False)
    folder = default_folder(resolved, request.on)
    seek_consent(resolved, folder, trust=request.trust, yes=request.yes)
    done = conduct_rehearsal(resolved, plan, Silent(), folder=folder)
    # a guest has its own memory
    large = dict(too_large_to_be_warm(chosen, available_memory())) if resolved.needs is None else {}
    notes = [f"{name}: {_too_large(needed)}" for name, needed in large.items()]
    done = replace(done, notes=(*done.notes, *notes))
    void = [*dict.fromkeys([*(one.workload for one in done.void), *large])]
    if as_json:
        tell(json_text(Rehearsing.of(resolved, rehearsal=Outcome.of(done), study=chosen.name), indent=None))
    else:
        _print(chosen, done, void)
    if done.ended.signal is not None:
        return 128 + done.ended.signal
    return 1 if done.failures else EXIT_NO_ANSWER if void else 0


def _too_large(needed: int) -> str:
    return (
        f"blocks will be void: the files of a run take {format_bytes(needed)}, and only "
        f"{format_bytes(available_memory())} of memory are free: use less data, or --cache cold"
    )


def _print(chosen: Study, done: Rehearsal, void: Sequence[str]) -> None:
    tell(f"rehearsal of {chosen.name}: one shortened block. Nothing was measured or stored.\n")
    for one in done.workloads:
        levels = ", ".join(f"{name} {label}" for name, label in one.levels.items())
        tell(f"{one.workload}{f' ({levels})' if levels else ''}: {one.runs} runs, {_outcome_text(one)}")
    for note in done.notes:
        tell(f"note: {escape(note)}")
    rest = "The study can run here."
    if done.failures:
        rest = "The study cannot run here as it is."
    elif void:
        rest = f"The study would give no answer here: every block of {joined(void)} would be void."
    tell(f"\n{rest} A trial takes up to {format_duration(chosen.budget.time_s)}: iotrial run {chosen.origin}")


def _outcome_text(one: Rehearsed) -> str:
    parts = [f"{count} failed: {text}" for text, count in one.failures.items()]
    for rule, count in one.void.items():
        little = ", which can happen with so little work" if rule == Void.COLD_WAS_NOT_COLD else ""
        parts.append(f"{count} void{little}: {void_in_words(rule)}")
    return "; ".join(parts) or "all as expected"
