"""Which runs hold the GPUs that a waiting job is to get. A recorded decision to wait names them.

They are estimated from what is known at that moment, without a trial (`scheduler.explain.blockers`
tries): the runs that are expected to free enough GPUs soonest, on one node where the job fits on
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from scheduler.core.cluster import Cluster, Pool, Run

MOST = 8  # jobs named as the ones that a job waits for
LEVEL = 0.9  # probability with which all named jobs have ended by the time that is given
# expected seconds until a run has ended, or within which it has with a probability; inf: not known
LeftS = Callable[[Run, float | None], float]
FRESH_S = 60.0  # an answer is used for so long, if its runs still run on unchanged nodes


class Holding(NamedTuple):
    """The runs that hold the GPUs that a waiting job is to get.

    Attributes:
        jobs: ids of the jobs of these runs, at most `MOST`; or of the one job that goes before it.
        gone_in_s: seconds within which all of them have ended, nine times in ten; 0 or inf: not
            known.
        nodes: the nodes on which they run, each with the GPUs that are free there now (a bit mask).
    """

    jobs: tuple[str, ...] = ()
    gone_in_s: float = 0.0
    nodes: tuple[tuple[int, int], ...] = ()


NOBODY = Holding()


@dataclass(slots=True, kw_only=True)
class HoldingMemory:
    """A plain record of which runs were found to hold the GPUs that a job waits for, and when."""

    vc: str
    gpus: int
    at: float
    jobs: tuple[str, ...]
    gone_in_s: float
    nodes: tuple[tuple[int, int], ...]


class HolderCache:
    """A cache of which runs hold the GPUs that jobs wait for, by virtual cluster and number of
    GPUs."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], tuple[float, Holding]] = {}

    def remember(self) -> list[HoldingMemory]:
        """Return the cached answers as plain records."""
        return [
            HoldingMemory(
                vc=vc,
                gpus=gpus,
                at=at,
                jobs=found.jobs,
                gone_in_s=found.gone_in_s,
                nodes=found.nodes,
            )
            for (vc, gpus), (at, found) in self._kept.items()
        ]

    def restore(self, memory: Iterable[HoldingMemory]) -> None:
        """Restore the cached answers that `remember` returned."""
        self._kept = {
            (one.vc, one.gpus): (one.at, Holding(one.jobs, one.gone_in_s, one.nodes))
            for one in memory
        }

    def get(self, vc: str, gpus: int, cluster: Cluster, now: float) -> Holding | None:
        """Return the cached answer for a job of `gpus` GPUs, less the seconds that have passed
        since, if it is recent, all its runs still run, and its nodes are unchanged. Otherwise
        return None."""
        since, found = self._kept.get((vc, gpus), (-inf, NOBODY))
        pool = cluster.pools[vc]
        if now - since > FRESH_S or not found.jobs:
            return None
        if any(node not in pool or pool.open_on(node) != mask for node, mask in found.nodes):
            return None
        if any(job not in cluster.runs for job in found.jobs):
            return None
        return found._replace(gone_in_s=max(0.0, found.gone_in_s - (now - since)))

    def put(self, vc: str, gpus: int, now: float, found: Holding) -> Holding:
        self._kept[vc, gpus] = now, found
        return found


def soonest(pool: Pool, gpus: int, runs: Iterable[Run], left_s: LeftS) -> Holding:
    """Return which runs are expected to free GPUs for a job of `gpus` GPUs soonest, at most `MOST`
    of them by name. The result is empty for a job without GPUs, in a pool without any, where enough
    are free, and where the end of all runs would not free enough."""
    if not gpus or not pool.per_node:
        return NOBODY
    runs = list(runs)
    on: dict[int, list[tuple[float, int, int, str]]] = {}  # node -> (left, order, GPUs, job)
    for run in runs:
        left = left_s(run, None)
        for node, mask in zip(run.nodes, run.gpus, strict=True):
            if node in pool and pool.is_open(node):
                opened = mask & ~pool.closed_on(node)
                on.setdefault(node, []).append((left, run.order, opened, run.job.job_id))
    found: list[tuple[float, int, int, list[str]]] = []  # seconds, runs, node, jobs
    need = min(gpus, pool.per_node)
    for node, parts in on.items():
        holding = _on_node(sorted(parts), pool.open_on(node), need)
        if holding is not None:
            found.append((holding[0], len(holding[1]), node, holding[1]))
    found.sort()
    nodes = -(-gpus // pool.per_node)
    idle = sum(1 for node in pool.nodes() if nodes > 1 and pool.open_on(node).bit_count() >= need)
    chosen = found[: nodes - idle]
    names = dict.fromkeys(name for *_, jobs in chosen for name in jobs)
    if not names or len(chosen) < nodes - idle:
        return NOBODY
    return Holding(
        tuple(names)[:MOST],
        max(left_s(run, LEVEL ** (1 / len(names))) for run in runs if run.job.job_id in names),
        tuple((node, pool.open_on(node)) for _, _, node, _ in chosen),
    )


def _on_node(
    parts: list[tuple[float, int, int, str]], free: int, need: int
) -> tuple[float, list[str]] | None:
    """Return the seconds until `need` GPUs of a node should be free, and the ids of the jobs that
    must end for it, the first to end in front. Return None if that many are free now, or never will
    be.

    Args:
        parts: runs of the node, those that end first in front: seconds until the end, order, bit
            mask of GPUs, job id.
        free: bit mask of the GPUs that are free.
        need: how many GPUs must be free.
    """

    def enough(gone: Sequence[int]) -> bool:
        held = 0  # a partner of one that is gone still holds them
        for i, (_, _, mask, _) in enumerate(parts):
            if i not in gone:
                held |= mask
        given = free
        for i in gone:
            given |= parts[i][2] & ~held
        return given.bit_count() >= need

    if enough(()):
        return None
    gone = next((range(n + 1) for n in range(len(parts)) if enough(range(n + 1))), None)
    if gone is None:
        return None
    kept = list(gone)
    for i in gone:
        rest = [one for one in kept if one != i]
        kept = rest if enough(rest) else kept
    return parts[kept[-1]][0], [parts[i][3] for i in kept]
