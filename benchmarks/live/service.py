"""Services for the benchmark of live trials: a database watched by Prometheus, and a service with a known slowdown.

The database is PostgreSQL on its own ext4, under pgbench. The load scans a table whose pages are dropped from the cache every
second, so that it reads from the disk: read-ahead matters to it. pgbench starts transactions at a fixed rate. PostgreSQL logs
how long each statement took; an exporter turns its log into a histogram, and Prometheus scrapes that.
"""

from __future__ import annotations

import http.server
import os
import pwd
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

BOUNDS_S = tuple(0.0002 * 1.25**place for place in range(48))
PORT, PROMETHEUS_PORT = 54329, 19090
#: of the service with a known slowdown
REQUESTS_PER_S = 100
FILE_BYTES = 256 << 10
SCAN = r"""
\set first random(1, {last})
SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :first AND :first + 4000;
"""


class Exporter:
    """Serves a histogram of the times in a log. While ``hung`` is set, requests are accepted and not answered."""

    def __init__(self, name: str, log: Path, pattern: str, *, unit_s: float) -> None:
        self._name, self._log, self._pattern, self._unit_s = name, log, re.compile(pattern.encode()), unit_s
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum = 0.0
        self._at = 0
        self._reading = threading.Lock()
        self.hung = threading.Event()
        exporter = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                while exporter.hung.is_set():
                    time.sleep(0.1)
                body = exporter.text().encode()
                with suppress(OSError):  # nobody waits any more
                    self.send_response(200)
                    self.send_header("Content-Type", "text/plain; version=0.0.4")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self.hung.clear()
        self.server.shutdown()
        self.server.server_close()

    def totals(self) -> tuple[float, int]:
        """Return the sum of all times so far, in seconds, and their number."""
        with self._reading:
            self._follow()
            return self._sum, sum(self._counts)

    def mean_s(self, over_s: float) -> float:
        """Return the mean time in seconds of what is logged from now on, for the given seconds."""
        sum_before, count_before = self.totals()
        time.sleep(over_s)
        sum_after, count_after = self.totals()
        return (sum_after - sum_before) / (count_after - count_before)

    def text(self) -> str:
        """Return the metrics in Prometheus' text format."""
        with self._reading:
            self._follow()
            counts, seconds = list(self._counts), self._sum
        name = self._name
        lines = [f"# TYPE {name} histogram"]
        total = 0
        for bound, count in zip((*BOUNDS_S, float("inf")), counts, strict=True):
            total += count
            lines.append(
                f'{name}_bucket{{le="{"+Inf" if bound == float("inf") else f"{bound:.6g}"}"}} {total}'
            )
        return "\n".join([*lines, f"{name}_sum {seconds:.6f}", f"{name}_count {total}", ""])

    def _follow(self) -> None:
        with self._log.open("rb") as file:
            file.seek(self._at)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._at += len(whole)
        for found in self._pattern.finditer(whole):
            seconds = float(found[1]) * self._unit_s
            place = next((i for i, bound in enumerate(BOUNDS_S) if seconds <= bound), len(BOUNDS_S))
            self._counts[place] += 1
            self._sum += seconds


@contextmanager
def mounted(folder: Path, *, size_bytes: int) -> Iterator[Path]:
    """Yield the mount point of an ext4 of its own, on a loop device."""
    image, point = folder / "disk.img", folder / "disk"
    image.write_bytes(b"")
    os.truncate(image, size_bytes)
    point.mkdir()
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
    try:
        yield point
    finally:
        for _ in range(50):
            if subprocess.run(["umount", str(point)], check=False, capture_output=True).returncode == 0:
                break
            time.sleep(0.2)


# the service with a known slowdown


@dataclass(frozen=True, slots=True)
class Stretched:
    """A service with a known slowdown: its folder, its metric, and the log of its requests."""

    folder: Path
    log: Path
    exporter: Exporter

    @property
    def mean(self) -> str:
        """The source of the mean time of a request."""
        return f"mean=openmetrics:http://127.0.0.1:{self.exporter.port}/metrics#request_seconds:mean,unit=s"

    def injected(self) -> float:
        """Return by which ratio the requests were stretched, over all that were."""
        base = took = 0.0
        for line in self.log.read_text().splitlines():
            words = line.split()
            if len(words) == 7 and words[-1] == "1":
                base, took = base + float(words[1]), took + float(words[3])
        return took / base


@contextmanager
def stretched(point: Path, name: str, setting: Path, times: float) -> Iterator[Stretched]:
    """Yield a service whose requests take ``times`` as long while ``setting`` does not hold what it holds now.

    ``point``: the file system that it reads from. ``name``: its own among those that run at the same time.
    """
    data, log = point / f"{name}.data", point.parent / f"{name}.log"
    data.write_bytes(os.urandom(FILE_BYTES))
    os.sync()
    log.write_bytes(b"")
    script = Path(__file__).with_name("stretched.py")
    words = (data, log, setting, setting.read_text().strip(), times, REQUESTS_PER_S)
    process = subprocess.Popen([sys.executable, str(script), *map(str, words)])
    exporter = Exporter("request_seconds", log, r"took ([0-9.]+) us", unit_s=1e-6)
    try:
        while log.stat().st_size == 0:
            assert process.poll() is None, "the service has ended"
            time.sleep(0.05)
        yield Stretched(point, log, exporter)
    finally:
        process.kill()
        process.wait()
        exporter.close()


# the database


