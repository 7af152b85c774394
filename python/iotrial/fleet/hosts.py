"""Which transport reaches the hosts of a fleet: each has a place in ``hosts_of``, and words that a resumed fleet finds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from iotrial.errors import RequestError
from iotrial.fleet.link import Hosts

SCHEDULER, KEYS = "scheduler", "keys"


def reached_by_scheduler(address: str, keys: str | None) -> dict[str, str]:
    """The words for ``hosts_of``, of hosts that report at a scheduler. RequestError where one is wrong."""
    from iotrial.fleet.engine import address_of

    if not keys:
        raise RequestError(
            "--fleet needs --keys", hint="the folder with ca.pem, client.pem and client-key.pem"
        )
    return {SCHEDULER: address_of(address, "--fleet"), KEYS: str(Path(keys).expanduser().absolute())}


def hosts_of(reached: Mapping[str, str]) -> Hosts:
    """The hosts that these words mean. Raises Lost, RequestError."""
    if SCHEDULER in reached:
        from iotrial.fleet.dask_link import DaskHosts

        return DaskHosts(reached[SCHEDULER], Path(reached[KEYS]))
    raise RequestError(f"no hosts are reached by {', '.join(map(str, reached)) or 'nothing'}")
