"""From the text of a study file to a ``Study``: the one way in, and every error on the way is a StudyError.

TOML first, then each table by its wire model, then the frozen values, checked against each other. What can
be known from the file alone is refused here, with its line; whether a knob exists and which levels this
machine has is the lab's to say.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from iotrial.errors import StudyError
from iotrial.ownership import other_writer_of_open
from iotrial.study import wire
from iotrial.study.claims import read_claims
from iotrial.study.design import read_design
from iotrial.study.enclosed import text_file, with_texts
from iotrial.study.factors import check_distinct_knobs, read_factors, read_fixed
from iotrial.study.model import Budget, Factor, LabSpec, LinkSpec, Setting, Study
from iotrial.study.placing import read_places
from iotrial.study.programs import PROGRAM, PROGRAM_KNOB
from iotrial.study.responses import read_responses
from iotrial.study.source import Source
from iotrial.study.workloads import check_placeholders, read_workloads

MAX_BYTES = 1 << 20
MAX_LINE = 16384  # tomllib takes time quadratic in the parts of a dotted key
_MAX_DOTS_SQUARED = 4_000_000  # a tenth of a second of that; a line in good faith has some tens of dots
_PLACE = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")


def load(path: str | Path, *, trusted: bool = False) -> Study:
    """The study in this file.

    It is trusted where the user vouches for it (``trusted``), and where nobody but he and root could have written the file
    and the texts that it names.
    """
    path = Path(path)
    others: list[str] = []

    def beside(name: str) -> str:
        text, other = text_file(path.parent, name)
        others.extend(filter(None, [other]))
        return text

    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise StudyError("is not a regular file", file=str(path))
            others.extend(filter(None, [other_writer_of_open(file.fileno(), path)]))
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = error.strerror if isinstance(error, OSError) else error
        raise StudyError(
            f"cannot be read: {reason}", file=str(path), hint="`iotrial list` shows the studies that ship"
        ) from error
    if len(data) > MAX_BYTES:
        raise StudyError("is larger than 1 MiB, which no study is", file=str(path))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise StudyError("is not UTF-8 text", file=str(path), line=line) from error
    study = read_study(text, str(path), trusted=trusted, beside=beside)
    return replace(study, trusted=trusted or not others)


def read_study(text: str, origin: str, *, trusted: bool, beside: Callable[[str], str] | None = None) -> Study:
    """The study in this text. ``origin`` (file or catalogue name) is what errors and reports call it; ``beside``
    gives the text of a file that it names, or raises ValueError."""
    source = Source(text, origin, beside)
    study = _read(source, trusted=trusted)
    # What is stored must say all by itself.
    return replace(study, text=with_texts(text, source.read)) if source.read else study


def _read(source: Source, *, trusted: bool) -> Study:
    text, origin = source.text, source.origin
    document = source.table(wire.StudyFile, _parsed(text, origin))
    head = source.table(wire.StudyTable, document.study, "study")
    lab = source.table(wire.LabTable, document.lab, "lab")
    link = None if lab.link is None else source.table(wire.LinkTable, lab.link, "lab", "link")
    budget = source.table(wire.BudgetTable, document.budget, "budget")
    factors = read_factors(source, document.factor)
    fixed = read_fixed(source, document.fixed)
    check_distinct_knobs(source, factors, fixed)
    _check_no_programs(source, factors, fixed)
    places = read_places(source, document.place, factors, fixed)
    workloads = read_workloads(source, document.workload, factors)
    check_placeholders(source, factors, fixed, workloads)
    design = read_design(source, document.design, factors)
    responses = read_responses(source, document.response, workloads, design)
    return Study(
        name=head.name,
        title=head.title or head.name,
        question=head.question,
        why=head.why,
        margin=head.margin,
        alpha=head.alpha,
        lab=LabSpec(
            lab.kind,
            lab.filesystem,
            lab.size,
            tuple(lab.mkfs_options),
            tuple(lab.mount_options),
            lab.disk,
            lab.disks,
            None if link is None else LinkSpec(link.rate, link.latency, link.card),
        ),
        budget=Budget(budget.time, budget.blocks),
        factors=factors,
        fixed=fixed,
        workloads=workloads,
        responses=responses,
        claims=read_claims(source, document.claim, factors, workloads, responses),
        text=text,
        origin=origin,
        trusted=trusted,
        design=design,
        account=head.account,
        wash_in=head.wash_in,
        places=places,
    )


def _check_no_programs(source: Source, factors: Sequence[Factor], fixed: Sequence[Setting]) -> None:
    """A study names no program by its path: who runs it does."""
    levels = [(f.name, s) for f in factors for level in f.levels for s in level.settings]
    for name, setting in (*levels, *(("[[fixed]]", s) for s in fixed)):
        if setting.knob == PROGRAM_KNOB:
            hint = f"leave it out, and run the study with --set {PROGRAM}=PATH,PATH"
            raise source.error(f"{name}: a study cannot name programs by their path", hint=hint)


def _without_waiting(path: str, flags: int) -> int:
    """Opens without waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parsed(text: str, origin: str) -> dict[str, object]:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise StudyError("is larger than 1 MiB, which no study is", file=origin)
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > MAX_LINE:
            raise StudyError(f"a line has at most {MAX_LINE} characters", file=origin, line=number)
    if sum(line.count(".") ** 2 for line in text.split("\n")) > _MAX_DOTS_SQUARED:
        raise StudyError("has more dots in its lines than names and prose need", file=origin)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise StudyError("is nested too deeply", file=origin) from None
    except ValueError as error:  # TOMLDecodeError, and what the interpreter says of endless digits
        message = str(error)
        row: int | None = None
        if match := _PLACE.search(message):
            message = f"{message[: match.start()]} (column {match[2]})"
            row = int(match[1])
        raise StudyError(f"is not TOML: {message}", file=origin, line=row) from error
