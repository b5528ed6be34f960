"""The published track against the published figures, on the public Venus month.

The figures are those of Lucid's artifact (ASPLOS'23) and of a public re-run of it, whose per-job
results stand in `peer_results.csv`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.worlds import venus
from reproductions.published import track as published
from reproductions.published.free_profiling import FreeProfiling, profile_all
from scheduler.assembly import cluster_of, stage_of
from scheduler.core.decisions import Action
from scheduler.core.policy import Predictors
from scheduler.simulation.engine import Outcome
from scheduler.simulation.results import summarise

pytestmark = pytest.mark.shared_data


class Month:
    """The month, read once; each policy run once."""

    def __init__(self, folder: Path):
        self.venus = venus.load(folder / "venus")
        self.peers = pd.read_csv(
            folder / "venus" / "peer_results.csv", dtype={"job_id": str}
        ).set_index("job_id")
        self.run = cache(self._run)
        self.profiling = cache(self._profiling)

    def _run(
        self, policy: str, durations: str | None = None, quirks: bool = True
    ) -> tuple[Outcome, dict[str, float | int]]:
        scenario = published.scenario(self.venus, durations=durations, quirks=quirks)
        outcome, _ = scenario.simulate(policy)
        return outcome, summarise(outcome, scenario.workload.cluster.gpus)

    def _profiling(self) -> FreeProfiling:
        scenario = published.scenario(self.venus)
        policy = scenario.policy("lucid")
        spec = scenario.spec("lucid")
        stage = stage_of(spec, policy, Predictors(arrivals=scenario.arrivals))
        assert stage is not None
        return profile_all(
            scenario.workload, lambda: cluster_of(spec, policy), stage, published.PUBLISHED
        )


@pytest.fixture(scope="module")
def month(shared_data: Path) -> Month:
    return Month(shared_data)


@pytest.mark.parametrize(
    ("policy", "avg_jct", "avg_queue", "p999_queue", "makespan"),
    [
        ("fifo", 65_720.5, 53_951.3, 587_041, 3_354_075),
        ("sjf", 21_095.0, 9_325.8, 322_077, 3_354_075),
        ("srtf", 12_609.9, 829.7, 126_902, 3_354_076),
    ],
)
def test_the_baselines_to_the_second(
    month: Month, policy: str, avg_jct: float, avg_queue: float, p999_queue: float, makespan: float
) -> None:
    outcome, figures = month.run(policy)
    assert figures["ended"] == 23_859
    assert figures["avg_jct_s"] == pytest.approx(avg_jct, abs=1)
    assert figures["avg_queue_s"] == pytest.approx(avg_queue, abs=1)
    assert figures["p999_queue_s"] == pytest.approx(p999_queue, abs=1)
    assert figures["makespan_s"] == pytest.approx(makespan, abs=1)
    theirs = month.peers[f"{policy}_jct"]
    ours = pd.Series({r.job.job_id: r.jct_s for r in outcome.jobs}).reindex(theirs.index)
    assert np.mean(np.abs(ours - theirs) < 0.5) >= 0.999


def test_srtf_preempts_as_often(month: Month) -> None:
    outcome, figures = month.run("srtf")
    assert figures["preemptions"] == pytest.approx(5_507, rel=0.01)
    assert sum(r.preemptions > 0 for r in outcome.jobs) == pytest.approx(631, rel=0.02)


@pytest.mark.parametrize(
    ("durations", "avg_jct", "avg_queue", "p999_queue"),
    [("ebm", 15_548.9, 3_779.6, 214_310), ("lgb", 18_797.5, 7_028.2, 690_767)],
)
def test_qssf_as_ties_allow(
    month: Month, durations: str, avg_jct: float, avg_queue: float, p999_queue: float
) -> None:
    """The order of jobs alike in GPUs and prediction is not recoverable."""
    _, figures = month.run("qssf", durations)
    assert figures["ended"] == 23_859
    assert figures["avg_jct_s"] == pytest.approx(avg_jct, rel=0.01)
    assert figures["avg_queue_s"] == pytest.approx(avg_queue, rel=0.02)
    assert figures["p999_queue_s"] == pytest.approx(p999_queue, rel=0.01)


def test_lucid(month: Month) -> None:
    outcome, figures = month.run("lucid")
    assert figures["ended"] == 23_859
    assert figures["avg_jct_s"] == pytest.approx(12_893, rel=0.005)
    assert figures["avg_queue_s"] == pytest.approx(918.4, rel=0.02)  # 915.2 or 921.7, by ties
    assert figures["p999_queue_s"] == pytest.approx(93_977, rel=0.005)
    assert figures["packed_jobs"] == pytest.approx(5_095, rel=0.02)
    assert figures["makespan_s"] == pytest.approx(3_441_969, rel=1e-4)
    assert sum(r.packed for r in outcome.jobs) == 2 * figures["packed_jobs"]


def test_lucid_without_its_defects_is_faster(month: Month) -> None:
    _, figures = month.run("lucid", quirks=False)
    assert figures["ended"] == 23_859
    assert figures["avg_jct_s"] <= 12_700


def test_the_profiling_pass(month: Month) -> None:
    found = month.profiling()
    waited = np.array(list(found.waited_s.values()))
    assert len(waited) == 21_417
    assert len(found.ended) == 10_644
    assert waited.sum() / 23_859 == pytest.approx(73, rel=0.02)
    assert np.percentile(waited, 99) == pytest.approx(1_741, rel=0.01)
    assert waited.max() == pytest.approx(3_341, rel=0.01)
    lent = [time for time, action, _ in found.loans if action is Action.LEND]
    back = [time for time, action, _ in found.loans if action is Action.RETURN]
    assert len(lent) == len(back) == pytest.approx(28, abs=1)
    assert (sum(back) - sum(lent)) / 3600 == pytest.approx(70, rel=0.05)


def test_lucid_ends_in_profiling_those_of_the_pass(month: Month) -> None:
    outcome, figures = month.run("lucid")
    ended = {r.job.job_id for r in outcome.jobs if r.ended_in_profiling}
    assert ended == set(month.profiling().ended)
    assert figures["ended_in_profiling"] == 10_644
