"""``iotrial show``: show a study's question, reason, claims and factors; or what a recorded application did."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import click
from msgspec import UNSET, Meta, UnsetType, to_builtins

from iotrial.cli.options import json_option, refuse_together
from iotrial.cli.output import tell
from iotrial.cli.run_request import no_study
from iotrial.documents import JsonDocument, json_text
from iotrial.errors import NoSpace, RequestError
from iotrial.output_files import file_in, held_folder
from iotrial.report.drawing import Shape, drawn
from iotrial.report.safety import LevelSafety, every_level, study_safety_lines
from iotrial.report.similar import Similar, similar
from iotrial.study.catalogue import find
from iotrial.study.reference import describe
from iotrial.terminal import escape
from iotrial.traces.fio_job import fio_job
from iotrial.traces.reading import SUFFIX, is_trace, log_files, print_log, summary_of
from iotrial.traces.summary import TraceSummary
from iotrial.units import format_bytes

#: where the second column begins
_COLUMN = 11


class Shown(JsonDocument, frozen=True):
    """iotrial show STUDY --json, show TRACE --json, or show --workload KIND --json"""

    study: (
        Annotated[
            dict[str, Any],
            Meta(
                description="the study as trials store it",
                extra_json_schema={
                    "required": ["name", "question", "factors", "workloads", "responses", "margin", "alpha"]
                },
            ),
        ]
        | UnsetType
    ) = UNSET
    shape: Annotated[Shape, Meta(description="the design at the defaults")] | UnsetType = UNSET
    safety: (
        Annotated[tuple[LevelSafety, ...], Meta(description="what every level does to the safety of data")]
        | UnsetType
    ) = UNSET
    workload: Annotated[str, Meta(description="the reference of a kind of workload, as text")] | UnsetType = (
        UNSET
    )
    trace: Annotated[TraceSummary, Meta(description="what a recorded application did")] | UnsetType = UNSET
    similar: (
        Annotated[Similar, Meta(description="the shipped studies that are closest to it")] | UnsetType
    ) = UNSET


@click.command("show")
@click.argument("study", required=False, metavar="[STUDY|TRACE]")
@click.option("--workload", metavar="KIND", help="Keys and responses of a kind of workload (files, command).")
@click.option(
    "--as",
    "form",
    type=click.Choice(["fio", "iolog"]),
    help="Print a trace as a job of fio with the same mix, or as a log that fio replays.",
)
@click.option(
    "--files",
    metavar="FOLDER",
    help="Also make the files that the log needs, in this folder, with random content (--as iolog).",
)
@json_option
def command(
    study: str | None, workload: str | None, form: str | None, files: str | None, as_json: bool
) -> None:
    """A study's question, claims and design; what a recorded application did (FILE.iotrace); or a kind of workload."""
    if workload is not None:
        described = describe(workload)
        if as_json:
            click.echo(json_text(Shown(workload=described)))
        else:
            tell(described)
        return
    if study is None:
        raise no_study()
    if is_trace(study):
        _show_trace(Path(study).expanduser(), form, files, as_json=as_json)
        return
    if form is not None or files is not None:
        raise RequestError(
            f"{escape(study)} is not a trace, and only a trace can be printed for fio",
            hint=f"the name of a trace ends with {SUFFIX}; `iotrial record` makes one",
        )
    _show(study, as_json)


def _show_trace(trace: Path, form: str | None, files: str | None, *, as_json: bool) -> None:
    if files is not None and form != "iolog":
        raise RequestError("--files makes the files of a log", hint="use it with --as iolog")
    refuse_together(**{"as": form, "json": as_json})
    if form == "iolog":
        _show_log(trace, files)
        return
    summary = summary_of(trace)
    if form == "fio":
        tell(fio_job(summary))
        return
    close = similar(summary)
    if as_json:
        click.echo(json_text(Shown(trace=summary, similar=close)))
        return
    from iotrial.report.recorded import print_recorded  # rich takes a while to load

    print_recorded(summary, close, name=str(trace))


def _show_log(trace: Path, files: str | None) -> None:
    folder = files or "FOLDER"
    if files is not None:
        made = make_log_files(trace, Path(files).expanduser())
        tell(f"made {made:,} files in {escape(files)}", err=True)
    print_log(trace)
    tell(
        f"fio replays it in the folder of the files: cd {escape(folder)} && "
        "fio --name=replay --ioengine=psync --read_iolog=LOG",
        err=True,
    )


def _show(name: str, as_json: bool) -> None:
    study = find(name)
    shape, lines = drawn(study)
    if as_json:
        click.echo(json_text(Shown(to_builtins(study), shape, every_level(study))))
        return
    tell(f"{study.name}: {_one_line(study.question)}\n", fold=0)
    for paragraph in re.split(r"\n\s*\n", study.why.strip()):
        tell(f"{_one_line(paragraph)}\n", fold=0)
    for line in lines:
        tell(line, fold=_COLUMN)
    for line in study_safety_lines(study):
        tell(line, fold=_COLUMN)
    for claim in study.claims:
        tell("")
        _tell_row("claimed", claim.text)
        _tell_row("", claim.source)
        for fact, words in claim.needs.items():
            _tell_row("", f"needs: {fact} {' or '.join(words)}")
        if claim.cannot:
            _tell_row("", f"this study cannot check it: {claim.cannot}")
        if claim.note:
            _tell_row("", f"note: {claim.note}")


def _tell_row(name: str, prose: str) -> None:
    """Print prose next to a row name, on one line, so that no part of it can pass for a row."""
    tell(f"{name:<{_COLUMN}}{_one_line(prose)}", fold=_COLUMN)


def _one_line(prose: str) -> str:
    return " ".join(prose.split())


# The files that fio needs before it can replay a trace's log: it makes none itself.


_CHUNK = 1 << 20


def make_log_files(trace: Path, folder: Path) -> int:
    """Make the files with random content, and return how many. Raises RequestError if one exists, NoSpace if they do not
    fit."""
    needed = log_files(trace)
    try:
        with held_folder(folder, make=0o777) as held:
            status = os.statvfs(f"/proc/self/fd/{held}")
            total, free = sum(one.size for one in needed), status.f_bavail * status.f_frsize
            if total > free:
                raise NoSpace(
                    f"the files of the trace have {format_bytes(total)}, and {escape(folder)} has room for "
                    f"{format_bytes(free)}",
                )
            for one in needed:
                _make(held, folder / one.name, one.size)
    except OSError as error:
        raise RequestError(f"{escape(folder)}: {error.strerror}") from error
    return len(needed)


def _make(held: int, path: Path, size: int) -> None:
    with file_in(held, path.name, path) as file:
        for start in range(0, size, _CHUNK):
            file.write(os.urandom(min(_CHUNK, size - start)))
