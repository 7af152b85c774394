"""Questions to an agent and its answers as text, whatever carries them: Dask's messages, or lines over SSH."""

from __future__ import annotations

import json
from contextlib import suppress

from iotrial.errors import IotrialError, RequestError
from iotrial.fleet.agent import Agent
from iotrial.fleet.link import MAX_BATCH, position_of
from iotrial.fleet.order import Order
from iotrial.fleet.values import FLEET_ID, Distrusted, Fields, parsed
from iotrial.store.gathered import Position

MAX_ASKED = 4 << 20
DONE = "{}"


def asking_after(fleet: str, position: Position) -> str:
    """The text of the question ``after``."""
    return json.dumps({"fleet": fleet, "position": [position.states, position.blocks, position.events]})


def asking_to_stop(fleet: str) -> str:
    """The text of the question ``stop``."""
    return json.dumps({"fleet": fleet})


def answered(agent: Agent, ask: str, text: str) -> str:
    """One question to an agent: ``facts``, ``begin``, ``after`` or ``stop``, and its answer, both as JSON text."""
    try:
        if ask == "facts":
            return agent.facts().to_json()
        if ask == "begin":
            agent.begin(Order.from_json(text))
            return DONE
        table = Fields(parsed(text, longest=MAX_ASKED, what="a question"), "a question")
        fleet = table.matching("fleet", FLEET_ID)
        if ask == "after":
            return agent.after(fleet, position_of(table.list("position", 3))).to_json()
        if ask == "stop":
            agent.stop(fleet)
            return DONE
        raise RequestError(f"no question is called {str(ask)[:40]!r}")
    except IotrialError as error:
        return json.dumps({"error": {"code": error.code, "message": error.message, "hint": error.hint}})


def refused(host: str, answer: object) -> str:
    """The answer of a host, as text; IotrialError with what the host says where that is an error, Distrusted for no text."""
    if not isinstance(answer, str) or len(answer) > MAX_BATCH:
        raise Distrusted(f"host {host}: an answer that is no text, or too long")
    if answer.startswith('{"error"'):
        with suppress(ValueError, KeyError, TypeError):
            error = json.loads(answer)["error"]
            raise IotrialError(f"host {host}: {str(error['message'])[:2000]}")
        raise Distrusted(f"host {host}: an answer that cannot be read")
    return answer
