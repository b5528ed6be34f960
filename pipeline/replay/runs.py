"""The replays: each variant on the same jittered weeks, beside what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from features.job import Profile
from models.training.packing import fit_packing, fit_pair_speed
from models.training.simulated import simulated_pairs
from pipeline.online import OnlineEstimator
from pipeline.replay.site import Site
from pipeline.tracks.scenario import ProfilingSettings, Scenario
from pipeline.tracks.venus import jitter
from scheduler.estimates import Estimator
from scheduler.policies.base import Policy
from scheduler.sharing import BundleJudge
from scheduler.work import SimulatedContention, Workload

Figures = dict[str, Any]

# What packing is assumed to meet: share of jobs, GPU and memory utilisation (%), memory (MiB).
PACKING_SCENARIO: tuple[tuple[str, float, Profile], ...] = (
    ("light", 0.35, Profile(25.0, 10.0, 3_000.0)),
    ("medium", 0.35, Profile(55.0, 25.0, 8_000.0)),
    ("heavy", 0.30, Profile(92.0, 55.0, 20_000.0)),
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A way the weeks might have gone.

    Attributes:
        short, title: names for a chart and for a table.
        walls: every partition keeps to itself.
        packs: two jobs may share a GPU, as `PACKING_SCENARIO` assumes.
    """

    key: str
    short: str
    title: str
    policy: str
    walls: bool = True
    packs: bool = False


VARIANTS: tuple[Variant, ...] = (
    Variant("fifo", "first come", "first come, first served", "fifo"),
    Variant("easy", "Slurm's backfill", "Slurm's backfill by time limits", "easy"),
    Variant("pellucid", "Pellucid", "Pellucid: learned order, a bound on waiting", "pellucid"),
    Variant(
        "borrow",
        "+ borrowing",
        "the same, borrowing idle GPUs of other partitions",
        "pellucid",
        walls=False,
    ),
    Variant(
        "pack",
        "+ packing (assumed)",
        "the same within partitions, packing (ASSUMED profiles)",
        "pellucid",
        packs=True,
    ),
)


def scenario(site: Site, variant: Variant, seed: int) -> Scenario:
    """The world of one replay: submissions moved by U(0, 60) s, seed 0 exact."""
    workload = jitter(_profiled(site.workload, seed) if variant.packs else site.workload, seed)

    def estimator(policy: Policy) -> Estimator:
        return OnlineEstimator(seed=seed) if policy.estimates else Estimator()

    def judge() -> BundleJudge:
        pairs = simulated_pairs(seed)
        return BundleJudge(fit_packing(pairs).model, fit_pair_speed(pairs).model)

    return Scenario(
        variant.key,
        workload,
        SimulatedContention(),
        estimator,
        judge=judge if variant.packs else None,
        profiling=_profiling(site) if variant.packs else None,
        seed=seed,
        walls=variant.walls,
    )


def _profiling(site: Site) -> ProfilingSettings:
    """One node of the largest partition profiles, where that leaves it another."""
    vcs = site.workload.cluster.vcs
    largest = max(vcs, key=lambda vc: vcs[vc])
    return ProfilingSettings({largest: 1} if vcs[largest] > 1 else {})


def one(site: Site, variant: Variant, seed: int) -> pd.DataFrame:
    """One replay: job_id, wait_s, jct_s of every job that ended."""
    outcome, _ = scenario(site, variant, seed).simulate(variant.policy)
    done = [result for result in outcome.jobs if result.end_time is not None]
    return pd.DataFrame(
        {
            "job_id": [r.job.job_id for r in done],
            "wait_s": [r.queue_s for r in done],
            "jct_s": [r.jct_s for r in done],
            "start": [r.start_time for r in done],
        }
    )


