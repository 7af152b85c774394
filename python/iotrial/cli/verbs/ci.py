"""``iotrial ci``: compare two builds of a program in one job of a CI system."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from msgspec import Meta

from iotrial.cli.finish import (
    EXIT_FAIL_IF,
    EXIT_INVALID,
    EXIT_NO_ANSWER,
    STEP_SUMMARY,
    refuse_unwritable,
    stored_all_the_same,
    write_markdown,
    write_report,
)
from iotrial.cli.options import (
    AFTER,
    COUNT,
    LEVEL,
    OwnCommand,
    compared,
    force_option,
    json_option,
    margin_option,
    no_controls_option,
    seed_option,
    sure,
    time_option,
    where,
)
from iotrial.cli.output import tell
from iotrial.cli.own_command import ORIGIN, save_option
from iotrial.cli.run_request import narrowed, quantity_of, request_of
from iotrial.cli.trial_run import carry_out
from iotrial.documents import Count, JsonDocument, JsonObject, Probability, json_text
from iotrial.errors import IotrialError, RequestError
from iotrial.output_files import output_file
from iotrial.report.gate import Answer, Gate, gate_of, gate_report, headline, junit
from iotrial.report.markdown import markdown
from iotrial.report.notation import counted, joined, some
from iotrial.report.opening import document_of
from iotrial.report.text import Console, print_blocks
from iotrial.runner.build_study import Builds, Found, find_benchmarks, study_text
from iotrial.runner.signals import Held
from iotrial.study.reader import read_study
from iotrial.terminal import escape
from iotrial.units import parse_duration, parse_margin
from iotrial.workloads.output import FOLDER

if TYPE_CHECKING:
    from iotrial.runner.start import Ended
    from iotrial.store import Store

_ALPHA = 0.01
_NAMED = 5


class Judged(JsonObject, frozen=True):
    """One benchmark. ``ratio``: head as a multiple of base; ``e_value``: the evidence against no difference."""

    name: str
    answer: Annotated[str, Meta(extra_json_schema={"enum": [one.value for one in Answer]})]
    ratio: float | None
    low: float | None
    high: float | None
    e_value: float | None
    blocks: Count
    sentence: str


class Answered(JsonObject, frozen=True):
    """The answer of a job; ``trial`` is its number in the store."""

    trial: Count
    valid: bool
    alpha: Probability
    status: Count
    headline: str
    benchmarks: tuple[Judged, ...]
    only_base: tuple[str, ...]
    only_head: tuple[str, ...]


class Compared(JsonDocument, frozen=True):
    """iotrial ci --json"""

    ci: Answered


@click.command("ci", cls=OwnCommand)
@compared(
    "--base",
    required=True,
    metavar="LINE|FOLDER",
    help="The build to compare with: a line for the shell; with -- COMMAND, the folder in which that is run.",
)
@compared("--head", required=True, metavar="LINE|FOLDER", help="The build that is judged.")
@compared(
    "--results",
    metavar="{out}/FILE",
    help="The file to which the command writes its benchmarks' times; {out} is an empty folder. Default: what it prints.",
)
@where("--in", "on", metavar="FOLDER", help="Start the lines in this folder (default: the current one).")
@time_option("10 min")
@margin_option("5 %")
@sure(
    "--alpha",
    type=LEVEL,
    default=_ALPHA,
    show_default=True,
    metavar="LEVEL",
    help="Error level of the job: chance of any false find if no benchmark differs.",
)
@sure("--blocks", type=COUNT, metavar="N", help="Maximum number of blocks.")
@seed_option
@no_controls_option
@click.option(
    "--junit", "junit_file", metavar="FILE", help="Write JUnit XML: a test case for each benchmark."
)
@click.option(
    "--summary",
    metavar="FILE",
    help=f"Write a Markdown summary (default: the file that ${STEP_SUMMARY} names, if any).",
)
@save_option
@force_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, **values: Any) -> int:
    """Is the head build slower than the base build?

    Runs both in random order until every benchmark has an answer. Reads the times that criterion, google-benchmark,
    pytest-benchmark, go test -bench or hyperfine print or write; of any other command it takes the wall time.

      iotrial ci --base ./bench-main --head ./bench-branch

      iotrial ci --base ~/main --head ~/branch --results {out}/b.json -- pytest --benchmark-json={out}/b.json

    Exit status: 0 no benchmark is slower, 4 one is, 6 no answer for one, 3 a control failed.
    """
    summary = values["summary"] or os.environ.get(STEP_SUMMARY) or None
    force = values["force"]
    refuse_unwritable(values["junit_file"], summary, values["save"], force=force)
    quantity_of("--time", values["time"], parse_duration)
    quantity_of("--margin", values["margin"], parse_margin)
    builds = _builds_of(values, ctx.meta.get(AFTER, ()))
    request = request_of({"no_account": True, "yes": True, **{
        name: values[name] for name in ("on", "time", "blocks", "seed", "no_controls")
    }})  # fmt: skip
    found = find_benchmarks(builds, Path(values["on"] or ".").expanduser())
    for note in _notes(found):
        tell(f"note: {note}", err=True, fold=6)
    text = study_text(builds, found.both)
    if values["save"]:
        write_report(text, Path(values["save"]), force=force)
    study = narrowed(read_study(text, ORIGIN, trusted=True), request)
    store, ended = carry_out(study, request, quiet=as_json)
    return _conclude(
        store, ended, found, junit_file=values["junit_file"], summary=summary, force=force, as_json=as_json
    )


def _builds_of(values: dict[str, Any], after: Sequence[str]) -> Builds:
    """Return the builds that were named. Raises RequestError if there are no such folders, or for another file of results."""
    base, head = values["base"], values["head"]
    if after:
        for option, folder in (("--base", base), ("--head", head)):
            if not Path(folder).expanduser().is_dir():
                raise RequestError(
                    f"{option} {folder}: there is no such folder",
                    hint="with -- COMMAND, --base and --head are the folders in which it is run",
                )
        base, head = (str(Path(folder).expanduser().resolve()) for folder in (base, head))
    if base == head:
        head = f"{head}/." if after else f"{head} "  # an A/A test: two levels need two values
    results = values["results"]
    if results is not None and not results.removeprefix(FOLDER).strip("/"):
        raise RequestError(f'--results "{results}": no file is named', hint="such as --results {out}/b.json")
    if results is not None and not results.startswith(FOLDER):
        raise RequestError(
            f'--results "{results}": expected a file in {{out}}',
            hint="let the command write it there: --benchmark-json={out}/b.json",
        )
    return Builds(base, head, tuple(after), results, values["margin"], values["time"], values["alpha"])


def _notes(found: Found) -> list[str]:
    notes = []
    for label, names in (("base", found.only_base), ("head", found.only_head)):
        if names:
            shown = joined(some([escape(name) for name in names], _NAMED))
            notes.append(f"{counted(len(names), 'benchmark')} only in {label}, not compared: {shown}")
    if not found.both:
        notes.append("the command prints no benchmark that can be read, so its wall time is compared")
    return notes


def _conclude(
    store: Store,
    ended: Ended,
    found: Found,
    *,
    junit_file: str | None,
    summary: str | None,
    force: bool,
    as_json: bool,
) -> int:
    """Report the job and return its exit status. Signals are held until the files are written."""
    with Held() as held:
        document = document_of(store, ended.trial.header.id, final=ended.final)
        gate = gate_of(document)
        status = status_of(gate)
        report = gate_report(gate, _notes(found))
        try:
            if junit_file:
                with output_file(Path(junit_file).expanduser(), force=force) as file:
                    file.write(junit(gate))
            on_standard_output = bool(summary and write_markdown(markdown(report), summary, force=force))
            if as_json:
                click.echo(json_text(_json(gate, status, found)))
            elif not on_standard_output:
                print_blocks(report, Console(file=sys.stdout))
            sys.stdout.flush()
        except IotrialError as error:
            error.hint = stored_all_the_same(document.trial.number)
            raise
    signal = ended.signal or held.pending
    return status if signal is None else 128 + signal


def status_of(gate: Gate) -> int:
    """Return 3 for an invalid trial, 4 if a benchmark is slower, 6 if one has no answer, else 0."""
    if not gate.document.valid:
        return EXIT_INVALID
    if gate.of(Answer.SLOWER):
        return EXIT_FAIL_IF
    return EXIT_NO_ANSWER if gate.of(Answer.OPEN) or not gate.benchmarks else 0


def _json(gate: Gate, status: int, found: Found) -> Compared:
    document = gate.document
    return Compared(
        Answered(
            trial=document.trial.number,
            valid=document.valid,
            alpha=gate.alpha,
            status=status,
            headline=headline(gate),
            benchmarks=tuple(
                Judged(
                    name=one.name,
                    answer=one.answer.value,
                    ratio=one.row.effect.value,
                    low=one.row.effect.low,
                    high=one.row.effect.high,
                    e_value=one.row.effect.e_value,
                    blocks=one.row.effect.blocks,
                    sentence=one.sentence,
                )
                for one in gate.benchmarks
            ),
            only_base=found.only_base,
            only_head=found.only_head,
        )
    )
