"""`pellucid node`: adds, removes, drains, opens and moves nodes while jobs run."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from features.codec import decode
from pipeline.options import spread
from pipeline.remote import Change, Preview, Service, change, print_json
from scheduler.service.log.store.rows import Node

HELP = """Change the nodes of a running service: which there are, which virtual cluster (queue) they
serve, and whether jobs may start there. For operators.

Running jobs are never stopped: a node that is removed, moved or changed first takes no new jobs,
and the change is made once nothing runs there.

Examples:

  pellucid node list

  pellucid node drain gpu17 --reason "fan broken"

  pellucid node move gpu17 --vc vision --preview
"""
app = typer.Typer(no_args_is_help=True, add_completion=False, help=HELP)
NODE = Annotated[
    str, typer.Argument(metavar="NODE", help="Name of the node, or its number (from 0).")
]
NODES = Annotated[
    list[str],
    typer.Argument(metavar="NODE...", help="Names of the nodes, or their numbers (from 0)."),
]
GPUS = Annotated[int | None, typer.Option(help="Number of GPUs of the node.", min=1, max=64)]
TYPE = Annotated[str | None, typer.Option(help="Type of the node's GPUs, such as A100.")]
MEMORY = Annotated[float | None, typer.Option(help="Memory of each GPU, MiB.")]

NEW_VC = Annotated[
    bool, typer.Option("--new-vc", help="Create the virtual cluster of --vc if there is none.")
]


@app.command("list")
@spread
def list_nodes(service: Service) -> None:
    """List all nodes: virtual cluster, GPUs, how many of them are busy, and why a node or a GPU
    takes no jobs.
    """
    with service.client() as client:
        nodes = client.nodes()
    if service.as_json:
        print_json(nodes)
        return
    for node in decode(list[Node], nodes):
        busy = sum(bool(gpu.jobs) for gpu in node.gpus)
        kind = f" {node.gpu_type}" if node.gpu_type else ""
        state = "open" if node.open else _drained(node)
        state = "; ".join(filter(None, (state, node.answers(time.time()))))
        lent = ", profiling" if node.profiling else ""
        has = f"{busy}/{len(node.gpus)}{kind} busy"
        typer.echo(f"{node.name:<16} {node.vc:<12} {has:<18} {state}{lent}")


def _drained(node: Node) -> str:
    since = ""
    if node.since is not None:
        since = time.strftime(" (since %F %R)", time.localtime(node.since))
    return node.drained + since


@app.command()
@spread
def add(
    name: Annotated[str, typer.Argument(help="Name of the node.")],
    vc: Annotated[str, typer.Option(help="Virtual cluster (queue) to which the node is added.")],
    asked: Preview,
    new_vc: NEW_VC = False,
    gpus: GPUS = None,
    gpu_type: TYPE = None,
    gpu_memory_mib: MEMORY = None,
) -> None:
    """Add a node. Options that are left out are as on the other nodes of its virtual cluster.

    Example:

      pellucid node add gpu17 --vc vision --gpus 8 --gpu-type A100
    """
    has = {"gpus": gpus, "gpu_type": gpu_type, "gpu_memory_mib": gpu_memory_mib}
    change(
        asked,
        "is added",
        lambda client: client.add_node(name, vc, new_vc=new_vc, preview=asked.preview, **has),
    )


@app.command()
@spread
def remove(node: NODE, asked: Change) -> None:
    """Remove a node: no job starts there any more, and it is removed once nothing runs there."""
    change(
        asked,
        "leaves once nothing runs there",
        lambda client: client.remove_node(node, **asked.how()),
    )


@app.command()
@spread
def drain(nodes: NODES, asked: Change) -> None:
    """Drain nodes: no job starts there any more, but running jobs go on. `pellucid node list` shows
    the --reason.

    Example:

      pellucid node drain gpu17 gpu18 --reason "fans replaced tonight"

      echo 'pellucid node drain gpu17 gpu18 --reason fans' | at 22:00
    """
    done = "is drained" if len(nodes) == 1 else "are drained"
    names = ",".join(nodes)
    change(asked, done, lambda client: client.set_node(names, False, **asked.how()))


@app.command("open")
@spread
def open_node(nodes: NODES, asked: Preview) -> None:
    """Open drained nodes, so that jobs may start there again. A removal, move or change that still
    waits for such a node to be idle is cancelled.
    """
    done = "is open" if len(nodes) == 1 else "are open"
    names = ",".join(nodes)
    change(asked, done, lambda client: client.set_node(names, True, preview=asked.preview))


@app.command()
@spread
def move(
    node: NODE,
    vc: Annotated[str, typer.Option(help="Virtual cluster (queue) to which the node is moved.")],
    asked: Change,
    new_vc: NEW_VC = False,
) -> None:
    """Move a node to another virtual cluster, once nothing runs on the node. Until then, no new job
    starts there.
    """
    change(
        asked,
        f"goes to {vc} once nothing runs there",
        lambda client: client.change_node(node, vc=vc, new_vc=new_vc, **asked.how()),
    )


@app.command()
@spread
def retype(
    node: NODE,
    asked: Change,
    gpu_type: TYPE = None,
    gpus: GPUS = None,
    gpu_memory_mib: MEMORY = None,
) -> None:
    """Change the recorded type, number or memory of a node's GPUs, once nothing runs there. Until
    then, no new job starts there.
    """
    to = {"gpu_type": gpu_type, "gpus": gpus, "gpu_memory_mib": gpu_memory_mib}
    change(
        asked,
        "changes once nothing runs there",
        lambda client: client.change_node(node, **asked.how(), **to),
    )
