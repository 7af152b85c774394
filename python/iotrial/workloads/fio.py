"""Workload kind ``fio``: an unmodified fio job file, with responses picked by name from fio's JSON.

With ``clients``, several fio servers run the job at the same time, using fio's own client and server mode: on
this machine, each in its own folder, or on ``hosts`` where the user has started them.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from msgspec import Meta, Struct

from iotrial.errors import RequestError
from iotrial.study.model import Setting
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Duration, Form, Line, Problem, Size, formed, keyed, prose, shown
from iotrial.study.server import Server
from iotrial.study.work import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    FileSet,
    HasPrograms,
    HasServer,
    JobContext,
    LabContext,
    Launched,
    Measured,
    ResponseSpec,
    filled,
    minimal_environment,
    printed_by,
    time_response,
)
from iotrial.workloads.fio_job import JobProblem, demands_of, jobs_of, mapped
from iotrial.workloads.fio_result import evenness, missing_of, of_clients, picked, result_of
from iotrial.workloads.output import MOST_OUTPUTS

MOST_CLIENTS = 256
#: of fio's output; a job with all percentiles prints some 30 KB
MOST_OUTPUT_BYTES = 8 << 20
ARGV = ("fio", "--output-format=json", "--eta=never", "-")
#: unit, factor from fio's unit, scale and direction by the end of a path; the first match counts
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
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<v4>[0-9.]+))(?::(?P<port>[0-9]{1,5}))?")
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.>=-]*")


class Pick(Struct, frozen=True, kw_only=True):
    """One number of fio's JSON: the response's name, its path, and the ``factor`` from fio's unit to ``unit``."""

    path: Line
    name: Line = ""
    unit: Annotated[str, Meta(max_length=20)] = ""
    factor: Annotated[float, Meta(gt=0, le=1e18)] = 1.0
    scale: Scale | None = None
    better: Better | None = None


def _pick_table(entry: object) -> object:
    if not isinstance(entry, str | dict):
        raise ValueError(f"expected a path, or a table with one, found {shown(entry)}")
    return {"path": entry} if isinstance(entry, str) else entry


JobText = Annotated[str, Meta(max_length=1 << 16), formed(Form("text", check=prose))]
PickTable = Annotated[Pick, formed(Form("path or table", read=_pick_table))]

_WALL = time_response("wall", "time of the whole process, including the files that it lays out first")
_TAKEN = frozenset(spec.name for spec in (_WALL, *CPU_RESPONSES, *DEVICE_RESPONSES))


