"""`pellucid mcp`: answers questions of AI agents about a site's Slurm (Model Context Protocol)."""

from __future__ import annotations

import os
import pwd
import time
from typing import Annotated

import typer

PATIENCE = Annotated[
    float,
    typer.Option(
        min=0.1, max=3600.0, metavar="SECONDS", help="Seconds to wait for each answer of Slurm."
    ),
]


def mcp(patience: PATIENCE = 10.0) -> None:
    """Let an agent ask why, eta, sooner, order and queue of your site's Slurm (MCP, over stdio).

    It has your own rights, needs no service and only reads: a command that would change something
    is shown to the agent, not run. Every number is a field of the answer, and every field says
    where it comes from. The agent starts this command itself; in its configuration:
    {"mcpServers": {"pellucid": {"command": "pellucid", "args": ["mcp"]}}}.

    Example:

      pellucid mcp --patience 30
    """
    from pipeline.agents import Looks, server
    from scheduler.service.logs import configure
    from scheduler.slurm.look import Direct
    from scheduler.slurm.read.client import Slurm

    configure("warning")
    user = pwd.getpwuid(os.getuid()).pw_name
    server(Looks(lambda: Direct(Slurm(patience_s=patience), user), time.time)).run("stdio")
