"""Workload kind ``fio``: an unmodified fio job file, with responses picked by name from fio's JSON.

With ``clients``, several fio servers run the job at the same time, using fio's own client and server mode: on
this machine, each in its own folder, or on ``hosts`` where the user has started them.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from msgspec import Meta, Struct

from iotrial.errors import RequestError, twice, unknown
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS
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
from iotrial.terminal import escape
from iotrial.workloads.fio_job import (
    NO_FILES,
    Job,
    JobProblem,
    demands_of,
    entries_of,
    files_of,
    filled_jobs,
    included,
    jobs_of,
    least_seconds,
    mapped,
)
from iotrial.workloads.fio_result import evenness, missing_of, of_clients, picked, reads_of, result_of
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
_PATH = re.compile(r"[^\x00-\x20\x7f][^\x00-\x1f\x7f]*")
#: a placeholder without a value; fio's own begin with a dollar
_UNFILLED = re.compile(r"(?<!\$)\{[A-Za-z0-9_.-]+\}")
#: the keys of fio's result: a path that begins with another one is of the only job
_TOP = frozenset({"jobs", "disk_util", "client_stats", "global options", "timestamp", "timestamp_ms", "time"})
#: options without which a number of a job is zero or missing, by its path
_UNMEASURED: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"[sc]?lat_ns\."), ("gtod_reduce",)),
    (re.compile(r"clat_ns\."), ("disable_clat",)),
    (re.compile(r"slat_ns\."), ("disable_slat",)),
    (re.compile(r"lat_ns\."), ("disable_lat",)),
)
#: with direct=1 all reads of these engines come from the device
_PAST_CACHE = frozenset({"sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "io_uring", "posixaio"})
#: options that write data which a file system may compress or leave out
_SMALLER = ("zero_buffers", "buffer_pattern", "buffer_compress_percentage", "dedupe_percentage")
#: options by which a job may read a place more than once
_READS_AGAIN = (
    *("time_based", "loops", "norandommap", "softrandommap", "random_distribution", "percentage_random"),
    *("zonesize", "zonerange", "zoneskip", "zonemode", "io_size", "io_limit", "replay_no_stall"),
)


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
    documented = (_WALL, *CPU_RESPONSES, *DEVICE_RESPONSES)
    file_keys = {
        "file": Annotated[
            Line,
            Meta(description="job file, relative to the study file; stored with the study"),
        ]
    }
    text_files = {"file": "job"}
    includes = True
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
    def whole_text(cls, name: str, text: str, read: Callable[[str], str]) -> str:
        return included(text, read, name)

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
            jobs = jobs_of(mapped(self.job)[0])
        except JobProblem as problem:
            raise Problem(f"the job file {problem}", "job") from None
        self._check_clients(jobs)
        names = [pick.name for pick in self.picks]
        for index, pick in enumerate(self.picks):
            _check_pick(pick, jobs, index, of_clients=self.several)
            if pick.name in names[:index] or pick.name in _TAKEN:
                raise Problem(twice("response", pick.name), "pick", index)

    def _check_clients(self, jobs: Sequence[Job]) -> None:
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
        lines += tuple(f"in the lab's folder: {text}" for text in mapped(self.job)[1])
        if self.several:
            where = f"on {', '.join(self.hosts)} in {self.folder}" if self.hosts else f"{self.clients} times"
            return Launched((f"fio, which has fio servers {where} do this job file:",), lines)
        return Launched(("fio, with this job file:",), lines + ("as root",) * (self.run_as == "root"))

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
        job = mapped(self.job)[0]
        return f"fio {clients}" + "; ".join(line.strip() for line in job.splitlines() if line.strip())

    def probe_job(self, context: JobContext) -> dict[str, object]:
        job = filled(self.job, context.arguments)
        argv = list(ARGV)
        assert context.lab is not None
        if self.several:
            called = [_called(host, 0) for host in self.hosts] or [
                f"sock:{_socket(context.lab, number)}" for number in range(1, self.clients + 1)
            ]
            # without "-": each client gets the job file by name
            argv = [*ARGV[:-1], *(word for one in called for word in (f"--client={one}", "/dev/stdin"))]
        return {
            "steps": [{"name": "fio", "argv": argv}],
            "environment": {**minimal_environment(), **context.environment},
            "cwd": _below(context.lab),
            "stdin": _in_folder(mapped(job)[0], self.folder or "."),
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
        job = filled(self.job, context.arguments)
        past_cache, once = (0, 0) if self.several else _must_read(jobs_of(mapped(job)[0]), reads_of(result))
        return Measured(numbers | picks, past_cache_bytes=past_cache, once_bytes=once)

    def has_own_data(self) -> bool:
        return not self.hosts

    def provide(self, lab: LabContext) -> None:
        lab.target.call("mkdir", path=lab.own, mode="0755")
        user = lab.user if self.several else lab.runs_as
        owner = None if user is None else dict(user)
        # access to a socket allows running any job on its server, so this folder is private
        folders = [_below(lab), *(_folder(lab, number) for number in range(1, self.clients + 1))]
        for folder in folders:
            if not lab.target.exists(folder):
                lab.target.call("mkdir", path=folder, mode="0700" if self.several else "0755", owner=owner)
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
        if answer["failures"]:
            if not self.hosts:  # files that were not laid out whole would be read as holes
                lab.target.call("remove", path=_below(lab), recursive=True)
            return None
        if not self.several:
            return None
        return missing_of(result_of(printed_by(answer)), self.clients or len(self.hosts))

    def listens(self) -> bool:
        return False

    def on_files(self) -> bool:
        return False

    def does_io(self) -> bool:
        return any(job.options.get("ioengine", "") not in NO_FILES for job in jobs_of(self.job))

    def labs(self) -> frozenset[str]:
        fills = any(job.on("fill_device") for job in jobs_of(self.job))  # fill_fs
        return DISK_LABS if fills else super().labs()

    def own_files(self, settings: Sequence[Setting]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for job in () if self.hosts else filled_jobs(mapped(self.job)[0], settings):
            try:
                for name, size in files_of(job).items():
                    found[name] = max(found.get(name, 0), size * max(1, self.clients))
            except JobProblem as problem:
                raise RequestError(f"the job file: {problem}") from None
        return found

    def check_cache(self, state: str, settings: Sequence[Setting]) -> None:
        if state != "warm":
            return
        for job in filled_jobs(mapped(self.job)[0], settings):
            for one in jobs_of(job):
                if "read" not in one.ways or one.options.get("ioengine", "") in NO_FILES:
                    continue
                if one.direct:
                    raise RequestError(f'job "{one.name}" reads past the page cache', hint="remove direct=1")
                if one.on("invalidate", "1") and not one.on("pre_read"):
                    message = (
                        f'fio evicts the files of job "{one.name}" from the page cache before it reads them'
                    )
                    raise RequestError(message, hint="add invalidate=0 to the job")

    def warm(self, state: str) -> int:
        return 1 if state == "warm" else 0  # fio evicts files that it has laid out

    def warming(self, job: Mapping[str, object]) -> Mapping[str, object]:
        """Let fio read whole files first: one run of random reads for a time leaves parts of them out."""
        text = str(job["stdin"])
        # what a job only writes may not be there to be read; with ioengine=null, pre_read ends fio 3.33
        if not all(
            "read" in one.ways and one.options.get("ioengine", "") not in NO_FILES for one in jobs_of(text)
        ):
            return job
        return {**job, "stdin": text.replace("[global]\n", "[global]\npre_read=1\n", 1)}

    def never_root(self) -> bool:
        return self.several

    def reads_bytes(self, size: int, files: int) -> int:
        return 1

    def chooses_files(self) -> bool:
        return not self.several

    def needed_programs(self) -> Mapping[str, str]:
        return {"fio": "fio"}

    def check_to_run(self, settings: Sequence[Setting], user: tuple[int, int] | None) -> None:
        engines: list[str] = []
        if user is not None and not self.hosts:
            engines = _fio(["--enghelp"], user).stdout.split()
        runnable: list[str] = []
        for job in filled_jobs(mapped(self.job)[0], settings):
            if _UNFILLED.search(job):
                continue
            jobs = jobs_of(job)
            try:
                for index, pick in enumerate(self.picks):
                    _check_pick(pick, jobs, index, of_clients=self.several, measured=True)
            except Problem as problem:
                raise RequestError(problem.message, hint=problem.hint) from None
            for one in jobs:
                if (seconds := least_seconds(one)) > self.timeout_s:
                    message = f'job "{one.name}" takes {seconds:.0f} s at least, but the timeout is {self.timeout_s:.0f} s'
                    raise RequestError(message, hint="set timeout of the workload, or runtime in the job")
            if user is not None and engines:
                _check_here(jobs)
                _check_offload(jobs, user)
                _check_engines(jobs, engines)
                runnable.append(job)
        if runnable and user is not None:
            _check_accepted(runnable, user)

    def as_root(self) -> bool:
        return self.run_as == "root"


def _check_accepted(jobs: Sequence[str], user: tuple[int, int]) -> None:
    """Refuse job files that the fio installed here cannot read. Raises RequestError.

    One fio reads all of them: to start it takes longer than to read a job.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(os.fdopen(os.memfd_create("job"), "w")) for _ in jobs]
        for file, job in zip(files, jobs, strict=True):
            file.write(_in_folder(job, "."))
            file.flush()
        numbers = [file.fileno() for file in files]
        names = [f"/proc/self/fd/{number}" for number in numbers]
        done = _fio(["--parse-only", *names], user, pass_fds=numbers)
    if done.returncode:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise RequestError(f"fio does not accept the job file: {escape('; '.join(lines[:3])[:300])}")


