"""``iotrial mcp``: a referee for agents, by the Model Context Protocol on standard input and output."""

from __future__ import annotations

from pathlib import Path

import click

from iotrial.cli.agent_policy import Policy, read_policy
from iotrial.errors import MissingTool


@click.command("mcp")
@click.option(
    "--policy",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="What an agent may do (TOML); without it, only look.",
)
def command(policy: Path | None) -> None:
    """Let an agent try settings, within a policy.

    An agent's program starts this command and talks to it by the Model Context Protocol. All that the agent does is a trial
    on record, and counts in the account of errors. It never answers a question: the policy is the consent.
    """
    allowed = Policy() if policy is None else read_policy(policy)
    try:
        from iotrial.cli.agent_server import serve
    except ModuleNotFoundError as error:
        raise MissingTool.extra("mcp", str(error.name), "mcp") from error
    serve(allowed, acting=policy is not None)
