"""Processor time that the metrics of a live trial take, each in a process of its own: `python benchmarks/metric_cost.py`.

As a trial does, each source is read in windows of 10 s and looked at by the guard every second. The time is that of the
process and of what it has started (commands, the probe), in percent of one processor. An endpoint with 2,000 lines, and
Prometheus if it is installed, run beside it; their own time does not count. As root also the latencies by BPF.
"""

from __future__ import annotations

import argparse
import http.server
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iotrial.live.sources import source_of

WINDOW_S = 10.0


def cost(text: str, seconds: float) -> list[float]:
    """Return the processor time of each window, in percent of one processor."""
    source = source_of(text)
    source.start()
    found = []
    for _ in range(round(seconds / WINDOW_S)):
        before, began = _spent_s(), time.monotonic()
        source.begin()
        while time.monotonic() < began + WINDOW_S:
            time.sleep(1.0)
            source.current()
        source.end()
        found.append(100.0 * (_spent_s() - before) / (time.monotonic() - began))
    source.stop()
    return found


def _spent_s() -> float:
    """Return the processor time of this process, its ended children, and those that run."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(one.ru_utime + one.ru_stime for one in own)
    waiting = [os.getpid()]
    while waiting:
        for child in _children(waiting.pop()):
            with suppress(OSError):  # it has just ended
                fields = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                waiting.append(child)
    return total


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(word) for task in tasks for word in task.read_text().split()]
    return []


class _Page(http.server.BaseHTTPRequestHandler):
    """2,000 series, one of which is read."""

    count = 0

    def do_GET(self) -> None:
        _Page.count += 1
        other = "".join(f'other_total{{label="{n}"}} {n}\n' for n in range(1980))
        buckets = "".join(f'd_seconds_bucket{{le="{n / 10}"}} {n * _Page.count}\n' for n in range(1, 17))
        end = f'd_seconds_bucket{{le="+Inf"}} {20 * _Page.count}\nd_seconds_sum 1\nd_seconds_count {20 * _Page.count}\n'
        body = f"# TYPE other_total counter\n{other}# TYPE d_seconds histogram\n{buckets}{end}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def prometheus(port: int) -> Iterator[str | None]:
    """Run Prometheus, which scrapes the endpoint; None if it is not installed."""
    program = shutil.which("prometheus")
    if program is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        own = free.getsockname()[1]
        free.close()
        config = Path(folder) / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\n"
            f'scrape_configs: [{{job_name: x, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]\n'
        )
        arguments = [
            f"--config.file={config}",
            f"--storage.tsdb.path={folder}/d",
            f"--web.listen-address=127.0.0.1:{own}",
        ]
        server = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(8.0)
        yield f"http://127.0.0.1:{own}"
        server.terminate()
        server.wait()


def main() -> None:
    """Print a table, or with ``--one`` the numbers of one source."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="for each source")
    parser.add_argument("--device", default="vda")
    parser.add_argument("--one", help="a source, as for --metric")
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(*cost(arguments.one, arguments.seconds))
        return
    endpoint = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    port = endpoint.server_port
    with prometheus(port) as url, tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        threading.Thread(target=_write, args=(log,), daemon=True).start()
        sources = [
            "cpu",
            "psi:io",
            f"device:{arguments.device}:latency",
            f"device:{arguments.device}:latency-p99",
        ]
        sources += [f"openmetrics:http://127.0.0.1:{port}/metrics#d_seconds:p99", "command:echo 1"]
        sources += [f"log:{log}:took ([0-9.]+) ms:p99"]
        sources += [f"promql:rate(d_seconds_count[$window])@{url}"] if url else []
        print("| source | % of a processor: mean [least, most] | windows |\n| --- | --- | --- |")
        for text in sources:
            command = [sys.executable, __file__, "--seconds", str(arguments.seconds), "--one", text]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"| `{text}` | {done.stderr.strip().splitlines()[-1]} | |")
                continue
            found = [float(word) for word in done.stdout.split()]
            name = (
                text.replace(str(log), "FILE").replace(f"127.0.0.1:{port}", "HOST").replace(url or "-", "URL")
            )
            print(
                f"| `{name}` | {statistics.fmean(found):.2f} [{min(found):.2f}, {max(found):.2f}] | {len(found)} |",
                flush=True,
            )


def _write(log: Path) -> None:
    """Write 1,000 lines a second."""
    with log.open("a", buffering=1) as file:
        while True:
            for number in range(100):
                print(f"request {number} took {number / 7:.3f} ms", file=file)
            time.sleep(0.1)


if __name__ == "__main__":
    main()
