"""Workload kind ``fio``: a fio job file as it is, responses picked by name from fio's JSON."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from iotrial.study.fio_job import JobProblem, demands, jobs_of
from iotrial.study.kinds.clients import MOST_CLIENTS
from iotrial.study.kinds.contract import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    FileSetKeys,
    KeyProblem,
    Programs,
    ResponseSpec,
    WorkloadKind,
    file_set,
    time_response,
)
from iotrial.study.model import Better, FioWork, Pick, Scale, Work
from iotrial.study.wire import Duration, Line, Size, Table, Written, prose, shown

#: what the last words of a path say: unit, factor to it from fio's own, scale, better. The first that fits counts.
_KNOWN: tuple[tuple[re.Pattern[str], tuple[str, float, Scale, Better]], ...] = (
    (re.compile(r"(^|\.)iops(_mean|_min|_max)?$"), ("1/s", 1.0, Scale.LOG, Better.HIGHER)),
    (re.compile(r"(^|\.)bw_bytes$"), ("bytes/s", 1.0, Scale.LOG, Better.HIGHER)),
    (re.compile(r"(^|\.)bw(_mean|_min|_max)?$"), ("bytes/s", 1024.0, Scale.LOG, Better.HIGHER)),
    (
        re.compile(r"(^|\.)[sc]?lat_ns\.(min|max|mean|stddev|percentile\.[0-9.]+)$"),
        ("s", 1e-9, Scale.LOG, Better.LOWER),
    ),
    (re.compile(r"(^|\.)(job_)?runtime$"), ("s", 1e-3, Scale.LOG, Better.LOWER)),
    (re.compile(r"(^|\.)(usr|sys)_cpu$"), ("%", 1.0, Scale.DIFFERENCE, Better.LOWER)),
    (re.compile(r"(^|\.)(ctx|majf|minf)$"), ("1", 1.0, Scale.DIFFERENCE, Better.LOWER)),
    (re.compile(r"(^|\.)(total_ios|short_ios|drop_ios)$"), ("1", 1.0, Scale.DIFFERENCE, Better.NONE)),
    (re.compile(r"(^|\.)io_bytes$"), ("bytes", 1.0, Scale.DIFFERENCE, Better.NONE)),
)
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.>=-]*")
_FIRST = frozenset(("jobs", "disk_util", "client_stats"))


class PickTable(Table):
    """One ``[[workload.pick]]``, or an entry of ``pick``."""

    path: Line
    name: Line = ""
    unit: Annotated[str, Field(max_length=20)] = ""
    factor: float = Field(1.0, gt=0, le=1e18, allow_inf_nan=False)
    scale: Literal["log", "difference"] | None = None
    better: Literal["lower", "higher", "none"] | None = None


Job = Annotated[str, AfterValidator(prose), Field(max_length=1 << 16), Written("text")]


class FioKeys(FileSetKeys):
    """Keys of ``kind = "fio"``."""

    file: Line = Field(
        "", description="the job file, by its path from the study file; its text is stored with the study"
    )
    job: Job = Field("", description="instead of `file`: the text of the job file")
    pick: Annotated[list[Any], Written("list of text or tables")] = Field(
        min_length=1,
        max_length=64,
        description="numbers of fio's JSON that become responses, the first one primary: a path such as "
        '"jobs.NAME.read.iops", or a table with path, name, unit, factor (to that unit), scale, better',
    )
    timeout: Duration = Field(
        600.0, gt=0, le=86400, description="longest time of fio; after it the run failed"
    )
    run_as: Literal["user", "root"] = Field("user", description="who runs it: who called iotrial, or root")
    clients: int = Field(
        0,
        ge=0,
        le=MOST_CLIENTS,
        description="so many clients do the job at once, by fio's own client and server mode; 0: fio alone. Picks are "
        "then of "
        'fio\'s sum, "all.read.iops"',
    )
    folder: Line = Field(
        "", description="the folder that clients on other hosts (--client NAME@ADDRESS=COMMAND) work in"
    )
    files: int = Field(
        1, ge=1, le=1_000_000, description="how many files of the lab there are besides fio's own"
    )
    pool: int = Field(1, ge=0, le=1_000_000, description="as many as `files`")
    size: Size = Field(0, ge=0, le=1 << 44, description="size of each of them")


def build(keys: FioKeys) -> FioWork:
    """The work of these keys; KeyProblem where the text is no job file, or a pick is of no job in it."""
    files = file_set(keys)
    if keys.replicates != 1:
        raise KeyProblem(
            "a job is run once in a run", "replicates", hint="fio has loops and runtime of its own"
        )
    if not keys.job:
        raise KeyProblem("a fio workload has either file or job, found neither")
    try:
        jobs = jobs_of(keys.job)
    except JobProblem as problem:
        raise KeyProblem(f"the job file {problem}", "job") from None
    _check_clients(keys, jobs)
    picks = tuple(
        _pick(entry, jobs, index, of_clients=bool(keys.clients)) for index, entry in enumerate(keys.pick)
    )
    names = [pick.name for pick in picks]
    for index, name in enumerate(names):
        if name in names[:index] or name in _TAKEN:
            raise KeyProblem(f'two responses are called "{name}"', "pick", index)
    return FioWork(
        job=keys.job,
        picks=picks,
        timeout_s=keys.timeout,
        run_as=keys.run_as,
        clients=keys.clients,
        folder=keys.folder,
        **files,
    )


def _table(entry: object, index: int) -> PickTable:
    try:
        return PickTable.model_validate({"path": entry} if isinstance(entry, str) else entry)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(shown(str(part))[1:-1] for part in first["loc"])
        if first["type"] == "extra_forbidden":
            hint = f"known: {', '.join(PickTable.model_fields)}"
            raise KeyProblem(f'a pick has no key "{key}"', "pick", index, hint=hint) from None
        message = first["msg"].removeprefix("Value error, ")
        wanted = f"{key}: {message}" if key else f"wanted a path, or a table with one, found {shown(entry)}"
        raise KeyProblem(f"a pick: {wanted}", "pick", index) from None


def _check_clients(keys: FioKeys, jobs: Sequence[str]) -> None:
    if keys.folder and not keys.clients:
        raise KeyProblem("a folder of clients, and there are none", "folder", hint="add clients")
    if keys.folder and not keys.folder.startswith("/"):
        raise KeyProblem(f'wanted a path from the root, found "{keys.folder[:80]}"', "folder")
    if keys.clients and len(jobs) > 1:
        message = f"several clients do one job each, found {len(jobs)} jobs in the job file"
        raise KeyProblem(message, "clients", hint="numjobs makes several processes of one job")
    if keys.clients and keys.run_as == "root":
        raise KeyProblem("fio's servers take any job from whoever reaches them, and are never root", "run_as")


def _pick(entry: object, jobs: Iterable[str], index: int, *, of_clients: bool = False) -> Pick:
    table = _table(entry, index)
    if not _PATH.fullmatch(table.path) or len(table.path) > 200:
        raise KeyProblem(f'wanted a path such as "jobs.NAME.read.iops", found "{table.path}"', "pick", index)
    first, _, rest = table.path.partition(".")
    if of_clients and first != "all":
        hint = 'for example "all.read.bw_bytes"'
        raise KeyProblem(f'"{table.path}" is not of all clients', "pick", index, hint=hint)
    if first == "jobs" and not any(rest.startswith(f"{job}.") for job in jobs):
        near = difflib.get_close_matches(rest.partition(".")[0], list(jobs), n=1, cutoff=0.0)
        hint = f"the job file has: {', '.join(jobs)}" + (
            f'; did you mean "jobs.{near[0]}..."?' if near else ""
        )
        raise KeyProblem(f'"{table.path}" is of no job in the job file', "pick", index, hint=hint)
    known = next((meaning for pattern, meaning in _KNOWN if pattern.search(table.path)), None)
    if not table.unit and known is None:
        hint = "write { path = ..., unit = ..., scale = ..., better = ... }"
        raise KeyProblem(f'what "{table.path}" is measured in is not known', "pick", index, hint=hint)
    unit, factor, scale, better = (
        (table.unit, table.factor, Scale.LOG, Better.NONE) if table.unit or known is None else known
    )
    return Pick(
        name=table.name or table.path,
        path=table.path,
        unit=unit,
        factor=factor,
        scale=Scale(table.scale) if table.scale else scale,
        better=Better(table.better) if table.better else better,
    )


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run measures: fio's own numbers, and the process as the probe sees it."""
    assert isinstance(work, FioWork)
    return (*(_spec(pick) for pick in work.picks), _WALL, *CPU_RESPONSES, *DEVICE_RESPONSES)


