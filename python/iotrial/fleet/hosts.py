"""The hosts of a fleet as the coordinator reaches them: workers that have joined a Dask scheduler.

A trial is a Dask task that takes the host's only lab. All other requests are messages that the scheduler
passes on to the worker, with text answers.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from iotrial.errors import IotrialError, RequestError
from iotrial.fleet.agent import after_request, refused, stop_request
from iotrial.fleet.batch import Batch, HostFacts, Lost, Position, Stage
from iotrial.fleet.engine import CONNECT_S, HANDLER, LAB, address_of, conduct, configured, greet, security
from iotrial.fleet.keys import Keys, Part
from iotrial.fleet.order import HOST_NAME, Order

#: keys in a fleet's record that say how its hosts are reached
SCHEDULER, KEYS = "scheduler", "keys"
HOSTS, SSH_CONFIG = "hosts", "ssh_config"

ANSWER_S = 20.0
MOST_HOSTS = 10_000


def reached_by_scheduler(address: str, keys: str | None) -> dict[str, str]:
    """Return the record entries for hosts that join a scheduler. Raises RequestError if one is invalid."""
    if not keys:
        raise RequestError(
            "--fleet needs --keys", hint="the folder with ca.pem, client.pem and client-key.pem"
        )
    return {SCHEDULER: address_of(address, "--fleet"), KEYS: str(Path(keys).expanduser().absolute())}


class DaskHosts:
    """The workers of a scheduler, each a host."""

    def __init__(self, address: str, keys: Keys) -> None:
        """Connect to a scheduler. Raises Lost if none answers there, or it rejects these keys."""
        self._address = address
        self._secured = security(keys)
        self._links: dict[str, DaskLink] = {}
        self.client = self._connected(CONNECT_S)

    def _connected(self, within_s: float) -> Any:
        greet(self._address, self._secured, Part.CLIENT, within_s)
        try:
            return configured().Client(
                self._address, security=self._secured, timeout=CONNECT_S, set_as_default=False, name="iotrial"
            )
        except (OSError, TimeoutError, RuntimeError, ValueError) as error:
            raise Lost(
                f"no scheduler of this fleet at {self._address}: {' '.join(str(error).split())[:200]}",
                hint="check that `iotrial fleet scheduler` runs there, with keys of the same set",
            ) from error

    def present(self) -> tuple[DaskLink, ...]:
        """Return the hosts that have joined, including those that have left.

        If the scheduler does not answer, nothing changes. Dask's client gives up after a while and is then
        recreated.
        """
        with suppress(Exception):
            if self.client.status in ("closed", "closing"):
                self.client = self._connected(0.0)
            found = self.client.sync(self.client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER_S)[
                "workers"
            ]
            here: dict[str, str] = {}
            for address, worker in found.items():
                name = worker.get("name")
                if isinstance(name, str) and self.is_of(name, str(address)) and len(here) < MOST_HOSTS:
                    here[name] = str(address)
            for name, address in here.items():
                if name not in self._links:
                    self._links[name] = DaskLink(name, self)
                self._links[name].address = address
            for name, link in self._links.items():
                if name not in here:
                    link.address = None
        return tuple(self._links.values())

    def is_of(self, name: str, address: str) -> bool:
        """Return whether the worker with this name and address is a host of the fleet."""
        return HOST_NAME.fullmatch(name) is not None

    def absent(self, name: str) -> IotrialError:
        """Return an error saying why a host has no worker."""
        return Lost(f"host {name} is not connected")

    def close(self) -> None:
        """Disconnect. Dask drops the tasks that run trials, and the hosts' grace period starts."""
        with suppress(Exception):
            self.client.close(timeout=5)


class DaskLink:
    """One worker, identified by its name: it may come back at another address."""

    def __init__(self, name: str, hosts: DaskHosts) -> None:
        self.name = name
        self.address: str | None = None
        self._hosts = hosts
        self._task: Any = None
        self._refusal_text = ""
        self._begun_at: str | None = None

    def facts(self) -> HostFacts:
        return HostFacts.from_json(self._ask("facts", "{}"))

    def begin(self, order: Order) -> None:
        """Submit the trial to Dask, which starts it as soon as the host's lab is free."""
        if self.address is None:
            raise self._hosts.absent(self.name)
        self._give_up()
        self._refusal_text, self._begun_at = "", self.address
        try:
            self._task = self._hosts.client.submit(
                conduct,
                order.to_json(),
                key=f"iotrial-{self.name}-{uuid.uuid4().hex}",
                workers=[self.address],
                allow_other_workers=False,
                resources={LAB: 1},
                pure=False,
                retries=0,
            )
        except Exception as error:
            raise Lost(f"host {self.name}: {' '.join(str(error).split())[:200]}") from error

    def after(self, fleet: str, position: Position) -> Batch:
        text = self._ask("after", after_request(fleet, position))
        batch = Batch.from_json(text)
        if batch.stage is Stage.GOING:
            return batch
        if self._waits():  # for the host's lab, or for the preparations before the program starts
            return replace(batch, stage=Stage.GOING, problem="")
        refusal = self._refusal()
        return replace(batch, stage=Stage.ENDED, problem=refusal) if refusal else batch

    def stop(self, fleet: str) -> None:
        self._give_up()
        self._ask("stop", stop_request(fleet))

    def close(self) -> None:
        self._give_up()

    def _waits(self) -> bool:
        """Return whether Dask still has the task, at the worker it was submitted for."""
        return self._task is not None and self._begun_at == self.address and not self._task.done()

    def _refusal(self) -> str:
        """Return the host's reason for refusing to start, if it gave one."""
        task = self._task
        if task is None or not task.done():
            return self._refusal_text
        with suppress(Exception):
            found = task.result(timeout=ANSWER_S) if task.status == "finished" else ""
            if isinstance(found, str) and len(found) < 100_000 and found not in ("", "{}"):
                error = json.loads(found)["error"]
                self._refusal_text = f"{error['message']}"[:2000]
        return self._refusal_text

    def _give_up(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            with suppress(Exception):
                task.release()

    def _ask(self, ask: str, text: str) -> str:
        if self.address is None:
            raise self._hosts.absent(self.name)
        message = {"op": HANDLER, "ask": ask, "text": text}
        client = self._hosts.client
        try:
            answer = client.sync(
                client.scheduler.proxy, msg=message, worker=self.address, callback_timeout=ANSWER_S
            )
        except Exception as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise Lost(f"host {self.name} does not answer: {reason}") from error
        return refused(self.name, answer)
