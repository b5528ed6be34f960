"""From a short mean to a short tail: the policy `pellucid` at several settings of its two knobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from pipeline import runs

POLICY = "pellucid"
DAY_S = 86_400.0
KNOBS = {
    "ageing": (0.0, 0.01, 0.05, 0.3),  # the third is the default
    "max_wait_s": (DAY_S, 2 * DAY_S, 4 * DAY_S, 1e12),  # the second is the default
}
FIGURES = ("avg_jct_s", "p99_queue_s", "max_queue_large_s")
Loops = Callable[[Mapping[str, Any]], Sequence[Callable[[int], runs.World]]]


def curve(
    loops: Loops, settings: Mapping[str, Mapping[str, Any]], seeds: Sequence[int], where: str
) -> list[dict[str, Any]]:
    """A row for each pair of values and loop: mean JCT and its standard error, p99 wait and longest
    wait of a wide job, seconds.

    Args:
        loops: the worlds of a seed, one a loop, for settings by policy.
        settings: by policy, of the other runs.
        where: see `pipeline.cluster.mapped`.
    """
    rows = []
    for values in product(*KNOBS.values()):
        at = dict(zip(KNOBS, values, strict=True))
        chosen = {**settings, POLICY: {**settings.get(POLICY, {}), **at}}
        for world in loops(chosen):
            found = runs.compare(world, [POLICY], seeds, where=where)
            row = found["policies"][0]
            figures = {name: row.get(f"{name}_mean", row.get(name)) for name in FIGURES}
            figures["avg_jct_se_s"] = row["avg_jct_se_s"]
            rows.append({**at, "loop": found["loop"], **figures})
    return rows