def _spec(pick: Pick) -> ResponseSpec:
    text = f"{pick.path} of fio's JSON"
    return ResponseSpec(pick.name, pick.unit, pick.scale, pick.better, text, stretchable=False)


def texts(work: Work) -> Iterator[str]:
    """The job file, in which a placeholder may stand."""
    assert isinstance(work, FioWork)
    yield work.job


def as_root(work: Work) -> bool:
    """Whether root runs fio."""
    assert isinstance(work, FioWork)
    return work.run_as == "root"


_WALL = time_response("wall", "time of the whole process, files that it lays out first included")
_TAKEN = frozenset(spec.name for spec in (_WALL, *CPU_RESPONSES, *DEVICE_RESPONSES))

KIND = WorkloadKind(
    name="fio",
    work=FioWork,
    summary="A fio job file as it is, in the lab's folder; responses are picked by name from fio's JSON.",
    keys=FioKeys,
    build=build,
    responses=responses,
    documented=(_WALL, *CPU_RESPONSES, *DEVICE_RESPONSES),
    notes="The picked numbers come first. fio measures them itself, so the known slow-down of the positive control cannot be "
    "put into them: it is put into wall. Placeholders of command.argument may stand in the job file.",
    text_file=("file", "job"),
    programs=Programs("fio", texts, as_root, demands),
)
