"""The latest start of a waiting job, computed from time limits alone, without simulating
futures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from scheduler.core.plural import count

NEWS_S = 60.0  # a second bound that is sooner by less is none
MOST = 2000  # jobs ahead that are placed one after another


@dataclass(frozen=True, slots=True)
class Held:
    """A running job and its GPUs.

    Attributes:
        gpus: for each node, the numbers (indices) of its GPUs there.
        until: time when its time limit ends it, seconds since the epoch; None: it has no limit.
        stated: time by which it has ended nine times in ten, by the progress that it reports;
            None: it reports none.
    """

    gpus: Mapping[int, Sequence[int]]
    until: float | None
    stated: float | None = None

    @property
    def likely(self) -> float | None:
        """Time by which the job ends, by its time limit or by its reported progress, whichever is
        earlier, in seconds since the epoch. None if neither is known."""
        known = [at for at in (self.until, self.stated) if at is not None]
        return min(known) if known else None


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job that goes before the job in question: its number of GPUs, and its time limit in seconds
    (None: no limit)."""

    gpus: int
    limit_s: float | None


@dataclass(frozen=True, slots=True)
class Bound:
    """The latest start of a job, if every job runs to its time limit and no job behind it in line
    starts first.

    Attributes:
        latest: that time, seconds since the epoch; None: it cannot be computed.
        missing: why it cannot be computed; "" where it can.
        stated: the same, if running jobs also end when their reported progress says, which is not
            guaranteed; None: that is not earlier by a minute.
    """

    latest: float | None = None
    missing: str = ""
    stated: float | None = None


def bound(
    nodes: Mapping[int, int], runs: Iterable[Held], ahead: Sequence[Ahead], gpus: int, now: float
) -> Bound:
    """Return when a job of `gpus` GPUs starts at the latest, or why that cannot be computed. The
    jobs ahead are placed first, strictly in order; where there are more than `MOST`, none are.

    A job takes one node if one is large enough, otherwise whole nodes and GPUs of one more.

    Args:
        nodes: number of GPUs of each open node of its virtual cluster.
        runs: runs that hold GPUs there.
        ahead: jobs that go before it, in order.
    """
    if len(ahead) > MOST:
        return Bound(missing=f"{count(len(ahead), 'job')} are before it")
    held = list(runs)
    latest = _placed(
        nodes=nodes, ends=[(run, run.until) for run in held], ahead=ahead, gpus=gpus, now=now
    )
    stated = None
    if any(run.likely != run.until for run in held):
        sooner = _placed(
            nodes=nodes, ends=[(run, run.likely) for run in held], ahead=ahead, gpus=gpus, now=now
        )
        stated = sooner if sooner <= latest - NEWS_S else None
    if isfinite(latest):
        return Bound(latest, stated=stated)
    endless = sum(one.until is None for one in held) + sum(one.limit_s is None for one in ahead)
    if endless:
        have = "has" if endless == 1 else "have"
        missing = f"{count(endless, 'job')} before it {have} no time limit"
        return Bound(missing=missing, stated=stated)
    return Bound(missing="not enough of its GPUs are on open nodes")


def _placed(
    nodes: Mapping[int, int],
    ends: Iterable[tuple[Held, float | None]],
    ahead: Sequence[Ahead],
    gpus: int,
    now: float,
) -> float:
    """Return the time, seconds since the epoch, when the job gets its GPUs if each run ends at the
    time given with it. Return inf if it must wait for a job without a known end, or if there are
    too few GPUs."""
    free = {node: [now] * has for node, has in nodes.items()}  # when each GPU is free at the latest
    for run, end in ends:
        until = inf if end is None else max(now, end)
        for node, numbers in run.gpus.items():
            for number in numbers:
                if node in free and number < len(free[node]):
                    free[node][number] = max(free[node][number], until)
    before = now
    for one in ahead:
        lasts = inf if one.limit_s is None else one.limit_s
        before = max(before, _take(free, one.gpus, before, lasts))
        if not isfinite(before):
            return inf
    return max(before, _take(free, gpus, before, 0.0))


def _take(free: dict[int, list[float]], gpus: int, since: float, lasts_s: float) -> float:
    """Give `gpus` GPUs to a job as soon as that many are free. Return the time when it starts,
    seconds since the epoch. Return inf, and give none, if there are never enough.

    Args:
        free: for each node, the times when its GPUs become free; changed in place.
        since: the job starts no earlier.
        lasts_s: seconds for which the job holds the GPUs.
    """
    wanted = _chosen(free, gpus)
    start = max((since, *(free[node][number] for node, number in wanted)), default=since)
    if len(wanted) < gpus or not isfinite(start):
        return inf
    for node, number in wanted:
        free[node][number] = start + lasts_s
    return start


def _chosen(free: Mapping[int, list[float]], gpus: int) -> list[tuple[int, int]]:
    """Return the (node, GPU) pairs that a job of `gpus` GPUs takes: those that become free first,
    on as few nodes as possible. Return fewer pairs where there are not so many GPUs.
    """
    soonest = {
        node: sorted(range(len(times)), key=times.__getitem__) for node, times in free.items()
    }
    left, found = gpus, list[tuple[int, int]]()
    while left > 0 and soonest:
        large = {node: order for node, order in soonest.items() if len(order) >= left}
        if large:
            node = min(large, key=lambda one: free[one][large[one][left - 1]])
        else:
            most = max(map(len, soonest.values()))
            whole = [one for one, order in soonest.items() if len(order) == most]
            node = min(whole, key=lambda one: free[one][soonest[one][-1]])
        taken = soonest.pop(node)[:left]
        found += [(node, number) for number in taken]
        left -= len(taken)
    return found