class FioWork(HasPrograms, HasServer, FileSet, frozen=True, kw_only=True):
    """A fio job file, run unmodified in the lab's folder."""

    kind = "fio"
    about = "A fio job file, unchanged, in the lab's folder; responses are picked by name from fio's JSON."
    notes = (
        "Picked numbers come first. fio measures them itself, so the injected slowdown of the positive control "
        "cannot be put into them: it is put into wall. The job file may contain placeholders of command.argument."
    )
    documented = (_WALL, *CPU_RESPONSES, *DEVICE_RESPONSES)
    file_keys = {
        "file": Annotated[
            Line,
            Meta(description="job file, relative to the study file; stored with the study"),
        ]
    }
    text_files = {"file": "job"}
    noun = "fio"
    verb = "command"
    starts_programs = True

    job: Annotated[JobText, Meta(description="instead of `file`: the text of the job")] = ""
    picks: Annotated[
        tuple[PickTable, ...],
        keyed("pick"),
        formed(Form("list of text or tables")),
        Meta(
            min_length=1,
            max_length=MOST_OUTPUTS,
            description=(
                "numbers of fio's JSON that become responses, the first primary: a path, or a table with "
                "path, name, unit, factor (to that unit), scale, better"
            ),
        ),
    ]
    timeout_s: Annotated[Duration, Meta(gt=0, le=86400, description="timeout of fio; then the run fails")] = (
        600.0
    )
    run_as: Annotated[Literal["user", "root"], Meta(description="the user who called iotrial, or root")] = (
        "user"
    )
    clients: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_CLIENTS,
            description=(
                "clients on this machine that run the job at once (fio's client/server mode); picks then "
                'read fio\'s total, "all.read.iops"; 0: plain fio'
            ),
        ),
    ] = 0
    hosts: Annotated[
        tuple[Line, ...],
        Meta(
            max_length=MOST_CLIENTS,
            description=(
                'instead of `clients`: hosts with `fio --server` that run the job at once: "10.0.0.11", '
                '"10.0.0.11:8765"'
            ),
        ),
    ] = ()
    folder: Annotated[Line, Meta(description="folder for fio's files on these hosts")] = ""
    files: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="how many files of the lab there are besides fio's own"),
    ] = 1
    pool: Annotated[int, Meta(ge=0, le=1_000_000, description="as many as `files`")] = 1
    size_bytes: Annotated[Size, Meta(ge=0, le=1 << 44, description="size of each of them")] = 0

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        """Fill in unit, scale and direction of the picks from their paths."""
        picks = tuple(_completed(pick, index) for index, pick in enumerate(values["picks"]))
        return cls(**{**values, "picks": picks})

    def check(self) -> None:
        super().check()
        if self.replicates != 1:
            raise Problem("a job runs once per run", "replicates", hint="use fio's own loops and runtime")
        if not self.job:
            raise Problem("a fio workload has either file or job, found neither")
        try:
            jobs = jobs_of(self.job)
        except JobProblem as problem:
            raise Problem(f"the job file {problem}", "job") from None
        self._check_clients(jobs)
        names = [pick.name for pick in self.picks]
        for index, pick in enumerate(self.picks):
            _check_pick(pick, jobs, index, of_clients=self.several)
            if pick.name in names[:index] or pick.name in _TAKEN:
                raise Problem(f'two responses are called "{pick.name}"', "pick", index)

    def _check_clients(self, jobs: Sequence[str]) -> None:
        if self.clients and self.hosts:
            raise Problem("clients are either on this machine or on hosts", "hosts")
        if bool(self.folder) != bool(self.hosts):
            found, hint = ("folder", "add hosts") if self.folder else ("hosts", "add folder")
            raise Problem("hosts need a folder to work in, and the folder needs hosts", found, hint=hint)
        if self.folder and not self.folder.startswith("/"):
            raise Problem(f'expected an absolute path, found "{self.folder[:80]}"', "folder")
        for index, host in enumerate(self.hosts):
            _called(host, index)
        if self.several and len(jobs) > 1:
            message = f"several clients run one job each, found {len(jobs)} jobs in the job file"
            raise Problem(message, "clients", hint="use numjobs for several processes of one job")
        if self.several and self.run_as == "root":
            raise Problem(
                "fio servers accept jobs from anybody who can connect, so they never run as root", "run_as"
            )

    @property
    def several(self) -> bool:
        """Whether several clients, controlled by one fio, do the job at the same time."""
        return bool(self.clients or self.hosts)

    def responses(self) -> tuple[ResponseSpec, ...]:
        """Return fio's own numbers, then the process as the probe measures it."""
        return (*map(_spec, self.picks), _WALL, *CPU_RESPONSES, *DEVICE_RESPONSES)

    def texts(self) -> Iterator[str]:
        yield self.job

    def demands(self, settings: Sequence[Setting]) -> Iterator[str]:
        if self.hosts:
            yield f"has fio on {', '.join(self.hosts)[:80]} work in {self.folder[:80]}"
        yield from demands_of(self.job, settings)

    def launched(self) -> Launched:
        lines = tuple(f"  {line}" for line in self.job.splitlines())
        if self.several:
            where = f"on {', '.join(self.hosts)} in {self.folder}" if self.hosts else f"{self.clients} times"
            return Launched((f"fio, which has fio servers {where} do this job file:",), lines)
        notes = tuple(f"in the lab's folder {text}" for text in mapped(self.job)[1])
        return Launched(("fio, with this job file:",), lines + notes + ("as root",) * (self.run_as == "root"))

    def remark(self) -> str:
        notes = mapped(self.job)[1]
        return (
            f"fio worked in the lab's folder, not where its job file says ({'; '.join(notes)})"
            if notes
            else ""
        )

    def described(self) -> str:
        several = self.clients or len(self.hosts)
        clients = f"by {several} clients at once: " if several else ""
        return f"fio {clients}" + "; ".join(line.strip() for line in self.job.splitlines() if line.strip())

    def probe_job(self, context: JobContext) -> dict[str, object]:
        job = filled(self.job, context.arguments)
        argv, cwd = list(ARGV), "{dir}"
        if self.several:
            assert context.lab is not None
            called = [_called(host, 0) for host in self.hosts] or [
                f"sock:{_socket(context.lab, number)}" for number in range(1, self.clients + 1)
            ]
            # without "-": each client gets the job file by name
            argv = [*ARGV[:-1], *(word for one in called for word in (f"--client={one}", "/dev/stdin"))]
            cwd = _below(context.lab)
        return {
            "steps": [{"name": "fio", "argv": argv}],
            "environment": {**minimal_environment(), **context.environment},
            "cwd": cwd,
            "stdin": f"[global]\ndirectory={self.folder or '.'}\n{mapped(job)[0]}\n",
            "timeout_s": self.timeout_s,
            "expect_exit": 0,
            "keep_output": MOST_OUTPUT_BYTES,
        }

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        numbers = {"max_rss": float(answer["max_rss_bytes"])}
        if answer["stragglers"]:
            numbers["stragglers"] = float(answer["stragglers"])
        if answer["failures"]:
            return Measured(numbers)
        try:
            result = result_of(printed_by(answer))
            if self.several:
                result = of_clients(result)
                if (even := evenness(result)) is not None:
                    numbers["fairness"] = even
            picks = {pick.name: picked(result, pick.path) * pick.factor for pick in self.picks}
        except RequestError as error:
            return Measured.lacking(numbers, error)
        return Measured(numbers | picks)

    def provide(self, lab: LabContext) -> None:
        if not self.several:
            return
        lab.target.call("mkdir", path=lab.own, mode="0755")
        owner = None if lab.user is None else dict(lab.user)
        # access to a socket allows running any job on its server, so this folder is private
        folders = [_below(lab), *(_folder(lab, number) for number in range(1, self.clients + 1))]
        for folder in folders:
            if not lab.target.exists(folder):
                lab.target.call("mkdir", path=folder, mode="0700", owner=owner)
        for number in range(1, self.clients + 1):
            if lab.target.exists(_socket(lab, number)):  # left over from the previous run
                lab.target.call("remove", path=_socket(lab, number))

    def started_servers(self, lab: LabContext) -> tuple[Server, ...]:
        return tuple(
            Server(
                name=f"fio-{number}",
                argv=("fio", f"--server=sock:{_socket(lab, number)}"),
                ready={"socket": _socket(lab, number)},
                environment=minimal_environment(),
                cwd=_folder(lab, number),
                timeout_s=20.0,
                stop_timeout_s=10.0,
            )
            for number in range(1, self.clients + 1)
        )

    def settle(self, lab: LabContext, answer: Mapping[str, Any]) -> str | None:
        if not self.several or answer["failures"]:
            return None
        return missing_of(result_of(printed_by(answer)), self.clients or len(self.hosts))

    def listens(self) -> bool:
        return False

    def on_files(self) -> bool:
        return not self.several

    def never_root(self) -> bool:
        return self.several

    def reads_bytes(self, size: int, files: int) -> int:
        return 1

    def chooses_files(self) -> bool:
        return not self.several

    def needed_programs(self) -> Mapping[str, str]:
        return {"fio": "fio"}

    def as_root(self) -> bool:
        return self.run_as == "root"


