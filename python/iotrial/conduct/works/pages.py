"""Pages requested from a web server by the probe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iotrial.conduct.works.contract import Asked, Measured, WorkDriver
from iotrial.study.kinds.pages import listed
from iotrial.study.model import PagesWork
from iotrial.study.web import address
from iotrial.units import format_duration

#: its name among the checks of a stored run
PAGES = "pages"


class Pages(WorkDriver[PagesWork]):
    """Workload kind ``pages``."""

    verb = "pages"
    work = PagesWork
    of_client = True

    def fields(self, work: PagesWork, asked: Asked) -> dict[str, object]:
        url = dict(work.servers)[work.server]
        where = address(url)
        return {
            "address": where.wire,
            "host": work.host or where.wire,
            "pages": list(listed(work)),
            "delay_s": work.delay_s,
            "clients": work.clients,
            "warmup": work.warmup,
            "keep_alive": work.keep_alive,
            "timeout_s": work.timeout_s,
            "expect_status": work.expect_status,
            "redirects": work.redirects,
            "ignore": list(work.ignore),
            "anywhere": not where.own,
            "histograms": True,
        }

    def measured(self, work: PagesWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        response, pages, server = answer["operations"]["response"], answer["pages"], answer["server"]
        spun_ns = 0 if asked.stretched == "response_time" else answer["spun"]["wall_ns"]
        numbers = {
            "response_time": (response["total_ns"] - spun_ns) / 1e9,
            "response_p50": response["p50_ns"] / 1e9,
            "response_p99": response["p99_ns"] / 1e9,
            "responses": float(sum(pages["count"])),
            "body_bytes": float(sum(pages["bytes"])),
            "connections": float(answer["connections"]),
            "redirects": float(answer["redirects"]),
        }
        if server is not None:
            numbers["server_cpu"] = server["cpu_ns"] / 1e9
            numbers["server_processes"] = float(server["processes"])
            if server["memory_bytes"] is not None:
                numbers["server_memory"] = float(server["memory_bytes"])
        if answer["failed"]:
            numbers["failed_responses"] = float(answer["failed"])
        each = [
            None if not count else round(total / count)
            for total, count in zip(pages["total_ns"], pages["count"], strict=True)
        ]
        told = {"response_ns": each, "body": pages["body"], "varied": pages["varied"]}
        return Measured(numbers, {"response": response["histogram"]}, checks={PAGES: told})

    def reads_bytes(self, work: PagesWork, size: int, files: int) -> int:
        return 0

    def summary(self, work: PagesWork) -> str:
        words = [f"{len(listed(work))} pages of the server {work.server}"]
        words += [f"{work.clients} clients at once"] if work.clients > 1 else []
        words += [f"{format_duration(work.delay_s)} between requests"] if work.delay_s else []
        words += [] if work.keep_alive else ["a connection each"]
        words += [f"after {work.warmup} untimed passes"] if work.warmup else []
        return ", ".join(words)

    def writes(self, work: PagesWork) -> bool:
        return False

    def on_files(self, work: PagesWork) -> bool:
        return False


DRIVER = Pages()
