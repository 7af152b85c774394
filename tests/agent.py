"""A client of ``iotrial mcp`` over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters


def used(
    tmp_path: Path,
    calls: Callable[[Client], Awaitable[None]],
    policy: str | None,
    environment: Mapping[str, str],
) -> None:
    """Start the server with a store of its own, and let a client make calls. ``{folder}`` in the policy: tmp_path/work."""
    words = []
    (tmp_path / "work").mkdir(exist_ok=True)
    if policy is not None:
        path = tmp_path / "policy.toml"
        path.write_text(policy.format(folder=tmp_path / "work"))
        words = ["--policy", str(path)]
    env = {**os.environ, "IOTRIAL_STORE": str(tmp_path / "trials.db"), **environment}
    server = StdioServerParameters(command=sys.executable, args=["-m", "iotrial", "mcp", *words], env=env)

    async def session() -> None:
        async with Client(server) as client:
            await calls(client)

    asyncio.run(session())


async def done(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    found: dict[str, Any] = result.structured_content
    return found


async def refused(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that fails; return the error in its JSON."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    text = result.content[0].text
    error: dict[str, Any] = json.loads(text[text.index("{") :])["error"]
    return error
