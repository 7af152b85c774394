"""Pages requested from a web server by the probe, or loaded by browsers; the server may be one that the study starts."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from typing import Any

from iotrial.conduct import own_site
from iotrial.conduct.own_site import LOOPBACK
from iotrial.conduct.works.contract import PATH, Asked, Launched, Measured, Situation, WorkDriver
from iotrial.lab.server import Server
from iotrial.store.checks import PAGES
from iotrial.study.kinds.pages import listed
from iotrial.study.model import PagesWork
from iotrial.study.web import Address, address
from iotrial.units import format_duration

#: its name among the checks of a stored run


class Pages(WorkDriver[PagesWork]):
    """Workload kind ``pages``."""

    verb = "pages"
    work = PagesWork
    of_client = True
    starts_programs = True

    def fields(self, work: PagesWork, asked: Asked) -> dict[str, object]:
        at = asked.at
        assert at is not None
        own = Address(LOOPBACK, at.port, own=True)
        where = own if work.serve else address(dict(work.servers)[work.server])
        browser = {"browser": _chromium(), "profile": f"{at.own}/browser", "user": at.user}
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
            # a request has no user; a browser has one
            **(browser if work.browser else {"user": None}),
        }

    def never_root(self, work: PagesWork) -> bool:
        return bool(work.serve) or work.browser

    def provide(self, work: PagesWork, at: Situation) -> None:
        if not (work.serve or work.browser):
            return
        at.target.call("mkdir", path=at.own, mode="0755")
        if not work.serve:
            return
        own_site.make(work, at)

    def server(self, work: PagesWork, at: Situation) -> Server | None:
        return own_site.server(work, at)

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
        if "resources" in answer:
            numbers["page_resources"] = float(answer["resources"])
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
        words = [
            f"{len(listed(work))} pages of "
            + ("a server of its own" if work.serve else f"the server {work.server}")
        ]
        words += ["by real browsers"] if work.browser else []
        words += [f"{work.clients} clients at once"] if work.clients > 1 else []
        words += [f"{format_duration(work.delay_s)} between requests"] if work.delay_s else []
        words += [] if work.keep_alive else ["a connection each"]
        words += [f"after {work.warmup} untimed passes"] if work.warmup else []
        return ", ".join(words)

    def writes(self, work: PagesWork) -> bool:
        return False

    def on_files(self, work: PagesWork) -> bool:
        return False

    def programs(self, work: PagesWork) -> Mapping[str, str]:
        return {"chromium": "chromium"} if work.browser else {}

    def optional_programs(self, work: PagesWork) -> Mapping[str, str]:
        return self.programs(work)

    def named_programs(self, work: PagesWork) -> tuple[str, ...]:
        return tuple(dict.fromkeys(argv[0] for argv in (work.serve, work.make) if argv))

    def launched(self, work: PagesWork) -> Launched:
        asked = () if work.serve else tuple(f"requests pages from {url}" for _, url in work.servers)
        variables = tuple(f"with {name}={value}" for name, value in work.serve_environment)
        commands = tuple(shlex.join(argv) for argv in (work.serve, work.make) if argv)
        return Launched(commands, (*asked, *variables), work.make_input)

    def as_root(self, work: PagesWork) -> bool:
        return False


def _chromium() -> str:
    return shutil.which("chromium", path=PATH) or "/usr/bin/chromium"


DRIVER = Pages()
