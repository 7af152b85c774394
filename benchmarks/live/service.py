"""A database at work for the benchmark of live trials: PostgreSQL on its own ext4, under pgbench, watched by Prometheus.

The load scans a table whose pages are dropped from the cache every second, so that it reads from the disk: read-ahead
matters to it. pgbench starts transactions at a fixed rate and logs each; an exporter turns the log into a histogram. A real
Prometheus scrapes it every second if one is installed; otherwise iotrial reads it itself.
"""

from __future__ import annotations

import http.server
import os
import pwd
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

BOUNDS_S = tuple(0.001 * 1.25**place for place in range(40))
PORT, PROMETHEUS_PORT, EXPORTER_PORT = 54329, 19090, 19187
SCAN = r"""
\set first random(1, {last})
SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :first AND :first + 4000;
"""


@dataclass(frozen=True, slots=True)
class Running:
    """A database under load: its folder, the queue of its disk in sysfs, and where its metrics are."""

    folder: Path
    queue: Path
    mean: str
    p99: str
    rate: str

    def read_ahead(self) -> str:
        """Return the read-ahead that the kernel has now."""
        return (self.queue / "read_ahead_kb").read_text().strip()


class Exporter(threading.Thread):
    """Follows the logs of pgbench and serves what they hold."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum = 0.0
        self._at: dict[Path, int] = {}
        self.ended = threading.Event()
        exporter = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = exporter.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", EXPORTER_PORT), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def run(self) -> None:
        while not self.ended.wait(0.25):
            for path in self._folder.glob("pgbench_log.*"):
                with path.open() as file:
                    file.seek(self._at.get(path, 0))
                    for line in file:
                        if not line.endswith("\n"):
                            break
                        self._at[path] = self._at.get(path, 0) + len(line)
                        self._count(int(line.split()[2]) / 1e6)
        self.server.shutdown()
        self.server.server_close()

    def _count(self, seconds: float) -> None:
        place = next((i for i, bound in enumerate(BOUNDS_S) if seconds <= bound), len(BOUNDS_S))
        self._counts[place] += 1
        self._sum += seconds

    def text(self) -> str:
        """Return the metrics in Prometheus' text format."""
        lines = ["# TYPE pgbench_seconds histogram"]
        total = 0
        for bound, count in zip((*BOUNDS_S, float("inf")), list(self._counts), strict=True):
            total += count
            lines.append(
                f'pgbench_seconds_bucket{{le="{"+Inf" if bound == float("inf") else f"{bound:.6g}"}"}} {total}'
            )
        lines += [f"pgbench_seconds_sum {self._sum:.6f}", f"pgbench_seconds_count {total}"]
        return "\n".join([*lines, ""])


@contextmanager
def database(folder: Path, *, rate: int, scale: int = 8) -> Iterator[Running]:
    """Yield a database on a loop device under a scanning load of this many transactions a second."""
    with ExitStack() as stack:
        mounted = stack.enter_context(_mounted(folder))
        number = mounted.stat().st_dev
        queue = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/queue").resolve()
        stack.enter_context(_postgres(mounted, folder))
        _as_postgres("pgbench", "-q", "-i", "-s", str(scale), "-h", str(folder), "-p", str(PORT), "postgres")
        logs = folder / "logs"
        logs.mkdir()
        shutil.chown(logs, "postgres")
        exporter = Exporter(logs)
        exporter.start()
        stack.callback(exporter.ended.set)
        stack.enter_context(_dropping(mounted))
        script = folder / "scan.sql"
        script.write_text(SCAN.format(last=scale * 100_000 - 4_001))
        stack.enter_context(_load(logs, script, folder, rate))
        stack.enter_context(_prometheus(folder))
        time.sleep(20)  # two scrapes of a running load
        yield Running(mounted, queue, *_metrics())


def _metrics() -> tuple[str, str, str]:
    """Return the sources of the mean, of the 99th percentile and of the rate."""
    if shutil.which("prometheus"):
        at = f"@http://127.0.0.1:{PROMETHEUS_PORT}"
        per_s = "rate(pgbench_seconds_count[$window])"
        return (
            f"mean=promql:rate(pgbench_seconds_sum[$window]) / {per_s}{at},unit=s",
            f"p99=promql:histogram_quantile(0.99, rate(pgbench_seconds_bucket[$window])){at},unit=s",
            f"tps=promql:{per_s}{at},unit=1/s,higher",
        )
    url = f"openmetrics:http://127.0.0.1:{EXPORTER_PORT}/metrics#pgbench_seconds"
    return f"mean={url}:mean,unit=s", f"p99={url}:p99,unit=s", f"tps={url}_count:rate,unit=1/s,higher"


@contextmanager
def _mounted(folder: Path) -> Iterator[Path]:
    image, mounted = folder / "database.img", folder / "database"
    image.write_bytes(b"")
    os.truncate(image, 2 << 30)
    mounted.mkdir()
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], check=True)
    try:
        yield mounted
    finally:
        for _ in range(50):
            if subprocess.run(["umount", str(mounted)], check=False, capture_output=True).returncode == 0:
                break
            time.sleep(0.2)


def _program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else name


def _as_postgres(name: str, *words: str) -> None:
    subprocess.run([_program(name), *words], check=True, capture_output=True, user="postgres", cwd="/")


@contextmanager
def _postgres(mounted: Path, folder: Path) -> Iterator[None]:
    pwd.getpwnam("postgres")
    data = mounted / "data"
    data.mkdir(mode=0o700)
    shutil.chown(data, "postgres")
    shutil.chown(folder, "postgres")
    folder.chmod(0o755)
    _as_postgres("initdb", "-D", str(data), "--no-sync")
    options = [
        f"-cunix_socket_directories={folder}", f"-cport={PORT}", "-clisten_addresses=", "-cshared_buffers=16MB",
        "-cfsync=off", "-cmax_parallel_workers_per_gather=0",
    ]  # fmt: skip
    server = subprocess.Popen(
        [_program("postgres"), "-D", str(data), *options], user="postgres", cwd="/",
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        ready = [_program("pg_isready"), "-q", "-h", str(folder), "-p", str(PORT)]
        while subprocess.run(ready, check=False).returncode:
            assert server.poll() is None, "PostgreSQL has ended"
            time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait(60)


@contextmanager
def _load(logs: Path, script: Path, folder: Path, rate: int) -> Iterator[None]:
    """Run pgbench; it ends with the database. Its log reaches the file 4 KiB at a time: a hundred transactions, or a second.

    Each transaction has a connection of its own (``-C``), so that files are opened after each switch: the kernel gives a file
    the disk's read-ahead when it is opened.
    """
    words = [
        _program("pgbench"), "-n", "-C", "-c", "4", "-j", "1", "-R", str(rate), "-T", "1000000", "-l", "-f", str(script),
        "-h", str(folder), "-p", str(PORT), "postgres",
    ]  # fmt: skip
    load = subprocess.Popen(
        words, user="postgres", cwd=logs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        load.kill()
        load.wait()


@contextmanager
def _dropping(mounted: Path) -> Iterator[None]:
    """Drop the pages of the database's tables every second."""
    ended = threading.Event()

    def drop() -> None:
        while not ended.wait(1.0):
            for path in (mounted / "data" / "base").rglob("[0-9]*"):
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
def _prometheus(folder: Path) -> Iterator[None]:
    """Run Prometheus over the exporter, if it is installed."""
    program = shutil.which("prometheus")
    if program is None:
        yield
        return
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n"
        f"- {{job_name: pgbench, static_configs: [{{targets: ['127.0.0.1:{EXPORTER_PORT}']}}]}}\n"
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
