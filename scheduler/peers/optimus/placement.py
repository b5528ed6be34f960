"""Where the tasks of a parameter-server job go: the placement of Optimus (EuroSys'18).

Its theorem: on the fewest servers that hold the job, as many workers on each as on any other, and
as many parameter servers. Then least is sent between machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PsTasks:
    """What a job asks to be placed.

    Attributes:
        workers, servers: numbers of tasks.
        worker, server: what one of each takes, by resource.
    """

    workers: int
    servers: int
    worker: tuple[float, ...]
    server: tuple[float, ...]


Layout = dict[int, tuple[int, int]]  # node -> (workers, servers)


def traffic(layout: Sequence[tuple[int, int]]) -> float:
    """What the busiest machine sends, in models per step.

    Args:
        layout: (workers, servers) on each machine.

    A worker exchanges 1/p of the model with every server that is elsewhere, a server with every
    worker that is elsewhere.
    """
    workers, servers = sum(w for w, _ in layout), sum(p for _, p in layout)
    busiest = max(w * (servers - p) + p * (workers - w) for w, p in layout)
    return busiest / servers


def spread(count: int, over: int) -> list[int]:
    """`count` tasks over so many machines, as evenly as can be, the first ones getting more."""
    return [count // over + (i < count % over) for i in range(over)]


def place(jobs: Mapping[str, PsTasks], free: Sequence[Sequence[float]]) -> dict[str, Layout]:
    """Place jobs, the fewest tasks first.

    Args:
        jobs: by id.
        free: by node, by resource; the first resource says which nodes are freest.

    For k = 1, 2, ... the tasks are dealt evenly to the k freest nodes. A job that fits in no such
    way gets what can be placed, workers and servers in turn; it may end with none of either, and
    is then given no place at all.
    """
    room = [list(map(float, node)) for node in free]
    placed: dict[str, Layout] = {}
    for job_id, tasks in sorted(jobs.items(), key=lambda item: item[1].workers + item[1].servers):
        nodes = sorted(range(len(room)), key=lambda n: -room[n][0])
        layout = _evenly(tasks, nodes, room) or _what_fits(tasks, nodes, room)
        for node, (workers, servers) in layout.items():
            _take(room[node], tasks, workers, servers)
        placed[job_id] = layout
    return placed


def _evenly(tasks: PsTasks, nodes: Sequence[int], room: Sequence[Sequence[float]]) -> Layout:
    for k in range(1, len(nodes) + 1):
        # servers from the front, workers from the back: what is over goes to different nodes
        shares = zip(
            nodes[:k],
            reversed(spread(tasks.workers, k)),
            spread(tasks.servers, k),
            strict=True,
        )
        layout = {node: (workers, servers) for node, workers, servers in shares}
        if all(_fits(room[node], tasks, *share) for node, share in layout.items()):
            return {node: share for node, share in layout.items() if any(share)}
    return {}


def _what_fits(tasks: PsTasks, nodes: Sequence[int], room: Sequence[Sequence[float]]) -> Layout:
    layout: dict[int, tuple[int, int]] = dict.fromkeys(nodes, (0, 0))
    left = [tasks.workers, tasks.servers]
    turn = 1  # a server first
    while any(left):
        if not left[turn]:
            turn = 1 - turn
        for node in nodes:
            workers, servers = layout[node]
            share = (workers + 1 - turn, servers + turn)
            if _fits(room[node], tasks, *share):
                layout[node] = share
                left[turn] -= 1
                break
        else:
            break
        turn = 1 - turn
    found = {node: share for node, share in layout.items() if any(share)}
    whole = all(sum(column) for column in zip(*found.values(), strict=True)) if found else False
    return found if whole else {}


def _fits(room: Sequence[float], tasks: PsTasks, workers: int, servers: int) -> bool:
    return all(
        workers * w + servers * s <= r + 1e-9
        for w, s, r in zip(tasks.worker, tasks.server, room, strict=True)
    )


def _take(room: list[float], tasks: PsTasks, workers: int, servers: int) -> None:
    for i, (w, s) in enumerate(zip(tasks.worker, tasks.server, strict=True)):
        room[i] -= workers * w + servers * s