def replay(
    site: Site,
    seeds: int,
    *,
    variants: Sequence[Variant] = VARIANTS,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Figures:
    """Every variant on every seed, beside the record.

    Returns ``{recorded, variants: [figures with standard errors], backtest, by_user, by_vc}``.
    """
    tasks = [(variant, seed) for variant in variants for seed in range(seeds)]
    found: dict[str, list[pd.DataFrame]] = {variant.key: [] for variant in variants}
    results = Parallel(n_jobs=workers, return_as="generator")(
        delayed(one)(site, variant, seed) for variant, seed in tasks
    )
    for done, ((variant, _), frame) in enumerate(zip(tasks, results, strict=True), start=1):
        found[variant.key].append(frame)
        if progress is not None:
            progress(done)
    record = site.recorded
    record_jct = record["wait_s"] + record["ran_s"]
    told: Figures = {
        "seeds": seeds,
        "recorded": {
            "jobs": len(record),
            "avg_wait_s": float(record["wait_s"].mean()),
            "p99_wait_s": float(record["wait_s"].quantile(0.99)),
            "avg_jct_s": float(record_jct.mean()),
            "waited_share": float((record["wait_s"] > 60).mean()),
        },
        "variants": [_figures(variant, found[variant.key], record) for variant in variants],
    }
    if "easy" in found:
        told["backtest"] = _backtest(found["easy"][0], record)
    told["by_user"] = _by(found, record, "user")
    told["by_vc"] = _by(found, record, "vc")
    return told


def _figures(variant: Variant, frames: list[pd.DataFrame], record: pd.DataFrame) -> Figures:
    rows = {
        "avg_wait_s": [float(f["wait_s"].mean()) for f in frames],
        "p99_wait_s": [float(f["wait_s"].quantile(0.99)) for f in frames],
        "avg_jct_s": [float(f["jct_s"].mean()) for f in frames],
        "longest_wait_s": [float(f["wait_s"].max()) for f in frames],
    }
    told: Figures = {
        "key": variant.key,
        "label": variant.short,
        "title": variant.title,
        "assumed": variant.packs,
        "unfinished": len(record) - min(len(f) for f in frames),
    }
    for name, values in rows.items():
        told[name] = float(np.mean(values))
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        told[f"{name}_se"] = None if spread is None else spread / len(values) ** 0.5
    saved = (record["wait_s"].mean() - told["avg_wait_s"]) * len(record) / 3600.0
    told["saved_hours"] = float(saved)
    return told


def _backtest(easy: pd.DataFrame, record: pd.DataFrame) -> Figures:
    """How far the engine's own schedule under Slurm's rule is from what happened."""
    both = record.merge(easy, on="job_id", suffixes=("", "_easy"))
    off = both["wait_s_easy"] - both["wait_s"]
    waited = both["wait_s"] > 60
    ranks = both[["wait_s", "wait_s_easy"]].rank()
    same = ranks["wait_s"].corr(ranks["wait_s_easy"]) if both["wait_s"].nunique() > 1 else None
    return {
        "jobs": len(both),
        "avg_wait_recorded_s": float(both["wait_s"].mean()),
        "avg_wait_replayed_s": float(both["wait_s_easy"].mean()),
        "within_5_min": float((off.abs() <= 300).mean()),
        "within_1_h": float((off.abs() <= 3600).mean()),
        "within_1_h_of_those_who_waited": float((off[waited].abs() <= 3600).mean())
        if waited.any()
        else None,
        "rank_correlation": None if same is None or same != same else float(same),
    }


def _by(found: dict[str, list[pd.DataFrame]], record: pd.DataFrame, column: str) -> list[Figures]:
    """Mean waits by user or partition: recorded and under each variant, most jobs first."""
    out = record.groupby(column).agg(jobs=("job_id", "size"), recorded_s=("wait_s", "mean"))
    names = record.set_index("job_id")[column]
    for key, frames in found.items():
        means = [f["wait_s"].groupby(f["job_id"].map(names)).mean() for f in frames]
        out[f"{key}_s"] = pd.concat(means, axis=1).mean(axis=1)
    out = out.sort_values(["jobs"], ascending=False).reset_index(names="name")
    return [{str(key): value for key, value in row.items()} for row in out.to_dict("records")]


def _profiled(workload: Workload, seed: int) -> Workload:
    """The same jobs with profiles drawn from the stated scenario."""
    rng = np.random.default_rng(seed)
    shares = [share for _, share, _ in PACKING_SCENARIO]
    drawn = rng.choice(len(shares), len(workload.jobs), p=shares)
    work = {
        job.job_id: replace(workload.work[job.job_id], profile=PACKING_SCENARIO[k][2])
        for job, k in zip(workload.jobs, drawn.tolist(), strict=True)
    }
    return replace(workload, work=work)
