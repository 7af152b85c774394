"""The engine: Dask's own scheduler and worker, with keys, without anything that a fleet does not need.

One worker a host, with one thread and one ``lab``: a task that conducts a trial needs it, so that never two trials share a
machine. What is asked beside a trial goes to a handler of the worker, by messages. The engine's statistics, its page and the
ways to have a function run that no fleet needs are switched off: a host that measures should do nothing else.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
from pathlib import Path
from typing import Any

from iotrial.errors import MissingTool, RequestError
from iotrial.fleet.agent import Agent
from iotrial.fleet.asking import DONE, answered
from iotrial.fleet.keys import INSTALL, Part, key_files
from iotrial.fleet.link import Lost
from iotrial.fleet.order import Order
from iotrial.fleet.values import HOST_NAME, MAX_NAME

LAB = "lab"
HANDLER = "iotrial"
AGENT = "iotrial_agent"
DEFAULT_PORT = 8786
CONNECT_S = 20.0

_ADDRESS = re.compile(r"(?:tls://)?(\[[0-9A-Fa-f:.%a-z]+\]|[^\s:/\[\]]+)(?::([0-9]{1,5}))?")
_QUIET: dict[str, object] = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "60s",
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.diagnostics.nvml": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.comm.timeouts.connect": "10s",
    "distributed.comm.timeouts.tcp": "15s",
    "distributed.scheduler.blocked-handlers": [
        "run_function", "register_scheduler_plugin", "unregister_scheduler_plugin", "register_worker_plugin",
        "unregister_worker_plugin", "register_nanny_plugin", "unregister_nanny_plugin", "update_data", "scatter",
        "benchmark_hardware", "dump_cluster_state_to_url", "restart", "restart_workers", "terminate",
    ],
    "distributed.worker.blocked-handlers": [
        "run", "run_coroutine", "upload_file", "actor_execute", "actor_attribute", "plugin-add", "plugin-remove",
        "update_data", "benchmark_disk", "benchmark_memory", "benchmark_network",
    ],
}  # fmt: skip


def address_of(text: str, option: str) -> str:
    """``tls://HOST:PORT`` of what a user wrote. RequestError where it names no host, or another protocol."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2] or DEFAULT_PORT) > 65_535:
        raise RequestError(
            f'{option} "{text[:80]}": wanted tls://HOST:PORT',
            hint="such as tls://192.168.1.10:8786; without keys nothing is answered, so that there is no other protocol",
        )
    return f"tls://{found[1]}:{found[2] or DEFAULT_PORT}"


def security(folder: Path, part: Part) -> Any:
    """The engine's own description of who may speak to whom: TLS 1.3, both sides with a certificate of this authority."""
    authority, certificate, key = map(str, key_files(folder, part))
    engine = configured()
    named = {
        f"tls_{role}_{what}": value for role in Part for what, value in (("cert", certificate), ("key", key))
    }
    return engine.Security(
        require_encryption=True, tls_ca_file=authority, tls_min_version=ssl.TLSVersion.TLSv1_3, **named
    )


def configured() -> Any:
    """The engine, told what it does in this process. MissingTool where it is not installed."""
    try:
        import dask
        import distributed
    except ImportError as error:
        raise MissingTool("a fleet needs the library distributed", hint=INSTALL) from error
    dask.config.set(_QUIET)
    for name in ("distributed", "distributed.worker", "distributed.scheduler", "distributed.core", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return distributed


def greet(address: str, secured: Any, part: Part) -> None:
    """Shakes hands once and hangs up: the engine would try for long, and say little of why. Raises Lost."""
    host, _, port = address.removeprefix("tls://").rpartition(":")
    context = secured.get_connection_args(part.value)["ssl_context"]
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S) as plain,
            context.wrap_socket(plain),
        ):
            return
    except ssl.SSLError as error:
        raise Lost(
            f"no scheduler of this fleet at {address}: {error.reason or error}",
            hint="whoever answers there has keys of another set, or expired ones",
        ) from error
    except OSError as error:
        raise Lost(
            f"no scheduler of this fleet at {address}: {error.strerror or error}",
            hint="look whether `iotrial fleet scheduler` runs there, and whether it can be reached from here",
        ) from error


def conduct(order: str) -> str:
    """The one task that a fleet gives to the engine: it holds the host's lab for as long as the trial goes on."""
    engine = configured()
    worker = engine.get_worker()
    agent: Agent = getattr(worker, AGENT)
    told = answered(agent, "begin", order)
    if told == DONE:
        fleet = Order.from_json(order).fleet
        while worker.status is engine.Status.running and not agent.wait(fleet, 0.5):
            pass
    return told


def host_name(given: str | None) -> str:
    """The name of this host in a fleet: as given, else the machine's. RequestError for one that is none."""
    import platform

    name = platform.node()[:MAX_NAME] if given is None else given
    if not HOST_NAME.fullmatch(name):
        raise RequestError(
            f'"{name[:80]}" is no name for a host: letters, digits, dots, hyphens and underscores, at most {MAX_NAME}',
            hint="--name gives another",
        )
    return name
