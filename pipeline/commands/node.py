"""`pellucid node`: nodes that come, go, are drained, opened and moved while jobs run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pipeline.console import user_errors
from pipeline.remote import JSON, SERVER, TOKEN, connect, print_json

HELP = """Nodes of a running service: who they belong to, and whether jobs may start there.

For operators. What runs goes on: a node that is removed, moved or changed is drained first, and it
is done once nothing runs there. `--preview` says whose start would move, and changes nothing.

Examples:

  pellucid node list

  pellucid node drain gpu17 --reason "fan broken"

  pellucid node move gpu17 --vc vision --preview
"""
app = typer.Typer(no_args_is_help=True, add_completion=False, help=HELP)
NODE = Annotated[str, typer.Argument(metavar="NODE", help="Its name, or its number.")]
REASON = Annotated[str, typer.Option(help="Why; kept in the log, and shown with a drained node.")]
PREVIEW = Annotated[
    bool, typer.Option("--preview", help="Change nothing; say whose start would move.")
]
GPUS = Annotated[int | None, typer.Option(help="GPUs on it.", min=1, max=64)]
TYPE = Annotated[str | None, typer.Option(help="Type of its GPUs.")]
MEMORY = Annotated[float | None, typer.Option(help="Memory of one GPU, MiB.")]


@app.command("list")
def list_nodes(server: SERVER = None, token: TOKEN = None, as_json: JSON = False) -> None:
    """List every node: what it has, who is on it, and why it is drained."""
    with user_errors(), connect(server, token) as client:
        nodes = client.nodes()
    if as_json:
        print_json(nodes)
        return
    for node in nodes:
        busy = sum(bool(gpu["jobs"]) for gpu in node["gpus"])
        kind = f" {node['gpu_type']}" if node["gpu_type"] else ""
        state = "open" if node["open"] else _drained(node)
        lent = ", profiling" if node["profiling"] else ""
        has = f"{busy}/{len(node['gpus'])}{kind} busy"
        typer.echo(f"{node['name']:<16} {node['vc']:<12} {has:<18} {state}{lent}")


def _drained(node: Mapping[str, Any]) -> str:
    since = ""
    if node["since"] is not None:
        since = time.strftime(" since %F %R", time.localtime(node["since"]))
    by = f" by {node['actor']}" if node["actor"] else ""
    why = f": {node['reason']}" if node["reason"] else ""
    then = f"; {node['change']} once nothing runs there" if node["change"] else ""
    return f"drained{since}{by}{why}{then}"


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the node.")],
    vc: Annotated[str, typer.Option(help="Virtual cluster it comes to; it may be a new one.")],
    gpus: GPUS = None,
    gpu_type: TYPE = None,
    gpu_memory_mib: MEMORY = None,
    preview: PREVIEW = False,
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Add a node. What is left out is as on the other nodes of its virtual cluster.

    Example:

      pellucid node add gpu17 --vc vision --gpus 8 --gpu-type A100
    """
    has = {"gpus": gpus, "gpu_type": gpu_type, "gpu_memory_mib": gpu_memory_mib}
    with user_errors(), connect(server, token) as client:
        told(client.add_node(name, vc, preview=preview, **has), "is added", as_json)


@app.command()
def remove(
    node: NODE,
    reason: REASON = "",
    preview: PREVIEW = False,
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Remove a node: it is drained, and leaves once nothing runs there."""
    with user_errors(), connect(server, token) as client:
        answer = client.remove_node(node, reason=reason, preview=preview)
        told(answer, "leaves once nothing runs there", as_json)


@app.command()
def drain(
    node: NODE,
    reason: REASON = "",
    preview: PREVIEW = False,
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Drain a node: nothing new starts there, what runs goes on.

    Example:

      pellucid node drain gpu17 --reason "fan broken"
    """
    with user_errors(), connect(server, token) as client:
        answer = client.set_node(node, False, reason=reason, preview=preview)
        told(answer, "is drained", as_json)


@app.command("open")
def open_node(
    node: NODE,
    preview: PREVIEW = False,
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Open a drained node. A change that waits for it to be idle is called off."""
    with user_errors(), connect(server, token) as client:
        told(client.set_node(node, True, preview=preview), "is open", as_json)


@app.command()
def move(
    node: NODE,
    vc: Annotated[str, typer.Option(help="Virtual cluster it goes to; it may be a new one.")],
    reason: REASON = "",
    preview: PREVIEW = False,
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Move a node to another virtual cluster once nothing runs there."""
    with user_errors(), connect(server, token) as client:
        answer = client.change_node(node, vc=vc, reason=reason, preview=preview)
        told(answer, f"goes to {vc} once nothing runs there", as_json)


@app.command()
def retype(
    node: NODE,
    gpu_type: TYPE = None,
    gpus: GPUS = None,
    gpu_memory_mib: MEMORY = None,
    reason: REASON = "",
    preview: PREVIEW = False,
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Change what a node has, once nothing runs there: type, number, memory of its GPUs."""
    to = {"gpu_type": gpu_type, "gpus": gpus, "gpu_memory_mib": gpu_memory_mib}
    with user_errors(), connect(server, token) as client:
        answer = client.change_node(node, reason=reason, preview=preview, **to)
        told(answer, "changes once nothing runs there", as_json)


def told(answer: Mapping[str, Any], done: str, as_json: bool) -> None:
    """What came of a request, or would come of it."""
    if as_json:
        print_json(answer)
        return
    effect = answer["effect"]
    if effect is not None:
        _preview(effect)
    elif answer["changed"]:
        typer.echo(f"{answer['name'] or 'it'} {done}")
    else:
        typer.echo(f"{answer['name'] or 'it'}: nothing to do, it is so already")
    if answer["never"]:
        can = "could" if effect is not None else "can"
        typer.echo(
            f"These jobs {can} not start any more, their virtual cluster being too small: "
            + ", ".join(answer["never"])
        )


def _preview(effect: Mapping[str, Any]) -> None:
    from scheduler.explain.words import duration

    if effect["why_not"]:
        typer.echo(f"Nothing is changed. No preview: {effect['why_not']}")
        return
    typer.echo(
        f"Nothing is changed. Of {effect['waiting']} waiting jobs, {effect['examined']} looked at "
        f"in {effect['futures']} futures:"
    )
    for job_id, by_s in sorted(effect["moved"].items(), key=lambda item: item[1]):
        typer.echo(f"  {job_id} {duration(abs(by_s))} {'later' if by_s > 0 else 'earlier'}")
    if not effect["moved"]:
        typer.echo("  nobody starts a minute or more earlier or later")
