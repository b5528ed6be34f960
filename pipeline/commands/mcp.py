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
        min=0.1,
        max=3600.0,
        metavar="SECONDS",
        help="Longest wait for each answer of Slurm, seconds.",
    ),
]


def mcp(patience: PATIENCE = 10.0) -> None:
    """Answer an AI agent's questions about your site's Slurm, over standard input and output (MCP,
    the Model Context Protocol).

    The agent can ask why a job waits, when one would start, what would let it start sooner, and
    for the order of the queue. It sees what you may see, and changes nothing: a command that
    would help is shown to the agent, not run. No service is needed. The agent starts this command
    itself, if its configuration has
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