def _check_engines(jobs: Sequence[Job], engines: Sequence[str]) -> None:
    """Refuse an engine that the fio installed here has not. Raises RequestError."""
    for one in jobs:
        engine = one.options.get("ioengine", "psync")
        if ":" not in engine and engine not in engines:
            where = f'job "{escape(one.name[:40])}"'
            message, hint = unknown("ioengine of this fio", escape(engine[:40]), engines[3:], where=where)
            raise RequestError(message, hint=hint)


def _check_offload(jobs: Sequence[Job], user: tuple[int, int]) -> None:
    """Refuse worker threads to a fio that often hangs while it starts them. Raises RequestError.

    Source: fio commit 736c2015, first in fio 3.42. A single worker (iodepth=1) was not seen to hang.
    """
    for job in jobs:
        if job.options.get("io_submit_mode") != "offload" or job.options.get("iodepth", "1") == "1":
            continue
        version = _fio(["--version"], user).stdout.strip()
        found = re.fullmatch(r"fio-([0-9]+)\.([0-9]+).*", version)
        if found and (int(found[1]), int(found[2])) < (3, 42):
            message = f'{version} often hangs at the start of job "{escape(job.name[:40])}" with io_submit_mode=offload'
            raise RequestError(message, hint="use fio 3.42 or later, iodepth=1, or io_submit_mode=inline")


