"""``iotrial refine``: write the follow-up study of a trial, to be run on fresh data."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from msgspec import Meta

from iotrial.cli.consent import ask_consent
from iotrial.cli.open_store import document_at
from iotrial.cli.options import force_option, json_option, margin_option, refuse_together
from iotrial.cli.output import tell
from iotrial.cli.planned_changes import command_lines
from iotrial.cli.run_request import quantity_of
from iotrial.design.refine import Pin
from iotrial.documents import JsonDocument, JsonObject, json_text
from iotrial.output_files import output_file, refuse_taken
from iotrial.report.refinement import Way, choice_lines, propose
from iotrial.study.trust import demands
from iotrial.units import parse_margin

if TYPE_CHECKING:
    from iotrial.study.model import Study


class Varied(JsonObject, frozen=True):
    """A factor that varies, and why."""

    factor: str
    why: str


class Refined(JsonDocument, frozen=True):
    """iotrial refine --json

    The follow-up of a trial: what it varies, what it holds, and the study itself.
    """

    trial: Annotated[str, Meta(description="The trial that is followed up.")]
    study: Annotated[str, Meta(description="Name of the new study.")]
    file: Annotated[str | None, Meta(description="Where it was written; null for standard output.")]
    varied: list[Varied]
    pinned: tuple[Pin, ...]
    notes: tuple[str, ...]
    runs_per_block: Annotated[int, Meta(ge=1)]
    needs_trust: Annotated[
        tuple[str, ...], Meta(description="Why a run will ask for --trust; empty where it will not.")
    ]
    command: Annotated[list[str], Meta(min_length=3, description="The words that run it.")]
    text: Annotated[str, Meta(description="The study file.")]


@click.command("refine")
@click.argument("trial", default="last")
@click.option(
    "--out",
    metavar="FILE",
    help="File for the study (default ./STUDY-follow-up.toml; -: standard output).",
)
@force_option
@click.option("--factors", metavar="A,B", help="Vary these factors instead of those that the trial suggests.")
@click.option("--ablate", is_flag=True, help="Split a bundle: which of its settings caused the gain?")
@click.option("--fold-over", is_flag=True, help="Repeat the screen with the mirror image of every row.")
@margin_option()
@click.option("--trust", is_flag=True, help="Treat the commands of an untrusted study as your own.")
@json_option
def command(
    trial: str,
    out: str | None,
    force: bool,
    factors: str | None,
    ablate: bool,
    fold_over: bool,
    margin: str | None,
    trust: bool,
    as_json: bool,
) -> None:
    """Write the follow-up study of a trial: the settings that matter, with their interactions, on fresh data."""
    refuse_together(ablate=ablate, fold_over=fold_over)
    refuse_together(fold_over=fold_over, factors=factors)
    smallest = quantity_of("--margin", margin, parse_margin)
    names = [name.strip() for name in (factors or "").split(",") if name.strip()]
    document = document_at(trial)
    way: Way = "ablate" if ablate else "fold-over" if fold_over else "follow-up"
    proposed, text = propose(document, way, factors=names, margin=smallest)
    path = None if out == "-" else Path(out).expanduser() if out else _default(proposed.study.name)
    if path is not None:
        refuse_taken(path, force=force)
        _seek_consent(document.trial.header.study, proposed.study, trust=trust)
        with output_file(path, force=force) as file:
            file.write(text.encode())
    words = ["iotrial", "run", str(path) if path is not None else "FILE"]
    lab = document.trial.header.lab.get("kind")
    if proposed.study.lab.kind is None and lab in ("directory", "image"):
        words += ["--lab", str(lab)]
    if as_json:
        body = Refined.of(
            proposed,
            trial=document.trial.header.id,
            study=proposed.study.name,
            file=None if path is None else str(path),
            varied=[Varied(*one) for one in proposed.chosen],
            runs_per_block=proposed.runs,
            needs_trust=demands(proposed.study),
            command=words,
            text=text,
        )
        click.echo(json_text(body))
        return
    for line in choice_lines(proposed):
        tell(line, err=path is None)
    if path is None:
        tell(text.rstrip("\n"))
        return
    tell(
        f"\nwritten to {path}; review it, then:\n  iotrial plan {shlex.quote(str(path))}\n  {shlex.join(words)}"
    )


def _seek_consent(before: Study, proposed: Study, *, trust: bool) -> None:
    """Ask for consent to somebody else's commands now: the new file is the user's own, and will run without a
    question."""
    if before.trusted or trust:
        return
    for line in command_lines(proposed):
        tell(line, err=True)
    ask_consent(proposed, trust=trust)


def _default(name: str) -> Path:
    """Return STUDY.toml in the current folder. Study names hold only letters, digits and a few punctuation
    marks."""
    return Path(name.rpartition("/")[2] + ".toml")
