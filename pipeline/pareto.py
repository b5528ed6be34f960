"""The trade-off between a short mean JCT and a short longest wait: the policy `pellucid` at several
values of two settings, `ageing` and `max_wait_s`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, TypedDict

from pipeline import runs

POLICY = "pellucid"
DAY_S = 86_400.0
NO_BOUND_S = 1e12
KNOBS = {
    "ageing": (0.0, 0.01, 0.05, 0.3),  # the third is the default
    "max_wait_s": (DAY_S, 2 * DAY_S, 4 * DAY_S, NO_BOUND_S),  # the second is the default
}
Loops = Callable[[Mapping[str, Any]], Sequence[Callable[[int], runs.World]]]


class Point(TypedDict):
    """The figures for one pair of settings in one loop (open: fixed submit times, or closed), in
    seconds: mean JCT and its standard error, p99 wait, and the longest wait of a job with many
    GPUs."""

    ageing: float
    max_wait_s: float
    loop: str
    avg_jct_s: float
    p99_queue_s: float
    max_queue_large_s: float | None
    avg_jct_se_s: float | None


FIGURES = {
    "avg_jct_s": "mean JCT",
    "p99_queue_s": "p99 wait",
    "max_queue_large_s": "longest wait of more than 8 GPUs",
}
LATE = 0.02  # share of jobs that waited past the bound, above which its cost is worth a run


def cost_of_bound(
    loops: Loops,
    settings: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    where: str,
    results: Sequence[runs.Comparison],
) -> None:
    """Add a note to each result in which many jobs waited for longer than `pellucid`'s bound on
    waiting. It says what the bound costs, measured by a run without it.

    Args:
        results: results of `runs.compare`, one per loop; their `notes` are changed.
        loops: returns the worlds of all loops, given settings by policy.
        settings: settings by policy.
        seeds: seeds of the runs.
        where: place to run them, see `pipeline.cluster.mapped`.
    """
    chosen = {**settings, POLICY: {**settings.get(POLICY, {}), "max_wait_s": NO_BOUND_S}}
    for world, result in zip(loops(chosen), results, strict=True):
        row = next((row for row in result["policies"] if row["policy"] == POLICY), None)
        if row is None or (row["late_share_mean"] or 0.0) <= LATE:
            continue
        free = runs.compare(world, [POLICY], seeds, where=where)["policies"][0]
        result["notes"].append(
            cost(f"{result['loop']} loop", row["late_share_mean"], _means(row), _means(free))
        )


def _means(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[f"{key}_mean"] for key in FIGURES}


def cost(
    where: str,
    late: float,
    bound: Mapping[str, Any],
    free: Mapping[str, Any],
    named: Mapping[str, str] = FIGURES,
) -> str:
    """Return a sentence about the cost of the bound on waiting.

    Args:
        where: name of what was replayed.
        late: share of the jobs that waited for longer than the bound.
        bound, free: figures of a run with the bound, and of one without it, seconds.
        named: key of a figure -> its name in the sentence.
    """
    parts = [
        f"{name} {bound[key]:,.0f} s with it, {free[key]:,.0f} s without"
        for key, name in named.items()
        if bound[key] is not None and free[key] is not None
    ]
    return (
        f"{POLICY}, {where}: {late:.1%} of the jobs waited for longer than the bound on waiting. "
        f"What it costs: {'; '.join(parts)}."
    )


def curve(
    loops: Loops, settings: Mapping[str, Mapping[str, Any]], seeds: Sequence[int], where: str
) -> list[Point]:
    """Run each pair of settings in each loop. Return the figures, one row for each pair and
    loop.

    Args:
        loops: returns the worlds of all loops, given settings by policy.
        settings: other settings, by policy.
        where: place to run them, see `pipeline.cluster.mapped`.
    """
    rows = list[Point]()
    for ageing, bound in product(*KNOBS.values()):
        mine = {**settings.get(POLICY, {}), "ageing": ageing, "max_wait_s": bound}
        for world in loops({**settings, POLICY: mine}):
            found = runs.compare(world, [POLICY], seeds, where=where)
            row = found["policies"][0]
            rows.append(
                {
                    "ageing": ageing,
                    "max_wait_s": bound,
                    "loop": found["loop"],
                    "avg_jct_s": row["avg_jct_s_mean"],
                    "p99_queue_s": row["p99_queue_s_mean"],
                    "max_queue_large_s": row["max_queue_large_s_mean"],
                    "avg_jct_se_s": row["avg_jct_se_s"],
                }
            )
    return rows