def _check_here(jobs: Sequence[Job]) -> None:
    """Refuse processors and NUMA nodes that this machine has not; fio sees that only when it runs. Raises RequestError."""
    for option, kind in (("cpus_allowed", "cpu"), ("numa_cpu_nodes", "node")):
        present = Path(f"/sys/devices/system/{kind}/{'present' if kind == 'cpu' else 'possible'}")
        last = int(re.split("[-,]", present.read_text("ascii").strip())[-1]) if present.exists() else 0
        for job in jobs:
            words = re.findall("[0-9]{1,9}", job.options.get(option, ""))
            if any(int(word) > last for word in words):
                message = (
                    f'job "{job.name}": {option}={job.options[option]}, but the last {kind} here is {last}'
                )
                raise RequestError(message)


def _fio(
    words: Sequence[str], user: tuple[int, int], *, pass_fds: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    """Run fio for what it says of itself or of job files, without doing a job. Raises RequestError."""
    uid, gid = user
    other: dict[str, Any] = (
        {"user": uid, "group": gid, "extra_groups": ()} if uid != os.geteuid() == 0 else {}
    )
    try:
        return subprocess.run(
            ["fio", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=20.0,
            cwd="/",
            pass_fds=pass_fds,
            env=minimal_environment(),
            **other,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequestError(f"fio cannot be run here: {error}") from None


def _in_folder(job: str, folder: str) -> str:
    """Return the job file with which fio works in a folder."""
    return f"[global]\ndirectory={folder}\n{job}\n"


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


def _check_pick(
    pick: Pick, jobs: Sequence[Job], index: int, *, of_clients: bool, measured: bool = False
) -> None:
    """Check a pick against the entries of fio's result; ``measured``: and that it is not left at 0. Raises Problem."""
    _check_path(pick, index)
    if not (pick.name and pick.unit) or pick.scale is None or pick.better is None:
        raise Problem("a pick needs name, unit, scale and direction", "pick", index)
    first, _, rest = pick.path.partition(".")
    if of_clients and first != "all":
        hint = 'for example "all.read.bw_bytes"'
        raise Problem(f'"{pick.path}" is not a number of all clients', "pick", index, hint=hint)
    if of_clients or (first in _TOP and first != "jobs"):
        return
    entries = entries_of(jobs)
    names = list(dict.fromkeys(entry[0].name for entry in entries))
    if any("{" in name for name in names):
        return
    if first == "jobs":
        name = max((name for name in names if rest.startswith(f"{name}.")), key=len, default=None)
        if name is None:
            raise _no_such_job(pick, jobs, names, index)
        rest = rest[len(name) + 1 :]
    else:
        name, rest = names[0], pick.path
        if len(names) > 1:
            hint = f'such as "jobs.{name}.{pick.path}"'
            raise Problem(
                f'"{pick.path}": the job file has {len(names)} jobs, so name one', "pick", index, hint=hint
            )
    same = [entry for entry in entries if entry[0].name == name]
    if len(same) > 1:
        message = f'"{pick.path}": fio reports {len(same)} jobs called "{name}"'
        raise Problem(
            message, "pick", index, hint="add group_reporting to the job file, or give each its own name"
        )
    if measured:
        _check_measured(pick, rest, same[0], index)


def _no_such_job(pick: Pick, jobs: Sequence[Job], names: Sequence[str], index: int) -> Problem:
    rest = pick.path.partition(".")[2]
    added = next((job for job in jobs if rest.startswith((f"{job.name}.", f"{job.section}."))), None)
    if added is not None and added.name in names:
        hint = f'fio reports it as "jobs.{added.name}", by its option name'
    elif added is not None:
        first = next(entry[0].name for entry in entries_of(jobs) if added in entry)
        hint = f'group_reporting adds it to "jobs.{first}"; new_group or stonewall separates jobs'
    else:
        near = difflib.get_close_matches(rest.partition(".")[0], names, n=1, cutoff=0.0)
        hint = f"the job file has: {', '.join(names)}" + (
            f'; did you mean "jobs.{near[0]}..."?' if near else ""
        )
    return Problem(f'"{pick.path}" does not name a job of the job file', "pick", index, hint=hint)


def _check_measured(pick: Pick, rest: str, entry: Sequence[Job], index: int) -> None:
    """Refuse a number that these jobs leave at zero or out."""
    way, _, number = rest.partition(".")
    unified = entry[0].options.get("unified_rw_reporting", "0")
    ways = frozenset[str]().union(*(job.ways for job in entry))
    if way in ("read", "write", "trim") and unified in ("1", "mixed"):
        message = f'"{pick.path}": unified_rw_reporting leaves only "mixed"'
        raise Problem(message, "pick", index, hint=f'use "mixed.{number}" instead of "{way}.{number}"')
    if way in ("read", "write", "trim") and way not in ways:
        message = f'"{pick.path}" is always 0: the job does only {" and ".join(sorted(ways))}'
        raise Problem(message, "pick", index)
    percentile = re.fullmatch(r"([sc]?lat)_ns\.percentile\.(.+)", number)
    if percentile is not None and way != "sync" and "{" not in entry[0].options.get("percentile_list", ""):
        known = entry[0].percentiles(percentile[1])
        if percentile[2] not in known:
            hint = f"known: {', '.join(known)}" if known else f"add {percentile[1]}_percentiles=1 to the job"
            raise Problem(f'"{pick.path}" is no percentile that the job computes', "pick", index, hint=hint)
    for pattern, options in _UNMEASURED:
        for option in options:
            if pattern.match(number) and any(job.on(option) for job in entry):
                raise Problem(
                    f'"{pick.path}" is not measured with {option}', "pick", index, hint=f"remove {option}"
                )


def _must_read(jobs: Sequence[Job], reads: Sequence[int]) -> tuple[int, int]:
    """Return the bytes that were read past the page cache, and those that were read once, if all were.

    ``reads``: the bytes that each entry of fio's result has read. 0: nothing can be said.
    """
    entries = entries_of(jobs)
    if len(entries) != len(reads) or any("trim" in job.ways or any(map(job.on, _SMALLER)) for job in jobs):
        return 0, 0
    past_cache = sum(
        read
        for entry, read in zip(entries, reads, strict=True)
        if all(job.direct and job.options.get("ioengine", "psync") in _PAST_CACHE for job in entry)
    )
    once = all(
        job.ways == {"read"}
        and not any(option in job.options for option in _READS_AGAIN)
        and (job.options.get("ioengine", "psync") in _PAST_CACHE)
        and not ("filename" in job.options and len(jobs) * (job.number("numjobs") or 2) > 1)
        for job in jobs
    )
    return past_cache, sum(reads) if once else 0


def _spec(pick: Pick) -> ResponseSpec:
    assert pick.scale is not None
    assert pick.better is not None
    text = f"{pick.path} of fio's JSON"
    return ResponseSpec(pick.name, pick.unit, pick.scale, pick.better, text, stretchable=False)


WORK = FioWork
