"""Track `honest`, the main one: policies know nothing about a job before it has happened.

What jobs train is permuted over the jobs, and profiling takes time. Two jobs on one GPU that were
never measured together run at 0.8 of their speed each, and speeds are capped at 1. Policies predict
the speed of a pair by models that were trained without either of the pair's model families.

Track `honest-open` is the same without the isolation of virtual clusters, for the policies that can
borrow; `honest-closed` is the same in a closed loop (`pipeline.worlds.closed_loop`).
"""

from __future__ import annotations

from pathlib import Path

from models.bundle import Bundle
from pipeline.worlds import durations as predicted
from pipeline.worlds.closed_loop import in_loop
from pipeline.worlds.pairs import unseen_pair_predictor
from pipeline.worlds.scenario import Scenario
from pipeline.worlds.venus import Venus, jitter
from scheduler.core.estimates import BundleEstimator, TableEstimator
from scheduler.core.settings import ProfilingPartition
from scheduler.simulation.work import PairTable

# what Lucid's artifact sets: nodes lent to profiling, every job is profiled; when packing is off
PROFILING = ProfilingPartition(nodes={"vc8Gr": 1, "vcefl": 1}, scale_from="vcYVn", known_s=0.0)
LUCID = {"quiet_jobs": 2.0}


def scenario(
    venus: Venus,
    *,
    seed: int = 0,
    durations: str | None = None,
    compress: float = 1.0,
    bundle: Path | None = None,
    borrowing: bool = False,
    loop: str = "open",
) -> Scenario:
    """Return the scenario of the track `honest`: the jobs of the Venus trace on its cluster.

    Args:
        seed: seed of the permutation; seeds above 0 also move each submit time by a random 0 to 60
            s.
        durations: source of predicted durations: `own` (the default), or a baseline: `ebm`, `lgb`
            or one of `durations.sources`.
        compress: factor on the times between submissions.
        bundle: use this bundle's duration model, trained elsewhere, instead of learning online.
        borrowing: whether virtual clusters may borrow GPUs (track `honest-open`).
        loop: `closed` for track `honest-closed`; see `pipeline.worlds.closed_loop`.
    """
    workload = jitter(in_loop(venus.workload, loop), seed, compress=compress)
    given = predicted.sources(
        workload,
        seed,
        ebm=lambda: TableEstimator("ebm", venus.predictions("ebm")),
        lgb=lambda: TableEstimator("lgb", venus.predictions("lgb")),
    )
    if bundle is not None:
        loaded = Bundle.load(bundle)
        given["own"] = lambda: BundleEstimator(loaded)
    pair_predictor = unseen_pair_predictor(workload, venus.folder.parent / "packing")
    return Scenario(
        _name(borrowing, loop),
        workload,
        PairTable(venus.pair_speeds, unmeasured=0.8, cap=1.0),
        predicted.chosen(durations, given),
        pair_predictor=lambda: pair_predictor,
        arrivals=lambda: venus.forecast(compress),
        profiling=PROFILING,
        seed=seed,
        loop=loop,
        settings={"lucid": LUCID} | ({"pellucid": {"borrowing": {}}} if borrowing else {}),
    )


def _name(borrowing: bool, loop: str) -> str:
    return ("honest-open" if borrowing else "honest") + ("" if loop == "open" else f"-{loop}")
