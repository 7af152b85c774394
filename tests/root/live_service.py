"""A service for the tests of live trials: reads a file from the disk again and again, and logs how long it took.

    live_service.py FILE LOG QUEUE [PORT FIRST]

Each line of the log: the time of day, the read-ahead and the queue's length that the kernel shows in the folder QUEUE, and
the milliseconds of a read of the whole file, whose pages it drops first. It is slow as long as there is a file LOG.slow, and
logs nothing as long as there is LOG.silent. With PORT it serves the number of reads as a counter, which begins at FIRST.
"""

from __future__ import annotations

import http.server
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

STARTED = time.time()


def main() -> None:
    file, log, queue = map(Path, sys.argv[1:4])
    counter = [int(sys.argv[5])] if len(sys.argv) > 5 else [0]
    if len(sys.argv) > 5:
        serve(int(sys.argv[4]), counter)
    slow, silent = log.with_suffix(".slow"), log.with_suffix(".silent")
    with log.open("ab", buffering=0) as out:
        while True:
            ahead = (queue / "read_ahead_kb").read_text().strip()
            requests = (queue / "nr_requests").read_text().strip()
            descriptor = os.open(file, os.O_RDONLY)  # read-ahead is that of the disk when a file is opened
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.monotonic()
            while os.read(descriptor, 4096):
                pass
            os.close(descriptor)
            if slow.exists():
                time.sleep(1.0)
            took_ms = 1000.0 * (time.monotonic() - began)
            counter[0] += 1
            if not silent.exists():
                line = f"{time.time():.3f} ahead {ahead} requests {requests} took {took_ms:.3f} ms\n"
                with suppress(OSError):  # its disk may be full
                    out.write(line.encode())
            time.sleep(0.02)


def serve(port: int, counter: list[int]) -> None:
    """Serve the counter in Prometheus' text format."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = (
                f"# TYPE reads_total counter\nreads_total {counter[0]}\n"
                f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {STARTED:.3f}\n"
            ).encode()
            with suppress(OSError):
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


main()