def _below(lab: LabContext) -> str:
    return f"{lab.own}/fio"


def _folder(lab: LabContext, number: int) -> str:
    """Return the folder of client ``number``, from 1."""
    return f"{_below(lab)}/client-{number}"


def _socket(lab: LabContext, number: int) -> str:
    """Return the socket of a client's server; outside its folder, which holds the job's files."""
    return f"{_below(lab)}/{number}.sock"


def _called(host: str, index: int) -> str:
    """Return a host as in fio's --client: ``10.0.0.11``, ``10.0.0.11:8765``, ``[fe80::1]:8765``. Raises Problem."""
    found = _HOST.fullmatch(host)
    try:
        address = ipaddress.ip_address(found["v6"] or found["v4"] if found else host)
    except ValueError:
        message = f'expected an IP address, or one with a port, found "{host[:80]}"'
        raise Problem(message, "hosts", index, hint='such as "10.0.0.11" or "10.0.0.11:8765"') from None
    port = f",{found['port']}" if found and found["port"] else ""
    return f"{'ip6' if address.version == 6 else 'ip'}:{address}{port}"


def _check_path(pick: Pick, index: int) -> None:
    if not _PATH.fullmatch(pick.path) or len(pick.path) > 200:
        raise Problem(f'expected a path such as "jobs.NAME.read.iops", found "{pick.path}"', "pick", index)


def _completed(pick: Pick, index: int) -> Pick:
    _check_path(pick, index)
    known = next((meaning for pattern, meaning in _KNOWN if pattern.search(pick.path)), None)
    if not pick.unit and known is None:
        hint = "write { path = ..., unit = ..., scale = ..., better = ... }"
        raise Problem(f'the unit of "{pick.path}" is unknown', "pick", index, hint=hint)
    unit, factor, scale, better = (
        (pick.unit, pick.factor, Scale.LOG, Better.NONE) if pick.unit or known is None else known
    )
    return Pick(
        path=pick.path,
        name=pick.name or pick.path,
        unit=unit,
        factor=factor,
        scale=pick.scale or scale,
        better=pick.better or better,
    )


def _check_pick(pick: Pick, jobs: Iterable[str], index: int, *, of_clients: bool) -> None:
    _check_path(pick, index)
    if not (pick.name and pick.unit) or pick.scale is None or pick.better is None:
        raise Problem("a pick needs name, unit, scale and direction", "pick", index)
    first, _, rest = pick.path.partition(".")
    if of_clients and first != "all":
        hint = 'for example "all.read.bw_bytes"'
        raise Problem(f'"{pick.path}" is not a number of all clients', "pick", index, hint=hint)
    if first == "jobs" and not any(rest.startswith(f"{job}.") for job in jobs):
        near = difflib.get_close_matches(rest.partition(".")[0], list(jobs), n=1, cutoff=0.0)
        hint = f"the job file has: {', '.join(jobs)}" + (
            f'; did you mean "jobs.{near[0]}..."?' if near else ""
        )
        raise Problem(f'"{pick.path}" does not name a job of the job file', "pick", index, hint=hint)


def _spec(pick: Pick) -> ResponseSpec:
    assert pick.scale is not None
    assert pick.better is not None
    text = f"{pick.path} of fio's JSON"
    return ResponseSpec(pick.name, pick.unit, pick.scale, pick.better, text, stretchable=False)


WORK = FioWork
