"""docs/messages.txt lists what iotrial can print, and none of it is mannered."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = runpy.run_path(str(ROOT / "scripts" / "messages"))["messages"]()


def test_the_list_of_messages_is_up_to_date() -> None:
    assert (ROOT / "docs" / "messages.txt").read_text() == MESSAGES, "run `make messages`"


def test_the_list_holds_errors_hints_help_and_captions() -> None:
    lines = MESSAGES.splitlines()
    assert 'errors: knob {knob} on {target}: wrote "{wrote}", kernel reports "{found}"' in lines
    assert "cli/open_store: start with `iotrial run files/permissions`" in lines  # a hint
    assert any(line.startswith("cli/verbs/plan: Show the design, the order of runs") for line in lines)
    assert any(line.startswith("web/templates/list.html.j2: ") for line in lines)
    assert not any("SELECT value" in line or "INSERT INTO" in line for line in lines)
    # a docstring of a function that is not a command
    assert not any("Return the minimum of blocks for each response" in line for line in lines)


@pytest.mark.parametrize(
    "banned",
    [
        "anew",
        "whoever",
        "whatever had been",
        "so many",
        "so long",
        "for want of",
        "asked for",
        "is told",
        "below 1 is",
        "at most so",
        "no other is",
        "put on trial",
        "it is open",
    ],
)
def test_no_message_has_a_mannered_phrase(banned: str) -> None:
    found = [line for line in MESSAGES.splitlines() if re.search(rf"\b{banned}\b", line, re.IGNORECASE)]
    assert not found, "\n".join(found)