@dataclass(frozen=True, slots=True)
class Running:
    """A database under load: its folder, the queue of its disk in sysfs, its exporter, and the sources of its metrics."""

    folder: Path
    queue: Path
    exporter: Exporter
    mean: str
    p99: str
    rate: str

    def read_ahead(self) -> str:
        """Return the read-ahead that the kernel has now."""
        return (self.queue / "read_ahead_kb").read_text().strip()


@contextmanager
def database(folder: Path, *, rate: int, scale: int = 8) -> Iterator[Running]:
    """Yield a database on a loop device, in a new folder, under a scanning load of this many transactions a second."""
    folder.mkdir()
    with ExitStack() as stack:
        point = stack.enter_context(mounted(folder, size_bytes=2 << 30))
        number = point.stat().st_dev
        queue = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/queue").resolve()
        log = folder / "postgres.log"
        stack.enter_context(_postgres(point, folder, log))
        _as_postgres("pgbench", "-q", "-i", "-s", str(scale), "-h", str(folder), "-p", str(PORT), "postgres")
        exporter = Exporter(
            "pgbench_seconds", log, r"duration: ([0-9.]+) ms  statement: SELECT sum", unit_s=1e-3
        )
        stack.callback(exporter.close)
        stack.enter_context(_dropping(point))
        script = folder / "scan.sql"
        script.write_text(SCAN.format(last=scale * 100_000 - 4_001))
        stack.enter_context(_load(script, folder, rate))
        stack.enter_context(_prometheus(folder, exporter.port))
        time.sleep(20)  # two scrapes of a running load
        assert exporter.totals()[1] > 0, f"no transaction in {log}"
        yield Running(point, queue, exporter, *_metrics(exporter.port))


def _metrics(port: int) -> tuple[str, str, str]:
    """Return the sources of the mean, of the 99th percentile and of the rate."""
    if shutil.which("prometheus"):
        at = f"@http://127.0.0.1:{PROMETHEUS_PORT}"
        per_s = "rate(pgbench_seconds_count[$window])"
        return (
            f"mean=promql:rate(pgbench_seconds_sum[$window]) / {per_s}{at},unit=s",
            f"p99=promql:histogram_quantile(0.99, rate(pgbench_seconds_bucket[$window])){at},unit=s",
            f"tps=promql:{per_s}{at},unit=1/s,higher",
        )
    url = f"openmetrics:http://127.0.0.1:{port}/metrics#pgbench_seconds"
    return f"mean={url}:mean,unit=s", f"p99={url}:p99,unit=s", f"tps={url}_count:rate,unit=1/s,higher"


def _program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else name


def _as_postgres(name: str, *words: str) -> None:
    subprocess.run([_program(name), *words], check=True, capture_output=True, user="postgres", cwd="/")


@contextmanager
def _postgres(point: Path, folder: Path, log: Path) -> Iterator[None]:
    pwd.getpwnam("postgres")
    data = point / "data"
    data.mkdir(mode=0o700)
    shutil.chown(data, "postgres")
    shutil.chown(folder, "postgres")
    folder.chmod(0o755)
    _as_postgres("initdb", "-D", str(data), "--no-sync")
    options = [
        f"-cunix_socket_directories={folder}", f"-cport={PORT}", "-clisten_addresses=", "-cshared_buffers=16MB",
        "-cfsync=off", "-cmax_parallel_workers_per_gather=0", "-clog_min_duration_statement=0",
        "-clogging_collector=off",
    ]  # fmt: skip
    with log.open("ab") as errors:
        server = subprocess.Popen(
            [_program("postgres"), "-D", str(data), *options], user="postgres", cwd="/", stdout=errors, stderr=errors
        )  # fmt: skip
    try:
        ready = [_program("pg_isready"), "-q", "-h", str(folder), "-p", str(PORT)]
        while subprocess.run(ready, check=False).returncode:
            assert server.poll() is None, f"PostgreSQL has ended: {log.read_text()[-2000:]}"
            time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait(60)


@contextmanager
def _load(script: Path, folder: Path, rate: int) -> Iterator[None]:
    """Run pgbench; it ends with the database.

    Each transaction has a connection of its own (``-C``), so that files are opened after each switch: the kernel gives a file
    the disk's read-ahead when it is opened.
    """
    words = [
        _program("pgbench"), "-n", "-C", "-c", "4", "-j", "1", "-R", str(rate), "-T", "1000000", "-f", str(script),
        "-h", str(folder), "-p", str(PORT), "postgres",
    ]  # fmt: skip
    load = subprocess.Popen(
        words, user="postgres", cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        load.kill()
        load.wait()


@contextmanager
def _dropping(point: Path) -> Iterator[None]:
    """Drop the pages of the database's tables every second."""
    ended = threading.Event()

    def drop() -> None:
        while not ended.wait(1.0):
            for path in (point / "data" / "base").rglob("[0-9]*"):
                with suppress(OSError):
                    if path.is_file() and path.stat().st_size > 1 << 20:
                        descriptor = os.open(path, os.O_RDONLY)
                        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                        os.close(descriptor)

    thread = threading.Thread(target=drop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _prometheus(folder: Path, port: int) -> Iterator[None]:
    """Run Prometheus over the exporter, if it is installed."""
    program = shutil.which("prometheus")
    if program is None:
        yield
        return
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 500ms}\nscrape_configs:\n"
        f"- {{job_name: pgbench, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n"
    )
    server = subprocess.Popen(
        [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
         f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        server.terminate()
        server.wait(60)
