"""Plays every policy on worlds (simulated clusters with their jobs) that no policy was tuned on.

    python -m benchmarks.worlds --json [--half chosen|reported] [--only NAME ...] [--policies ...]
        [--seeds 4] [--first-seed 0] [--durations own] [--tuned] [--where local:2] [--keep FOLDER]

The worlds and their purposes are in `benchmarks/worlds.yaml`: defaults may be chosen on one half of
them, the other half is only for reporting. Each world is played in a few replicates (block
bootstraps of submissions, or other seeds of a generator), the same for every policy; errors are
standard errors over the replicates. With `--keep`, finished replicates are stored and reused as
long as the code is the same. Everything takes about 70 CPU-minutes. With `--tuned`, the policy is
also played with the settings, or as the policy, that `pipeline.tuning` chooses on two other
replicates of the world (one to choose, one to test).

What `pellucid` must reach, in the reported half: a mean JCT of at most 1.03 times that of the best
policy that neither stops jobs nor knows durations, in every world, and below it in three quarters
of them; a p99 wait and a longest wait of a wide job (over 8 GPUs) no worse than Lucid's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from benchmarks.ablation import code_digest
from benchmarks.calibration import program
from benchmarks.worlds.make import HALVES, WORLDS, draw_of, offered_load, read_worlds, scenario
from pipeline.cluster import HERE, Keep, mapped, question_of
from pipeline.tuning import assignments, candidates, tune
from pipeline.worlds.policy_options import over
from pipeline.worlds.scenario import Scenario
from pipeline.worlds.venus import TrackError
from scheduler.core.settings import with_assignments
from scheduler.policies import POLICIES
from scheduler.simulation.results import summarise

OWN, LUCID, TUNED = "pellucid", "lucid", "tuned"
ELSEWHERE = 1_000  # the replicates that tuning is given
PEERS = ("fifo-skip", "easy", "qssf", "lucid", "horus")
AT_MOST = 1.03  # of the best peer's mean JCT
BELOW = 0.75  # of the worlds
# what is measured, by the name of the figure of a run
FIGURES = {
    "mean_jct_s": "avg_jct_s",
    "p99_wait_s": "p99_queue_s",
    "longest_wide_wait_s": "max_queue_large_s",
    "fairness_p99": "ftf_user_p99",
    "packed": "packed_jobs",
    "over_memory": "over_memory",
}
Row = dict[str, Any]
Figures = Mapping[str, Sequence[Row]]  # by policy, of each replicate


@dataclass(frozen=True)
class Replicate:
    """One random copy of a world (a cluster with its jobs). Every policy is simulated in the same
    copy."""

    half: str
    world: str
    seed: int

    def __str__(self) -> str:
        return f"{self.world}-{self.seed}"


@dataclass(frozen=True)
class Played:
    """Plays all policies on a replicate when it is called. It can be sent to another process."""

    data: Path
    worlds: Path
    policies: tuple[str, ...]
    durations: str | None
    tuned: bool = False

    def __call__(self, wanted: Replicate) -> Row:
        world = read_worlds(self.worlds)[wanted.half][wanted.world]
        draw = draw_of(wanted.world, wanted.seed)
        made = scenario(wanted.world, world, self.data, draw, self.durations)
        found: Row = {
            "jobs": len(made.workload.jobs),
            "gpus": made.cluster_gpus(),
            "load": round(offered_load(made.workload), 3),
            "policies": {},
        }
        cpu = time.process_time()
        for policy in (*self.policies, *([TUNED] if self.tuned else [])):
            if policy == TUNED:
                advised = _tuned(replace(self, policies=()), wanted.half, wanted.world)
                found["set"], runs = list(advised.settings), advised.policy
                made.settings = {OWN: with_assignments(made.settings.get(OWN, {}), found["set"])}
                found["run"] = runs
            else:
                runs = policy
            outcome, _ = made.simulate(runs)
            figures: Mapping[str, Any] = summarise(outcome, made.cluster_gpus())
            if figures["ended"] < figures["jobs"]:
                raise RuntimeError(f"{wanted}: {policy} left jobs that never ended")
            found["policies"][policy] = {name: figures[key] for name, key in FIGURES.items()}
        return {**found, "cpu_s": round(time.process_time() - cpu, 1)}


@dataclass(frozen=True)
class Elsewhere:
    """Lets the tuning choose settings on one random copy of a world and confirm them on another,
    instead of on the two halves of a recorded past."""

    played: Played
    half: str
    world: str

    def __call__(self, half: int, seed: int, settings: Mapping[str, Any]) -> Scenario:
        world = read_worlds(self.played.worlds)[self.half][self.world]
        draw = draw_of(self.world, ELSEWHERE + 2 * seed + half)
        made = scenario(self.world, world, self.played.data, draw, self.played.durations)
        made.settings = {OWN: over(made.settings.get(OWN, {}), settings)}
        return made


class Advised(NamedTuple):
    """What the tuning advises in a world: a policy and, of `pellucid`, the settings that it
    changes, each as "name=value"."""

    policy: str
    settings: tuple[str, ...]


@cache
def _tuned(played: Played, half: str, world: str) -> Advised:
    """Tune the policy in a world. Return what the tuning advises."""
    worlds = Elsewhere(played, half, world)
    tried = candidates({}, worlds(0, 0, {}).workload, {})
    found = tune(worlds, {}, tried, 1, others=PEERS)
    return Advised(found["policy"] or OWN, tuple(assignments(found["settings"])))


def measure(
    played: Played,
    halves: Sequence[str],
    only: Sequence[str],
    seeds: range,
    *,
    where: str = HERE,
    keep: Path | None = None,
) -> Iterator[Row]:
    """Play the worlds of each half. Yield a row of results for each world as soon as it is done.

    Args:
        only: names of worlds; empty: all.
        seeds: numbers of the replicates.
        where: where the processes run.
        keep: folder for finished replicates; None: none are stored.
    """
    wanted = [
        Replicate(half, name, seed)
        for half in halves
        for name in read_worlds(played.worlds)[half]
        if not only or name in only
        for seed in seeds
    ]
    kept = None
    if keep is not None:
        kept = Keep(keep, question_of((code_digest(), played), [played.data, played.worlds]))
    with mapped(where, kept) as over:
        rows: list[Row] = []
        for replicate, row in zip(wanted, over(played, wanted), strict=True):
            rows.append(row)
            if len(rows) == len(seeds):
                yield table(replicate, rows)
                rows = []


def table(replicate: Replicate, rows: Sequence[Row]) -> Row:
    """Return, for each policy, the mean of every figure over the random copies of a world, with its
    standard error, and how the policy `pellucid` compares with the others."""
    figures = {policy: [row["policies"][policy] for row in rows] for policy in rows[0]["policies"]}
    return {
        "world": replicate.world,
        "half": replicate.half,
        "replicates": len(rows),
        "jobs": round(mean(row["jobs"] for row in rows)),
        "gpus": rows[0]["gpus"],
        "load": round(mean(row["load"] for row in rows), 3),
        "policies": [
            {"policy": policy} | {k: v for name in FIGURES for k, v in _mean(of, name).items()}
            for policy, of in figures.items()
        ],
        "against": against(figures),
        **(
            {"set": rows[0]["set"], "run": rows[0]["run"], "tuned": against(figures, TUNED)}
            if TUNED in figures
            else {}
        ),
        "cpu_s": round(sum(row["cpu_s"] for row in rows), 1),
    }


def _mean(rows: Sequence[Row], name: str) -> Row:
    values = [row[name] for row in rows if row[name] is not None]
    if not values:
        return {name: None, f"{name}_se": None}
    return {name: mean(values), f"{name}_se": _se(values)}


def _se(values: Sequence[float]) -> float | None:
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else None


def against(figures: Figures, own: str = OWN) -> Row | None:
    """Compare the policy `own` with others, as ratios of means: its mean JCT with the best peer's,
    its waits with those of Lucid. Return None where one of these policies was not played.
    """
    peers = [name for name in PEERS if name in figures]
    if own not in figures or LUCID not in peers:
        return None
    best = min(peers, key=lambda name: mean(row["mean_jct_s"] for row in figures[name]))
    return {
        "best_peer": best,
        "mean_jct": _ratio(figures[own], figures[best], "mean_jct_s"),
        "p99_wait": _ratio(figures[own], figures[LUCID], "p99_wait_s"),
        "longest_wide_wait": _ratio(figures[own], figures[LUCID], "longest_wide_wait_s"),
    }


def _ratio(own: Sequence[Row], other: Sequence[Row], name: str) -> Row | None:
    """Return the ratio of the means, and the standard error of the paired differences relative
    to the other's mean; None if that mean is 0 or there is no pair.
    """
    both = [(a[name], b[name]) for a, b in zip(own, other, strict=True)]
    pairs = [(a, b) for a, b in both if a is not None and b is not None]
    base = mean(b for _, b in pairs) if pairs else 0.0
    if not base:
        return None
    error = _se([a - b for a, b in pairs])
    return {
        "ratio": mean(a for a, _ in pairs) / base,
        "se": None if error is None else error / base,
    }


def verdict(rows: Sequence[Row]) -> list[Row]:
    """Return one row for each requirement on the policy, with the number of these worlds in which
    it holds.
    """
    told = [(row["world"], row["against"]) for row in rows if row["against"]]
    if not told:
        return []

    def asked(what: str, figure: str, most: float, share: float = 1.0, *, below: bool) -> Row:
        ratios = {world: of[figure]["ratio"] for world, of in told if of[figure] is not None}
        good = [w for w, ratio in ratios.items() if (ratio < most if below else ratio <= most)]
        worst = max(ratios, key=lambda world: ratios[world], default=None)
        return {
            "asked": what,
            "worlds": len(ratios),
            "holds_in": len(good),
            "holds": len(good) >= share * len(ratios),
            "worst": worst,
            "worst_ratio": None if worst is None else ratios[worst],
            "fails_in": sorted(set(ratios) - set(good)),
        }

    return [
        asked(f"mean JCT at most {AT_MOST} of the best peer's", "mean_jct", AT_MOST, below=False),
        asked("mean JCT below the best peer's in 3/4", "mean_jct", 1.0, BELOW, below=True),
        asked("p99 wait no worse than Lucid's", "p99_wait", 1.0, below=False),
        asked("longest wide wait no worse than Lucid's", "longest_wide_wait", 1.0, below=False),
    ]


def compared(asked: argparse.Namespace) -> Row:
    """Play the worlds that the command line asks for. Return their rows, and how the policy meets
    its requirements in each half.
    """
    began = time.monotonic()
    known = {name for worlds in read_worlds(asked.worlds).values() for name in worlds}
    if unknown := set(asked.only) - known:
        sys.exit(f"--only {sorted(unknown)[0]}: use some of {', '.join(sorted(known))}")
    played = Played(asked.data, asked.worlds, tuple(asked.policies), asked.durations, asked.tuned)
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    halves = [asked.half] if asked.half else HALVES
    rows = []
    try:
        for row in measure(played, halves, asked.only, seeds, where=asked.where, keep=asked.keep):
            rows.append(row)
            ratio = row["against"] and row["against"]["mean_jct"]
            print(f"{row['world']}: {row['cpu_s']:.0f} CPU s, {ratio}", file=sys.stderr, flush=True)
    except TrackError as error:
        sys.exit(f"benchmarks.worlds: {error}; --data names the folder")
    return {
        "durations": asked.durations or "own",
        "seeds": asked.seeds,
        "worlds": rows,
        "verdict": {half: verdict([row for row in rows if row["half"] == half]) for half in halves},
        "wall_s": round(time.monotonic() - began, 1),
    }


def main() -> None:
    program(
        __doc__,
        None,
        compared,
        data={"type": Path, "default": Path("../shared/data")},
        worlds={"type": Path, "default": WORLDS},
        half={"choices": HALVES, "help": "one half alone"},
        only={"nargs": "+", "default": [], "help": "worlds by name"},
        policies={"nargs": "+", "choices": POLICIES, "default": list(POLICIES)},
        seeds={"type": int, "default": 4, "help": "replicates of each world"},
        first_seed={"type": int, "default": 0, "help": "begin with this one"},
        tuned={"action": "store_true", "help": "play it tuned elsewhere, too"},
        durations={"help": "see pellucid compare --help"},
        where={"default": HERE, "help": "see pellucid compare --help"},
        keep={"type": Path, "help": "take up finished replicates from this folder"},
    )
